// The page: asks once a second, and shows the answers.

import { History } from "./history.js";
import { keep, make, put, showDrops, showList, showNodes, showPorts, showWorkers, sortable } from "./tables.js";
import { clock, duration, rate } from "./text.js";
import { showTopology } from "./topology.js";

const INTERVAL = 1000;
// A switch that hangs answers with an error after 5 s.
const PATIENCE = 12000;

// The number of events that are shown.
const EVENTS = 20;

const history = new History();
const find = (selector) => document.querySelector(selector);
const state = find("#state");
const trouble = find("#trouble");
const portsTable = find("#ports table");

let ports = [];
let timer = null;

// Begins the curves with what the switch has kept, then polls. An older switch has kept nothing.
async function start() {
  try {
    const reply = await fetch("api/history", { signal: AbortSignal.timeout(PATIENCE) });
    if (reply.ok) history.begin(await reply.json());
  } catch {
    // The poll says what is wrong.
  }
  poll();
}

// Asks for the answers once, shows them, and asks again later.
async function poll() {
  clearTimeout(timer);
  try {
    const reply = await fetch("api/all", { signal: AbortSignal.timeout(PATIENCE) });
    const answers = await reply.json();
    if (reply.ok) {
      show(answers);
      tell("live", "");
    } else {
      tell("switch gone", `${answers.error}.`);
    }
  } catch (error) {
    tell("server gone", `The server of this page does not answer (${error.message}). Is “straightline web” running?`);
  }
  if (!document.hidden) timer = setTimeout(poll, INTERVAL);
}

// Shows whether the values are live. What was known stays visible.
function tell(word, message) {
  put(state, word);
  state.className = `state ${word === "live" ? "up" : "down"}`;
  document.body.classList.toggle("stale", word !== "live");
  const since = history.last ? ` The values are those of ${clock(history.last.status.time)}.` : "";
  put(trouble, message && `${message}${since}`);
  trouble.hidden = message === "";
}

function show(answers) {
  const rates = history.add(answers);
  if (!rates) return;
  ports = answers.ports.ports.map((port) => ({ ...port, rates: rates.port(port.name), curve: history.curve(port.name) }));
  showSummary(answers, rates);
  showTopology(find("#topology .domains"), ports, answers.neighbours.neighbours);
  showPorts(portsTable, ports);
  const drops = answers.drops.drops.map((drop) => ({ ...drop, rate: rates.drop(drop) }));
  showDrops(find("#drops"), drops);
  const workers = answers.runtime.workers.map(({ cpu }, index) => ({ index, cpu, shares: rates.worker(index) }));
  showWorkers(find("#workers table"), workers);
  showNodes(find("#nodes table"), rates.nodes());
  // A server without these checks, and a switch without an event log, leave them out.
  if (answers.doctor) showFindings(answers.doctor.checks);
  if (answers.events) showEvents(answers.events.events);
}

// Shows the checks that ask for something to be done, the failed ones first.
function showFindings(checks) {
  const failed = ["FAIL", "WARN"].flatMap((word) => checks.filter((check) => check.result.toUpperCase() === word));
  const items = failed.map(({ name, result, symptom, detail, fix }) => ({
    key: `${name} ${result} ${symptom} ${detail} ${fix}`,
    className: result.toUpperCase() === "FAIL" ? "bad" : "warn",
    word: result.toUpperCase(),
    text: [symptom, detail].filter(Boolean).join(": "),
    fix,
  }));
  showList(find("#findings"), items);
}

// Shows the newest events, newest first.
function showEvents(events) {
  const newest = events.slice(-EVENTS).reverse();
  showList(find("#events"), newest.map(({ seq, time, message }) => ({ key: `${seq} ${time}`, className: "", word: clock(time), text: message })));
}

function showSummary(answers, rates) {
  const { status } = answers;
  // The packets of tunnels are those of their underlay: they count once, with their outer headers.
  const counted = ports.filter((port) => !port.tunnel);
  const known = counted.map((port) => port.rates.rxBits).filter((bits) => bits !== null);
  const received = rate(known.length > 0 ? known.reduce((sum, bits) => sum + bits, 0) : null);
  const drops = rates.drops();
  const down = status.ports - status.ports_up;
  const facts = [
    ["ports up", `${status.ports_up} of ${status.ports}`, down > 0],
    ["received", `${received}${/[0-9–]$/.test(received) ? " " : ""}bit/s`, false],
    ["drops/s", rate(drops), drops > 0],
    ["workers", String(status.workers), false],
    ["uptime", duration(status.uptime_s), false],
  ];
  const create = ([name]) => {
    const fact = make("div");
    fact.append(make("dt", "", name), make("dd"));
    return fact;
  };
  keep(find("#summary"), facts, ([name]) => name, create, (fact, [, text, bad]) => {
    put(fact.lastChild, text);
    fact.lastChild.classList.toggle("bad", bad);
  });
  put(find("#version"), status.version);
}

sortable(portsTable, () => ports);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) start();
});
start();
