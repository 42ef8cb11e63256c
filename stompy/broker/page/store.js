// What the broker says of itself, second by second, made into rows with rates and their histories.

class Row {
  constructor(name) {
    this.name = name;
    this.in = 0;
    this.out = 0;
    this.ins = new History();
    this.outs = new History();
  }

  // Take over new numbers; rates are per second since the last ones.
  update(numbers, elapsed) {
    const before = this.delivered;
    if (before !== undefined && elapsed > 0) {
      const out = Math.max(0, numbers.delivered - before);
      this.out = out / elapsed;
      this.in = Math.max(0, out + numbers.ready - this.ready) / elapsed;
    }
    Object.assign(this, numbers);
    this.ins.add(this.in);
    this.outs.add(this.out);
  }
}

const GAP = 10; // seconds without numbers, after which the histories begin anew

class Store {
  constructor() {
    this.rows = { Queues: [], Topics: [], Connections: [] };
    this.forget();
  }

  forget() {
    this.known = { Queues: new Map(), Topics: new Map() };
    this.totals = Object.fromEntries(["in", "out", "ready", "unacked", "connections", "dead"].map((name) => [name, new History()]));
    this.counters = null;
  }

  take(overview) {
    if (this.counters && overview.moment - this.moment > GAP) this.forget(); // the page was hidden
    const elapsed = this.counters ? overview.moment - this.moment : 0;
    const counters = overview.counters;
    const per = (name) => (elapsed > 0 ? Math.max(0, counters[name] - this.counters[name]) / elapsed : 0);
    const sums = { ready: 0, unacked: 0 };
    for (const [, ready, unacked] of overview.queues) {
      sums.ready += ready;
      sums.unacked += unacked;
    }
    this.totals.in.add(per("messages_in"));
    this.totals.out.add(per("messages_out"));
    this.totals.ready.add(sums.ready);
    this.totals.unacked.add(sums.unacked);
    this.totals.connections.add(overview.connections.length);
    this.totals.dead.add(counters.dead_lettered);
    this.rows.Queues = this.merge("Queues", overview.queues.map(([name, ready, unacked, consumers, delivered, paused]) =>
      [name, { ready, unacked, consumers, delivered, paused }]), elapsed);
    this.rows.Topics = this.merge("Topics", [
      ...overview.topics.map(([name, consumers, ready, delivered]) => [name, { ready, consumers, delivered, durable: false }]),
      ...overview.durables.map(([name, ready, unacked, consumers, delivered]) => [name, { ready, unacked, consumers, delivered, durable: true }]),
    ], elapsed);
    this.rows.Connections = overview.connections.map((row) => ({ ...row, name: row.session }));
    this.counters = counters;
    this.moment = overview.moment;
    this.server = overview.server;
  }

  merge(kind, numbers, elapsed) {
    const before = this.known[kind];
    const now = new Map();
    const rows = numbers.map(([name, more]) => {
      const row = before.get(name) || new Row(name);
      row.update(more, elapsed);
      now.set(name, row);
      return row;
    });
    this.known[kind] = now;
    return rows;
  }

  find(kind, name) {
    return this.rows[kind].find((row) => row.name === name);
  }
}
