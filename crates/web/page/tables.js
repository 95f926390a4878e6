// Tables whose rows are kept and updated in place, so that nothing jumps and the focus stays.

import { count, mean, percent, rate } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [160, 28];
// Not a node: the work at the end of each turn.
const TURN_END = "at the end of each turn: buffers go back to the rings they came from, and guests are notified";
const STATES = ["busy", "empty-poll", "idle", "unexplained"];

// Sets the text of an element if it is another one.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Makes an element with a class and text.
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

// Keeps one child for each item, in the items' order. `create` makes the child of an item, `update`
// fills it.
export function keep(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = key(item);
    let child = known.get(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    known.delete(name);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, item);
  });
  for (const child of known.values()) child.remove();
}

// Makes a table row: a header cell, and cells of these classes.
function row(name, ...classes) {
  const tr = make("tr");
  const th = make("th", "name", name);
  th.scope = "row";
  tr.append(th, ...classes.map((className) => make("td", className)));
  return tr;
}

// Marks a cell that counts something bad, if it is not 0.
function mark(cell, value) {
  cell.classList.toggle("bad", value > 0);
}

// The order in which the ports are shown: that of the configuration, or by a column. It changes
// when a header is pressed, and not by itself.
let order = null;

// Makes the headers of the ports' table sort it.
export function sortable(table, current) {
  for (const button of table.querySelectorAll("button[data-sort]")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const words = button.dataset.sort === "name";
      const again = header.getAttribute("aria-sort") !== null;
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      order = null;
      if (!again) {
        header.setAttribute("aria-sort", words ? "ascending" : "descending");
        const ports = current().map((port) => [port.name, port.rates[button.dataset.sort] ?? -1]);
        ports.sort((one, other) => (words ? one[0].localeCompare(other[0]) : other[1] - one[1]));
        order = new Map(ports.map(([name], index) => [name, index]));
      }
      showPorts(table, current());
    });
  }
}

// Names the limits and groups of a port, a line for each: "rate in 1 Gbit/s". They do not change from
// second to second.
function limits(port) {
  const rates = [["in", port.rate_in], ["out", port.rate_out]].filter(([, rate]) => rate);
  const lines = rates.map(([name, rate]) => `rate ${name} ${rate.limit}`);
  if (port.groups) lines.push(`groups ${port.groups.names.join(", ")}`);
  return lines.join("\n");
}

// Describes what the limits of a port have done: "rate in 1 Gbit/s, waited 12 times for 340 ms".
function limitsUse(port) {
  const describe = (name, rate) => {
    if (!rate) return [];
    const waited = rate.wait_count > 0 ? `, waited ${rate.wait_count} times for ${rate.waited_ms} ms` : "";
    const dropped = rate.dropped > 0 ? `, ${rate.dropped} packets dropped` : "";
    return [`${name} ${rate.limit}${waited}${dropped}`];
  };
  const { groups } = port;
  const refused = groups?.refused > 0 ? `, ${groups.refused} refused` : "";
  const connections = groups ? [`${groups.connections} of ${groups.most} connections${refused}`] : [];
  return [...describe("rate in", port.rate_in), ...describe("rate out", port.rate_out), ...connections].join("\n");
}

// Shows the ports: [{name, kind, link, reason, rates, curve}].
export function showPorts(table, ports) {
  if (order) {
    const place = (port) => order.get(port.name) ?? Infinity;
    ports = [...ports].sort((one, other) => place(one) - place(other));
  }
  const create = (port) => {
    const numbers = ["number", "number", "number packets", "number packets", "number", "number wide"];
    const tr = row("", "word", "curve", ...numbers);
    const kind = make("small", "", port.kind);
    // A narrow screen has no column for the link.
    kind.append(make("span", "when-down bad"));
    tr.cells[0].append(make("span", "", port.name), kind, make("small", "limits"));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    for (const name of ["rx", "tx"]) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      svg.append(path);
    }
    tr.cells[2].append(svg);
    return tr;
  };
  keep(table.tBodies[0], ports, (port) => port.name, create, (tr, port) => {
    const { rates } = port;
    put(tr.querySelector(".limits"), limits(port));
    tr.cells[0].title = limitsUse(port);
    put(tr.cells[1], port.link);
    tr.cells[1].className = `word ${port.link}`;
    tr.cells[1].title = port.reason ?? "";
    put(tr.querySelector(".when-down"), port.link === "down" ? " down" : "");
    const { rx, tx, max } = port.curve.paths(WIDTH, HEIGHT);
    const svg = tr.cells[2].firstChild;
    svg.children[0].setAttribute("d", rx);
    svg.children[1].setAttribute("d", tx);
    svg.setAttribute("aria-label", `last two minutes, maximum ${rate(max)} bit/s`);
    const numbers = [rates.rxBits, rates.txBits, rates.rxPackets, rates.txPackets, rates.drops];
    numbers.forEach((number, index) => put(tr.cells[3 + index], rate(number)));
    put(tr.cells[8], count(rates.dropped));
    mark(tr.cells[7], rates.drops);
  });
}

// Shows the drops: [{port, reason, count, meaning, remedy, rate}].
export function showDrops(section, drops) {
  section.querySelector(".empty").hidden = drops.length > 0;
  section.querySelector(".scroll").hidden = drops.length === 0;
  // Each row has a second one below it, with words.
  const rows = drops.flatMap((drop) => [{ drop }, { drop, prose: true }]);
  const key = ({ drop, prose }) => `${drop.port} ${drop.reason} ${prose ?? ""}`;
  const create = ({ drop, prose }) => {
    if (!prose) {
      const tr = row(drop.port, "reason", "number", "number");
      put(tr.cells[1], drop.reason);
      return tr;
    }
    const tr = make("tr", "below");
    const cell = make("td", "prose");
    cell.colSpan = 4;
    const remedy = make("span", "remedy");
    withCode(remedy, drop.remedy);
    withCode(cell, `${drop.meaning} `);
    cell.append(remedy);
    tr.append(cell);
    return tr;
  };
  keep(section.querySelector("tbody"), rows, key, create, (tr, { drop, prose }) => {
    if (prose) return;
    put(tr.cells[2], rate(drop.rate));
    put(tr.cells[3], count(drop.count));
    mark(tr.cells[2], drop.rate);
  });
}

// Appends a text in which code stands between backquotes.
function withCode(element, text) {
  text.split("`").forEach((part, index) => element.append(index % 2 === 1 ? make("code", "", part) : part));
}

// The texts with code that elements show.
const texts = new WeakMap();

// Sets such a text if it is another one.
export function putWithCode(element, text) {
  if (texts.get(element) === text) return;
  texts.set(element, text);
  element.replaceChildren();
  withCode(element, text);
}

// Makes the element of a remedy: a command, or a sentence in which code stands between backquotes.
function remedy(text) {
  if (!text.includes("`") && !text.endsWith(".")) return make("code", "", text);
  const span = make("span", "remedy");
  withCode(span, text);
  return span;
}

// Shows the workers: [{index, cpu, shares}].
export function showWorkers(table, workers) {
  // Each row has a second one below it, with the bar.
  const rows = workers.flatMap((worker) => [{ worker }, { worker, bar: true }]);
  const create = ({ bar }) => {
    if (!bar) return row("", ...STATES.map(() => "percent"));
    const tr = make("tr", "below");
    const cell = make("td");
    cell.colSpan = 1 + STATES.length;
    const stack = make("div", "stack");
    stack.append(...STATES.map((state) => make("span", state)));
    cell.append(stack);
    tr.append(cell);
    // The numbers above it say the same.
    tr.setAttribute("aria-hidden", "true");
    return tr;
  };
  keep(table.tBodies[0], rows, ({ worker, bar }) => `${worker.index} ${bar ?? ""}`, create, (tr, { worker, bar }) => {
    if (!bar) put(tr.cells[0], worker.cpu === null ? `${worker.index}, unpinned` : `${worker.index}, CPU ${worker.cpu}`);
    worker.shares.forEach((share, at) => {
      if (bar) tr.cells[0].firstChild.children[at].style.flexGrow = Number.isFinite(share) ? share : 0;
      else put(tr.cells[1 + at], percent(share));
    });
  });
}

// Shows the nodes, as `Rates.nodes` returns them.
export function showNodes(table, nodes) {
  const most = Math.max(...nodes.map((node) => node.share), 0.001);
  const create = (node) => {
    const tr = row(node.name, "short", "number", "number percall", "number", "bar");
    if (node.name === "turn-end") tr.cells[0].title = TURN_END;
    put(tr.cells[1], node.worker === null ? "" : String(node.worker));
    const bar = make("div", "share");
    bar.append(make("span", "busy"), make("small"));
    tr.cells[5].append(bar);
    return tr;
  };
  keep(table.tBodies[0], nodes, (node) => node.key, create, (tr, node) => {
    put(tr.cells[2], rate(node.rate));
    put(tr.cells[3], mean(node.perCall));
    put(tr.cells[4], mean(node.perPacket));
    const [bar, text] = tr.cells[5].firstChild.children;
    bar.style.width = `${((100 * node.share) / most).toFixed(1)}%`;
    put(text, percent(node.share));
  });
}

// Shows a list with a class, a bold word and words for each item: [{key, className, word, text, fix}].
export function showList(section, items) {
  section.hidden = false;
  document.querySelector(`nav a[href="#${section.id}"]`).hidden = false;
  section.querySelector(".empty").hidden = items.length > 0;
  const create = (item) => {
    const li = make("li");
    li.append(make("strong", item.className, item.word), " ");
    withCode(li, item.text);
    if (item.fix) li.append(make("br"), remedy(item.fix));
    return li;
  };
  keep(section.querySelector("ul"), items, (item) => item.key, create, () => {});
}
