//! The stream of `subscribe`: the state of stations and links, then its changes.
//!
//! Workers tell nobody what they learn. They write it into the journal of their table, and this looks
//! at the journals a hundred times a second. The state comes first: a journal is followed from a point
//! before the table is read, so no change is missed, and some come twice. When a journal has lost changes,
//! or a reload has brought another table, the state comes again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use straightline_fdb::{BindingChange, BindingSource, FdbChange, FdbChangeKind, FdbEntry};
use straightline_graph::newest_link_note;
use straightline_nodes::{BindingTable, BridgeTable};
use straightline_packet::IgnorePoison;

use super::Members;
use crate::Switch;
use crate::api::{ErrorCode, MAX_FILL, NetworkEvent, Readiness, Refusal, Stream, SubscribeRequest, Subscribed};
use crate::config::PortConfig;
use crate::running::{Running, Snapshot};

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// Sweeps of a table in a look. So a large table without traffic is passed over in some seconds.
const SWEEPS: usize = 64;

impl Switch {
    /// Begins a stream of stations, bindings and links. An owner has its lease until it is dropped.
    ///
    /// # Errors
    /// There is no such bridge, or the owner has no valid name.
    pub fn subscribe(&self, request: &SubscribeRequest) -> Result<(Subscribed, Box<dyn Stream>), Refusal> {
        let SubscribeRequest { owner, stale_s, bridges } = request;
        if !(1..=SubscribeRequest::MOST_STALE).contains(stale_s) {
            let error = format!("stale_s = {stale_s} is out of range: use 1 to {}", SubscribeRequest::MOST_STALE);
            return Err(Refusal::new(ErrorCode::BadRequest, error));
        }
        let now = self.running.now();
        for bridge in bridges {
            Members::of(&now, bridge)?;
        }
        let mut networks = self.running.networks.lock().ignore_poison();
        let unconfirmed = match owner {
            Some(owner) => networks.attach(owner, Duration::from_secs((*stale_s).into()))?,
            None => 0,
        };
        let answer = Subscribed { instance: networks.instance.clone(), unconfirmed };
        drop(networks);
        let subscription = Subscription {
            lease: owner.as_ref().map(|owner| Lease { running: Arc::clone(&self.running), owner: owner.clone() }),
            running: Arc::clone(&self.running),
            next: self.running.clock.now(),
            only: bridges.clone(),
            names: HashMap::new(),
            snapshot: None,
            followed: Vec::new(),
            links: BTreeMap::new(),
            link_note: 0,
            pending: VecDeque::new(),
        };
        Ok((answer, Box::new(subscription)))
    }
}

/// The lease of an owner.
struct Lease {
    running: Arc<Running>,
    owner: String,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.running.networks.lock().ignore_poison().detach(&self.owner);
    }
}

/// A bridge whose changes are told.
struct Followed {
    name: String,
    table: Arc<BridgeTable>,
    /// The number of changes of the stations that were told.
    since: u64,
    /// The bindings, and the number of their changes that were told.
    bindings: Option<(Arc<BindingTable>, u64)>,
}

/// Lines that are still to be told.
enum Pending {
    Line(NetworkEvent),
    /// Stations of the bridge with this place in the list.
    Stations(usize, std::vec::IntoIter<FdbEntry>),
    Changes(usize, std::vec::IntoIter<FdbChange>),
    Bindings(usize, std::vec::IntoIter<BindingChange>),
}

struct Subscription {
    #[expect(dead_code, reason = "dropping it ends the lease")]
    lease: Option<Lease>,
    running: Arc<Running>,
    /// The time of the next look.
    next: Instant,
    /// The bridges of interest; empty for all.
    only: Vec<String>,
    /// The ports by their index.
    names: Names,
    /// The snapshot of the last look.
    snapshot: Option<Arc<Snapshot>>,
    followed: Vec<Followed>,
    /// The links that were told.
    links: BTreeMap<String, bool>,
    link_note: u64,
    pending: VecDeque<Pending>,
}

impl Stream for Subscription {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::From(self.next)
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        if self.pending.is_empty() {
            self.look();
        }
        while output.len() < MAX_FILL {
            let Some(line) = self.next_line() else {
                // Only now: until then there is more.
                self.next = self.running.clock.now() + PERIOD;
                break;
            };
            if serde_json::to_writer(&mut *output, &line).is_ok() {
                output.push(b'\n');
            }
        }
        true
    }
}

impl Subscription {
    /// Finds what is to be told.
    fn look(&mut self) {
        let now = self.running.now();
        let is_same = self.snapshot.as_ref().is_some_and(|before| Arc::ptr_eq(before, &now));
        if !is_same && !self.has_same_tables(&now) {
            return self.begin(now);
        }
        if !is_same {
            self.names = names(&now);
            self.snapshot = Some(Arc::clone(&now));
        }
        let second = now.view(|view| view.second());
        for (at, followed) in self.followed.iter_mut().enumerate() {
            let fdb = followed.table.fdb();
            (0..SWEEPS).for_each(|_| fdb.sweep(second));
            match fdb.changes(followed.since) {
                Some((changes, count)) => {
                    followed.since = count;
                    if !changes.is_empty() {
                        self.pending.push_back(Pending::Changes(at, changes.into_iter()));
                    }
                }
                None => return self.begin(now),
            }
            let Some((table, since)) = &mut followed.bindings else { continue };
            match table.bindings().changes(*since) {
                Some((changes, count)) => {
                    *since = count;
                    if !changes.is_empty() {
                        self.pending.push_back(Pending::Bindings(at, changes.into_iter()));
                    }
                }
                None => return self.begin(now),
            }
        }
        self.look_at_links(&now);
    }

    /// Returns whether the bridges have the tables that are followed.
    fn has_same_tables(&self, now: &Snapshot) -> bool {
        let tables = self.tables(now);
        self.snapshot.is_some()
            && tables.len() == self.followed.len()
            && tables.iter().zip(&self.followed).all(|(table, followed)| {
                let bindings = now.tables.get::<BindingTable>("bindings", &followed.name);
                let followed_bindings = followed.bindings.as_ref().map(|(table, _)| Arc::as_ptr(table));
                Arc::ptr_eq(table, &followed.table) && bindings.as_ref().map(Arc::as_ptr) == followed_bindings
            })
    }

    fn tables(&self, now: &Snapshot) -> Vec<Arc<BridgeTable>> {
        let bridges = now.config.bridges.iter().map(|bridge| &bridge.name);
        let bridges = bridges.filter(|name| self.only.is_empty() || self.only.contains(name));
        bridges.filter_map(|name| now.tables.get::<BridgeTable>("bridge", name)).collect()
    }

    /// Begins with the whole state.
    fn begin(&mut self, now: Arc<Snapshot>) {
        self.pending.clear();
        self.pending.push_back(Pending::Line(NetworkEvent::Begin));
        self.names = names(&now);
        let second = now.view(|view| view.second());
        let follow = |table: Arc<BridgeTable>| Followed {
            name: table.bridge().to_owned(),
            since: table.fdb().follow(),
            bindings: now.tables.get::<BindingTable>("bindings", table.bridge()).map(|bindings| {
                let since = bindings.bindings().follow();
                (bindings, since)
            }),
            table,
        };
        self.followed = self.tables(&now).into_iter().map(follow).collect();
        for (at, followed) in self.followed.iter().enumerate() {
            let mut entries = followed.table.fdb().entries(second);
            entries.retain(|entry| !entry.is_owned);
            self.pending.push_back(Pending::Stations(at, entries.into_iter()));
            if let Some((table, _)) = &followed.bindings {
                let mut entries = table.bindings().entries();
                entries.retain(|binding| binding.source != BindingSource::Owner);
                let bound = |binding| BindingChange { binding, is_bound: true };
                let bound: Vec<_> = entries.into_iter().map(bound).collect();
                self.pending.push_back(Pending::Bindings(at, bound.into_iter()));
            }
        }
        self.links.clear();
        self.link_note = 0;
        self.look_at_links(&now);
        self.pending.push_back(Pending::Line(NetworkEvent::Synced));
        self.snapshot = Some(now);
    }

    fn look_at_links(&mut self, now: &Snapshot) {
        let newest = newest_link_note();
        if newest == self.link_note && !self.links.is_empty() {
            return;
        }
        self.link_note = newest;
        for (config, port) in now.config.ports.iter().zip(&now.ports) {
            let up = port.status().up;
            if self.links.insert(config.name.clone(), up) != Some(up) {
                self.pending.push_back(Pending::Line(NetworkEvent::Link { port: config.name.clone(), up }));
            }
        }
    }

    /// Returns the next line.
    fn next_line(&mut self) -> Option<NetworkEvent> {
        loop {
            let line = match self.pending.front_mut()? {
                Pending::Line(line) => Some(std::mem::replace(line, NetworkEvent::Other)),
                Pending::Stations(at, stations) => {
                    stations.next().map(|entry| station(&self.followed[*at].name, &self.names, &entry))
                }
                Pending::Changes(at, changes) => {
                    changes.next().map(|change| changed(&self.followed[*at].name, &self.names, change))
                }
                Pending::Bindings(at, changes) => {
                    changes.next().map(|change| binding(&self.followed[*at].name, &self.names, &change))
                }
            };
            let is_last = line.is_none() || matches!(self.pending.front(), Some(Pending::Line(_)));
            if is_last {
                self.pending.pop_front();
            }
            if line.is_some() {
                return line;
            }
        }
    }
}

/// The facts that events tell of a port.
#[derive(Clone, Debug, Default)]
struct PortFacts {
    name: String,
    is_tunnel: bool,
    /// It may send from certain MAC addresses only.
    is_checked: bool,
}

type Names = HashMap<u16, PortFacts>;

fn names(now: &Snapshot) -> Names {
    let facts = |config: &PortConfig| PortFacts {
        name: config.name.clone(),
        is_tunnel: config.kind.as_tunnel().is_some(),
        is_checked: config.source_check.is_some(),
    };
    let ports = now.config.ports.iter().zip(&now.plan.ports);
    ports.map(|(config, place)| (place.slot, facts(config))).collect()
}

fn facts(names: &Names, port: u16) -> PortFacts {
    names.get(&port).cloned().unwrap_or_default()
}

fn station(bridge: &str, names: &Names, entry: &FdbEntry) -> NetworkEvent {
    let PortFacts { name: port, is_tunnel, is_checked } = facts(names, entry.port.0);
    NetworkEvent::Learned {
        bridge: bridge.to_owned(),
        vlan: entry.vlan.get(),
        mac: entry.mac.to_string(),
        port,
        is_static: entry.is_static,
        is_tunnel,
        is_checked,
    }
}

fn changed(bridge: &str, names: &Names, FdbChange { station, port, kind }: FdbChange) -> NetworkEvent {
    let bridge = bridge.to_owned();
    let vlan = station.vlan().get();
    let mac = station.mac().to_string();
    let PortFacts { name: port, is_tunnel, is_checked } = facts(names, port);
    match kind {
        FdbChangeKind::Learned => {
            NetworkEvent::Learned { bridge, vlan, mac, port, is_static: false, is_tunnel, is_checked }
        }
        FdbChangeKind::Moved { from } => {
            let from = facts(names, from).name;
            NetworkEvent::Moved { bridge, vlan, mac, from, port, is_tunnel, is_checked }
        }
        FdbChangeKind::Forgotten => NetworkEvent::Aged { bridge, vlan, mac, port },
        FdbChangeKind::Claimed => NetworkEvent::Claimed { bridge, vlan, mac, port, is_checked },
    }
}

fn binding(bridge: &str, names: &Names, change: &BindingChange) -> NetworkEvent {
    let BindingChange { binding, is_bound } = change;
    let bridge = bridge.to_owned();
    let vlan = binding.key.vlan.get();
    let ip = binding.key.ip.to_string();
    let mac = binding.mac.to_string();
    let port = binding.port.map_or_else(String::new, |port| facts(names, port.0).name);
    if !is_bound {
        return NetworkEvent::Unbound { bridge, vlan, ip, mac, port };
    }
    let source = match binding.source {
        BindingSource::Static => "static",
        BindingSource::Owner => "owner",
        BindingSource::Checked => "checked",
        BindingSource::Leased { .. } => "dhcp",
    };
    NetworkEvent::Bound { bridge, vlan, ip, mac, port, source: source.to_owned() }
}
