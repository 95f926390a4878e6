//! Limits of a port's share, and evictions: they decide who may open a connection.
//!
//! A few openers never fill what all share ([`PortShare::leaves_part`]): an opener goes on while it has less
//! than what is left. So one alone takes a half, and each further one leaves a part free. Beyond that
//! it takes the place of an opener that has more, until both have the same.
//!
//! Only some connections are evicted (`Class`), each class oldest first:
//!
//! ```text
//! closed      for the same opener, or one that has fewer connections
//! half-open   for the same opener, or one that has fewer
//! answered    for an opener that has fewer connections
//! ```

use super::Connections;
use crate::connection::{FACTS, Facts, facts_and_rule};
use crate::handle::Opening;
use crate::hash::Secret;
use crate::key::Direction;
use crate::members::Members;
use crate::settings::PortShare;
use crate::state::Class;
use crate::sync::Ordering;
use crate::verdict::Full;

/// State of the thread that holds the lock of the port.
pub(super) struct Writer {
    pub(super) members: Members,
    /// Inbound connections.
    pub(super) inbound: u32,
    /// Inbound connections of the openers of each place.
    openers: Vec<u32>,
    /// Places from this one on never had an inbound connection: searches leave them out.
    used_places: u32,
    /// Allowance of outbound connections.
    rate: Rate,
    /// Allowance of the inbound connections of each opener.
    opener_rates: Vec<Rate>,
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

impl Writer {
    pub(super) fn new(share: &PortShare) -> Self {
        let full = Rate { allowance: u64::from(share.new_per_second) * 1000, since: None };
        let openers = usize::from(share.openers.max(1));
        Writer {
            members: Members::new(share.connections as usize, share.openers),
            inbound: 0,
            openers: vec![0; openers],
            used_places: 0,
            rate: full,
            opener_rates: vec![full; openers],
        }
    }

    /// Counts a new connection.
    pub(super) fn count(&mut self, facts: &Facts) {
        if facts.direction == Direction::Inbound {
            let place = self.members.place_of(facts.opener);
            self.inbound += 1;
            self.openers[place as usize] += 1;
            self.used_places = self.used_places.max(place + 1);
        }
    }

    /// Counts a connection no more.
    pub(super) fn forget(&mut self, facts: &Facts) {
        if facts.direction == Direction::Inbound {
            self.inbound -= 1;
            self.openers[self.members.place_of(facts.opener) as usize] -= 1;
        }
    }

    /// Returns the number of inbound connections at a place.
    fn of_place(&self, place: u32) -> u32 {
        self.openers[place as usize]
    }

    /// Returns the place that has most, among those with an entry of this class: its count, and its
    /// number. Only a connection that finds a limit reached searches, and its opener has used its rate for
    /// it. The search looks at the places in use: as many as there are ports, or less.
    fn greatest(&self, class: Class, count: impl Fn(&Self, u32) -> u32) -> Option<(u32, u32)> {
        let places = (0..self.used_places).filter(|place| self.members.count_at(class, *place) > 0);
        places.map(|place| (count(self, place), place)).max_by_key(|(count, _)| *count)
    }
}

impl Connections {
    /// Returns a free entry for a new connection, if the share allows one. It may evict others.
    pub(super) fn admit(
        &self,
        writer: &mut Writer,
        opening: &Opening<'_>,
        secret: &Secret,
        now: u32,
    ) -> Result<u32, Full> {
        let place = writer.members.place_of(opening.opener);
        // Each opener has an allowance of its own: none stops the connections of another.
        let rate = match opening.direction {
            Direction::Outbound => &mut writer.rate,
            Direction::Inbound => &mut writer.opener_rates[place as usize],
        };
        if !rate.take(self.share.new_per_second, now) {
            return Err(Full::Rate);
        }
        // Each limit that is reached takes one entry. Then the next limit has a place more.
        match opening.direction {
            Direction::Outbound => self.limit_outbound(writer, secret)?,
            Direction::Inbound => self.limit_inbound(writer, place, secret)?,
        }
        if let Some(free) = writer.members.free() {
            return Ok(free);
        }
        let freed = match opening.direction {
            Direction::Outbound => {
                self.evict_at(writer, Class::ClosedOutbound, 0, secret)
                    || self.evict_at(writer, Class::HalfOpenOutbound, 0, secret)
            }
            Direction::Inbound => self.make_place(writer, place, secret),
        };
        freed.then(|| writer.members.free()).flatten().ok_or(Full::Connections)
    }

    fn limit_outbound(&self, writer: &mut Writer, secret: &Secret) -> Result<(), Full> {
        let is_full = writer.members.count(Class::HalfOpenOutbound) >= self.share.half_open;
        if is_full && !self.evict_at(writer, Class::HalfOpenOutbound, 0, secret) {
            return Err(Full::HalfOpen);
        }
        Ok(())
    }

    fn limit_inbound(&self, writer: &mut Writer, place: u32, secret: &Secret) -> Result<(), Full> {
        let share = &self.share;
        let half_open = Class::HalfOpenInbound;
        let left = share.half_open.saturating_sub(writer.members.count(half_open));
        let of_half_open = |writer: &Writer, place| writer.members.count_at(half_open, place);
        if self.has_enough(of_half_open(writer, place), left)
            && !self.evict_of_greater(writer, half_open, place, secret, of_half_open)
            && !self.evict_at(writer, half_open, place, secret)
        {
            return Err(Full::HalfOpen);
        }
        if writer.of_place(place) >= share.each_opener
            && !self.evict_at(writer, Class::ClosedInbound, place, secret)
            && !self.evict_at(writer, half_open, place, secret)
        {
            return Err(Full::Opener);
        }
        let most = share.connections.saturating_sub(share.outbound_reserve);
        let left = most.saturating_sub(writer.inbound);
        if self.has_enough(writer.of_place(place), left) && !self.make_place(writer, place, secret) {
            return Err(if left == 0 { Full::Inbound } else { Full::Opener });
        }
        Ok(())
    }

    /// Returns whether an opener gets no more connections. It has `own` of those that openers share,
    /// and `left` of them are free.
    fn has_enough(&self, own: u32, left: u32) -> bool {
        left == 0 || self.share.leaves_part && own >= left
    }

    /// Evicts an inbound connection for a new one of this place.
    fn make_place(&self, writer: &mut Writer, place: u32, secret: &Secret) -> bool {
        let of_greater =
            |writer: &mut Writer, class| self.evict_of_greater(writer, class, place, secret, Writer::of_place);
        self.evict_at(writer, Class::ClosedInbound, place, secret)
            || of_greater(writer, Class::ClosedInbound)
            || of_greater(writer, Class::HalfOpenInbound)
            || self.evict_at(writer, Class::HalfOpenInbound, place, secret)
            || of_greater(writer, Class::AnsweredInbound)
    }

    /// Evicts a connection of the opener that has most by a count, if it has more than this one would
    /// have then: who fills what all openers share makes place for the others.
    fn evict_of_greater(
        &self,
        writer: &mut Writer,
        class: Class,
        place: u32,
        secret: &Secret,
        count: impl Fn(&Writer, u32) -> u32,
    ) -> bool {
        let own = count(writer, place);
        let greatest = writer.greatest(class, count).filter(|(count, _)| *count > own + 1);
        greatest.is_some_and(|(_, greatest)| self.evict_at(writer, class, greatest, secret))
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
            writer.members.set(at, facts.class(), facts.opener);
        }
        false
    }
}
