//! The control half of the firewall: the policies of all ports with groups, and their connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use straightline_api::{EventKind, FirewallRule, Row};
use straightline_conntrack::{Connection, Counts, PortShare, Secret, Settings, Table};
use straightline_firewall::{
    Definitions, Direction, Flow, Level, Policies, Policy, PolicyError, PortGroups, Prefix, RuleIndex,
};
use straightline_graph::{Clock, NodeControl, RefusalNotes, Rows, TableEvent, TableView};
use straightline_packet::{self as packet, IgnorePoison, Packets, PortIndex, Rcu, RcuCell};
use straightline_wire::MacAddr;

use super::members::{self, BoundAddresses};
use super::messages::{MessageLimits, MessageSettings, NamedAddresses};
use crate::{BindingTable, MacPrefix};

/// Denials of a port that wait to become events. Further ones are only counted.
const MOST_DENIALS: usize = 32;

/// Entries that are looked at for connections whose time is over, several times a second.
const SWEPT: u32 = 50_000;

/// The settings of all ports with groups.
#[derive(Clone, Debug, PartialEq)]
pub struct FirewallSettings {
    /// Groups, sets, and the addresses of each group's ports.
    pub definitions: Definitions,
    /// The ports with groups.
    pub ports: Vec<FirewallPort>,
    /// Ports that may send router advertisements and answers of DHCP, with groups or without.
    pub trusted: Vec<PortIndex>,
    /// Timeouts and windows.
    pub connections: Settings,
    /// The time after the start in which connections of before are taken up.
    pub pickup: Duration,
    /// Ports whose messages without a rule are judged, with groups or without.
    pub messages: Vec<MessageSettings>,
    /// Patches and bridges with ports that have groups.
    pub networks: Vec<GuardedNetwork>,
    /// Places of ports, with groups or without: at least as many as there are.
    pub places: usize,
}

/// A patch or bridge with a port that has groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedNetwork {
    /// Its name.
    pub name: String,
    /// All its ports, with their names.
    pub ports: Vec<(PortIndex, String)>,
}

impl FirewallSettings {
    /// Returns the names of the network and the port at each place.
    fn names(&self) -> BTreeMap<PortIndex, (&str, &str)> {
        let names = self.networks.iter().flat_map(|network| {
            network.ports.iter().map(|(index, port)| (*index, (network.name.as_str(), port.as_str())))
        });
        names.collect()
    }
}

/// A port with groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallPort {
    /// Its name.
    pub name: String,
    /// Its place.
    pub index: PortIndex,
    /// Its groups and rights.
    pub groups: PortGroups,
    /// Its share of the connection table.
    pub share: PortShare,
    /// The MAC addresses of its guest, if they are known. Frames to others begin no connection.
    pub macs: Vec<MacPrefix>,
    /// The addresses that bindings tell for the port are members of its groups: its MAC address is
    /// checked, and its IP addresses are not listed.
    pub takes_bound: bool,
}

/// The rules of a port, as workers see them.
#[derive(Clone, Debug)]
pub(super) struct PortRules {
    name: String,
    pub(super) policy: Arc<Policy>,
    /// Number of the policy. A connection that another one allowed is decided again.
    pub(super) generation: u32,
    pub(super) notes: Arc<Notes>,
    /// Bits and masks of the MAC addresses of its guest; empty if they are not known.
    macs: Arc<[(u64, u64)]>,
}

impl PortRules {
    /// Returns whether a frame is for the guest of the port, as far as its addresses are known.
    pub(super) fn is_addressed(&self, head: &[u8]) -> bool {
        let Some(mac) = head.first_chunk::<6>().map(|mac| MacAddr(*mac).as_u64()) else { return false };
        self.macs.is_empty() || self.macs.iter().any(|&(bits, mask)| mac & mask == bits)
    }
}

/// The notes of workers about a port, for operators.
#[derive(Debug)]
pub(super) struct Notes {
    /// Packets that each rule has decided.
    packets: Box<[AtomicU64]>,
    denials: ArrayQueue<Denial>,
}

/// A packet that no rule allows, or one of a rule with `log`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) rule: RuleIndex,
    pub(super) packet: Option<Flow>,
    pub(super) direction: Direction,
}

impl Notes {
    fn new(policy: &Policy) -> Self {
        let packets = policy.rules().iter().map(|_| AtomicU64::new(0)).collect();
        Notes { packets, denials: ArrayQueue::new(MOST_DENIALS) }
    }

    /// Counts a packet that a rule has decided.
    pub(super) fn count(&self, rule: RuleIndex) {
        if let Some(packets) = self.packets.get(rule.0 as usize) {
            packets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes a packet for an event, if not too many wait already.
    pub(super) fn note(&self, denial: Denial) {
        let _ = self.denials.push(denial);
    }
}

/// All that workers read.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) table: Arc<Table>,
    ports: Vec<Option<PortRules>>,
    trusted: Vec<bool>,
    /// Number of the list of trusted ports.
    pub(super) trust: u32,
    /// The time, in milliseconds, until which connections of before are taken up.
    picks_up_until: Option<u32>,
    messages: Vec<Option<Arc<MessageLimits>>>,
    pub(super) named: Arc<NamedAddresses>,
    /// For each port of a network with groups, all of that network.
    neighbours: Vec<Arc<[PortIndex]>>,
}

impl Rules {
    /// Returns the rules of a port.
    #[inline]
    pub(super) fn port(&self, port: PortIndex) -> Option<&PortRules> {
        self.ports.get(port.index())?.as_ref()
    }

    /// Returns whether a port may send router advertisements and answers of DHCP.
    #[inline]
    pub(super) fn is_trusted(&self, port: PortIndex) -> bool {
        self.trusted.get(port.index()).copied().unwrap_or(false)
    }

    /// Returns the limits of a port's messages. `None`: they have none, and any form.
    #[inline]
    pub(super) fn messages(&self, port: PortIndex) -> Option<&MessageLimits> {
        self.messages.get(port.index())?.as_deref()
    }

    /// Returns all ports of a port's network, with the port itself.
    pub(super) fn neighbours(&self, port: PortIndex) -> &[PortIndex] {
        self.neighbours.get(port.index()).map_or(&[], |ports| ports)
    }

    /// Returns whether connections of before are taken up.
    pub(super) fn picks_up(&self, now: u32) -> bool {
        self.picks_up_until.is_some_and(|until| !has_come(until, now))
    }
}

/// The rules of all ports, published for workers.
pub struct FirewallRules {
    rules: RcuCell<Rules>,
}

impl std::fmt::Debug for FirewallRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirewallRules").field("rules", &self.rules).finish()
    }
}

impl FirewallRules {
    /// Returns the rules of this turn.
    #[inline]
    pub(super) fn load<'t>(&self, packets: &Packets<'t>) -> Option<&'t Rules> {
        self.rules.load(packets)
    }
}

/// The policies of all ports with groups, and their connections. They live across reloads.
#[derive(Debug)]
pub struct FirewallControl {
    settings: FirewallSettings,
    /// The rules that workers see. A successor has those of the one before it.
    rules: OnceLock<Arc<FirewallRules>>,
    own_rules: Arc<FirewallRules>,
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    /// A successor has the rules: this one publishes nothing any more.
    is_replaced: bool,
    policies: Policies,
    /// Addresses that bindings tell for ports ([`FirewallPort::takes_bound`]).
    bound: BoundAddresses,
    ports: Vec<(PortIndex, PortRules)>,
    table: Arc<Table>,
    /// Number of the list of trusted ports.
    trust: u32,
    picks_up_until: Option<u32>,
    /// Connections that ports were refused, as events have told.
    told: RefusalNotes,
    messages: Vec<Arc<MessageLimits>>,
    named: Arc<NamedAddresses>,
}

/// A decision of a port's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The packet is allowed.
    pub allowed: bool,
    /// Where the rule comes from, and its text.
    pub rule: String,
}

/// Returns the present time of connections: milliseconds of the clock of [`Packets::now`].
fn now_ms(clock: &Clock) -> u32 {
    clock.seconds().wrapping_mul(1000)
}

/// Returns whether a time has come, on the clock that begins again after 2^32 milliseconds.
fn has_come(time: u32, now: u32) -> bool {
    now.wrapping_sub(time) < 1 << 31
}

impl FirewallControl {
    /// Compiles the policies of these ports. Their connections have the times of this clock.
    ///
    /// # Errors
    /// A group or set does not exist, or the rules are too many.
    pub fn new(settings: FirewallSettings, rcu: &Rcu, level: Level, clock: Clock) -> Result<Self, PolicyError> {
        let mut policies = Policies::new(settings.definitions.clone(), level);
        let ports = rules_of_all(&settings, &mut policies, &[])?;
        let table = Table::new(settings.connections, secret(), &shares(&settings));
        let pickup = u32::try_from(settings.pickup.as_millis()).unwrap_or(u32::MAX / 4).min(u32::MAX / 4);
        let picks_up_until = (pickup > 0).then(|| now_ms(&clock).wrapping_add(pickup));
        let state = State {
            is_replaced: false,
            policies,
            bound: BoundAddresses::new(),
            ports,
            table: Arc::new(table),
            trust: 0,
            picks_up_until,
            told: RefusalNotes::default(),
            messages: limits_of_all(&settings, &[]),
            named: Arc::new(NamedAddresses::new(settings.places)),
        };
        let own_rules = Arc::new(FirewallRules { rules: RcuCell::new(rcu) });
        let state = Mutex::new(state);
        let control = FirewallControl { settings, rules: OnceLock::new(), own_rules, state, clock };
        control.publish(&control.lock());
        Ok(control)
    }

    /// Returns the rules as workers see them. After [`NodeControl::commit`], they are those of before,
    /// which workers may have already.
    #[must_use]
    pub fn rules(&self) -> &Arc<FirewallRules> {
        self.rules.get().unwrap_or(&self.own_rules)
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &FirewallSettings {
        &self.settings
    }

    /// Returns the decision of a port's groups on the first packet of a flow. `None`: the port has none.
    #[must_use]
    pub fn explain(&self, port: PortIndex, flow: &Flow) -> Option<Decided> {
        let state = self.lock();
        let (_, rules) = state.ports.iter().find(|(index, _)| *index == port)?;
        let rule = rules.policy.rule(rules.policy.explain(flow));
        Some(Decided { allowed: rule.allows(), rule: rule.to_string() })
    }

    /// Returns a decision that a worker has told an observer. `None`: the port has other rules by now.
    #[must_use]
    pub fn decision(&self, port: PortIndex, decision: packet::Decision) -> Option<Decided> {
        let state = self.lock();
        let (_, rules) = state.ports.iter().find(|(index, _)| *index == port)?;
        let is_present = rules.generation == decision.generation;
        let rule = is_present.then(|| rules.policy.rule(RuleIndex(decision.rule)))?;
        Some(Decided { allowed: rule.allows(), rule: rule.to_string() })
    }

    /// Returns the counts of a port's connections. `None`: it has no groups.
    #[must_use]
    pub fn counts(&self, port: PortIndex) -> Option<Counts> {
        self.lock().table.counts(port.0)
    }

    /// Looks at the connections of a port, each with the name of its rule.
    pub fn connections<R>(
        &self,
        port: PortIndex,
        look: impl FnOnce(&mut dyn Iterator<Item = (Connection, String)>) -> R,
    ) -> R {
        let state = self.lock();
        let table = Arc::clone(&state.table);
        let rules = state.ports.iter().find(|(index, _)| *index == port).map(|(_, rules)| rules.clone());
        drop(state);
        let label = |connection: &Connection| match &rules {
            Some(rules) if rules.generation == connection.generation => {
                rules.policy.rule(RuleIndex(connection.rule)).label()
            }
            _ => "of before".to_owned(),
        };
        let mut connections = table.connections(port.0, now_ms(&self.clock)).map(|connection| {
            let label = label(&connection);
            (connection, label)
        });
        look(&mut connections)
    }

    fn publish(&self, state: &State) {
        if state.is_replaced {
            return;
        }
        let places = state.ports.iter().map(|(index, _)| index.index() + 1).max().unwrap_or(0);
        let mut ports = vec![None; places];
        for (index, rules) in &state.ports {
            ports[index.index()] = Some(rules.clone());
        }
        let trusted = self.settings.trusted.iter().map(|index| index.index() + 1).max().unwrap_or(0);
        let mut trusted = vec![false; trusted];
        for index in &self.settings.trusted {
            trusted[index.index()] = true;
        }
        let State { table, trust, picks_up_until, named, .. } = state;
        let places = state.messages.iter().map(|limits| limits.settings().port.index() + 1).max().unwrap_or(0);
        let mut messages = vec![None; places];
        for limits in &state.messages {
            messages[limits.settings().port.index()] = Some(Arc::clone(limits));
        }
        let mut neighbours = vec![Arc::default(); self.settings.places];
        for network in &self.settings.networks {
            let all: Arc<[PortIndex]> = network.ports.iter().map(|(index, _)| *index).collect();
            for index in &*all {
                if let Some(ports) = neighbours.get_mut(index.index()) {
                    *ports = Arc::clone(&all);
                }
            }
        }
        let rules = Rules {
            table: Arc::clone(table),
            ports,
            trusted,
            trust: *trust,
            picks_up_until: *picks_up_until,
            messages,
            named: Arc::clone(named),
            neighbours,
        };
        self.rules().rules.swap(Some(Box::new(rules)));
    }

    /// Takes the addresses that the bindings of bridges tell for their ports. They are members of the groups
    /// of these ports. Only policies whose rules name such a group are compiled.
    ///
    /// # Errors
    /// The rules would be too many. Then only listed addresses are members.
    pub fn follow_bindings<'b>(&self, tables: impl IntoIterator<Item = &'b BindingTable>) -> Result<(), PolicyError> {
        let mut bound = BoundAddresses::new();
        tables.into_iter().for_each(|table| members::add_bound(&mut bound, &self.settings, table));
        let mut state = self.lock();
        if state.is_replaced || state.bound == bound {
            return Ok(());
        }
        let compiled = self.compile(&mut state, bound);
        self.publish(&state);
        compiled
    }

    /// Returns the addresses of each group's ports, by the name of the group.
    #[must_use]
    pub fn members(&self) -> BTreeMap<String, Vec<Prefix>> {
        self.lock().policies.definitions().members.clone()
    }

    /// Returns the addresses that bindings tell for a port, as far as they are members of its groups.
    #[must_use]
    pub fn bound_addresses(&self, port: PortIndex) -> Vec<IpAddr> {
        self.lock().bound.get(&port).into_iter().flatten().copied().collect()
    }

    /// Compiles the policies that are not as before. If the rules would be too many, the addresses of
    /// bindings are no members.
    fn compile(&self, state: &mut State, bound: BoundAddresses) -> Result<(), PolicyError> {
        state.policies.replace(members::with_bound(&self.settings, &bound));
        state.bound = bound;
        let mut ports = rules_of_all(&self.settings, &mut state.policies, &state.ports);
        let error = ports.as_ref().err().cloned();
        if error.is_some() {
            state.policies.replace(self.settings.definitions.clone());
            ports = rules_of_all(&self.settings, &mut state.policies, &state.ports);
        }
        // Without rules, nothing passes.
        state.ports = ports.unwrap_or_default();
        state.policies.forget_unused();
        error.map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Returns events of packets that were denied, or that a rule logs.
    fn denials(state: &State) -> Vec<TableEvent> {
        let mut events = Vec::new();
        for (_, PortRules { name, policy, notes, .. }) in &state.ports {
            while let Some(Denial { rule, packet, direction }) = notes.denials.pop() {
                let rule = policy.rule(rule);
                let packet = packet.map_or_else(|| "a frame".to_owned(), |packet| packet.to_string());
                let verdict = if rule.allows() { "allowed" } else { "denied" };
                let way = if direction == Direction::Out { "from" } else { "to" };
                events.push(TableEvent {
                    source: format!("port {name}"),
                    message: format!("a packet {way} the port was {verdict}: {packet}; {rule}"),
                    kind: EventKind::FirewallPacket {
                        port: name.clone(),
                        direction: direction.as_str().to_owned(),
                        allowed: rule.allows(),
                        packet,
                        rule: rule.label(),
                    },
                });
            }
        }
        events
    }

    /// Returns the news of ports whose share refuses connections.
    fn refusals(view: &TableView<'_>, state: &mut State) -> Vec<TableEvent> {
        let State { ports, table, told, .. } = state;
        let refused = |index: PortIndex| table.counts(index.0).map_or(0, |counts| counts.refused.iter().sum());
        let shares = ports.iter().map(|(index, rules)| (rules.name.clone(), None, refused(*index)));
        told.news_as(view, shares, |port, _, refused| TableEvent {
            // Denied packets of the port may be told so often that others of it are not.
            source: format!("connections of port {port}"),
            message: format!("port {port:?}: {refused} connections did not begin so far, because its share is full"),
            kind: EventKind::ConnectionsFull { port, refused },
        })
    }
}

/// Returns the rules of all ports. `before` has those in force.
fn rules_of_all(
    settings: &FirewallSettings,
    policies: &mut Policies,
    before: &[(PortIndex, PortRules)],
) -> Result<Vec<(PortIndex, PortRules)>, PolicyError> {
    let known = |index| before.iter().find(|(known, _)| *known == index).map(|(_, rules)| rules);
    let rules = settings.ports.iter().map(|port| Ok((port.index, rules_of(port, policies, known(port.index))?)));
    rules.collect()
}

/// Returns the rules of a port. They are those of `before` while its policy stays the same.
fn rules_of(
    port: &FirewallPort,
    policies: &mut Policies,
    before: Option<&PortRules>,
) -> Result<PortRules, PolicyError> {
    let policy = policies.get(&port.groups)?;
    let macs: Arc<[_]> = port.macs.iter().map(|mac| mac.masked()).collect();
    if let Some(before) = before.filter(|before| Arc::ptr_eq(&before.policy, &policy)) {
        return Ok(PortRules { name: port.name.clone(), macs, ..before.clone() });
    }
    let generation = before.map_or(1, |before| before.generation.wrapping_add(1));
    let notes = Arc::new(Notes::new(&policy));
    Ok(PortRules { name: port.name.clone(), policy, generation, notes, macs })
}

/// Returns the limits of all ports' messages. A port whose limit stays the same has that of `before`.
fn limits_of_all(settings: &FirewallSettings, before: &[Arc<MessageLimits>]) -> Vec<Arc<MessageLimits>> {
    let known = |own: MessageSettings| before.iter().find(|limits| limits.settings() == own).cloned();
    let limits = settings.messages.iter().map(|own| known(*own).unwrap_or_else(|| Arc::new(MessageLimits::new(*own))));
    limits.collect()
}

fn shares(settings: &FirewallSettings) -> Vec<(u16, PortShare)> {
    settings.ports.iter().map(|port| (port.index.0, port.share)).collect()
}

/// Returns numbers that guests cannot guess, so that they cannot choose where connections collide.
pub(crate) fn secret() -> Secret {
    use std::hash::{BuildHasher, RandomState};
    Secret([0_u64; 4].map(|word| RandomState::new().hash_one(word)))
}

impl NodeControl for FirewallControl {
    /// Takes over the connections. Those of a port whose policy stays the same need no new decision.
    fn commit(&self, before: &dyn NodeControl) {
        let Some(before) = before.downcast::<Self>() else { return };
        let _ = self.rules.set(Arc::clone(before.rules()));
        let mut state = self.lock();
        let mut old = before.lock();
        old.is_replaced = true;
        state.policies = old.policies.clone();
        state.ports.clone_from(&old.ports);
        // Ports have the places of others after some changes.
        let stays = |index: PortIndex| {
            let name = |settings: &FirewallSettings| {
                settings.ports.iter().find(|port| port.index == index).map(|port| port.name.clone())
            };
            name(&self.settings) == name(&before.settings)
        };
        let bound = old.bound.iter().filter(|(index, _)| stays(**index));
        let bound = bound.map(|(index, addresses)| (*index, addresses.clone())).collect();
        // It was possible in `new`, without these addresses.
        let _ = self.compile(&mut state, bound);
        state.table = Arc::new(old.table.successor(self.settings.connections, &shares(&self.settings)));
        state.picks_up_until = old.picks_up_until;
        let is_same = self.settings.trusted == before.settings.trusted;
        state.trust = if is_same { old.trust } else { old.trust.wrapping_add(1) };
        state.told = std::mem::take(&mut old.told);
        state.messages = limits_of_all(&self.settings, &old.messages);
        let ports = self.settings.places;
        state.named =
            if old.named.ports() == ports { Arc::clone(&old.named) } else { Arc::new(old.named.resized(ports)) };
        drop(old);
        let names = before.settings.names();
        for (index, name) in self.settings.names() {
            if names.get(&index) != Some(&name) {
                state.named.forget(index);
            }
        }
        self.publish(&state);
    }

    fn rows(&self, _view: &TableView<'_>, rows: &mut Rows) {
        let state = self.lock();
        for (nth, (_, PortRules { name, policy, notes, .. })) in state.ports.iter().enumerate() {
            for (at, (rule, packets)) in policy.rules().iter().zip(&notes.packets).enumerate() {
                let row = || FirewallRule {
                    port: name.clone(),
                    direction: rule.direction.as_str().to_owned(),
                    name: rule.label(),
                    rule: rule.text.clone(),
                    allows: rule.allows(),
                    packets: packets.load(Ordering::Relaxed),
                };
                // They stand in the order in which they are tried.
                rows.add(|| format!("{nth:05} {at:05}"), || Row::FirewallRule(row()));
            }
        }
    }

    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        let mut state = self.lock();
        if state.is_replaced {
            return Vec::new();
        }
        let now = now_ms(&self.clock);
        state.table.sweep(now, SWEPT);
        // The clock begins again some day.
        if state.picks_up_until.is_some_and(|until| has_come(until, now)) {
            state.picks_up_until = None;
            self.publish(&state);
        }
        let mut events = Self::denials(&state);
        events.extend(Self::refusals(view, &mut state));
        events
    }
}
