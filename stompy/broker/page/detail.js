// The pane beside a list: a queue, a topic or a connection.

class Detail {
  constructor(app, kind, row) {
    this.app = app;
    this.kind = kind;
    this.row = row;
    this.name = row.name;
    this.facts = el("dl", { class: "facts" });
    this.chips = el("span", {});
    this.content = el("div", { class: "list grow" });
    this.live = null;
    this.actions = el("div", { class: "tools actions" });
    this.subtabs = el("div", { class: "subtabs", role: "tablist" });
    const close = el("button", { class: "plain", type: "button", "aria-label": "Close", onclick: () => app.close() }, "✕");
    this.title = el("h2", { tabindex: "-1" }, kind === "Connections" ? row.peer : this.name);
    const chart = kind === "Connections" ? [] : [
      (this.chart = el("canvas", { class: "big", role: "img", "aria-label": "Messages per second in the last two minutes" })),
      el("div", { class: "legend" }, el("span", {}, el("i", {}), "in"), el("span", {}, el("i", { class: "out" }), "out"))];
    this.box = [el("div", { class: "head" }, this.title, this.chips, close), this.facts, ...chart, this.actions, this.subtabs, this.content];
    this[kind.toLowerCase()]();
    this.update(row);
  }

  done(count, what) {
    this.browser.load();
    return `${plural(count, "message")} ${what}`;
  }

  call(name, more, said) {
    return async () => said(await this.app.stomp.call(name, more));
  }

  show(names) {
    const make = {
      Messages: () => (this.browser = new Browser(this.app, this.name)),
      Live: () => tailOf(this.app, this.name, (message) => this.open(message)),
      Frames: () => framesOf(this.app, this.name, (frame) => this.open(frame)),
    };
    this.choose = tabs(this.subtabs, names, (name) => {
      const made = make[name]();
      this.live = made.tick ? made : null;
      this.content.replaceChildren(made.box);
      if (this.live) this.live.tick();
    }).choose;
    this.choose(names[0]);
  }

  // Open a message of the live tail, which goes on meanwhile.
  open(message) {
    const before = this.content.firstElementChild;
    const back = el("button", { type: "button", class: "back", onclick: () => {
      this.content.replaceChildren(before);
      this.live.items.focus({ preventScroll: true });
    } }, "‹ Back");
    this.content.replaceChildren(el("div", { class: "list" },
      el("div", { class: "tools" }, back, message.kind === "message" ? editing(this.app, message) : el("b", {}, message.command)),
      ...messageView(message)));
    back.focus({ preventScroll: true });
  }

  queues() {
    const queue = this.name;
    this.pause = action("Pause", () => {
      const name = this.row.paused ? "resume" : "pause";
      return this.call(name, { queue }, () => `${queue} ${name === "pause" ? "paused: it takes messages and gives none" : "resumed"}`)();
    });
    const target = el("input", { placeholder: "Move all to /queue/…", "aria-label": "Queue to move all messages to", spellcheck: "false" });
    const move = async () => {
      if (!target.value.trim()) throw new Error("name the queue to move the messages to");
      return this.call("move", { queue, target: target.value.trim() }, (count) => this.done(count, `moved to ${target.value.trim()}`))();
    };
    target.addEventListener("keydown", (event) => event.key === "Enter" && attempt(move));
    this.actions.append(this.pause, target, action("Move", move),
      dangerous("Purge", () => `Drop ${plural(this.row.ready, "message")}?`, this.call("purge", { queue }, (count) => this.done(count, "dropped"))));
    this.show(["Messages", "Live"]);
  }

  topics() {
    this.actions.append(action("Send to it", () => this.app.edit({ headers: [["destination", this.name]], body: "", base64: false })));
    if (this.row.durable) this.actions.remove();
    if (!this.row.durable) this.show(["Live"]);
  }

  connections() {
    this.actions.append(dangerous("End connection", () => "End it now?", this.call("kill", { connection: this.name }, (found) => (found ? "The connection was ended" : "It had ended already"))));
    this.show(["Frames"]);
  }

  update(row) {
    this.gone = !row;
    this.row = row || { ...this.row, ready: 0, unacked: 0, consumers: 0, in: 0, out: 0, acked: 0 };
    const { row: now } = this;
    const chips = [];
    if (now.paused) chips.push(el("span", { class: "chip warn" }, "paused"));
    if (now.durable) chips.push(el("span", { class: "chip" }, "durable"));
    if (this.gone) chips.push(el("span", { class: "chip" }, this.kind === "Connections" ? "ended" : "not in use"));
    this.chips.replaceChildren(...chips);
    if (this.pause) setText(this.pause, now.paused ? "Resume" : "Pause");
    const facts = this.kind === "Connections" ? [
      ["Version", `STOMP ${now.version}`], ["Login", now.login || "none"], ["Client id", now.client_id || "none"], ["Unacked", grouped.format(now.unacked)],
      ["Heartbeats", beats(now)], ["Last frame", this.gone ? "" : `${now.last_frame[0]}, ${seconds(now.last_frame[1])} ago`],
      ["Last heard", this.gone ? "" : `${seconds(now.idle)} ago`], ["Session", now.session], ["Subscriptions", now.subscriptions.join(", ") || "none"],
    ] : [
      ["Ready", grouped.format(now.ready)], ["Unacked", grouped.format(now.unacked || 0)], ["Consumers", grouped.format(now.consumers)],
      ["In", `${rate(now.in)}/s`], ["Out", `${rate(now.out)}/s`], ["Acked", `${rate(now.acked)}/s`],
      ...["enqueued", "delivered", "acknowledged", "expired", "dead_lettered", "removed"].map((counter) =>
        [`${counter[0].toUpperCase()}${counter.slice(1).replace("_", "-")}`, grouped.format(now[counter])]),
    ];
    if (this.values) facts.forEach(([, value], place) => setText(this.values[place], value));
    else {
      this.values = facts.map(([, value]) => el("dd", {}, value));
      this.facts.replaceChildren(...facts.map(([name], place) => el("div", { class: name === "Subscriptions" ? "broad" : "" }, el("dt", {}, name), this.values[place])));
    }
    this.paint();
  }

  paint() {
    if (this.chart && this.row.ins) draw(this.chart, [[this.row.ins, "in", true], [this.row.outs, "out"]], { labels: true });
  }
}

const beats = ({ heartbeat: [client, broker] }) => (client || broker ? `${client ? `${+client.toFixed(3)} s` : "none"} / ${broker ? `${+broker.toFixed(3)} s` : "none"}` : "none");
