//! Admission of connections, and the choice of the one that ends where there is no place.
//!
//! `quota.rs` says whether there is a place. Where there is none, one connection ends for the new one: the
//! first that there is in this table.
//!
//! | for a new TCP connection | for a new exchange |
//! |---|---|
//! | a closed one: of the same opener, or of the one that has most | the same, unless TCP has only its own part |
//! | an exchange, unless exchanges have only their own part | an exchange |
//! | an outbound one that has a place of the inbound half | the same |
//! | a half-open one of an opener that has more of them | |
//! | an established one of an opener that has more than its part ([`Established`]) | |
//! | a half-open one of the same opener | |
//!
//! Of exchanges, one of the opener goes that has most, and of these the one that is idle longest. To know
//! that takes no work at each packet: see [`Connections::evict_idlest`].

use super::Connections;
use super::quota::{Established, Traffic, Used};
use crate::connection::{FACTS, Facts, TIMES, facts_and_rule, halves};
use crate::handle::Opening;
use crate::hash::Secret;
use crate::key::{Direction, KEY_WORDS, Key, prefix_of};
use crate::members::Members;
use crate::settings::PortShare;
use crate::state::Class;
use crate::sync::Ordering;
use crate::verdict::Full;

/// Prefixes behind trusted ports that are told apart. Two of them share a limit with a chance of one in
/// so many.
const PREFIXES: usize = 4096;

/// Connections that one newcomer moves to where they belong at most. With few, it would end one that is in
/// use, where so many before an idle one had packets since.
const MOST_MOVED: u32 = 1024;

/// A connection that is idle for so many milliseconds is as good as any that is idle longer: lists tell no
/// more seconds apart.
const LONG_IDLE: u32 = 127_000;

/// Connections that end for a new one at most. More are needed only after a share has shrunk.
const MOST_ENDED: usize = 4;

/// State of the thread that holds the lock of the port.
pub(super) struct Writer {
    pub(super) members: Members,
    /// Inbound connections of the openers of each place.
    openers: Vec<u32>,
    /// Places from this one on never had an inbound connection: searches leave them out.
    used_places: u32,
    /// Established connections of each prefix behind trusted ports, by its hash.
    prefixes: Vec<u32>,
    /// Allowances of outbound connections, by [`Traffic`].
    rates: [Rate; 2],
    /// Allowances of the inbound connections of each opener.
    opener_rates: Vec<[Rate; 2]>,
}

/// The most milliseconds by which clocks of workers differ.
const MOST_SKEW: u32 = 60_000;

/// An allowance of new connections, in thousandths.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) allowance: u64,
    /// Time of the last connection; none before the first one.
    pub(super) since: Option<u32>,
}

impl Rate {
    /// Takes one connection from the allowance, which grows by `each_second` and is never greater.
    pub(super) fn take(&mut self, each_second: u32, now: u32) -> bool {
        let most = u64::from(each_second) * 1000;
        let since = self.since.unwrap_or(now);
        // Clocks of workers differ by some milliseconds, so a time may lie before the last one.
        if since.wrapping_sub(now) > MOST_SKEW || since == now {
            self.since = Some(now);
            let elapsed = u64::from(now.wrapping_sub(since));
            self.allowance = (self.allowance + elapsed * u64::from(each_second)).min(most);
        }
        let left = self.allowance.checked_sub(1000);
        self.allowance = left.unwrap_or(self.allowance);
        left.is_some()
    }
}

/// The facts of a connection that its place in the lists depends on.
pub(super) struct Listed<'a> {
    pub(super) class: Class,
    pub(super) opener: u16,
    /// Time of the last packet.
    pub(super) seen: u32,
    pub(super) key: &'a [u64; KEY_WORDS],
}

impl Writer {
    pub(super) fn new(share: &PortShare) -> Self {
        let full = Rate { allowance: u64::from(share.new_per_second) * 1000, since: None };
        let openers = usize::from(share.openers.max(1));
        Writer {
            members: Members::new(share.connections as usize, share.openers),
            openers: vec![0; openers],
            used_places: 0,
            prefixes: vec![0; if share.by_protocol { PREFIXES } else { 1 }],
            rates: [full; 2],
            opener_rates: vec![[full; 2]; openers],
        }
    }

    /// Counts a new connection.
    pub(super) fn count(&mut self, facts: &Facts) {
        if facts.direction == Direction::Inbound {
            let place = self.members.place_of(facts.opener);
            self.openers[place as usize] += 1;
            self.used_places = self.used_places.max(place + 1);
        }
    }

    /// Counts a connection no more.
    pub(super) fn forget(&mut self, facts: &Facts) {
        if facts.direction == Direction::Inbound {
            self.openers[self.members.place_of(facts.opener) as usize] -= 1;
        }
    }

    /// Puts the entry of a connection into the list of its class.
    pub(super) fn put(&mut self, at: u32, listed: &Listed<'_>, secret: &Secret) {
        let before = self.members.class_of(at);
        self.members.set(at, listed.class, listed.opener, listed.seen);
        let is_counted = listed.class == Class::OpenTrusted;
        if is_counted != (before == Class::OpenTrusted) {
            let prefix = self.place_of_prefix(listed.key, secret);
            let count = &mut self.prefixes[prefix];
            *count = if is_counted { *count + 1 } else { *count - 1 };
        }
    }

    /// Returns the place of a prefix.
    pub(super) fn place_of_prefix(&self, key: &[u64; KEY_WORDS], secret: &Secret) -> usize {
        let places = self.prefixes.len() as u64;
        usize::try_from(secret.hash(&prefix_of(key)).0 % places).unwrap_or(0)
    }

    /// Returns the established connections of a prefix behind trusted ports.
    pub(super) fn of_prefix(&self, prefix: usize) -> u32 {
        self.prefixes[prefix]
    }

    /// Returns the connections of the port, by direction and kind.
    pub(super) fn used(&self) -> Used {
        let count = |class| self.members.count(class);
        let outbound = count(Class::OpenOutbound) + count(Class::HalfOpenOutbound) + count(Class::ClosedOutbound);
        let inbound = count(Class::OpenInbound)
            + count(Class::OpenTrusted)
            + count(Class::HalfOpenInbound)
            + count(Class::ClosedInbound);
        Used([[outbound, count(Class::ExchangeOutbound)], [inbound, count(Class::ExchangeInbound)]])
    }

    /// Returns the place that has most entries of this class: its count, and its number. Only a connection
    /// that finds no place searches, and its opener has used its rate for it. The search looks at the places
    /// in use: as many as there are ports, or less.
    fn greatest(&self, class: Class) -> Option<(u32, u32)> {
        let counts = (0..self.used_places).map(|place| (self.members.count_at(class, place), place));
        counts.max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0)
    }
}

/// A connection that needs a place.
struct Newcomer<'a> {
    direction: Direction,
    traffic: Traffic,
    /// Place of its opener.
    place: u32,
    is_trusted: bool,
    secret: &'a Secret,
    now: u32,
}

impl Connections {
    /// Returns a free entry for a new connection, if the share allows one. It may evict others.
    pub(super) fn admit(
        &self,
        writer: &mut Writer,
        key: &Key,
        opening: &Opening<'_>,
        secret: &Secret,
        now: u32,
    ) -> Result<u32, Full> {
        let direction = opening.direction;
        let traffic = Traffic::of(key.protocol());
        let place = match direction {
            Direction::Outbound => 0,
            Direction::Inbound => writer.members.place_of(opening.opener),
        };
        // Each opener has an allowance of its own for each kind: none stops the connections of another.
        let rates = match direction {
            Direction::Outbound => &mut writer.rates,
            Direction::Inbound => &mut writer.opener_rates[place as usize],
        };
        if !rates[traffic as usize].take(self.share.new_per_second, now) {
            return Err(Full::Rate);
        }
        let newcomer = Newcomer { direction, traffic, place, is_trusted: opening.is_trusted, secret, now };
        if traffic == Traffic::Tcp {
            // First, so that a connection that is refused ends no other.
            if direction == Direction::Inbound && opening.is_trusted {
                let prefix = writer.place_of_prefix(key.words(), secret);
                if self.is_much(writer.of_prefix(prefix), &self.established(writer)) {
                    return Err(Full::Opener);
                }
            }
            self.limit_half_open(writer, &newcomer)?;
        }
        if direction == Direction::Inbound {
            self.limit_opener(writer, &newcomer)?;
        }
        for _ in 0..MOST_ENDED {
            let Err(full) = self.quota.check(&writer.used(), direction, traffic) else { break };
            if !self.make_place(writer, &newcomer, full) {
                return Err(full);
            }
        }
        self.quota.check(&writer.used(), direction, traffic)?;
        writer.members.free().ok_or(Full::Connections)
    }

    fn established(&self, writer: &Writer) -> Established {
        let members = &writer.members;
        Established {
            most: self.quota.most_established(members.count(Class::OpenOutbound)),
            untrusted: members.count(Class::OpenInbound),
            ports: members.places(Class::OpenInbound),
            trusted: members.count(Class::OpenTrusted),
        }
    }

    /// Returns whether a network behind trusted ports has so many of the established connections that it gets
    /// no more. Where the share is not divided by protocols, nobody is held to it.
    fn is_much(&self, own: u32, established: &Established) -> bool {
        self.share.by_protocol && established.is_much_for_a_network(own)
    }

    /// Returns whether the connection whose handshake is over, and that is counted, is one too many of its
    /// prefix. Many may have been half-open at once.
    pub(super) fn is_one_too_many(&self, writer: &Writer, prefix: usize) -> bool {
        let mut before = self.established(writer);
        before.trusted -= 1;
        self.is_much(writer.of_prefix(prefix) - 1, &before)
    }

    fn limit_half_open(&self, writer: &mut Writer, new: &Newcomer<'_>) -> Result<(), Full> {
        let class = Class::half_open(new.direction);
        if writer.members.count(class) < self.share.half_open
            || new.direction == Direction::Inbound && self.evict_half_open_of_greater(writer, new)
            || self.evict_at(writer, class, new.place, new.secret)
        {
            return Ok(());
        }
        Err(Full::HalfOpen)
    }

    fn limit_opener(&self, writer: &mut Writer, new: &Newcomer<'_>) -> Result<(), Full> {
        if writer.openers[new.place as usize] < self.share.each_opener
            || self.evict_at(writer, Class::ClosedInbound, new.place, new.secret)
            || self.evict_idlest(writer, Class::ExchangeInbound, new.place, new)
            || self.evict_at(writer, Class::HalfOpenInbound, new.place, new.secret)
        {
            return Ok(());
        }
        Err(Full::Opener)
    }

    /// Ends a connection for a new one, which finds this part of the share full.
    fn make_place(&self, writer: &mut Writer, new: &Newcomer<'_>, full: Full) -> bool {
        let used = writer.used();
        let is_inbound = new.direction == Direction::Inbound;
        let may_take =
            |traffic| traffic == new.traffic || self.quota.has_more_than_its_own(&used, new.direction, traffic);
        let is_lent = is_inbound && full == Full::Connections && self.quota.is_borrowing(&used);
        may_take(Traffic::Tcp) && self.evict_closed(writer, new.direction, new)
            || may_take(Traffic::Exchange) && self.evict_exchange(writer, new.direction, new)
            || is_lent && self.evict_borrowed(writer, &used, new)
            || new.traffic == Traffic::Tcp
                && (is_inbound && (self.evict_half_open_of_greater(writer, new) || self.evict_established(writer, new))
                    || self.evict_at(writer, Class::half_open(new.direction), new.place, new.secret))
    }

    fn evict_closed(&self, writer: &mut Writer, direction: Direction, new: &Newcomer<'_>) -> bool {
        if direction == Direction::Outbound {
            return self.evict_at(writer, Class::ClosedOutbound, 0, new.secret);
        }
        let class = Class::ClosedInbound;
        self.evict_at(writer, class, new.place, new.secret)
            || writer.greatest(class).is_some_and(|(_, place)| self.evict_at(writer, class, place, new.secret))
    }

    /// Evicts the exchange that is idle longest: of the opener that has most, if it has more than this one
    /// would have then.
    fn evict_exchange(&self, writer: &mut Writer, direction: Direction, new: &Newcomer<'_>) -> bool {
        if direction == Direction::Outbound {
            return self.evict_idlest(writer, Class::ExchangeOutbound, 0, new);
        }
        let class = Class::ExchangeInbound;
        let own = writer.members.count_at(class, new.place);
        match writer.greatest(class) {
            Some((most, place)) if own == 0 || most > own + 1 => self.evict_idlest(writer, class, place, new),
            _ => self.evict_idlest(writer, class, new.place, new),
        }
    }

    /// Evicts an outbound connection that has a place of the inbound half.
    fn evict_borrowed(&self, writer: &mut Writer, used: &Used, new: &Newcomer<'_>) -> bool {
        let direction = Direction::Outbound;
        let may_take = |traffic| self.quota.has_more_than_its_own(used, direction, traffic);
        may_take(Traffic::Tcp) && self.evict_closed(writer, direction, new)
            || may_take(Traffic::Exchange) && self.evict_exchange(writer, direction, new)
            || may_take(Traffic::Tcp) && self.evict_at(writer, Class::HalfOpenOutbound, 0, new.secret)
    }

    /// Evicts a half-open connection of the opener that has most of them, if it has more than this one
    /// would have then.
    fn evict_half_open_of_greater(&self, writer: &mut Writer, new: &Newcomer<'_>) -> bool {
        let class = Class::HalfOpenInbound;
        let own = writer.members.count_at(class, new.place);
        let greatest = writer.greatest(class).filter(|(count, _)| *count > own + 1);
        greatest.is_some_and(|(_, place)| self.evict_at(writer, class, place, new.secret))
    }

    /// Evicts an established connection of the opener that has most. For one that is not trusted, it must have
    /// more than that would have then: half-open ones count, so SYNs alone take nothing from those that have
    /// fewer. For a network behind a trusted port, it must have more than its part.
    fn evict_established(&self, writer: &mut Writer, new: &Newcomer<'_>) -> bool {
        if !self.share.by_protocol {
            return false;
        }
        let class = Class::OpenInbound;
        let own = |class| writer.members.count_at(class, new.place);
        let kept =
            if new.is_trusted { self.established(writer).part() } else { own(class) + own(Class::HalfOpenInbound) + 1 };
        let greatest = writer.greatest(class).filter(|(count, _)| *count > kept);
        greatest.is_some_and(|(_, place)| self.evict_idlest(writer, class, place, new))
    }

    /// Evicts the connection of a class at a place that is idle longest, to a second.
    ///
    /// A packet does not move its connection in the lists. So one that had packets since is moved now, and the
    /// next one is looked at. A packet pays for each move. Still, one call moves no more than some: then it
    /// takes the idlest of these.
    fn evict_idlest(&self, writer: &mut Writer, class: Class, place: u32, new: &Newcomer<'_>) -> bool {
        let mut idlest: Option<(u32, u32)> = None;
        for _ in 0..MOST_MOVED {
            let Some(at) = writer.members.idlest_at(class, place, new.now) else { break };
            let idle = idle(halves(self.entries.peek(at, TIMES))[1], new.now);
            if idle >= LONG_IDLE || !writer.members.refile(at, new.now.wrapping_sub(idle)) {
                return self.evict(writer, at, new.secret);
            }
            if idlest.is_none_or(|(most, _)| idle > most) {
                idlest = Some((idle, at));
            }
        }
        idlest.is_some_and(|(_, at)| self.evict(writer, at, new.secret))
    }

    /// Evicts the oldest connection of a class at a place. Outbound ones are all at place 0.
    fn evict_at(&self, writer: &mut Writer, class: Class, place: u32, secret: &Secret) -> bool {
        while let Some(at) = writer.members.oldest_at(class, place) {
            let Some(entry) = self.entries.tag(at).and_then(|tag| self.entries.lock(at, tag)) else { return false };
            let facts = facts_and_rule(entry.get(FACTS)).0;
            if facts.class() == class {
                self.end_locked(writer, at, entry, secret);
                self.evicted.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            // A packet has changed it, and its thread waits for our lock.
            self.put_locked(writer, at, &entry, secret);
        }
        false
    }

    fn evict(&self, writer: &mut Writer, at: u32, secret: &Secret) -> bool {
        let entry = self.entries.tag(at).and_then(|tag| self.entries.lock(at, tag));
        let Some(entry) = entry else { return false };
        self.end_locked(writer, at, entry, secret);
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Returns the milliseconds since a time. Clocks of workers differ by some milliseconds.
pub(super) fn idle(seen: u32, now: u32) -> u32 {
    let idle = now.wrapping_sub(seen);
    if idle < 1 << 31 { idle } else { 0 }
}
