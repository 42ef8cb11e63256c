// Messages: lists of them, one opened, and the form that sends one.

const OWN_HEADERS = new Set(["destination", "content-length", "message-id", "subscription", "ack", "redelivered",
  "redelivery-count", "original-destination", "delivery-count", "dead-letter-reason", "receipt", "transaction"]);

const headerOf = (message, name) => (message.headers.find(([other]) => other === name) || ["", ""])[1];

function fromBase64(text) {
  return Uint8Array.from(atob(text.replace(/\s/g, "")), (character) => character.charCodeAt(0));
}

function preview(message) {
  const body = message.base64 ? "(binary)" : message.body.slice(0, 300).replace(/\s+/g, " ");
  return body || "(empty)";
}

function headerLine(message, without) {
  return message.headers.filter(([name]) => !without.has(name)).map(([name, value]) => `${name}: ${value}`).join("   ");
}

function pretty(message) {
  if (message.base64) return message.body;
  if (message.whole && /^\s*[[{]/.test(message.body)) {
    try {
      return JSON.stringify(JSON.parse(message.body), null, 2);
    } catch {
      return message.body;
    }
  }
  return message.body;
}

// What a message says, all of it as text.
function messageView(message) {
  const rows = message.headers.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "mono" }, value)));
  const cut = message.whole ? "" : `, the first ${bytes(message.base64 ? message.body.length * 0.75 : ENCODER.encode(message.body).length)}`;
  return [
    el("table", {}, el("tbody", {}, ...rows)),
    el("p", { class: "quiet" }, `${bytes(message.size)}${cut}${message.base64 ? ", in Base64" : ""}`),
    el("pre", { tabindex: "0" }, pretty(message)),
  ];
}

// The form that sends a message.
class Sender {
  constructor(stomp) {
    this.stomp = stomp;
    this.destination = el("input", { name: "destination", required: true, value: "/queue/", autocomplete: "off", spellcheck: "false" });
    this.headers = el("textarea", { rows: 4, spellcheck: "false", placeholder: "name:value, one on each line" });
    this.body = el("textarea", { rows: 9, spellcheck: "false" });
    this.base64 = el("input", { type: "checkbox" });
    this.form = el("form", { onsubmit: (event) => {
      event.preventDefault();
      attempt(() => this.send());
    } },
    el("label", {}, "Destination", this.destination),
    el("label", {}, "Headers", this.headers),
    el("label", {}, "Body", this.body),
    el("label", { class: "check" }, this.base64, "The body is binary, written in Base64"),
    el("div", { class: "tools" }, el("button", { class: "main" }, "Send")));
    this.box = el("div", { class: "form grow" }, this.form);
  }

  async send() {
    const headers = {};
    for (const line of this.headers.value.split("\n").filter((text) => text.trim())) {
      const colon = line.indexOf(":");
      if (colon < 1) throw new Error(`not a header: ${line}`);
      headers[line.slice(0, colon).trim()] = unescaped(line.slice(colon + 1).trim());
    }
    const destination = this.destination.value.trim();
    const body = this.base64.checked ? fromBase64(this.body.value) : ENCODER.encode(this.body.value);
    await this.stomp.send({ ...headers, destination }, body);
    return `Sent ${bytes(body.length)} to ${destination}`;
  }

  // Fill the form with a message, to be edited and sent again.
  fill(message) {
    this.destination.value = message.origin || headerOf(message, "destination");
    this.headers.value = message.headers.filter(([name]) => !OWN_HEADERS.has(name))
      .map(([name, value]) => `${name}:${value.replace(/[\\\n\r]/g, (found) => ESCAPES[found])}`).join("\n");
    this.body.value = message.body;
    this.base64.checked = message.base64;
  }
}

// The messages that wait in a queue, page by page, and one of them opened.
class Browser {
  constructor(app, queue) {
    this.app = app;
    this.queue = queue;
    this.start = 0;
    this.box = el("div", { class: "list grow" });
    this.load();
  }

  load() {
    attempt(async () => {
      const messages = await this.app.stomp.call("browse", { queue: this.queue, start: this.start });
      const waiting = (this.app.store.find("Queues", this.queue) || { ready: messages.length }).ready;
      const last = this.start + messages.length;
      const move = (by) => () => {
        this.start = Math.max(0, this.start + by);
        this.load();
      };
      const range = messages.length ? `${grouped.format(this.start + 1)} to ${grouped.format(last)} of ${grouped.format(Math.max(last, waiting))}` : "Nothing waits";
      const retriable = messages.some((message) => message.origin);
      this.box.replaceChildren(
        el("div", { class: "tools" },
          el("span", { class: "quiet grow" }, range),
          el("button", { type: "button", onclick: move(-100), disabled: this.start === 0 }, "‹"),
          el("button", { type: "button", onclick: move(100), disabled: messages.length < 100 }, "›"),
          el("button", { type: "button", onclick: () => this.load() }, "Refresh"),
          retriable ? action("Retry all", async () => this.done(await this.app.stomp.call("retry", { queue: this.queue }), "sent back")) : null),
        el("div", { class: "items" }, ...messages.map((message) => this.item(message))));
    });
  }

  done(count, what) {
    this.load();
    return `${plural(count, "message")} ${what}`;
  }

  item(message) {
    const facts = [`#${message.number}`, bytes(message.size)];
    if (message.deliveries) facts.push(`delivered ${message.deliveries}×`);
    return el("button", { class: "item", type: "button", onclick: () => this.open(message.number) },
      el("p", { class: "mono" }, preview(message)),
      el("p", { class: "line" }, el("span", {}, facts.join("  ")), el("span", {}, headerLine(message, new Set(["destination", "content-length"])))));
  }

  open(number) {
    attempt(async () => {
      const message = await this.app.stomp.call("message", { queue: this.queue, number });
      const one = { queue: this.queue, numbers: [number] };
      const call = (name, what, more = {}) => async () => this.done(await this.app.stomp.call(name, { ...one, ...more }), what);
      const back = el("button", { type: "button", onclick: () => this.load() }, "‹ Messages");
      this.box.replaceChildren(
        el("div", { class: "tools" },
          back,
          el("button", { type: "button", class: "main", onclick: () => this.app.edit(message) }, "Edit and send"),
          message.origin ? action("Retry", call("retry", `sent back to ${message.origin}`)) : null,
          dangerous("Delete", () => "Delete for good?", call("purge", "deleted"))),
        ...messageView(message));
      back.focus({ preventScroll: true });
    });
  }
}
