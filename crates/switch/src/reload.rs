//! The change from one configuration to another while packets pass.
//!
//! 1. Everything that can fail comes first. New ports listen; the kicks of ports that move are also
//!    routed to their new workers; sockets get other permissions. A failure is rolled back.
//! 2. Ports whose socket a new port needs pause, and so free its path. A failure is rolled back
//!    too: each paused port listens again, independently of the others, and keeps trying if it
//!    cannot.
//! 3. Each worker concerned gets a graph of only those domains that nothing changes for. The other
//!    domains pause, and their packets wait in their guests' rings.
//! 4. Now no worker uses the tables and ports of the paused domains, so these are changed.
//! 5. The workers get their new graphs. Ports and tables that no graph uses any more end.
//!
//! A worker takes a graph between two turns, when it holds no packet, so none is lost.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use straightline_graph::{NodeStats, PortControl, Waiters, Work};
use straightline_nodes::FlowControl;
use straightline_packet::{Drops, IgnorePoison, Level, PortIndex};

use crate::api::Changes;
use crate::changes::describe;
use crate::config::{Config, NumaNodes};
use crate::domain_graph::LiveParts;
use crate::dynamic_port::DesiredConfig;
use crate::open_port::{OpenWith, open};
use crate::plan::{
    Before, DomainSpec, Plan, PlanNodes, PortPlan, Step, difference, needs_restart, plan, specs, unchanged,
};
use crate::running::Snapshot;
use crate::tables::Tables;
use crate::{Switch, sandbox};

/// The most ports. An address's entry has 15 bits for its port, and new ports do not take the slots
/// of those that are removed.
const MOST_PORTS: usize = 1 << 14;

/// The time that a reload waits for the threads of removed ports, which a frontend may hold. The
/// API does not answer meanwhile, and its clients give up after 5 s.
const PATIENCE: Duration = Duration::from_secs(1);

impl Switch {
    /// Changes to another checked configuration. Parts that are equal in both lose no packet and no
    /// learned address. A guest stays connected if its port only moves to another patch or bridge.
    ///
    /// # Errors
    /// The keys that need a restart, or the part that could not be opened. Nothing has changed
    /// then.
    pub fn reload(&self, config: &Config) -> anyhow::Result<Changes> {
        let mut desired = self.desired.lock().ignore_poison();
        self.retry_ports();
        let changed = desired.with_dynamic_ports(config).and_then(|whole| self.change(&whole, &desired));
        if changed.is_ok() {
            desired.config = config.clone();
        }
        drop(desired);
        // No lock is held here, because a frontend may hold a port's thread.
        self.wait_for_ending(PATIENCE);
        changed
    }

    /// Tries again for each port that could not listen after a reload that failed. The ports also
    /// try by themselves.
    fn retry_ports(&self) {
        for port in &self.running.now().ports {
            if port.listen_failure().is_some() {
                // If the attempt fails, the port's status says why.
                let _ = port.resume();
            }
        }
    }

    /// Returns what [`Self::reload`] would change. Nothing is opened.
    ///
    /// # Errors
    /// The keys that need a restart, or what the switch may not open.
    pub(crate) fn preview(&self, config: &Config) -> anyhow::Result<Changes> {
        let desired = self.desired.lock().ignore_poison();
        let now = self.running.now();
        let Intent { config, plan, steps } = &intend(&now, &desired.with_dynamic_ports(config)?)?;
        for step in steps {
            let (Step::PortAdded(new) | Step::PortRemade { new, .. } | Step::PortMoved { new, permissions: true, .. }) =
                step
            else {
                continue;
            };
            let port = &config.ports[*new];
            sandbox::allows(port).with_context(|| format!("port \"{}\"", port.name))?;
            if let Some(request) = port.kind.device(port.mtu, port.mac) {
                self.devices.check(&request).with_context(|| format!("port \"{}\"", port.name))?;
            }
        }
        now.tables.after(config, plan, &self.rcu, &now.clock, |port| now.drops_of(port))?;
        let pauses = pausing(&now.domains, &specs(config, plan));
        let changes = steps.iter().map(|step| describe(step, &now.config, config)).collect();
        Ok(Changes { changes, pauses, dry_run: true })
    }

    pub(crate) fn change(&self, config: &Config, desired: &DesiredConfig) -> anyhow::Result<Changes> {
        // No client changes tables that are handed on.
        let networks = self.running.networks.lock().ignore_poison();
        let now = self.running.now();
        let Intent { config, plan, steps } = intend(&now, config)?;
        let config = &config;
        let before = Before { config: &now.config, plan: &now.plan };
        let tables = now.tables.after(config, &plan, &self.rcu, &now.clock, |port| now.drops_of(port))?;

        for bridge in &desired.flow_bridges {
            // Tables that a client's first flow makes do not drop what no flow matches yet.
            let is_old = now.tables.get::<FlowControl>("flows", bridge).is_some();
            let is_of_file = desired.config.bridges.iter().any(|known| known.name == *bridge && known.flows.is_some());
            if let Some(control) = tables.get::<FlowControl>("flows", bridge).filter(|_| !is_old && !is_of_file) {
                crate::flows::begin(&control);
            }
        }

        let fresh = BTreeMap::new();
        let undo = Vec::new();
        let paused = Vec::new();
        let mut attempt =
            Attempt { switch: self, now: &now, config, plan: &plan, tables: &tables, desired, fresh, undo, paused };
        let prepared = attempt.prepare(&steps).and_then(|late| attempt.replace(&late));
        if let Err(error) = prepared {
            return Err(attempt.roll_back(error));
        }
        let (ports, drops) = attempt.ports(before);
        let next = Next { config, plan, ports, drops, tables };
        let next = self.hand_over(&now, before, next)?;
        let pauses = pausing(&now.domains, &next.domains);
        let next = Snapshot { client_groups: desired.client_groups(), ..next };
        self.settle(&now, next, &steps);
        networks.reapply(&self.running.now());
        let changes = steps.iter().map(|step| describe(step, &now.config, config)).collect();
        Ok(Changes { changes, pauses, dry_run: false })
    }

    /// Does steps 3 to 5.
    fn hand_over(&self, now: &Snapshot, before: Before<'_>, next: Next<'_>) -> anyhow::Result<Snapshot> {
        let Next { config, plan, ports, drops, tables } = next;
        let domains = specs(config, &plan);
        let kept: Vec<_> = now.domains.iter().zip(&domains).map(|(had, has)| unchanged(had, has)).collect();
        let level = config.switch.level();
        let is_other_level = level != now.config.switch.level();
        let is_concerned = |&worker: &usize| {
            is_other_level
                || kept[worker].len() != domains[worker].len()
                || kept[worker].len() != now.domains[worker].len()
        };
        let concerned: Vec<_> = (0..self.handles.len()).filter(is_concerned).collect();

        // The tables of domains that are kept are the same as before.
        let live = live_parts(&plan, &ports, &drops, self.running.removed_drops(), &tables, level);
        let own = |worker: usize| now.workers[worker].1.clone();
        self.post(concerned.iter().map(|&worker| (worker, live.work(worker, &kept[worker], own(worker)))))?;

        for (at, (place, port)) in plan.ports.iter().zip(&ports).enumerate() {
            let Some(old) = before.same_port(config, at).map(|old| &now.plan.ports[old]) else { continue };
            if old.waits != place.waits {
                port.set_waits(place.waits);
            }
            if old.assignment != place.assignment {
                port.assign_queues(place.assignment.clone());
            }
        }
        tables.commit(&now.tables);
        let mut workers = now.workers.clone();
        let work: Vec<_> = concerned
            .iter()
            .map(|&worker| {
                let work = live.work(worker, &domains[worker], node_stats(now, config, &plan, worker));
                workers[worker].1 = work.graph.stats();
                (worker, work)
            })
            .collect();
        self.post(work)?;
        drop(live);
        let client_groups = now.client_groups.clone();
        let clock = now.clock.clone();
        Ok(Snapshot { clock, config: config.clone(), client_groups, plan, domains, ports, drops, tables, workers })
    }

    /// Returns the waiters that the kicks of a port wake.
    fn waiters(&self, place: &PortPlan) -> Waiters {
        let waiters_of =
            |workers: &[usize]| workers.iter().map(|&worker| Arc::clone(&self.handles[worker].waiter)).collect();
        Waiters { rx: waiters_of(&place.assignment.rx_workers), tx: waiters_of(&place.assignment.delivering) }
    }

    /// Gives new work to workers, and waits until each has left its former work.
    fn post(&self, work: impl IntoIterator<Item = (usize, Work)>) -> anyhow::Result<()> {
        let mut posted = Vec::new();
        for (worker, work) in work {
            let handle = &self.handles[worker];
            handle.mailbox.post(work);
            handle.waiter.wake();
            posted.push((worker, handle));
        }
        let mut gone = None;
        for (worker, handle) in posted {
            if handle.mailbox.wait().is_none() {
                gone = Some(worker);
            }
        }
        gone.map_or(Ok(()), |worker| {
            Err(anyhow::anyhow!("worker {worker} has ended: this is a bug; restart the switch"))
        })
    }

    /// Ends ports that are in no graph any more, adds the counters of removed parts to the sums,
    /// and shows the new snapshot.
    fn settle(&self, now: &Snapshot, next: Snapshot, steps: &[Step]) {
        let mut ending = self.ending();
        for step in steps {
            if let Step::PortRemoved { old } | Step::PortRemade { old, .. } = step {
                now.ports[*old].begin_stop();
                ending.push(Arc::clone(&now.ports[*old]));
            }
            if let Step::PortRemoved { old } = step {
                self.running.removed_drops().absorb(&now.drops[*old]);
            }
        }
        drop(ending);
        let all = |of: &Snapshot| -> Vec<Arc<NodeStats>> {
            of.workers.iter().flat_map(|(_, nodes)| nodes).cloned().collect()
        };
        let kept = all(&next);
        let kept: HashSet<_> = kept.iter().map(Arc::as_ptr).collect();
        for node in all(now).iter().filter(|node| !kept.contains(&Arc::as_ptr(node))) {
            self.running.removed_nodes().absorb(node);
        }
        self.running.show(next);
    }
}

/// A change, planned.
struct Intent {
    config: Config,
    plan: Plan,
    steps: Vec<Step>,
}

/// Plans the change to a configuration.
///
/// # Errors
/// The configuration cannot follow the running one while the switch runs.
fn intend(now: &Snapshot, config: &Config) -> anyhow::Result<Intent> {
    if let Some(keys) = needs_restart(&now.config.switch, &config.switch) {
        bail!("[switch]: {keys} cannot change while the switch runs; nothing is changed; restart to apply");
    }
    ensure!(config.ports.len() <= MOST_PORTS, "{} ports; at most {MOST_PORTS} are served", config.ports.len());
    let config = with_nodes_of(&now.config, config);
    let before = Before { config: &now.config, plan: &now.plan };
    let memory =
        |port: &str| now.config.port_index(port).map_or_else(Vec::new, |at| now.ports[at].status().memory_nodes);
    let nodes = PlanNodes::new(&config, NumaNodes::of_this_machine(), memory);
    let plan = plan(&config, Some(before), &nodes);
    let steps = difference(before, &config, &plan);
    Ok(Intent { config, plan, steps })
}

/// Returns the domains that pause during a change, as messages name them. Ports that are in no patch
/// and no bridge are left out, because they have no packets.
fn pausing(before: &[Vec<Arc<DomainSpec>>], after: &[Vec<Arc<DomainSpec>>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for (had, has) in before.iter().zip(after) {
        let kept = unchanged(had, has);
        let kept: HashSet<_> = kept.iter().map(|spec| &spec.name).collect();
        let others = had.iter().chain(has).filter(|spec| !kept.contains(&spec.name));
        names.extend(others.flat_map(|spec| &spec.parts).map(|part| &part.name).filter(|name| name.0 != "port"));
    }
    names.into_iter().map(|(kind, name)| format!("{kind} {name:?}")).collect()
}

/// The parts of the next snapshot that exist before any worker changes.
struct Next<'a> {
    config: &'a Config,
    plan: Plan,
    ports: Vec<Arc<dyn PortControl>>,
    drops: Vec<Arc<Drops>>,
    tables: Tables,
}

/// The steps done so far, for the rollback if a later one fails.
struct Attempt<'a> {
    switch: &'a Switch,
    now: &'a Snapshot,
    config: &'a Config,
    plan: &'a Plan,
    tables: &'a Tables,
    desired: &'a DesiredConfig,
    /// New ports, by their index.
    fresh: BTreeMap<usize, Arc<dyn PortControl>>,
    undo: Vec<Undo>,
    /// Ports that have freed their socket's path, by their index in the running configuration.
    paused: Vec<usize>,
}

enum Undo {
    Permissions { old: usize },
    Routing { old: usize },
}

impl Attempt<'_> {
    /// Does the steps that are possible while everything runs. Returns the new ports whose sockets
    /// belong to ports that will be removed.
    fn prepare(&mut self, steps: &[Step]) -> anyhow::Result<Vec<usize>> {
        let mut late = Vec::new();
        let claims: HashSet<_> = self.now.config.ports.iter().filter_map(|port| port.kind.exclusive()).collect();
        for step in steps {
            match *step {
                Step::PortAdded(new) | Step::PortRemade { new, .. } => {
                    // Before any port gives up its interface for the new one.
                    let port = &self.config.ports[new];
                    if let Some(request) = port.kind.device(port.mtu, port.mac) {
                        self.switch.devices.check(&request).with_context(|| format!("port \"{}\"", port.name))?;
                    }
                    if port.kind.exclusive().is_some_and(|claim| claims.contains(&claim)) {
                        late.push(new);
                    } else {
                        self.open(new)?;
                    }
                }
                Step::PortMoved { old, new, permissions: other, .. } => {
                    if other {
                        sandbox::allows(&self.config.ports[new])
                            .with_context(|| format!("port \"{}\"", self.config.ports[new].name))?;
                        self.undo.push(Undo::Permissions { old });
                        self.now.ports[old].set_permissions(&self.config.ports[new].kind.permissions())?;
                    }
                    let place = &self.plan.ports[new];
                    if *place != self.now.plan.ports[old] {
                        self.now.ports[old]
                            .route_kicks(self.switch.waiters(place), place.waits)
                            .with_context(|| format!("port \"{}\": cannot move", self.config.ports[new].name))?;
                        self.undo.push(Undo::Routing { old });
                    }
                }
                _ => {}
            }
        }
        Ok(late)
    }

    /// Pauses the ports whose sockets are needed, and opens those that need them. A paused port's
    /// path is free at once, even if a frontend holds the port's thread.
    fn replace(&mut self, late: &[usize]) -> anyhow::Result<()> {
        for &new in late {
            let claim = self.config.ports[new].kind.exclusive();
            for (old, port) in self.now.config.ports.iter().enumerate() {
                if port.kind.exclusive() == claim && !self.paused.contains(&old) {
                    self.now.ports[old].pause();
                    self.paused.push(old);
                }
            }
        }
        late.iter().try_for_each(|&new| self.open(new))
    }

    fn open(&mut self, new: usize) -> anyhow::Result<()> {
        let port = &self.config.ports[new];
        let place = &self.plan.ports[new];
        // A port of the same name keeps its counters.
        let with = OpenWith {
            place,
            drops: self.now.drops_of(&port.name),
            rcu: &self.switch.rcu,
            waiters: self.switch.waiters(place),
            given: self.desired.socket(&port.name),
            devices: &self.switch.devices,
            tunnel: self.tables.get("tunnel", &port.name),
            clock: &self.now.clock,
        };
        let fresh = open(port, with)?;
        let old = self.now.config.port_index(&port.name);
        if old.is_some_and(|old| self.now.ports[old].is_set_down()) {
            fresh.set_link(false);
        }
        self.fresh.insert(new, fresh);
        Ok(())
    }

    /// Returns all ports of the new configuration, and their drop counters.
    fn ports(self, before: Before<'_>) -> (Vec<Arc<dyn PortControl>>, Vec<Arc<Drops>>) {
        let ports = (0..self.config.ports.len()).filter_map(|at| {
            let port = self.fresh.get(&at).or_else(|| Some(&self.now.ports[before.same_port(self.config, at)?]))?;
            Some((Arc::clone(port), Arc::clone(port.drops())))
        });
        ports.unzip()
    }

    /// Undoes all steps. Returns the error, with further facts for its reader.
    fn roll_back(&mut self, error: anyhow::Error) -> anyhow::Error {
        // The new ports' paths are free when `begin_stop` returns.
        self.fresh.values().for_each(|port| port.begin_stop());
        let mut again = Vec::new();
        let mut down = Vec::new();
        for &old in &self.paused {
            let name = &self.now.config.ports[old].name;
            match self.now.ports[old].resume() {
                Ok(()) => again.push(name.as_str()),
                Err(error) => {
                    tracing::error!(port = name, "cannot listen again, and tries every second: {error}");
                    down.push(format!("port \"{name}\" is down until it can listen again ({error})"));
                }
            }
        }
        for undo in self.undo.drain(..).rev() {
            let done = match undo {
                Undo::Permissions { old } => self.now.ports[old]
                    .set_permissions(&self.now.config.ports[old].kind.permissions())
                    .map_err(anyhow::Error::from),
                Undo::Routing { old } => {
                    let place = &self.now.plan.ports[old];
                    let done = self.now.ports[old].route_kicks(self.switch.waiters(place), place.waits);
                    done.map_err(anyhow::Error::from)
                }
            };
            if let Err(error) = done {
                tracing::error!("the rollback is incomplete: {error:#}");
            }
        }
        self.switch.ending().extend(std::mem::take(&mut self.fresh).into_values());
        let error = match again.as_slice() {
            [] => error,
            again => {
                error.context(format!("nothing is changed, but guests of {} must connect again", again.join(", ")))
            }
        };
        down.into_iter().fold(error, |error, down| error.context(down))
    }
}

/// Returns the opened ports by the slots that specs name them by.
fn live_parts<'a>(
    plan: &Plan,
    ports: &'a [Arc<dyn PortControl>],
    drops: &[Arc<Drops>],
    nobody: &Arc<Drops>,
    tables: &'a Tables,
    level: Level,
) -> LiveParts<'a> {
    let slots = plan.ports.iter().map(|place| usize::from(place.slot) + 1).max().unwrap_or(0);
    let mut by_slot = vec![Arc::clone(nobody); slots];
    for (place, drops) in plan.ports.iter().zip(drops) {
        by_slot[usize::from(place.slot)] = Arc::clone(drops);
    }
    let ports = plan.ports.iter().zip(ports).map(|(place, port)| (PortIndex(place.slot), port));
    LiveParts { ports: ports.collect(), drops: by_slot, tables, level }
}

/// Returns the configuration, with the running prototypes of nodes that stay the same, so that
/// these keep their state.
fn with_nodes_of(running: &Config, config: &Config) -> Config {
    let mut config = config.clone();
    for node in &mut config.nodes {
        if let Some(same) = running.nodes.iter().find(|old| **old == *node) {
            node.clone_from(same);
        }
    }
    config
}

/// Returns the node counters that a worker's new graph continues: its own counters, and the
/// counters of ports that move to it as a whole.
fn node_stats(now: &Snapshot, config: &Config, plan: &Plan, worker: usize) -> Vec<Arc<NodeStats>> {
    let mut node_stats = now.workers[worker].1.clone();
    let mut moved: BTreeMap<usize, HashSet<String>> = BTreeMap::new();
    let places = plan.ports.iter().zip(&config.ports);
    for (_, port) in places.filter(|(place, _)| place.only_worker() == Some(worker)) {
        let old = now.config.port_index(&port.name).map(|old| &now.plan.ports[old]);
        if let Some(from) = old.and_then(PortPlan::only_worker).filter(|from| *from != worker) {
            moved.entry(from).or_default().extend([format!("{}-rx", port.name), format!("{}-tx", port.name)]);
        }
    }
    for (from, names) in moved {
        node_stats.extend(now.workers[from].1.iter().filter(|node| names.contains(&node.name)).cloned());
    }
    node_stats
}
