// A STOMP 1.2 client over WebSocket, with requests to the console.

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();
const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c" };
const UNESCAPES = { "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\c": ":" };
const escaped = (text) => text.replace(/[\\\n\r:]/g, (found) => ESCAPES[found]);
const unescaped = (text) => text.replace(/\\[\\nrc]/g, (found) => UNESCAPES[found]);

const INBOX = "/temp-queue/console";
const TIMEOUT = 15000;

class Stomp {
  // `changed` is called with "connecting", "open" or "lost".
  constructor(url, changed) {
    this.url = url;
    this.changed = changed;
    this.waiting = new Map();
    this.number = 0;
    this.pause = 500;
    this.open();
  }

  open() {
    this.changed("connecting");
    this.received = new Uint8Array(0);
    this.ready = false;
    const socket = (this.socket = new WebSocket(this.url, ["v12.stomp"]));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.write("CONNECT", { "accept-version": "1.2", host: "console", "heart-beat": "0,10000" });
    socket.onmessage = (event) => this.take(new Uint8Array(event.data));
    socket.onclose = () => this.closed();
  }

  closed() {
    this.ready = false;
    for (const { reject } of this.waiting.values()) reject(new Error("the connection to the broker is lost"));
    this.waiting.clear();
    this.changed("lost");
    setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(this.pause * 2, 8000);
  }

  write(command, headers, body = new Uint8Array(0)) {
    const plain = command === "CONNECT";
    const lines = Object.entries(headers).map(([name, value]) =>
      plain ? `${name}:${value}` : `${escaped(name)}:${escaped(String(value))}`);
    if (body.length) lines.push(`content-length:${body.length}`);
    const head = ENCODER.encode(`${command}\n${lines.map((line) => line + "\n").join("")}\n`);
    const frame = new Uint8Array(head.length + body.length + 1);
    frame.set(head);
    frame.set(body, head.length);
    this.socket.send(frame);
  }

  take(data) {
    if (this.received.length) {
      const joined = new Uint8Array(this.received.length + data.length);
      joined.set(this.received);
      joined.set(data, this.received.length);
      data = joined;
    }
    let at = 0;
    for (;;) {
      while (data[at] === 10 || data[at] === 13) at += 1;
      const frame = this.parse(data, at);
      if (frame === null) break;
      at = frame.end;
      this.handle(frame);
    }
    this.received = data.slice(at);
  }

  parse(data, start) {
    let end = data.indexOf(10, start);
    while (end >= 0 && end + 1 < data.length && data[end + 1] !== 10) end = data.indexOf(10, end + 1);
    if (end < 0 || end + 1 >= data.length) return null;
    const [command, ...lines] = DECODER.decode(data.subarray(start, end)).split("\n");
    const headers = Object.create(null);
    for (const line of lines) {
      const colon = line.indexOf(":");
      const name = unescaped(line.slice(0, colon));
      if (!(name in headers)) headers[name] = unescaped(line.slice(colon + 1));
    }
    const body = end + 2;
    const stop = "content-length" in headers ? body + Number(headers["content-length"]) : data.indexOf(0, body);
    if (stop < 0 || stop >= data.length) return null;
    return { command, headers, body: data.subarray(body, stop), end: stop + 1 };
  }

  handle({ command, headers, body }) {
    if (command === "CONNECTED") {
      this.pause = 500;
      this.ready = true;
      this.write("SUBSCRIBE", { id: "console", destination: INBOX });
      this.changed("open");
    } else if (command === "MESSAGE") {
      const reply = JSON.parse(DECODER.decode(body));
      this.settle(headers["correlation-id"], reply.error, reply.result);
    } else if (command === "RECEIPT") {
      this.settle(headers["receipt-id"], null, true);
    } else if (command === "ERROR") {
      const said = headers.message || "the broker ended the session";
      for (const id of [...this.waiting.keys()]) this.settle(id, said);
    }
  }

  settle(id, error, result) {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(new Error(error));
    else waiting.resolve(result);
  }

  expect(write) {
    if (!this.ready) return Promise.reject(new Error("not connected to the broker"));
    this.number += 1;
    const id = `c${this.number}`;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.settle(id, "no answer in time"), TIMEOUT);
      this.waiting.set(id, { resolve, reject, timer });
      write(id);
    });
  }

  // Ask the console; returns a promise of the result.
  call(name, more = {}) {
    const body = ENCODER.encode(JSON.stringify({ call: name, ...more }));
    return this.expect((id) =>
      this.write("SEND", { destination: "/console", "reply-to": INBOX, "correlation-id": id }, body));
  }

  // Send a message; returns a promise that the broker has it.
  send(headers, body) {
    return this.expect((id) => this.write("SEND", { ...headers, receipt: id }, body));
  }
}
