// The topology: each patch, bridge and underlay with an edge to each of its ports.

import { keep, make, put, putWithCode } from "./tables.js";
import { duration, rate } from "./text.js";

// The word for ports that nothing connects.
const NOTHING = "not connected";

// Returns the domains in the ports' order: [{key, kind, name, ports}].
function domains(ports) {
  const found = new Map();
  for (const port of ports) {
    const { kind, name } = port.joined ?? { kind: "", name: NOTHING };
    const key = `${kind} ${name}`;
    if (!found.has(key)) found.set(key, { key, kind, name, ports: [] });
    found.get(key).ports.push(port);
  }
  // Underlays carry the tunnels of the others, so they come last, before ports without a domain.
  const rank = (domain) => ["patch", "bridge", "underlay", ""].indexOf(domain.kind) >> 1;
  return [...found.values()].sort((one, other) => rank(one) - rank(other));
}

// Returns the text on the edge to a port.
function label(port) {
  if (port.link === "down") return port.reason ?? "down";
  return `rx ${rate(port.rates.rxBits)} · tx ${rate(port.rates.txBits)} bit/s`;
}

// Returns the facts about a port below its name.
function facts(port) {
  const { tunnel, device } = port;
  if (tunnel) {
    const state = tunnel.state ? `, next hop ${tunnel.state}` : "";
    return `to ${tunnel.remote.join(", ")} over ${tunnel.underlay}${state}`;
  }
  if (device) return `interface ${device.interface}`;
  return "";
}

function createDomain(domain) {
  const article = make("article", "domain");
  const title = make("h3", "", domain.name);
  if (domain.kind) title.prepend(make("small", "", domain.kind));
  article.append(title, make("ul"));
  return article;
}

function createPort(port) {
  const item = make("li");
  const name = make("span", "port");
  name.append(make("span", "", port.name), make("small", "", port.kind));
  item.append(make("span", "edge"), name, make("span", "facts"));
  return item;
}

function updatePort(item, port) {
  const [edge, , about] = item.children;
  item.className = port.link;
  putWithCode(edge, label(port));
  put(about, facts(port));
  const since = port.link_changes > 0 ? `${port.link} for ${duration(port.link_since_s)}` : port.link;
  if (item.title !== since) item.title = since;
}

// Shows the topology in the element `parent`. Each tunnel is an edge of its underlay, too.
export function showTopology(parent, ports, neighbours) {
  const all = domains(ports);
  for (const domain of all) {
    if (domain.kind !== "underlay") continue;
    const carried = ports.filter((port) => port.tunnel?.underlay === domain.name);
    domain.carried = carried.map((port) => port.name);
    domain.hops = neighbours.filter((hop) => hop.underlay === domain.name);
  }
  keep(parent, all, (domain) => domain.key, createDomain, (article, domain) => {
    keep(article.querySelector("ul"), domain.ports, (port) => port.name, createPort, updatePort);
    if (domain.kind === "underlay") updateUnderlay(article, domain);
  });
}

// Shows the tunnels and the next hops of an underlay.
function updateUnderlay(article, domain) {
  let note = article.querySelector(".note");
  if (!note) {
    note = make("p", "note");
    article.append(note);
  }
  const hops = {};
  for (const hop of domain.hops) hops[hop.state] = (hops[hop.state] ?? 0) + 1;
  const states = Object.entries(hops).map(([state, number]) => `${number} ${state}`);
  const carries = domain.carried.length > 0 ? `carries ${domain.carried.join(", ")}` : "carries no tunnel";
  put(note, `${carries}${states.length > 0 ? `; next hops: ${states.join(", ")}` : ""}`);
}
