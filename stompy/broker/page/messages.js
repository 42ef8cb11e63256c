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
  // Isolated from each other, as one may be written from right to left.
  return message.headers.filter(([name]) => !without.has(name)).map(([name, value]) => `\u2068${name}: ${value}\u2069`).join("\u2003").slice(0, 500);
}

const TOKENS = /("(?:[^"\\]|\\.)*")|\s+|([[{]\s*[\]}])|([[{])|([\]}])|(,)|:/g;

// JSON with other spaces; numbers and names stay as they were written.
function pretty(message) {
  if (message.base64 || !message.whole || message.size > 20000 || !/^\s*[[{]/.test(message.body)) return message.body;
  try {
    JSON.parse(message.body);
  } catch {
    return message.body;
  }
  let depth = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 20));
  return message.body.replace(TOKENS, (found, string, empty, opens, closes, comma) => {
    if (string) return string;
    if (empty) return empty[0] + empty.at(-1);
    if (comma) return "," + line();
    if (!opens && !closes) return found === ":" ? ": " : "";
    depth += opens ? 1 : -1;
    return opens ? opens + line() : line() + closes;
  });
}

const MASK = "***";

// A button that edits a message; not one that is here in part only.
const editing = (app, message) => message.whole
  ? el("button", { type: "button", class: "main", onclick: () => app.edit(message) }, "Edit and send")
  : el("span", { class: "quiet" }, "Too long to edit: only its start is here");

const AT_ONCE = 10000; // characters, as a long line takes long to lay out

// What a message says, all of it as text.
function messageView(message) {
  const rows = message.headers.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "mono" }, value)));
  const cut = message.whole ? "" : `, the first ${bytes(message.base64 ? message.body.length * 0.75 : ENCODER.encode(message.body).length)}`;
  const text = pretty(message);
  const body = el("pre", { tabindex: "0" }, text.slice(0, AT_ONCE));
  const rest = el("button", { type: "button", onclick: () => {
    setText(body, text);
    rest.remove();
    body.focus({ preventScroll: true });
  } }, "Show the rest");
  return [
    el("table", {}, el("tbody", {}, ...rows)),
    el("p", { class: "quiet" }, `${bytes(message.size)}${cut}${message.base64 ? ", in Base64" : ""}`),
    body,
    ...(text.length > AT_ONCE ? [el("div", { class: "tools" }, rest)] : []),
  ];
}

// The form that sends a message.
class Sender {
  constructor(stomp) {
    this.stomp = stomp;
    this.destination = el("input", { name: "destination", required: true, value: "/queue/", autocomplete: "off", spellcheck: "false" });
    this.headers = el("textarea", { rows: 4, spellcheck: "false", placeholder: "name: value, one on each line" });
    this.body = el("textarea", { rows: 9, spellcheck: "false", oninput: () => this.body.value || (this.original = "") });
    this.original = this.shown = "";
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
    const headers = Object.create(null);
    for (const line of this.headers.value.split("\n").filter((text) => text.trim())) {
      const [, name, value] = /^([^:]+): ?([^]*)$/.exec(line) || [];
      if (!name) throw new Error(`not a header: ${line}`);
      if (["destination", "content-length", "receipt"].includes(name.trim())) throw new Error(`${name.trim()} is set by the page`);
      headers[unescaped(name.trim())] ??= unescaped(value); // of a repeated one the first counts
    }
    const destination = this.destination.value.trim();
    const body = this.base64.checked ? fromBase64(this.body.value) : ENCODER.encode(this.text());
    await this.stomp.send({ ...headers, destination }, body);
    return `Sent ${bytes(body.length)} to ${destination}`;
  }

  // A field has line feeds only: return the text with the line ends that the message had.
  text() {
    const text = this.body.value;
    if (text === this.shown) return this.original;
    return this.original.includes("\r\n") ? text.replace(/\n/g, "\r\n") : text;
  }

  // Fill the form with a message, to be edited and sent again.
  fill(message) {
    this.destination.value = message.origin || headerOf(message, "destination");
    const [known, masked] = [message.headers.filter(([name]) => !OWN_HEADERS.has(name)), ([, value]) => value === MASK];
    this.headers.value = known.filter((header) => !masked(header))
      .map(([name, value]) => `${escaped(name)}: ${value.replace(/[\\\n\r]/g, (found) => ESCAPES[found])}`).join("\n");
    this.original = this.body.value = message.body;
    this.shown = this.body.value;
    this.base64.checked = message.base64;
    if (known.some(masked)) note(`Without its secret headers: ${known.filter(masked).map(([name]) => name).join(", ")}`);
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
    const focused = this.box.contains(document.activeElement);
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
          el("button", { type: "button", "aria-label": "Earlier messages", onclick: move(-100), disabled: this.start === 0 }, "‹"),
          el("button", { type: "button", "aria-label": "Later messages", onclick: move(100), disabled: messages.length < 100 }, "›"),
          el("button", { type: "button", onclick: () => this.load() }, "Refresh"),
          retriable ? action("Retry all", async () => this.done(await this.app.stomp.call("retry", { queue: this.queue }), "sent back")) : null),
        el("div", { class: "items", tabindex: "-1" }, ...messages.map((message) => this.item(message))));
      if (focused) this.box.lastElementChild.focus({ preventScroll: true });
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
      const back = el("button", { type: "button", class: "back", onclick: () => this.load() }, "‹ Messages");
      this.box.replaceChildren(
        el("div", { class: "tools" },
          back,
          editing(this.app, message),
          message.origin ? action("Retry", call("retry", `sent back to ${message.origin}`)) : null,
          dangerous("Delete", () => "Delete for good?", call("purge", "deleted"))),
        ...messageView(message));
      back.focus({ preventScroll: true });
    });
  }
}
