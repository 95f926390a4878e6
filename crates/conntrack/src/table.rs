//! The table of a switch: the connections of all its firewalled ports.

use std::sync::{Arc, Mutex, TryLockError};

use straightline_packet::MAX_BATCH;
use straightline_simd::{prefetch_read, prefetch_write};

use crate::buckets::Hash;
use crate::connection::{FACTS, PACKETS, TIMES, facts_and_rule, halves, load_tcp, pair};
use crate::entries::{Locked, Tag};
use crate::fragments::{BAD, BadFragment, Fragment};
use crate::handle::{Entry, Opened, Opening, Tracked};
use crate::hash::Secret;
use crate::key::{Direction, Key, Side};
use crate::port::{Common, Connections, begin};
use crate::settings::{PortShare, Settings};
use crate::state::{Class, State};
use crate::tcp::Role;
use crate::transport::Transport;
use crate::verdict::{FULL, Full, Invalid, Passed, Refusal, Verdict};

/// Keys that are looked up together: their entries fit into the first cache.
const GROUP: usize = 64;

/// The table: connections of firewalled ports, shared by all workers.
///
/// Times are milliseconds of a clock that begins again after 2^32. Clocks of workers may differ by some
/// milliseconds.
pub struct Table {
    common: Common,
    /// Connections of each port, by its number.
    ports: Box<[Option<Arc<Connections>>]>,
    /// The place where the next sweep begins: a port, and one of its entries.
    sweep_at: Mutex<(usize, u32)>,
}

/// A connection, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Key of the connection.
    pub key: Key,
    /// State of the connection.
    pub state: State,
    /// Direction of the connection.
    pub direction: Direction,
    /// Number of the opener of an inbound connection.
    pub opener: u16,
    /// Index of the rule that allowed it.
    pub rule: u32,
    /// Generation of the policy that the rule belongs to.
    pub generation: u32,
    /// Milliseconds since the last packet.
    pub idle: u32,
    /// Milliseconds until the connection is forgotten without a further packet.
    pub left: u32,
    /// Packets of the side that opened the connection, modulo 2^32.
    pub opener_packets: u32,
    /// Packets of the other side.
    pub answer_packets: u32,
}

/// Counts of a port's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// TCP connections that both sides use, and all connections of other protocols.
    pub open: u32,
    /// TCP connections that the other side has not confirmed: outbound ones.
    pub half_open_outbound: u32,
    /// The same: inbound ones.
    pub half_open_inbound: u32,
    /// Connections that are closed, and not yet forgotten.
    pub closed: u32,
    /// Inbound connections among all.
    pub inbound: u32,
    /// Connections that were not opened, by [`Full`].
    pub refused: [u64; FULL],
    /// Connections that ended early, to make place for others of the same port.
    pub evicted: u64,
    /// Fragments that were refused, by [`BadFragment`].
    pub bad_fragments: [u64; BAD],
    /// Datagrams whose fragments no longer pass, to make place for others of the same sender, or of one that
    /// has fewer.
    pub evicted_datagrams: u64,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ports = self.ports.iter().flatten().count();
        f.debug_struct("Table").field("settings", &self.common.settings).field("ports", &ports).finish_non_exhaustive()
    }
}

impl Table {
    /// Creates a table for these ports, with their shares. All memory is reserved now, and touched when it
    /// is used.
    pub fn new(settings: Settings, secret: Secret, ports: &[(u16, PortShare)]) -> Self {
        Self::with_ports(settings, secret, ports, |_, share| Arc::new(Connections::new(share)))
    }

    /// Creates a table with other settings and ports, which goes on with the connections of this one.
    ///
    /// - A port whose share is the same keeps its connections as they are. Workers may use them meanwhile.
    /// - The connections of a port with another share are copied, so nobody may use that port during the
    ///   call. If there are too many, those that both sides use come first. Entries that were found
    ///   before, and fragments that have not come yet, are unknown.
    /// - A port that is not named loses its connections.
    #[must_use]
    pub fn successor(&self, settings: Settings, ports: &[(u16, PortShare)]) -> Self {
        Self::with_ports(settings, self.common.secret, ports, |port, share| match self.port(port) {
            Some(before) if before.share == share => Arc::clone(before),
            Some(before) => Arc::new(before.successor(share, &self.common.secret)),
            None => Arc::new(Connections::new(share)),
        })
    }

    fn with_ports(
        settings: Settings,
        secret: Secret,
        ports: &[(u16, PortShare)],
        connections: impl Fn(u16, PortShare) -> Arc<Connections>,
    ) -> Self {
        let count = ports.iter().map(|(port, _)| usize::from(*port) + 1).max().unwrap_or(0);
        let mut all: Vec<_> = std::iter::repeat_with(|| None).take(count).collect();
        for &(port, share) in ports {
            all[usize::from(port)] = Some(connections(port, share));
        }
        Table { common: Common { settings, secret }, ports: all.into(), sweep_at: Mutex::new((0, 0)) }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Finds the connections of up to 256 packets. An entry whose time is over is not found.
    ///
    /// # Panics
    /// If there are more than 256 keys, or fewer places than keys.
    #[inline]
    pub fn find(&self, keys: &[Key], now: u32, found: &mut [Option<Entry>]) {
        assert!(keys.len() <= MAX_BATCH && found.len() >= keys.len());
        for (keys, found) in keys.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            self.find_group(keys, now, found);
        }
    }

    /// Finds connections in three steps, so that the loads of one step wait together.
    fn find_group(&self, keys: &[Key], now: u32, found: &mut [Option<Entry>]) {
        let mut seeks = [Seek { port: None, hash: Hash(0) }; GROUP];
        let seeks = &mut seeks[..keys.len()];
        self.find_buckets(keys, seeks);
        find_entries(seeks);
        for ((key, seek), found) in keys.iter().zip(seeks).zip(found) {
            *found = seek.entry(key, &self.common.secret, now);
        }
    }

    #[inline(never)]
    fn find_buckets<'t>(&'t self, keys: &[Key], seeks: &mut [Seek<'t>]) {
        let secret = self.common.secret;
        for (key, seek) in keys.iter().zip(seeks) {
            let Some(port) = self.port(key.port()) else { continue };
            seek.port = Some(port);
            seek.hash = secret.hash(key.words());
            prefetch_read(port.buckets.first_line(seek.hash));
        }
    }

    /// Finds the connection of one packet.
    #[must_use]
    pub fn find_one(&self, key: &Key, now: u32) -> Option<Entry> {
        let port = self.port(key.port())?;
        let (at, tag) = port.find(key, self.common.secret.hash(key.words()))?;
        live(port, key.port(), at, tag, now)
    }

    /// Returns whether a packet may begin a connection of this key.
    #[must_use]
    pub fn begins(&self, key: &Key, packet: &Transport, pickup: bool) -> bool {
        begin(key, packet, pickup, &self.common.settings).is_ok()
    }

    /// Opens a connection that the policy allows.
    ///
    /// # Errors
    /// The port's share is full, or the packet opens no connection. It is dropped.
    pub fn open(&self, key: &Key, opening: &Opening<'_>, now: u32) -> Result<Opened, Refusal> {
        let port = self.port(key.port()).ok_or(Refusal::NoShare)?;
        let entry = |(at, tag)| Entry { tag, at, port: key.port(), direction: opening.direction };
        Ok(match port.open(key, opening, &self.common.settings, &self.common.secret, now)? {
            Opened::New(new) => Opened::New(entry(new)),
            // The other worker may have opened it from the other side.
            Opened::Known((at, tag)) => Opened::Known(with_direction(port, key.port(), at, tag)),
        })
    }

    /// Advances the state of a connection by a packet that a side has sent.
    #[inline]
    pub fn advance(&self, entry: Entry, side: Side, packet: &Transport, now: u32) -> Verdict {
        let Some(port) = self.port(entry.port) else { return Verdict::Gone };
        port.advance(entry.at, entry.tag, side, packet, &self.common, now)
    }

    /// Finds the connections of up to 256 packets that a side has sent, and advances their states in the
    /// same order. This is [`Self::find`] and [`Self::advance`] in one. It takes less time while the
    /// entries fit into the second cache, and about as much beyond (`benches/table.rs`).
    ///
    /// `generation` returns the generation of a port's policy. A connection of another generation is not
    /// advanced ([`Tracked::Stale`]).
    ///
    /// # Panics
    /// If there are more than 256 keys, or not as many packets and places as keys.
    #[inline]
    pub fn track(
        &self,
        keys: &[Key],
        side: Side,
        packets: &[Transport],
        generation: impl Fn(u16) -> u32,
        now: u32,
        tracked: &mut [Tracked],
    ) {
        assert!(keys.len() <= MAX_BATCH && packets.len() == keys.len() && tracked.len() >= keys.len());
        let groups = keys.chunks(GROUP).zip(packets.chunks(GROUP)).zip(tracked.chunks_mut(GROUP));
        for ((keys, packets), tracked) in groups {
            let mut seeks = [Seek { port: None, hash: Hash(0) }; GROUP];
            let seeks = &mut seeks[..keys.len()];
            self.find_buckets(keys, seeks);
            find_entries(seeks);
            for (((key, seek), packet), tracked) in keys.iter().zip(seeks).zip(packets).zip(tracked) {
                *tracked = match (seek.port, seek.entry(key, &self.common.secret, now)) {
                    (Some(_), Some(entry)) if entry.is_stale(generation(key.port())) => Tracked::Stale(entry),
                    (Some(port), Some(Entry { at, tag, .. })) => {
                        let verdict = port.advance(at, tag, side, packet, &self.common, now);
                        Tracked::Known(verdict)
                    }
                    _ => Tracked::Unknown,
                };
            }
        }
    }

    /// Returns the verdict about an ICMP error. `entry` is the connection of the packet that the error
    /// quotes, `sender` the side that sent that packet. `seq` is the quoted sequence number of TCP.
    ///
    /// The error is refused if the side cannot have sent the quoted segment, or if that segment was
    /// acknowledged. So a forged error has to guess the sequence number (RFC 5927, section 4.1).
    pub fn related(&self, entry: Entry, sender: Side, seq: Option<u32>) -> Verdict {
        let Some(port) = self.port(entry.port) else { return Verdict::Gone };
        let Some(locked) = port.entries.lock(entry.at, entry.tag) else { return Verdict::Gone };
        let (facts, _) = facts_and_rule(locked.get(FACTS));
        let role = if sender == facts.direction.opener() { Role::Opener } else { Role::Answerer };
        let was_sent = match seq {
            Some(seq) if facts.state.is_tcp() => load_tcp(&locked, &facts).is_in_flight(role, seq),
            None if !facts.state.is_tcp() => role == Role::Opener || facts.has_reply,
            _ => false,
        };
        if !was_sent {
            return Verdict::Invalid(Invalid::Quoted);
        }
        Verdict::Pass(Passed { state: facts.state, is_reply: role == Role::Opener, has_reply: facts.has_reply })
    }

    /// Notes the first fragment of a datagram that passes: it belongs to this connection, or to none so
    /// far ([`Self::join_fragments`]). `key` is from [`Key::with_fragments`]. `header` is the length of its
    /// transport header; none if the fragment has not the whole of it.
    ///
    /// # Errors
    /// The fragment is refused.
    pub fn first_fragment(
        &self,
        key: &Key,
        fragment: &Fragment,
        header: Option<u32>,
        entry: Option<Entry>,
        now: u32,
    ) -> Result<(), BadFragment> {
        let port = self.port(key.port()).ok_or(BadFragment::Unknown)?;
        port.with_fragments(fragment.sender, |fragments| {
            if header.is_none_or(|header| header > fragment.len) {
                return Err(BadFragment::Tiny);
            }
            let hash = self.common.secret.hash(key.words()).0;
            fragments.begin(key.words(), hash, fragment, entry, [now, self.common.settings.timeouts.fragments])
        })
    }

    /// Notes the connection of a datagram whose first fragment belonged to none. `sender` is the side that
    /// has sent it.
    pub fn join_fragments(&self, key: &Key, sender: Side, entry: Entry, now: u32) {
        let Some(port) = self.port(key.port()) else { return };
        let hash = self.common.secret.hash(key.words()).0;
        port.fragments(sender).join(key.words(), hash, entry, now);
    }

    /// Returns the connection that a further fragment belongs to; none if its datagram belongs to none so
    /// far. It passes, unless the policy has changed since ([`Entry::is_stale`]).
    ///
    /// # Errors
    /// The fragment is refused.
    pub fn next_fragment(&self, key: &Key, fragment: &Fragment, now: u32) -> Result<Option<Entry>, BadFragment> {
        let port = self.port(key.port()).ok_or(BadFragment::Unknown)?;
        let hash = self.common.secret.hash(key.words()).0;
        port.with_fragments(fragment.sender, |fragments| fragments.go_on(key.words(), hash, fragment, now))
    }

    /// Notes that another generation of the policy allows the connection, by another rule. Returns
    /// the entry with that generation; none if it has ended.
    pub fn renew(&self, entry: Entry, generation: u32, rule: u32) -> Option<Entry> {
        let port = self.port(entry.port)?;
        let mut locked = port.entries.lock(entry.at, entry.tag)?;
        let [facts, _] = halves(locked.get(FACTS));
        locked.set(FACTS, pair(facts, rule));
        locked.set_generation(generation);
        Some(Entry { tag: locked.tag(), ..entry })
    }

    /// Returns the index of the rule that allowed the connection; none if it has ended.
    pub fn rule(&self, entry: Entry) -> Option<u32> {
        let port = self.port(entry.port)?;
        let locked = port.entries.lock(entry.at, entry.tag)?;
        Some(facts_and_rule(locked.get(FACTS)).1)
    }

    /// Ends a connection. Returns whether it had not ended yet.
    pub fn end(&self, entry: Entry) -> bool {
        self.port(entry.port).is_some_and(|port| port.end(entry.at, entry.tag, &self.common.secret))
    }

    /// Ends all connections of a port. Control calls it, for a port that has left.
    pub fn end_port(&self, port: u16) {
        if let Some(port) = self.port(port) {
            port.end_all(&self.common.secret);
        }
    }

    /// Forgets connections whose time is over, among the next `budget` entries. Returns the number of
    /// entries that it looked at. Control calls it now and then; if another thread sweeps, it does
    /// nothing.
    pub fn sweep(&self, now: u32, budget: u32) -> u32 {
        let mut at = match self.sweep_at.try_lock() {
            Ok(at) => at,
            Err(TryLockError::Poisoned(at)) => at.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        let mut left = budget;
        for _ in 0..=self.ports.len() {
            let (port, from) = *at;
            let next = self.ports.get(port).and_then(Option::as_ref).and_then(|connections| {
                let used = connections.used();
                let next = connections.sweep(from, left, &self.common.secret, now);
                left -= next.unwrap_or(used).saturating_sub(from).min(left);
                next
            });
            *at = match next {
                Some(next) => (port, next),
                None if port + 1 < self.ports.len() => (port + 1, 0),
                None => (0, 0),
            };
            if left == 0 {
                break;
            }
        }
        budget - left
    }

    /// Returns the counts of a port's connections.
    #[must_use]
    pub fn counts(&self, port: u16) -> Option<Counts> {
        let port = self.port(port)?;
        Some(Counts {
            open: [
                Class::OpenOutbound,
                Class::OpenInbound,
                Class::OpenTrusted,
                Class::ExchangeOutbound,
                Class::ExchangeInbound,
            ]
            .map(|class| port.count(class))
            .iter()
            .sum(),
            half_open_outbound: port.count(Class::HalfOpenOutbound),
            half_open_inbound: port.count(Class::HalfOpenInbound),
            closed: port.count(Class::ClosedOutbound) + port.count(Class::ClosedInbound),
            inbound: port.inbound(),
            refused: Full::ALL.map(|full| port.refused(full)),
            evicted: port.evicted(),
            bad_fragments: BadFragment::ALL.map(|bad| port.bad_fragments(bad)),
            evicted_datagrams: port.evicted_datagrams(),
        })
    }

    /// Returns the connections of a port. Each is copied when the iterator comes to it.
    pub fn connections(&self, port: u16, now: u32) -> impl Iterator<Item = Connection> {
        let connections = self.port(port);
        let used = connections.map_or(0, |connections| connections.used());
        let connection = move |at| {
            let entries = &connections?.entries;
            read_connection(&entries.lock(at, entries.tag(at)?)?, port, now)
        };
        (0..used).filter_map(connection)
    }

    /// Returns a connection that was found; none if it has ended.
    #[must_use]
    pub fn connection_of(&self, entry: Entry, now: u32) -> Option<Connection> {
        let connections = self.port(entry.port)?;
        read_connection(&connections.entries.lock(entry.at, entry.tag)?, entry.port, now)
    }

    #[inline]
    fn port(&self, port: u16) -> Option<&Arc<Connections>> {
        self.ports.get(usize::from(port))?.as_ref()
    }
}

/// Reads a connection; none if its time is over.
fn read_connection(entry: &Locked<'_>, port: u16, now: u32) -> Option<Connection> {
    let (facts, rule) = facts_and_rule(entry.get(FACTS));
    let [expires, seen] = halves(entry.get(TIMES));
    let left = expires.wrapping_sub(now);
    if left == 0 || left >= 1 << 31 {
        return None;
    }
    let idle = now.wrapping_sub(seen);
    let [opener_packets, answer_packets] = halves(entry.get(PACKETS));
    Some(Connection {
        key: Key::from_words(entry.key(), port),
        state: facts.state,
        direction: facts.direction,
        opener: facts.opener,
        rule,
        generation: entry.tag().generation(),
        idle: if idle < 1 << 31 { idle } else { 0 },
        left,
        opener_packets,
        answer_packets,
    })
}

/// The search for a key.
#[derive(Clone, Copy)]
struct Seek<'t> {
    /// The connections of the key's port.
    port: Option<&'t Connections>,
    /// The hash, and then the number of the entry that most probably has the key.
    hash: Hash,
}

#[inline(never)]
fn find_entries(seeks: &mut [Seek<'_>]) {
    for seek in seeks {
        let Some(port) = seek.port else { continue };
        match port.buckets.guess(seek.hash) {
            Some(guess) => {
                seek.hash = Hash(guess.into());
                for line in port.entries.lines(guess) {
                    prefetch_write(line.cast_mut());
                }
            }
            None => seek.port = None,
        }
    }
}

impl Seek<'_> {
    #[inline]
    fn entry(&self, key: &Key, secret: &Secret, now: u32) -> Option<Entry> {
        let port = self.port?;
        let guess = lower(self.hash);
        match port.entries.find(guess, key.words()) {
            Some(tag) => live(port, key.port(), guess, tag, now),
            None => {
                let (at, tag) = port.find_further(key, secret.hash(key.words()))?;
                live(port, key.port(), at, tag, now)
            }
        }
    }
}

/// Returns the entry's number that [`find_entries`] has noted.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it has 32 bits")]
fn lower(noted: Hash) -> u32 {
    noted.0 as u32
}

/// Returns the entry, if its time is not over.
#[inline]
fn live(connections: &Connections, port: u16, at: u32, tag: Tag, now: u32) -> Option<Entry> {
    (!connections.has_expired(at, now)).then(|| with_direction(connections, port, at, tag))
}

#[inline]
fn with_direction(connections: &Connections, port: u16, at: u32, tag: Tag) -> Entry {
    let (facts, _) = facts_and_rule(connections.entries.peek(at, FACTS));
    Entry { tag, at, port, direction: facts.direction }
}

#[cfg(test)]
mod tests;
