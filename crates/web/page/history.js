// Rates from the counters of two polls, and the recent rates of each port.

// The number of rates that are kept: two minutes, at one poll a second.
const LENGTH = 120;

export class History {
  constructor() {
    this.last = null;
    this.curves = new Map();
  }

  // Takes the traffic of the last two minutes that the switch has kept. So the curves begin before the
  // page was opened.
  begin({ times, ports }) {
    for (const { name, rx_bytes: rx, tx_bytes: tx } of ports) {
      const curve = new Curve();
      const from = times.length - rx.length;
      for (let at = 1; at < rx.length; at += 1) {
        const seconds = times[from + at] - times[from + at - 1];
        const bits = (bytes) => (seconds > 0 && bytes[at] >= bytes[at - 1] ? (8 * (bytes[at] - bytes[at - 1])) / seconds : null);
        curve.push({ rxBits: bits(rx), txBits: bits(tx) });
      }
      this.curves.set(name, curve);
    }
  }

  // Takes the answers of a poll. Returns the rates since the poll before, or null if these are the
  // same answers again. Rates are null where there is nothing to compare with.
  add(answers) {
    const last = this.last;
    const seconds = last ? answers.ports.time - last.ports.time : 0;
    if (last && seconds === 0 && answers.status.uptime_s === last.status.uptime_s) return null;
    // A switch that was started again counts from 0.
    const same = last !== null && seconds > 0 && answers.status.uptime_s >= last.status.uptime_s;
    const rates = new Rates(same ? last : null, answers, seconds);
    this.last = answers;
    for (const port of answers.ports.ports) {
      const curve = this.curve(port.name);
      // The first poll has nothing to compare with, and makes no gap behind what the switch has kept.
      if (last !== null || curve.isEmpty) curve.push(rates.port(port.name));
    }
    for (const name of this.curves.keys()) {
      if (!answers.ports.ports.some((port) => port.name === name)) this.curves.delete(name);
    }
    return rates;
  }

  // Returns the recent rates of a port.
  curve(name) {
    let curve = this.curves.get(name);
    if (!curve) {
      curve = new Curve();
      this.curves.set(name, curve);
    }
    return curve;
  }
}

// The recent rates of a port, newest last.
class Curve {
  constructor() {
    this.points = [];
  }

  get isEmpty() {
    return this.points.length === 0;
  }

  push(rates) {
    this.points.push([rates.rxBits, rates.txBits]);
    if (this.points.length > LENGTH) this.points.shift();
  }

  // Returns the paths of both curves in a box, on one scale, and the maximum. A rate that is not
  // known is a gap.
  paths(width, height) {
    const max = Math.max(1, ...this.points.flat().map((value) => value ?? 0));
    const path = (at) => {
      const offset = LENGTH - this.points.length;
      let pen = "M";
      let text = "";
      this.points.forEach((point, index) => {
        if (point[at] === null) {
          pen = "M";
          return;
        }
        const x = ((offset + index) * width) / (LENGTH - 1);
        const y = height - 1 - (point[at] / max) * (height - 2);
        text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        pen = "L";
      });
      return text;
    };
    return { rx: path(0), tx: path(1), max };
  }
}

// The rates between two polls.
class Rates {
  constructor(before, now, seconds) {
    this.before = before;
    this.now = now;
    this.seconds = seconds;
  }

  // Returns the rate of a counter, or null if it was not there before or began again.
  per(before, now) {
    if (before === undefined || before === null || now < before) return null;
    return (now - before) / this.seconds;
  }

  // Returns the rates of a port.
  port(name) {
    const now = this.now.ports.ports.find((port) => port.name === name);
    const before = this.before?.ports.ports.find((port) => port.name === name);
    const sum = (port, direction, unit) => port?.queues.reduce((sum, queue) => sum + queue[direction][unit], 0);
    const rate = (direction, unit) => this.per(sum(before, direction, unit), sum(now, direction, unit));
    const bits = (direction) => {
      const bytes = rate(direction, "bytes");
      return bytes === null ? null : 8 * bytes;
    };
    return {
      rxBits: bits("rx"),
      txBits: bits("tx"),
      rxPackets: rate("rx", "packets"),
      txPackets: rate("tx", "packets"),
      drops: this.per(before && dropped(before), dropped(now)),
      dropped: dropped(now),
    };
  }

  // Returns the rate of all drops.
  drops() {
    const sum = (answers) => answers?.drops.drops.reduce((sum, drop) => sum + drop.count, 0);
    return this.per(sum(this.before), sum(this.now));
  }

  // Returns the rate of one row of the drops. A row that was not there before began at 0.
  drop(row) {
    if (!this.before) return null;
    const before = this.before.drops.drops.find((other) => other.port === row.port && other.reason === row.reason);
    return this.per(before?.count ?? 0, row.count);
  }

  // Returns the shares of a worker's time, which add up to 1.
  worker(index) {
    const names = ["busy_s", "empty_poll_s", "idle_s", "unexplained_s"];
    const [now, before] = [this.now.runtime.workers[index], this.before?.runtime.workers[index]];
    let times = names.map((name) => now[name] - (before?.[name] ?? 0));
    // Without a poll before, the shares since the start are shown.
    if (times.some((time) => time < 0)) times = names.map((name) => Math.max(0, now[name] - (before?.[name] ?? 0)));
    const total = times.reduce((sum, time) => sum + time, 0);
    return times.map((time) => (total > 0 ? time / total : NaN));
  }

  // Returns the work of each node between the polls, with its share of all cycles.
  nodes() {
    const key = (node) => `${node.worker} ${node.name}`;
    const before = new Map(this.before?.runtime.nodes.map((node) => [key(node), node]));
    const nodes = this.now.runtime.nodes.map((node) => {
      const last = before.get(key(node)) ?? { calls: 0, packets: 0, cycles: 0 };
      const [calls, packets, cycles] = ["calls", "packets", "cycles"].map((name) => Math.max(0, node[name] - last[name]));
      return {
        key: key(node),
        name: node.name,
        worker: node.worker,
        rate: this.before ? packets / this.seconds : null,
        perCall: packets / calls,
        perPacket: cycles / packets,
        cycles,
      };
    });
    const total = nodes.reduce((sum, node) => sum + node.cycles, 0);
    return nodes.map((node) => ({ ...node, share: total > 0 ? node.cycles / total : 0 }));
  }
}

// Returns the number of drops of a port.
function dropped(port) {
  return Object.values(port.drops).reduce((sum, count) => sum + count, 0);
}
