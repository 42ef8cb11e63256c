// The page: tiles, tabs, lists, keys; and the clock that asks the broker.

const EVERY = 1000;
const EVERY_LIVE = 500;

class App {
  constructor() {
    this.store = new Store();
    this.detail = null;
    const token = location.pathname.split("/")[1];
    this.stomp = new Stomp(`ws://${location.host}/${token}/stomp`, (state) => this.changed(state));
    this.sender = new Sender(this.stomp);
    this.tables = {
      Queues: new Table("Queues", [
        { title: "Queue", value: (row) => row.name, text: (row) => (row.paused ? `${row.name} (paused)` : row.name) },
        numeric("Ready", (row) => row.ready),
        { ...numeric("Unacked", (row) => row.unacked), wide: true },
        numeric("Consumers", (row) => row.consumers),
        { ...numeric("In/s", (row) => row.in, rate), wide: true },
        numeric("Out/s", (row) => row.out, rate),
        { ...numeric("Acked/s", (row) => row.acked, rate), wide: true },
        { title: "2 min", value: (row) => row.in + row.out, wide: true, number: true, chart: sparkline },
      ], (row) => this.open("Queues", row)),
      Topics: new Table("Topics", [
        { title: "Topic or durable subscription", value: (row) => row.name },
        numeric("Subscribers", (row) => row.consumers),
        { ...numeric("Waiting", (row) => row.ready), wide: true },
        { ...numeric("In/s", (row) => row.in, rate), wide: true },
        numeric("Out/s", (row) => row.out, rate),
        { title: "2 min", value: (row) => row.in + row.out, wide: true, number: true, chart: sparkline },
      ], (row) => this.open("Topics", row)),
      Connections: new Table("Connections", [
        { title: "Address", value: (row) => row.peer },
        { title: "Login", value: (row) => row.login || "", text: (row) => row.login || "–", wide: true },
        { title: "Version", value: (row) => row.version },
        { title: "Heartbeats", value: (row) => row.heartbeat[0], text: beats, wide: true },
        { ...numeric("Subscriptions", (row) => row.subscriptions.length), wide: true },
        numeric("Unacked", (row) => row.unacked),
        { title: "Last frame", value: (row) => row.last_frame[1], text: (row) => seconds(row.last_frame[1]), number: true, wide: true },
      ], (row) => this.open("Connections", row)),
    };
    this.tiles = [["In/s", "in", rate], ["Out/s", "out", rate], ["Ready", "ready", short], ["Unacked", "unacked", short],
      ["Connections", "connections", short], ["Dead letters", "dead", short]].map(([title, name, shown]) => {
      const [value, chart] = [el("b", {}, "–"), el("canvas", { "aria-hidden": "true" })];
      const box = el("div", { class: "tile" }, value, el("span", {}, title), chart);
      $("tiles").append(box);
      return { name, shown, value, chart, box };
    });
    this.names = ["Queues", "Topics", "Connections", "Send"];
    this.tabs = tabs($("tabs"), this.names, (name) => this.choose(name));
    this.badges = {};
    for (const name of this.names.slice(0, 3)) this.tabs.buttons.get(name).append((this.badges[name] = el("small", {}, "0")));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.theme(remembered("stompy-theme") || (dark.matches ? "dark" : "light"));
    dark.addEventListener("change", () => remembered("stompy-theme") || this.theme(dark.matches ? "dark" : "light"));
    $("theme").addEventListener("click", () => {
      this.theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
      remembered("stompy-theme", document.documentElement.dataset.theme);
    });
    narrow.addEventListener("change", () => this.cover());
    $("help").addEventListener("click", () => this.help());
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.tabs.choose("Queues");
    setInterval(() => this.look(), EVERY);
    setInterval(() => document.hidden || (this.detail && this.detail.live && this.stomp.ready && this.detail.live.tick()), EVERY_LIVE);
  }

  changed(state) {
    const line = $("state");
    line.className = `state ${state}`;
    setText(line, { connecting: "connecting", open: "connected", lost: "connection lost" }[state]);
    if (state === "open") this.look();
  }

  async look() {
    if (document.hidden || !this.stomp.ready || this.looking) return;
    this.looking = true;
    try {
      this.store.take(await this.stomp.call("overview"));
      requestAnimationFrame(() => this.paint());
    } catch (error) {
      note(error.message, true);
    } finally {
      this.looking = false;
    }
  }

  paint() {
    const { store } = this;
    setText($("server"), store.server || "");
    for (const { name, shown, value, chart, box } of this.tiles) {
      const { values } = store.totals[name];
      setText(value, values.length ? shown(values[values.length - 1]) : "–");
      draw(chart, [[store.totals[name], name === "out" ? "out" : "in", true]], { count: 60 });
      if (name === "dead") box.classList.toggle("bad", values[values.length - 1] > 0);
    }
    for (const [name, badge] of Object.entries(this.badges)) setText(badge, short(store.rows[name].length));
    if (this.tables[this.tab]) this.tables[this.tab].update(store.rows[this.tab]);
    if (this.detail && this.detail.update) this.detail.update(store.find(this.detail.kind, this.detail.name));
  }

  choose(name) {
    this.tab = name;
    if (this.detail) this.close(false);
    const table = this.tables[name];
    $("list").replaceChildren(...(table ? [el("div", { class: "tools" }, table.filter, table.count), table.box] : [this.sender.box]));
    if (table) table.update(this.store.rows[name]);
  }

  // On a phone the details cover the page: what is below cannot be reached.
  cover() {
    for (const part of document.querySelectorAll(".bar, .tiles, .tabs, #list")) part.inert = narrow.matches && this.detail !== null;
  }

  open(kind, row) {
    this.show(new Detail(this, kind, row));
    this.detail.paint();
  }

  show(detail) {
    this.detail = detail;
    $("detail").replaceChildren(...detail.box);
    $("detail").hidden = false;
    $("main").className = "split";
    this.cover();
    $("detail").scrollTop = 0;
    detail.title.focus({ preventScroll: true });
  }

  close(focus = true) {
    this.detail = null;
    $("detail").hidden = true;
    $("main").className = "";
    $("detail").replaceChildren();
    this.cover();
    const table = this.tables[this.tab];
    if (focus && table) table.box.focus();
  }

  edit(message) {
    this.sender.fill(message);
    this.tabs.choose("Send");
    this.sender.body.focus();
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    readColours();
    this.paint();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = ["INPUT", "TEXTAREA"].includes(event.target.tagName);
    if (event.key === "Escape") {
      const back = $("detail").querySelector(".back");
      if (typing) event.target.blur();
      else if (back) {
        back.classList.remove("back"); // the list is on its way
        back.click();
      } else if (this.detail) this.close();
      return;
    }
    if (typing) return;
    const table = this.tables[this.tab];
    if (event.key === "/" && table) {
      event.preventDefault();
      table.filter.focus();
    } else if (/^[1-4]$/.test(event.key)) {
      this.tabs.choose(this.names[Number(event.key) - 1], true);
      if (!this.tables[this.tab]) this.sender.destination.focus();
    } else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && table && event.target === document.body) {
      table.box.focus();
      table.key(event);
    } else if (event.key === "?") {
      this.help();
    } else if (event.key === "t") {
      $("theme").click();
    }
  }

  help() {
    const keys = [["1 2 3 4", "queues, topics, connections, send"], ["/", "filter the list"], ["j k ↓ ↑", "move in the list"],
      ["Enter", "open"], ["Esc", "back, or close"], ["t", "light or dark"], ["?", "these keys"]];
    const title = el("h2", { tabindex: "-1" }, "Keyboard");
    const close = el("button", { class: "plain", type: "button", "aria-label": "Close", onclick: () => this.close() }, "✕");
    this.show({ title, box: [el("div", { class: "head" }, title, close),
      el("div", { class: "keys" }, ...keys.map(([key, what]) => el("div", {}, el("kbd", {}, key), " ", what)))] });
  }
}

const numeric = (title, value, text = short) => ({ title, value, text: (row) => text(value(row)), number: true });
const sparkline = (canvas, row) => draw(canvas, [[row.ins, "in", true], [row.outs, "out"]]);

new App();
