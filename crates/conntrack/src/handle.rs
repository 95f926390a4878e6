//! Connections that were found, and those that are to be opened.

use crate::entries::Tag;
use crate::key::Direction;
use crate::transport::Transport;
use crate::verdict::Verdict;

/// A connection that was found: the entry, as it was then. It is valid within the turn in which it was
/// found. An entry that has ended meanwhile is noticed ([`Verdict::Gone`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(crate) tag: Tag,
    pub(crate) at: u32,
    pub(crate) port: u16,
    pub(crate) direction: Direction,
}

impl Entry {
    /// Returns the firewalled port.
    #[inline]
    #[must_use]
    pub fn port(self) -> u16 {
        self.port
    }

    /// Returns the direction of the connection.
    #[inline]
    #[must_use]
    pub fn direction(self) -> Direction {
        self.direction
    }

    /// Returns the generation of the policy that allowed the connection.
    #[inline]
    #[must_use]
    pub fn generation(self) -> u32 {
        self.tag.generation()
    }

    /// Returns whether another generation of the policy than this one allowed the connection. Then the
    /// policy decides again, and the caller calls [`Table::renew`](crate::Table::renew) or [`Table::end`](crate::Table::end).
    #[inline]
    #[must_use]
    pub fn is_stale(self, generation: u32) -> bool {
        self.generation() != generation
    }
}

/// The outcome of [`Table::track`](crate::Table::track) for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// No connection is known. Ask the policy.
    Unknown,
    /// Another generation of the policy has allowed the connection, so its state is as before. Ask the
    /// policy, renew or end the connection, and advance it.
    Stale(Entry),
    /// The verdict of the connection.
    Known(Verdict),
}

/// A connection to open.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'p> {
    /// Direction of the connection.
    pub direction: Direction,
    /// Number of the port that sends an inbound connection. Each has parts of its own
    /// ([`PortShare`](crate::PortShare)). An outbound one has 0.
    pub opener: u16,
    /// Many stations are behind the opener, and it forges no addresses itself. Established TCP connections
    /// are limited for each of their prefixes (/24, or /48 of IPv6), and none is evicted for another.
    pub is_trusted: bool,
    /// Generation of the policy that allows the connection.
    pub generation: u32,
    /// Index of the rule that allows it.
    pub rule: u32,
    /// First packet of the connection.
    pub packet: &'p Transport,
    /// A TCP segment in the middle of a connection opens one too. So connections go on that are older
    /// than the table.
    pub pickup: bool,
}

/// The outcome of [`Table::open`](crate::Table::open).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened<E = Entry> {
    /// The connection is new. The packet has been taken into account.
    New(E),
    /// Another worker has opened the connection meanwhile. Advance it by the packet.
    Known(E),
}
