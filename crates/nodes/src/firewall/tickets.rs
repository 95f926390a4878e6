//! Tickets: decisions on packets that went back to their ring.
//!
//! An output that waits (`full = "wait"`) leaves packets in their ring, and so does a turn that would
//! take too long. They pass the node again in a later turn. Nobody has got them, but the connections
//! have seen them: a fragment would overlap itself, a RST would find its connection ended, and a new
//! connection would count for the share's rate again.
//!
//! So each packet that goes back leaves a ticket: its name, and the decision. A packet that comes with
//! such a name takes the ticket, gets the decision, and touches no state. The name is a hash of all that
//! the decision depends on, so a guest that changes a waiting packet gets a new decision.

use std::hash::{BuildHasher, Hash, RandomState};

use super::run::Decision;

/// Places of a set, and sets. A turn has at most 256 packets, so a set is hardly ever full.
const PLACES: usize = 16;
const SETS: usize = 64;

/// Seconds after which a ticket is void. Packets that wait longer are decided again.
const LIFE: u32 = 60;

/// The tickets of a node.
pub(super) struct Tickets {
    sets: Box<[[Ticket; PLACES]; SETS]>,
    /// Secret: guests choose packets, and must not find two of one name.
    hasher: RandomState,
    /// Second of the last ticket; none if no ticket is valid.
    last: Option<u32>,
}

#[derive(Clone, Copy)]
struct Ticket {
    name: u64,
    /// Packets that may take it; 0 if the place is free.
    packets: u16,
    decision: Decision,
    /// Second in which it was issued.
    since: u32,
}

impl Ticket {
    const NONE: Ticket = Ticket { name: 0, packets: 0, decision: Decision::Ask, since: 0 };

    fn is_valid(&self, now: u32) -> bool {
        self.packets > 0 && now.wrapping_sub(self.since) <= LIFE
    }
}

impl Tickets {
    pub(super) fn new() -> Self {
        let sets = vec![[Ticket::NONE; PLACES]; SETS].into_boxed_slice().try_into();
        Tickets { sets: sets.unwrap_or_else(|_| unreachable!("as many")), hasher: RandomState::new(), last: None }
    }

    /// Returns whether there may be a ticket. Most calls of the node look at this alone.
    #[inline]
    pub(super) fn may_have_some(&mut self, now: u32) -> bool {
        if self.last.is_some_and(|last| now.wrapping_sub(last) > LIFE) {
            self.last = None;
        }
        self.last.is_some()
    }

    /// Returns the name of a packet: of all that its decision depends on.
    pub(super) fn name(&self, facts: impl Hash) -> u64 {
        self.hasher.hash_one(facts)
    }

    /// Issues a ticket for a packet of this name. If too many wait, the oldest ticket becomes void.
    pub(super) fn issue(&mut self, name: u64, decision: Decision, now: u32) {
        self.last = Some(now);
        let set = self.set(name);
        let is_same = |ticket: &&mut Ticket| {
            ticket.name == name && ticket.decision == decision && ticket.is_valid(now) && ticket.packets < u16::MAX
        };
        if let Some(ticket) = set.iter_mut().find(is_same) {
            ticket.packets += 1;
            ticket.since = now;
            return;
        }
        let worth = |ticket: &&mut Ticket| {
            if ticket.is_valid(now) { u32::MAX - now.wrapping_sub(ticket.since) } else { 0 }
        };
        if let Some(place) = set.iter_mut().min_by_key(worth) {
            *place = Ticket { name, packets: 1, decision, since: now };
        }
    }

    /// Takes the ticket of this name.
    pub(super) fn take(&mut self, name: u64, now: u32) -> Option<Decision> {
        let ticket = self.set(name).iter_mut().find(|ticket| ticket.name == name && ticket.is_valid(now))?;
        ticket.packets -= 1;
        Some(ticket.decision)
    }

    fn set(&mut self, name: u64) -> &mut [Ticket; PLACES] {
        let at = usize::try_from(name % SETS as u64).unwrap_or(0);
        &mut self.sets[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_packet::Reason;

    #[test]
    fn a_ticket_is_taken_once_and_in_time() {
        let mut tickets = Tickets::new();
        assert!(!tickets.may_have_some(5));
        tickets.issue(9, Decision::Pass, 5);
        tickets.issue(9, Decision::Pass, 6);
        tickets.issue(9, Decision::Drop(Reason::Invalid), 6);
        assert!(tickets.may_have_some(6 + LIFE) && tickets.take(8, 6).is_none());
        let taken: Vec<_> = std::iter::from_fn(|| tickets.take(9, 6 + LIFE)).collect();
        assert_eq!(taken, [Decision::Pass, Decision::Pass, Decision::Drop(Reason::Invalid)]);
        tickets.issue(9, Decision::Pass, 5);
        assert_eq!(tickets.take(9, 6 + LIFE), None, "void");
        assert!(!tickets.may_have_some(6 + LIFE));
    }

    #[test]
    fn the_oldest_ticket_makes_place() {
        let mut tickets = Tickets::new();
        let name = |nth: u32| u64::from(nth) * SETS as u64 + 7;
        for nth in 0..20 {
            tickets.issue(name(nth), Decision::Pass, nth);
        }
        let has = |tickets: &mut Tickets, nth| tickets.take(name(nth), 20).is_some();
        assert!((0..4).all(|nth| !has(&mut tickets, nth)));
        assert!((4..20).all(|nth| has(&mut tickets, nth)));
    }
}
