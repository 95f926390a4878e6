//! Answers of the table about a packet.

use crate::state::State;

/// The verdict about a packet of a known connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet belongs to the connection.
    Pass(Passed),
    /// The packet is invalid. It changes no state.
    Invalid(Invalid),
    /// The connection is over and its entry has ended. The packet opens another one: ask the policy,
    /// and then [`Table::open`](crate::Table::open).
    Reopen,
    /// The entry has ended since it was found, and may be another connection's by now. Look the packet
    /// up again.
    Gone,
}

/// Facts about a connection after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// State of the connection.
    pub state: State,
    /// The packet comes from the side that did not open the connection.
    pub is_reply: bool,
    /// Both sides have sent packets.
    pub has_reply: bool,
}

/// The reason why a packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invalid {
    /// TCP: no station sends this combination of flags.
    Flags,
    /// TCP: the segment belongs to a connection that is not known.
    NotOpen,
    /// TCP: no station sends such a segment in this state.
    State,
    /// TCP: the data lies beyond the receiver's window.
    SeqHigh,
    /// TCP: the data was acknowledged long ago.
    SeqLow,
    /// TCP: the segment acknowledges data that was not sent.
    AckHigh,
    /// TCP: the acknowledgment is too old.
    AckLow,
    /// TCP: a RST with a sequence number that the receiver does not expect.
    Reset,
    /// The packet is not one of the key's protocol.
    Protocol,
    /// An ICMP error quotes a packet that was not sent, or that was acknowledged already.
    Quoted,
}

impl Invalid {
    /// Returns the reason in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flags => "TCP flags that do not go together",
            Self::NotOpen => "TCP segment of an unknown connection",
            Self::State => "TCP segment that does not fit the state",
            Self::SeqHigh => "TCP data beyond the window",
            Self::SeqLow => "TCP data acknowledged long ago",
            Self::AckHigh => "TCP acknowledgment of data that was not sent",
            Self::AckLow => "TCP acknowledgment that is too old",
            Self::Reset => "TCP reset outside of the window",
            Self::Protocol => "packet of another protocol than its key",
            Self::Quoted => "ICMP error about a packet that was not sent",
        }
    }
}

/// The reason why a connection was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The port has no share in this table.
    NoShare,
    /// The packet opens no connection.
    Invalid(Invalid),
    /// The port's share is full: all connections.
    Full(Full),
}

/// The part of a port's share that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Full {
    /// All connections of the port.
    Connections,
    /// Its inbound connections: the others are reserved for outbound ones.
    Inbound,
    /// Inbound connections of this opener; behind a trusted port, established ones of its prefix.
    Opener,
    /// Half-open TCP connections of this direction.
    HalfOpen,
    /// New connections of this second.
    Rate,
    /// All places of the hash table where the connection may be. The chance is below one in a million.
    Places,
}

/// Number of reasons in [`Full`].
pub(crate) const FULL: usize = 6;

impl Full {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; FULL] =
        [Self::Connections, Self::Inbound, Self::Opener, Self::HalfOpen, Self::Rate, Self::Places];

    /// Returns the name of the part.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Inbound => "inbound",
            Self::Opener => "opener",
            Self::HalfOpen => "half-open",
            Self::Rate => "rate",
            Self::Places => "places",
        }
    }
}
