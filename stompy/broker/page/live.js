// What passes, as it passes: the messages of a destination, or the frames of a connection. It is read twice a second, and
// the latest of it shown, whatever the rate.

const LINES = 120;
const LINES_AT_ONCE = 20;

class Live {
  // `ask` returns a promise of { total, passed }; `opened` gets the message that is chosen.
  constructor(ask, { filters = [], opened = null, waiting = "Waiting for the next message" } = {}) {
    this.ask = ask;
    this.opened = opened;
    this.shown = 0;
    this.total = 0;
    this.round = 0;
    this.items = el("div", { class: "items", tabindex: "-1" });
    this.empty = el("p", { class: "empty" }, waiting);
    this.items.append(this.empty);
    this.count = el("span", { class: "quiet grow" });
    this.paused = false;
    this.stop = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
      this.paused = !this.paused;
      this.stop.setAttribute("aria-pressed", String(this.paused));
      setText(this.stop, this.paused ? "Continue" : "Hold");
    } }, "Hold");
    const clear = el("button", { type: "button", onclick: () => this.clear() }, "Clear");
    this.box = el("div", { class: "list grow" },
      filters.length ? el("div", { class: "tools" }, ...filters) : null,
      el("div", { class: "tools" }, this.count, this.stop, clear), this.items);
    this.busy = false;
    this.failed = "";
  }

  clear() {
    this.items.replaceChildren(this.empty);
    this.empty.hidden = false;
    this.shown = 0;
    this.round += 1;
  }

  // Lines stay where they are while one of them has the focus.
  get held() {
    return this.paused || (document.activeElement !== this.items && this.items.contains(document.activeElement));
  }

  async tick() {
    if (this.busy) return;
    this.busy = true;
    const round = this.round;
    try {
      const { total, passed } = await this.ask();
      if (round !== this.round) return; // it was for another filter
      this.failed = "";
      if (total < this.total) this.shown = 0; // the broker began anew
      this.total = total;
      if (!this.held) this.show(passed.slice(-LINES_AT_ONCE));
      setText(this.count, `${grouped.format(total)} passed${total > this.shown ? `, ${grouped.format(this.shown)} of them shown` : ""}`);
    } catch (error) {
      if (this.failed !== error.message) note(error.message, true);
      this.failed = error.message;
      setText(this.count, error.message);
    } finally {
      this.busy = false;
    }
  }

  show(passed) {
    if (!passed.length) return;
    this.empty.hidden = true;
    this.shown += passed.length;
    const lines = passed.reverse().map((message) => this.line(message));
    this.items.prepend(...lines);
    while (this.items.childElementCount > LINES + 1) this.items.lastElementChild.remove();
  }

  line(message) {
    const frame = message.kind !== "message";
    const sign = { sent: "broker → client", received: "client → broker", message: "" }[message.kind];
    return el("button", { class: "item", type: "button", onclick: () => this.opened && this.opened(message) },
      el("p", { class: "mono" }, frame ? el("b", {}, message.command) : null, frame && message.size ? " " : null, frame && !message.size ? null : preview(message)),
      el("p", { class: "line" }, el("span", { class: "quiet" }, clock(message.moment)), sign ? el("span", { class: message.kind }, sign) : null,
        message.size ? el("span", {}, bytes(message.size)) : null,
        el("span", {}, headerLine(message, new Set(["content-length"])))));
  }
}

// The live tail of a destination, with its filters.
function tailOf(app, destination, opened) {
  let [text, selector] = ["", ""];
  const take = (field, set) => {
    let timer = 0;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        set(field.value);
        live.clear();
      }, 400);
    });
    return field;
  };
  const contains = take(el("input", { type: "search", placeholder: "Text in headers or body", "aria-label": "Text in headers or body" }), (value) => (text = value));
  const condition = take(el("input", { type: "search", placeholder: "Selector: priority > 4", "aria-label": "Selector on headers", spellcheck: "false" }), (value) => (selector = value.trim()));
  const live = new Live(() => app.stomp.call("tail", { destination, text, selector }), { filters: [contains, condition], opened });
  return live;
}

function framesOf(app, connection, opened) {
  return new Live(() => app.stomp.call("frames", { connection }), { opened, waiting: "Waiting for the next frame" });
}
