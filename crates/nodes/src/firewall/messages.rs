//! Messages that need no rule, as a port sends them: ARP, neighbour discovery, IGMP and MLD.
//!
//! ```text
//! form        no longer than hosts make them             straightline_firewall::MessageKind
//! addresses   neighbour discovery to one station goes to an address that somebody has named
//! limit       so many of each kind in a second           this file
//! ```
//!
//! Others decide how many answers a port sends, and must not use up its limit by questions. So answers have
//! a limit of their own, and each question that reaches a port with groups allows one more.
//!
//! They are judged where a port sends them, so that all others share what passes. Ports with groups do it
//! in their node of [`Firewall`](super::Firewall), and others of the same network in
//! [`MessageLimit`](super::MessageLimit).
//! Trusted ports, trunks and tunnels have no limits: many stations are behind them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use straightline_firewall::{MessageForm, MessageKind, MessageRole};
use straightline_graph::RateLimit;
use straightline_packet::{PacketId, Packets, PortIndex, Reason};
use straightline_wire::{EtherType, IpProtocol};

use super::facts::{Address, Facts, Flow};

/// Messages of neighbour discovery that may go in a second to addresses that nobody has named.
const TO_UNKNOWN: u32 = 10;

/// The limits of a port's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSettings {
    /// The port.
    pub port: PortIndex,
    /// Most messages of each kind in a second. `None`: any number.
    pub most: Option<u32>,
}

/// The limits of a port's messages, as workers count them.
#[derive(Debug)]
pub(super) struct MessageLimits {
    settings: MessageSettings,
    /// For each kind. All workers count together.
    kinds: Option<[KindLimits; 3]>,
    to_unknown: RateLimit,
}

/// The limits of a kind.
#[derive(Debug)]
struct KindLimits {
    /// Answers.
    answers: RateLimit,
    /// All others.
    others: RateLimit,
    /// Answers that questions have allowed, and the most of them.
    asked: AtomicU32,
    most_asked: u32,
}

/// A message that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: MessageKind,
    pub(super) role: MessageRole,
}

impl Message {
    /// Returns the message that a frame could be. It begins with `head`.
    pub(super) fn of(facts: &Facts, head: &[u8]) -> Option<Self> {
        let kind = kind_of(facts)?;
        let icmp_type = flow_of(facts).map_or(0, |flow| flow.icmp[0]);
        Some(Message { kind, role: kind.role(icmp_type, head) })
    }
}

impl KindLimits {
    fn new(most: u32) -> Self {
        let burst = most.saturating_mul(2);
        let limit = || RateLimit::bursting(most, burst);
        KindLimits { answers: limit(), others: limit(), asked: AtomicU32::new(0), most_asked: burst }
    }

    fn take(&self, role: MessageRole, now: u32) -> bool {
        if role != MessageRole::Answer {
            return self.others.take(now);
        }
        let take = |asked: u32| asked.checked_sub(1);
        self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() || self.answers.take(now)
    }

    fn give_back(&self, role: MessageRole) {
        if role == MessageRole::Answer { self.answers.give_back() } else { self.others.give_back() }
    }

    fn allow_answer(&self) {
        let allow = |asked: u32| (asked < self.most_asked).then(|| asked + 1);
        // Those that nobody has sent for long are enough.
        let _ = self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, allow);
    }
}

impl MessageLimits {
    pub(super) fn new(settings: MessageSettings) -> Self {
        let kinds = settings.most.map(|most| [(); 3].map(|()| KindLimits::new(most)));
        MessageLimits { settings, kinds, to_unknown: RateLimit::new(TO_UNKNOWN) }
    }

    pub(super) fn settings(&self) -> MessageSettings {
        self.settings
    }

    /// Counts a message that the port sends in the second `now`.
    ///
    /// # Errors
    /// The limit that it exceeds.
    pub(super) fn take(&self, message: Message, now: u32) -> Result<(), Reason> {
        let passes = self.kinds.as_ref().is_none_or(|kinds| kinds[place(message.kind)].take(message.role, now));
        match message.kind {
            _ if passes => Ok(()),
            MessageKind::Arp => Err(Reason::ArpLimit),
            MessageKind::Discovery => Err(Reason::DiscoveryLimit),
            MessageKind::Groups => Err(Reason::GroupLimit),
        }
    }

    /// Takes back a message that comes again. No question has allowed it.
    pub(super) fn give_back(&self, message: Message) {
        if let Some(kinds) = &self.kinds {
            kinds[place(message.kind)].give_back(message.role);
        }
    }

    /// Notes a message that reaches the port. A question allows an answer.
    pub(super) fn note(&self, message: Message) {
        if let Some(kinds) = self.kinds.as_ref().filter(|_| message.role == MessageRole::Question) {
            kinds[place(message.kind)].allow_answer();
        }
    }

    /// Counts a message to an address that nobody has named.
    pub(super) fn take_unknown(&self, now: u32) -> bool {
        self.settings.most.is_none() || self.to_unknown.take(now)
    }
}

fn place(kind: MessageKind) -> usize {
    match kind {
        MessageKind::Arp => 0,
        MessageKind::Discovery => 1,
        MessageKind::Groups => 2,
    }
}

/// Returns the form of a packet, if it could be a message that needs no rule.
pub(super) fn form_of(facts: &Facts, packets: &Packets<'_>, id: PacketId) -> Option<MessageForm> {
    kind_of(facts).map(|kind| kind.form(packets.head(id), packets.len(id) as usize))
}

/// Returns the kind of a packet that could be a message without a rule.
pub(super) fn kind_of(facts: &Facts) -> Option<MessageKind> {
    match facts {
        Facts::Frame(EtherType::ARP) => Some(MessageKind::Arp),
        _ => flow_of(facts).and_then(|flow| MessageKind::of_ip(IpProtocol(flow.protocol), flow.icmp[0])),
    }
}

/// Returns the flow of a packet that may be one.
pub(super) fn flow_of(facts: &Facts) -> Option<&Flow> {
    match facts {
        Facts::Packet(flow) | Facts::Single(flow) => Some(flow),
        _ => None,
    }
}

/// Addresses that a port's share has place for, and those of a set.
const SHARE: usize = 64;
const WAYS: usize = 4;
const SETS: usize = SHARE / WAYS;

/// The IPv6 addresses that ports have named in neighbour discovery: as the source of a solicitation, or as
/// the target of an advertisement.
///
/// Each port has a share, in which its own newer addresses take the place of older ones. An entry is a
/// hash: guests choose addresses, so it has a secret.
pub(super) struct NamedAddresses {
    ports: Vec<[AtomicU64; SHARE]>,
    hasher: RandomState,
}

impl std::fmt::Debug for NamedAddresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedAddresses").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}

impl NamedAddresses {
    /// Returns no addresses of this number of ports.
    pub(super) fn new(ports: usize) -> Self {
        let shares = (0..ports).map(|_| [const { AtomicU64::new(0) }; SHARE]);
        NamedAddresses { ports: shares.collect(), hasher: RandomState::new() }
    }

    /// Returns the addresses for another number of ports.
    pub(super) fn resized(&self, ports: usize) -> Self {
        let mut resized = NamedAddresses { hasher: self.hasher.clone(), ..NamedAddresses::new(ports) };
        for (new, old) in resized.ports.iter_mut().zip(&self.ports) {
            *new = old.each_ref().map(|entry| AtomicU64::new(entry.load(Ordering::Relaxed)));
        }
        resized
    }

    /// Returns the number of ports.
    pub(super) fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Notes that a port has named an address.
    pub(super) fn note(&self, port: PortIndex, vlan: u16, address: Address) {
        let Some(share) = self.ports.get(port.index()) else { return };
        let name = self.name(vlan, address);
        let set = &share[set_of(name)..][..WAYS];
        if set.iter().any(|entry| entry.load(Ordering::Relaxed) == name) {
            return;
        }
        let free = set.iter().find(|entry| entry.load(Ordering::Relaxed) == 0);
        // Any of them: workers do not agree on the oldest one.
        let replaced = &set[part(name >> 32, WAYS)];
        free.unwrap_or(replaced).store(name, Ordering::Relaxed);
    }

    /// Returns whether one of these ports has named an address, apart from `asker`. They are those of its
    /// network.
    pub(super) fn has(&self, ports: &[PortIndex], asker: PortIndex, vlan: u16, address: Address) -> bool {
        let name = self.name(vlan, address);
        let others = ports.iter().filter(|port| **port != asker).filter_map(|port| self.ports.get(port.index()));
        let mut entries = others.flat_map(|share| &share[set_of(name)..][..WAYS]);
        entries.any(|entry| entry.load(Ordering::Relaxed) == name)
    }

    /// Forgets what a port has named: its place has another port now, or it has come to another network.
    pub(super) fn forget(&self, port: PortIndex) {
        let share = self.ports.get(port.index()).into_iter().flatten();
        share.for_each(|entry| entry.store(0, Ordering::Relaxed));
    }

    /// Returns the hash of an address; never 0.
    fn name(&self, vlan: u16, address: Address) -> u64 {
        self.hasher.hash_one((vlan, address)) | 1 << 63
    }
}

/// Returns the place of an address's set.
fn set_of(name: u64) -> usize {
    part(name, SETS) * WAYS
}

/// Returns a number below `most`, from the last bits of a hash.
fn part(name: u64, most: usize) -> usize {
    let [low, high, ..] = name.to_le_bytes();
    usize::from(u16::from_le_bytes([low, high])) % most
}

#[cfg(test)]
mod tests;
