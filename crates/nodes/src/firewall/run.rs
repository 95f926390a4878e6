//! A call of the firewall's node: its packets are read, looked up and decided.
//!
//! | file | contents |
//! |---|---|
//! | this one | the packets of a call, and those that follow their connections |
//! | `rules` | packets that rules decide about |
//! | `without_rule` | messages that need no rule |
//! | `fragments` | fragments, behind all others |

mod fragments;
mod rules;
mod without_rule;

use std::ops::Range;

use straightline_classify::Keys;
use straightline_conntrack::{Entry, Key, Side, Tracked, Transport, Verdict};
use straightline_firewall::{Direction, RuleIndex, Verdicts};
use straightline_graph::Departs;
use straightline_packet::{self as packet, Batch, MAX_BATCH, PacketId, Packets, PortIndex, Reason};
use straightline_wire::IpProtocol;

use super::control::{PortRules, Rules};
use super::facts::{Facts, Flow, Fragment};
use super::messages::form_of;
use super::plain;
use crate::BindingTable;
use crate::tickets::Tickets;

/// Packets that are read, looked up and followed together: all that they need stays in the first cache.
const TOGETHER: usize = 64;

/// Packets whose denial was noted lately are not noted again: their number.
const RECENT: usize = 256;

/// The packets of a call. They are known until the next call.
pub(super) struct Work {
    ids: Vec<PacketId>,
    /// Numbers of the policy, and of the list of trusted ports.
    generation: [u32; 2],
    /// Facts of packets that are not plain. `None`: they were not needed.
    facts: [Option<Facts>; MAX_BATCH],
    pub(super) decisions: [Decision; MAX_BATCH],
    /// Destinations of packets to the port: those to other stations begin no connections.
    destinations: [[u8; 6]; MAX_BATCH],
    /// Plain packets, by their place in the batch, with their keys and facts.
    plain: Vec<usize>,
    keys: Vec<Key>,
    transports: Vec<Transport>,
    tracked: [Tracked; TOGETHER],
    /// Packets that are not plain, or whose connection was allowed by another policy.
    others: Vec<usize>,
    other_keys: Vec<Key>,
    found: [Option<Entry>; TOGETHER],
    /// Packets that rules decide about.
    asking: Vec<usize>,
    /// Those of them that may be answers to packets without connections, by their place in `asking`.
    answers: Vec<usize>,
    /// Packets that rules have decided about besides: those whose connection the present policy has ended.
    decided: Vec<(usize, RuleIndex)>,
    /// Fragments that may pass: a first one with its connection, or a further one.
    fragments: Vec<(usize, Option<Entry>)>,
    columns: Box<Keys>,
    verdicts: Verdicts,
    /// Denials that were noted, and the second.
    recent: [u64; RECENT],
    tickets: Tickets<Decision>,
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Pass,
    Drop(Reason),
    /// Rules decide.
    Ask,
}

impl Work {
    pub(super) fn new() -> Self {
        Work {
            ids: Vec::with_capacity(MAX_BATCH),
            generation: [0; 2],
            facts: [None; MAX_BATCH],
            decisions: [Decision::Ask; MAX_BATCH],
            destinations: [[0; 6]; MAX_BATCH],
            plain: Vec::with_capacity(MAX_BATCH),
            keys: Vec::with_capacity(MAX_BATCH),
            transports: Vec::with_capacity(MAX_BATCH),
            tracked: [Tracked::Unknown; TOGETHER],
            others: Vec::with_capacity(TOGETHER),
            other_keys: Vec::with_capacity(TOGETHER),
            found: [None; TOGETHER],
            asking: Vec::with_capacity(MAX_BATCH),
            answers: Vec::with_capacity(MAX_BATCH),
            decided: Vec::with_capacity(MAX_BATCH),
            fragments: Vec::with_capacity(MAX_BATCH),
            columns: Box::new(Keys::new()),
            verdicts: [RuleIndex::default(); MAX_BATCH],
            recent: [0; RECENT],
            tickets: Tickets::new(),
        }
    }

    /// Forgets the packets of the call before.
    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.plain.clear();
        self.keys.clear();
        self.transports.clear();
        self.fragments.clear();
        self.decided.clear();
    }

    /// Returns the reasons of the packets that dropped, and go back to their ring with others.
    pub(super) fn returned_drops(&self, departs: &Departs) -> impl Iterator<Item = Reason> {
        let returned = self.ids.iter().zip(&self.decisions).filter(|(id, _)| !departs[id.index()]);
        returned.filter_map(|(_, decision)| decision.reason())
    }

    /// Issues tickets for the packets that go back to their ring.
    #[cold]
    pub(super) fn issue_tickets(&mut self, packets: &Packets<'_>, departs: &Departs, port: PortIndex, sender: Side) {
        let Work { ids, generation, facts, decisions, destinations, plain, keys, transports, tickets, .. } = self;
        let now = packets.now();
        let mut issue = |at: usize, seen: Seen| {
            let from = packets.port(ids[at]).0;
            let form = facts[at].and_then(|facts| form_of(&facts, packets, ids[at]));
            let name = tickets.name((from, *generation, destinations[at], form, seen));
            tickets.issue(from, name, decisions[at], now);
        };
        let names = plain.iter().zip(keys.iter().zip(&*transports));
        for (&at, (key, transport)) in names.filter(|(at, _)| facts[**at].is_none() && !departs[ids[**at].index()]) {
            issue(at, Seen::Packet { key: *key, transport: *transport, fragment: None, rest: None });
        }
        for (at, _) in ids.iter().enumerate().filter(|(_, id)| !departs[id.index()]) {
            if let Some(seen) = facts[at].and_then(|facts| Seen::of(facts, port, sender)) {
                issue(at, seen);
            }
        }
    }
}

impl Decision {
    /// Returns the reason of a packet that drops.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Decision::Pass => None,
            Decision::Ask => Some(Reason::Denied),
            Decision::Drop(reason) => Some(reason),
        }
    }
}

/// All that the decision on a packet depends on, apart from its sender, its destination and the policy.
#[derive(Hash)]
enum Seen {
    Packet {
        key: Key,
        transport: Transport,
        fragment: Option<Fragment>,
        /// Hops, and type and code of ICMP. No rule asks for these of TCP and UDP.
        rest: Option<(u8, [u8; 2])>,
    },
    Other(Facts),
}

impl Seen {
    /// Returns none for a packet that is dropped in any case.
    fn of(facts: Facts, port: PortIndex, sender: Side) -> Option<Self> {
        match facts {
            Facts::Packet(flow) => {
                let is_plain = [IpProtocol::TCP.0, IpProtocol::UDP.0].contains(&flow.protocol);
                let rest = (!is_plain).then_some((flow.hops, flow.icmp));
                let key = flow.key(port.0, sender);
                Some(Seen::Packet { key, transport: flow.transport(), fragment: flow.fragment, rest })
            }
            Facts::Damaged => None,
            other => Some(Seen::Other(other)),
        }
    }
}

/// A call of the node.
pub(super) struct Run<'a> {
    work: &'a mut Work,
    rules: &'a Rules,
    own: &'a PortRules,
    port: PortIndex,
    direction: Direction,
    /// The side that has sent the packets.
    sender: Side,
    now: u32,
    bindings: Option<&'a BindingTable>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        work: &'a mut Work,
        rules: &'a Rules,
        own: &'a PortRules,
        port: PortIndex,
        direction: Direction,
        seconds: u32,
    ) -> Self {
        let sender = if direction == Direction::Out { Side::Local } else { Side::Remote };
        Run { work, rules, own, port, direction, sender, now: seconds.wrapping_mul(1000), bindings: None }
    }

    /// Returns the call with the bindings of its bridge.
    pub(super) fn knowing(self, bindings: Option<&'a BindingTable>) -> Self {
        Run { bindings, ..self }
    }

    /// Decides about all packets of a batch.
    pub(super) fn decide(&mut self, packets: &mut Packets<'_>, batch: &Batch) {
        self.work.clear();
        self.work.ids.extend_from_slice(batch.ids());
        self.work.generation = [self.own.generation, self.rules.trust];
        for begin in (0..batch.len()).step_by(TOGETHER) {
            self.read(packets, batch, begin..batch.len().min(begin + TOGETHER));
        }
        self.ask(packets, batch);
        if !self.work.fragments.is_empty() {
            self.follow_fragments(packets, batch);
        }
        if packets.is_observed() {
            self.tell(packets);
        }
    }

    /// Tells observers which rules have decided: now, or about the connections of these packets.
    #[cold]
    fn tell(&self, packets: &mut Packets<'_>) {
        let Work { ids, facts, decisions, plain, keys, asking, decided, verdicts, .. } = &*self.work;
        let generation = self.own.generation;
        let mut tell = |at: usize, rule: u32| {
            packets.note_decision(self.port, ids[at], packet::Decision { generation, rule });
        };
        asking
            .iter()
            .zip(verdicts)
            .chain(decided.iter().map(|(at, rule)| (at, rule)))
            .for_each(|(at, rule)| tell(*at, rule.0));
        let known = |at: &usize| decisions[*at] == Decision::Pass && !asking.contains(at);
        let plain = plain.iter().zip(keys).map(|(at, key)| (*at, *key));
        let others = facts.iter().enumerate().take(ids.len()).filter_map(|(at, facts)| match (*facts)? {
            Facts::Packet(flow) => Some((at, flow.key(self.port.0, self.sender))),
            Facts::Error { about, .. } => Some((at, about.key(self.port.0, other(self.sender)))),
            _ => None,
        });
        let plain = plain.filter(|(at, _)| facts[*at].is_none());
        for (at, key) in plain.chain(others).filter(|(at, _)| known(at)) {
            let entry = self.rules.table.find_one(&key, self.now);
            let entry = entry.filter(|entry| !entry.is_stale(generation));
            if let Some(rule) = entry.and_then(|entry| self.rules.table.rule(entry)) {
                tell(at, rule);
            }
        }
    }

    /// Reads packets. Those that are plain follow their connections.
    fn read(&mut self, packets: &mut Packets<'_>, batch: &Batch, places: Range<usize>) {
        let has_tickets = self.work.tickets.has_some();
        let first = self.work.plain.len();
        self.work.others.clear();
        for at in places {
            self.work.decisions[at] = Decision::Ask;
            self.work.facts[at] = None;
            if self.direction == Direction::In {
                let destination = packets.head(batch.ids()[at]).first_chunk();
                self.work.destinations[at] = destination.copied().unwrap_or_default();
            }
            if has_tickets && self.take_ticket(packets, batch.ids()[at], at) {
                continue;
            }
            let Work { plain, keys, transports, others, .. } = &mut *self.work;
            match plain::plain(packets, batch.ids()[at], self.port.0, self.sender) {
                Some((key, transport)) => {
                    plain.push(at);
                    keys.push(key);
                    transports.push(transport);
                }
                None => others.push(at),
            }
        }
        let Work { decisions, plain, keys, transports, tracked, others, .. } = &mut *self.work;
        let plain = &plain[first..];
        let keys = &keys[first..];
        let transports = &transports[first..];
        let generation = self.own.generation;
        self.rules.table.track(keys, self.sender, transports, |_| generation, self.now, &mut tracked[..keys.len()]);
        for (nth, &at) in plain.iter().enumerate() {
            decisions[at] = match tracked[nth] {
                Tracked::Known(Verdict::Pass(_)) => Decision::Pass,
                Tracked::Known(Verdict::Invalid(_)) => Decision::Drop(Reason::Invalid),
                Tracked::Unknown | Tracked::Known(Verdict::Reopen) => Decision::Ask,
                Tracked::Stale(_) | Tracked::Known(Verdict::Gone) => {
                    others.push(at);
                    Decision::Ask
                }
            };
        }
        if !self.work.others.is_empty() {
            self.read_others(packets, batch);
        }
    }

    /// Takes the ticket of a packet that was decided in an earlier turn. Returns whether it has one.
    #[cold]
    fn take_ticket(&mut self, packets: &mut Packets<'_>, id: PacketId, at: usize) -> bool {
        let from = packets.port(id).0;
        if !self.work.tickets.may_have(from, packets.now()) {
            return false;
        }
        let facts = Facts::of(packets, id);
        let Some(seen) = Seen::of(facts, self.port, self.sender) else { return false };
        let form = form_of(&facts, packets, id);
        let Work { tickets, destinations, generation, .. } = &mut *self.work;
        let name = tickets.name((from, *generation, destinations[at], form, seen));
        let Some(decision) = tickets.take(from, name, packets.now()) else { return false };
        self.work.decisions[at] = decision;
        self.work.facts[at] = Some(facts);
        true
    }

    /// Reads all facts of packets that are not plain, and has them follow their connections.
    fn read_others(&mut self, packets: &mut Packets<'_>, batch: &Batch) {
        let Work { facts, others, other_keys: keys, found, .. } = &mut *self.work;
        keys.clear();
        others.retain(|&at| {
            let read = Facts::of(packets, batch.ids()[at]);
            facts[at] = Some(read);
            keys.push(match &read {
                Facts::Packet(flow) => flow.key(self.port.0, self.sender),
                // It quotes a packet that the other side has sent.
                Facts::Error { about, .. } => about.key(self.port.0, other(self.sender)),
                _ => return false,
            });
            true
        });
        self.rules.table.find(keys, self.now, &mut found[..keys.len()]);
        for nth in 0..self.work.others.len() {
            let at = self.work.others[nth];
            let found = self.work.found[nth];
            self.work.decisions[at] = match self.work.facts[at] {
                Some(Facts::Packet(flow)) => self.follow(&flow, found, at),
                Some(Facts::Error { about, seq }) => self.error(&about, seq, found, at),
                _ => Decision::Ask,
            };
        }
    }

    /// Has a packet follow its connection.
    fn follow(&mut self, flow: &Flow, found: Option<Entry>, at: usize) -> Decision {
        let Some(entry) = found else { return Decision::Ask };
        let entry = match self.present(entry, flow, self.sender, at) {
            Ok(entry) => entry,
            Err(decision) => return decision,
        };
        match self.rules.table.advance(entry, self.sender, &flow.transport(), self.now) {
            Verdict::Pass(_) => {
                if flow.fragment.is_some() {
                    self.work.fragments.push((at, Some(entry)));
                }
                Decision::Pass
            }
            Verdict::Invalid(_) => Decision::Drop(Reason::Invalid),
            Verdict::Reopen | Verdict::Gone => Decision::Ask,
        }
    }

    /// Decides about an ICMP error. It quotes a packet that the other side has sent.
    fn error(&mut self, about: &Flow, seq: Option<u32>, found: Option<Entry>, at: usize) -> Decision {
        let sender = other(self.sender);
        let Some(entry) = found else { return Decision::Drop(Reason::Invalid) };
        let Ok(entry) = self.present(entry, about, sender, at) else { return Decision::Drop(Reason::Denied) };
        match self.rules.table.related(entry, sender, seq) {
            Verdict::Pass(_) => Decision::Pass,
            _ => Decision::Drop(Reason::Invalid),
        }
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Local => Side::Remote,
        Side::Remote => Side::Local,
    }
}
