// What the broker says of itself, second by second, made into rows with rates and their histories. The rates are those of
// its counters; what was not there at the last look began to count after it.

const COUNTED = { in: "enqueued", out: "delivered", acked: "acknowledged" };

class Row {
  constructor(name) {
    this.name = name;
    for (const [name, counter] of Object.entries(COUNTED)) [this[name], this[counter]] = [0, 0];
    this.ins = new History();
    this.outs = new History();
  }

  // Take over new numbers; rates are per second since the last ones.
  update(numbers, elapsed) {
    for (const [name, counter] of Object.entries(COUNTED)) {
      this[name] = elapsed > 0 ? Math.max(0, numbers[counter] - this[counter]) / elapsed : 0;
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
    const listed = (kind, durable) => overview[kind].map((row) =>
      ({ ...Object.fromEntries(overview.columns.map((column, place) => [column, row[place]])), durable }));
    const queues = listed("queues", false);
    for (const { ready, unacked } of queues) {
      sums.ready += ready;
      sums.unacked += unacked;
    }
    this.totals.in.add(per("messages_in"));
    this.totals.out.add(per("messages_out"));
    this.totals.ready.add(sums.ready);
    this.totals.unacked.add(sums.unacked);
    this.totals.connections.add(overview.connections.length);
    this.totals.dead.add(overview.dead_letters);
    this.rows.Queues = this.merge("Queues", queues, elapsed);
    this.rows.Topics = this.merge("Topics", [...listed("topics", false), ...listed("durables", true)], elapsed);
    this.rows.Connections = overview.connections.map((row) => ({ ...row, name: row.session }));
    this.counters = counters;
    this.moment = overview.moment;
    this.server = overview.server;
  }

  merge(kind, numbers, elapsed) {
    const before = this.known[kind];
    const now = new Map();
    const rows = numbers.map((more) => {
      const row = before.get(more.name) || new Row(more.name);
      row.update(more, elapsed);
      now.set(more.name, row);
      return row;
    });
    this.known[kind] = now;
    return rows;
  }

  find(kind, name) {
    return this.rows[kind].find((row) => row.name === name);
  }
}
