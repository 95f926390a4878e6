//! The parts of a port's share: who may have how many connections.
//!
//! ```text
//!               half for outbound           half for inbound
//! |-------------|-------------|------------||-------------|------------|-------------|
//! | TCP alone   | whoever     | exchanges  || TCP alone   | whoever    | exchanges   |
//! | a quarter   | comes       | a quarter  || a quarter   | comes      | a quarter   |
//! ```
//!
//! - **Exchanges** are connections of UDP and of all other protocols without states.
//! - Inbound connections stay in their half. Outbound ones may *borrow* the part of the inbound half that
//!   is for whoever comes.
//! - A part that is for one kind alone stays free for it, so a connection of that kind always has a place
//!   there.
//!
//! Established inbound TCP connections are divided besides ([`Established`]):
//!
//! - **Ports that are not trusted** have what others do not want. Where there is no place, the one that has
//!   most gives one to a port that has fewer.
//! - **Networks behind trusted ports** keep what they have. So a network goes on only while it has less than
//!   what is left: one alone takes less than a half, and each further one leaves a part. Other ports keep
//!   an equal part each, and an eighth for those that come.
//!
//! This file knows counts only. `admission.rs` says which connection ends where there is no place.

use straightline_wire::IpProtocol;

use crate::key::Direction;
use crate::settings::PortShare;
use crate::verdict::Full;

/// The kind of a connection, as far as places go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Tcp = 0,
    /// UDP, and all other protocols without states.
    Exchange = 1,
}

impl Traffic {
    pub(crate) fn of(protocol: IpProtocol) -> Self {
        if protocol == IpProtocol::TCP { Self::Tcp } else { Self::Exchange }
    }

    fn other(self) -> Self {
        match self {
            Self::Tcp => Self::Exchange,
            Self::Exchange => Self::Tcp,
        }
    }
}

/// Connections that a port has: by direction, outbound ones first, and by [`Traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used(pub(crate) [[u32; 2]; 2]);

impl Used {
    pub(crate) fn of(&self, direction: Direction, traffic: Traffic) -> u32 {
        self.0[direction as usize][traffic as usize]
    }

    pub(crate) fn both(&self, direction: Direction) -> u32 {
        let [tcp, exchanges] = self.0[direction as usize];
        tcp.saturating_add(exchanges)
    }

    fn all(&self) -> u32 {
        self.both(Direction::Outbound).saturating_add(self.both(Direction::Inbound))
    }
}

/// The established inbound TCP connections of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Established {
    /// All that there is room for.
    pub(crate) most: u32,
    /// Those from ports that are not trusted.
    pub(crate) untrusted: u32,
    /// The number of these ports.
    pub(crate) ports: u32,
    /// Those from trusted ports.
    pub(crate) trusted: u32,
}

impl Established {
    /// Returns what a port that is not trusted keeps when those behind trusted ports want more. All trusted
    /// ones count as one port, and one part is for the next port.
    pub(crate) fn part(&self) -> u32 {
        self.most / (self.ports + 2)
    }

    /// Returns whether a network behind a trusted port has no less than what is left for all of these. If it
    /// has less, a place is free, or a port has more than its part.
    pub(crate) fn is_much_for_a_network(&self, own: u32) -> bool {
        let kept = self.untrusted.min(self.part() * self.ports).max(self.most / 8);
        own >= (self.most - kept).saturating_sub(self.trusted)
    }
}

/// The places of a port's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    connections: u32,
    /// The half of inbound connections.
    inbound: u32,
    /// Places of one kind alone, of each direction.
    alone: [u32; 2],
    by_protocol: bool,
}

impl Quota {
    pub(crate) fn new(share: &PortShare) -> Self {
        let outbound = share.outbound_reserve.min(share.connections);
        let inbound = share.connections - outbound;
        let alone = if share.by_protocol { [outbound / 4, inbound / 4] } else { [0; 2] };
        Quota { connections: share.connections, inbound, alone, by_protocol: share.by_protocol }
    }

    /// Returns whether there is a place for a connection.
    pub(crate) fn check(&self, used: &Used, direction: Direction, traffic: Traffic) -> Result<(), Full> {
        let kept = self.kept_free(used, direction, traffic.other());
        if direction == Direction::Inbound && used.both(direction).saturating_add(kept) >= self.inbound {
            return Err(Full::Inbound);
        }
        let other = match direction {
            Direction::Outbound => Direction::Inbound,
            Direction::Inbound => Direction::Outbound,
        };
        let kept_of_other = self.kept_free(used, other, Traffic::Tcp) + self.kept_free(used, other, Traffic::Exchange);
        if used.all().saturating_add(kept).saturating_add(kept_of_other) >= self.connections {
            return Err(Full::Connections);
        }
        Ok(())
    }

    /// Returns the places that stay free for one kind.
    fn kept_free(&self, used: &Used, direction: Direction, traffic: Traffic) -> u32 {
        self.alone[direction as usize].saturating_sub(used.of(direction, traffic))
    }

    /// Returns whether a kind has places that are not its alone. Then one of them may go to the other.
    pub(crate) fn has_more_than_its_own(&self, used: &Used, direction: Direction, traffic: Traffic) -> bool {
        used.of(direction, traffic) > self.alone[direction as usize]
    }

    /// Returns whether outbound connections have places of the inbound half.
    pub(crate) fn is_borrowing(&self, used: &Used) -> bool {
        let direction = Direction::Outbound;
        let kept = self.kept_free(used, direction, Traffic::Tcp) + self.kept_free(used, direction, Traffic::Exchange);
        used.both(direction).saturating_add(kept) > self.connections - self.inbound
    }

    /// Returns the most established inbound TCP connections that there is room for, beside this number of
    /// established outbound ones. All others end where they want more.
    pub(crate) fn most_established(&self, outbound: u32) -> u32 {
        let [alone_outbound, alone] = self.alone;
        let borrowed = outbound.saturating_add(alone_outbound).saturating_sub(self.connections - self.inbound);
        (self.inbound - alone).saturating_sub(borrowed)
    }

    /// Returns whether 7/8 of a direction's places, or of its places for exchanges, are taken.
    pub(crate) fn is_crowded(&self, used: &Used, direction: Direction) -> bool {
        if !self.by_protocol {
            return false;
        }
        let [outbound, inbound] = self.alone;
        let (places, alone) = match direction {
            Direction::Outbound => (self.connections - 2 * inbound, outbound),
            Direction::Inbound => (self.inbound, inbound),
        };
        let is_near = |used: u32, most: u32| u64::from(used) * 8 >= u64::from(most) * 7;
        is_near(used.both(direction), places)
            || is_near(used.of(direction, Traffic::Exchange), places - alone)
            || is_near(used.all(), self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [(Direction, Traffic); 4] = [
        (Direction::Outbound, Traffic::Tcp),
        (Direction::Outbound, Traffic::Exchange),
        (Direction::Inbound, Traffic::Tcp),
        (Direction::Inbound, Traffic::Exchange),
    ];

    /// A place of the reference, and who may have it.
    struct Place(fn(Direction, Traffic) -> bool);

    /// Returns the places of a share, those for fewest first.
    fn places(share: &PortShare) -> Vec<Place> {
        let inbound = share.connections - share.outbound_reserve;
        let part = |half: u32| if share.by_protocol { half / 4 } else { 0 };
        let [outbound_alone, inbound_alone] = [part(share.outbound_reserve), part(inbound)];
        let mut all = Vec::new();
        let mut add = |count: u32, may: fn(Direction, Traffic) -> bool| {
            all.extend((0..count).map(|_| Place(may)));
        };
        add(inbound_alone, |direction, traffic| direction == Direction::Inbound && traffic == Traffic::Tcp);
        add(inbound_alone, |direction, traffic| direction == Direction::Inbound && traffic == Traffic::Exchange);
        add(outbound_alone, |direction, traffic| direction == Direction::Outbound && traffic == Traffic::Tcp);
        add(outbound_alone, |direction, traffic| direction == Direction::Outbound && traffic == Traffic::Exchange);
        add(share.outbound_reserve - 2 * outbound_alone, |direction, _| direction == Direction::Outbound);
        add(inbound - 2 * inbound_alone, |_, _| true);
        all
    }

    /// Returns whether all these connections find a place.
    fn fit(share: &PortShare, used: &Used) -> bool {
        let mut places = places(share);
        // Each takes the place that fewest others may have, so the order decides nothing.
        ALL.iter().all(|&(direction, traffic)| {
            (0..used.of(direction, traffic)).all(|_| {
                let free = places.iter().position(|place| place.0(direction, traffic));
                free.map(|free| places.remove(free)).is_some()
            })
        })
    }

    proptest! {
        /// The counts say the same as places that are given one by one.
        #[test]
        fn counts_agree_with_places(
            connections in 0..40_u32, reserve in 0..40_u32, by_protocol in any::<bool>(),
            steps in prop::collection::vec((0..4_usize, any::<bool>()), 0..120),
        ) {
            let outbound_reserve = reserve.min(connections);
            let share = PortShare { outbound_reserve, by_protocol, ..PortShare::new(connections) };
            let quota = Quota::new(&share);
            let mut used = Used::default();
            for (which, ends) in steps {
                let (direction, traffic) = ALL[which];
                let mut next = used;
                let count = &mut next.0[direction as usize][traffic as usize];
                if ends {
                    *count = count.saturating_sub(1);
                } else {
                    *count += 1;
                    let checked = quota.check(&used, direction, traffic);
                    prop_assert_eq!(checked.is_ok(), fit(&share, &next), "{:?}", used);
                    let has_its_own = used.of(direction, traffic) < quota.alone[direction as usize];
                    prop_assert!(checked.is_ok() || !has_its_own, "a part is for one kind alone");
                    if let Err(full) = checked {
                        // One that goes beyond its own part makes a place for the other kind.
                        let other = traffic.other();
                        if quota.has_more_than_its_own(&used, direction, other) {
                            let mut less = used;
                            less.0[direction as usize][other as usize] -= 1;
                            prop_assert!(quota.check(&less, direction, traffic).is_ok());
                        }
                        prop_assert!(full != Full::Connections || direction == Direction::Outbound || quota.is_borrowing(&used));
                        continue;
                    }
                }
                used = next;
                prop_assert!(fit(&share, &used));
            }
        }
    }

    #[test]
    fn the_parts_of_a_usual_share() {
        let quota = Quota::new(&PortShare::new(10_000));
        let most = |direction: Direction, traffic: Traffic, mut used: Used| {
            while quota.check(&used, direction, traffic).is_ok() {
                used.0[direction as usize][traffic as usize] += 1;
            }
            used.of(direction, traffic)
        };
        for traffic in [Traffic::Tcp, Traffic::Exchange] {
            assert_eq!(most(Direction::Inbound, traffic, Used::default()), 3750);
            assert_eq!(most(Direction::Outbound, traffic, Used::default()), 6250);
            let other = traffic.other();
            let mut full = Used::default();
            full.0[Direction::Inbound as usize][other as usize] = 3750;
            full.0[Direction::Outbound as usize][other as usize] = 3750;
            assert_eq!(most(Direction::Inbound, traffic, full), 1250);
            assert_eq!(most(Direction::Outbound, traffic, full), 1250);
        }
        assert_eq!([0, 3750, 5000, 6250].map(|own| quota.most_established(own)), [3750, 3750, 2500, 1250]);
    }

    proptest! {
        /// A network that has less than what is left finds a place: a free one, or that of a port with more
        /// than its part. Ports never have less than theirs for it.
        #[test]
        fn a_network_that_may_go_on_finds_a_place(
            most in 0..400_u32, of_ports in prop::collection::vec(1..100_u32, 0..6), trusted in 0..400_u32, own in 0..200_u32,
        ) {
            let mut of_ports = of_ports;
            while of_ports.iter().sum::<u32>() + trusted > most && of_ports.iter().any(|count| *count > 1) {
                *of_ports.iter_mut().max().expect("some") -= 1;
            }
            let untrusted = of_ports.iter().sum::<u32>();
            prop_assume!(untrusted + trusted <= most && own <= trusted);
            let established = Established { most, untrusted, ports: u32::try_from(of_ports.len()).expect("few"), trusted };
            let finds = untrusted + trusted < most || of_ports.iter().any(|count| *count > established.part());
            prop_assert!(established.is_much_for_a_network(own) || finds);
            prop_assert!(established.is_much_for_a_network(own) || trusted < most - most / 8);
            prop_assert!(trusted > 0 || most == 0 || !established.is_much_for_a_network(0));
        }
    }
}
