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

/// Places of a set, and sets. A turn has at most 256 packets, so one sender hardly ever fills a set. If
/// several do, the one that has most makes place.
const PLACES: usize = 16;
const SETS: usize = 64;

/// Places of senders. Others share one.
const SENDERS: u16 = 256;

/// Seconds after which a ticket is void. Packets that wait longer are decided again.
const LIFE: u32 = 60;

/// The tickets of a node, with decisions of type `D`.
pub(crate) struct Tickets<D> {
    sets: Box<[[Ticket<D>; PLACES]]>,
    senders: Box<[Sender]>,
    /// Packets of all senders that may take a ticket.
    packets: u32,
    /// Secret: guests choose packets, and must not find two of one name.
    hasher: RandomState,
}

/// A port that sends packets.
#[derive(Clone, Copy, Default)]
struct Sender {
    /// Packets that may take a ticket.
    packets: u32,
    /// Second of the last ticket.
    last: u32,
}

#[derive(Clone, Copy)]
struct Ticket<D> {
    name: u64,
    /// Place of the sender.
    sender: u16,
    /// Packets that may take it; 0 if the place is free.
    packets: u16,
    /// None if the place was never used.
    decision: Option<D>,
    /// Second in which it was issued.
    since: u32,
}

impl<D> Ticket<D> {
    const NONE: Self = Ticket { name: 0, sender: 0, packets: 0, decision: None, since: 0 };

    fn is_valid(&self, now: u32) -> bool {
        self.packets > 0 && now.wrapping_sub(self.since) <= LIFE
    }

    fn is_of(&self, sender: u16, name: u64) -> bool {
        self.name == name && self.sender == sender
    }
}

impl<D: Copy + PartialEq> Tickets<D> {
    pub(crate) fn new() -> Self {
        Tickets {
            sets: vec![[Ticket::NONE; PLACES]; SETS].into(),
            senders: vec![Sender::default(); SENDERS.into()].into(),
            packets: 0,
            hasher: RandomState::new(),
        }
    }

    /// Returns whether there is a ticket. Most calls of the node look at this alone.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.packets > 0
    }

    /// Returns whether packets of a port may have a ticket.
    pub(crate) fn may_have(&mut self, port: u16, now: u32) -> bool {
        let sender = place_of(port);
        let Sender { packets, last } = self.senders[usize::from(sender)];
        if packets > 0 && now.wrapping_sub(last) > LIFE {
            self.void(sender);
            return false;
        }
        packets > 0
    }

    /// Makes all tickets of a sender void.
    #[cold]
    fn void(&mut self, sender: u16) {
        for ticket in self.sets.as_flattened_mut().iter_mut().filter(|ticket| ticket.sender == sender) {
            ticket.packets = 0;
        }
        let all = std::mem::take(&mut self.senders[usize::from(sender)].packets);
        self.packets -= all;
    }

    /// Returns the name of a packet: of all that its decision depends on.
    pub(crate) fn name(&self, facts: impl Hash) -> u64 {
        self.hasher.hash_one(facts)
    }

    /// Issues a ticket for a packet of this name, which a port has sent. If too many packets wait, a ticket
    /// of the sender that has most becomes void.
    pub(crate) fn issue(&mut self, port: u16, name: u64, decision: D, now: u32) {
        let sender = place_of(port);
        let set = &mut self.sets[set_of(name)];
        let is_same = |ticket: &&mut Ticket<D>| {
            ticket.is_of(sender, name)
                && ticket.decision == Some(decision)
                && ticket.is_valid(now)
                && ticket.packets < u16::MAX
        };
        if let Some(ticket) = set.iter_mut().find(is_same) {
            ticket.packets += 1;
            ticket.since = now;
        } else {
            let Some(place) = place_in(set, sender, now) else { return };
            let before = std::mem::replace(
                &mut set[place],
                Ticket { name, sender, packets: 1, decision: Some(decision), since: now },
            );
            self.senders[usize::from(before.sender)].packets -= u32::from(before.packets);
            self.packets -= u32::from(before.packets);
        }
        let sender = &mut self.senders[usize::from(sender)];
        sender.packets += 1;
        sender.last = now;
        self.packets += 1;
    }

    /// Takes the ticket of this name.
    pub(crate) fn take(&mut self, port: u16, name: u64, now: u32) -> Option<D> {
        let sender = place_of(port);
        let set = &mut self.sets[set_of(name)];
        let ticket = set.iter_mut().find(|ticket| ticket.is_of(sender, name) && ticket.is_valid(now))?;
        ticket.packets -= 1;
        self.senders[usize::from(sender)].packets -= 1;
        self.packets -= 1;
        ticket.decision
    }
}

/// Returns the place of a set for a new ticket of a sender; none if as many senders have one each.
fn place_in<D>(set: &[Ticket<D>; PLACES], sender: u16, now: u32) -> Option<usize> {
    if let Some(free) = set.iter().position(|ticket| !ticket.is_valid(now)) {
        return Some(free);
    }
    let tickets_of = |sender| set.iter().filter(|ticket| ticket.sender == sender).count();
    let own = tickets_of(sender);
    let greatest = set.iter().map(|ticket| ticket.sender).max_by_key(|sender| tickets_of(*sender))?;
    let giver = if tickets_of(greatest) > own + 1 { greatest } else { sender };
    let places = (0..PLACES).filter(|place| set[*place].sender == giver);
    places.max_by_key(|place| now.wrapping_sub(set[*place].since))
}

fn place_of(port: u16) -> u16 {
    port % SENDERS
}

fn set_of(name: u64) -> usize {
    usize::try_from(name % SETS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 3;

    /// The number of packets that may take a ticket, counted in both ways.
    fn count(tickets: &Tickets<u8>) -> u32 {
        let all = tickets.sets.as_flattened().iter().map(|ticket| u32::from(ticket.packets)).sum();
        assert_eq!(tickets.packets, all);
        assert_eq!(tickets.senders.iter().map(|sender| sender.packets).sum::<u32>(), all);
        all
    }

    #[test]
    fn a_ticket_is_taken_once_and_in_time() {
        let mut tickets = Tickets::new();
        assert!(!tickets.may_have(PORT, 5));
        tickets.issue(PORT, 9, 1, 5);
        tickets.issue(PORT, 9, 1, 6);
        tickets.issue(PORT, 9, 2, 6);
        assert!(tickets.may_have(PORT, 6 + LIFE) && tickets.take(PORT, 8, 6).is_none());
        let taken: Vec<_> = std::iter::from_fn(|| tickets.take(PORT, 9, 6 + LIFE)).collect();
        assert_eq!(taken, [1, 1, 2]);
        tickets.issue(PORT, 9, 1, 5);
        assert_eq!(tickets.take(PORT, 9, 6 + LIFE), None, "void");
        assert!(!tickets.may_have(PORT, 6 + LIFE));
        assert_eq!(count(&tickets), 0);
    }

    /// Packets of other ports need no look at tickets, nor do those of a port whose tickets are taken.
    #[test]
    fn a_ticket_slows_down_its_sender_alone_until_it_is_taken() {
        let mut tickets = Tickets::new();
        tickets.issue(PORT, 9, 1, 5);
        assert!(tickets.has_some() && tickets.may_have(PORT, 5) && !tickets.may_have(PORT + 1, 5));
        assert_eq!(tickets.take(PORT + 1, 9, 5), None, "another's");
        assert_eq!(tickets.take(PORT, 9, 5), Some(1));
        assert!(!tickets.has_some() && !tickets.may_have(PORT, 5));
    }

    fn name(nth: u32) -> u64 {
        u64::from(nth) * SETS as u64 + 7
    }

    #[test]
    fn the_oldest_ticket_of_the_sender_makes_place() {
        let mut tickets = Tickets::new();
        for nth in 0..20 {
            tickets.issue(PORT, name(nth), 1, nth);
        }
        assert_eq!(count(&tickets), 16);
        let taken: Vec<_> = (0..20).filter(|nth| tickets.take(PORT, name(*nth), 20).is_some()).collect();
        assert_eq!(taken, (4..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_sender_with_many_tickets_voids_none_of_others() {
        let mut tickets = Tickets::new();
        (0..16).for_each(|nth| tickets.issue(PORT, name(nth), 1, 0));
        (0..4).for_each(|nth| tickets.issue(4, name(nth), 2, 1));
        (20..90).for_each(|nth| tickets.issue(PORT, name(nth), 1, 2));
        assert_eq!(count(&tickets), 16);
        assert!((0..4).all(|nth| tickets.take(4, name(nth), 2) == Some(2)));
        // As many senders as places: each keeps its ticket, and the next one gets none.
        let mut tickets = Tickets::new();
        (0..17).for_each(|port| tickets.issue(port, name(0), 1, 0));
        assert!((0..17).all(|port| tickets.take(port, name(0), 0).is_some() == (port < 16)));
        assert_eq!(count(&tickets), 0);
    }
}
