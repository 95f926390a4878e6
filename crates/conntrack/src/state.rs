//! States of connections, and their classes.

use straightline_wire::IpProtocol;

use crate::key::Direction;
use crate::settings::Timeouts;

/// The state of a connection. Names of TCP's states are those of nf_conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// TCP: the opener has sent a SYN.
    SynSent = 1,
    /// TCP: the other side has answered with SYN and ACK.
    SynRecv,
    /// TCP: both sides have opened the connection.
    Established,
    /// TCP: one side has sent a FIN.
    FinWait,
    /// TCP: the other side has acknowledged the FIN.
    CloseWait,
    /// TCP: both sides have sent a FIN.
    LastAck,
    /// TCP: the last FIN is acknowledged.
    TimeWait,
    /// TCP: a side has reset the connection.
    Close,
    /// TCP: both sides have sent a SYN.
    SynSent2,
    /// Another protocol: only the opener has sent packets.
    Unreplied,
    /// Another protocol: both sides have sent packets.
    Replied,
    /// UDP: both sides have sent packets for more than two seconds.
    Stream,
}

impl State {
    const ALL: [Self; 12] = [
        Self::SynSent,
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::SynSent2,
        Self::Unreplied,
        Self::Replied,
        Self::Stream,
    ];

    #[inline]
    pub(crate) fn from_byte(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte).wrapping_sub(1)).copied().unwrap_or(Self::Close)
    }

    /// Returns whether it is a state of TCP.
    #[inline]
    pub(crate) fn is_tcp(self) -> bool {
        (self as u8) < Self::Unreplied as u8
    }

    /// Returns the name of the state, as nf_conntrack prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN_SENT",
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::SynSent2 => "SYN_SENT2",
            Self::Unreplied => "UNREPLIED",
            Self::Replied => "REPLIED",
            Self::Stream => "STREAM",
        }
    }

    /// Returns the timeout of a connection in this state.
    #[inline]
    pub(crate) fn timeout(self, timeouts: &Timeouts, protocol: IpProtocol) -> u32 {
        match self {
            Self::SynSent | Self::SynSent2 => timeouts.tcp_syn_sent,
            Self::SynRecv => timeouts.tcp_syn_recv,
            Self::Established => timeouts.tcp_established,
            Self::FinWait => timeouts.tcp_fin_wait,
            Self::CloseWait => timeouts.tcp_close_wait,
            Self::LastAck => timeouts.tcp_last_ack,
            Self::TimeWait => timeouts.tcp_time_wait,
            Self::Close => timeouts.tcp_close,
            Self::Stream => timeouts.udp_stream,
            Self::Unreplied | Self::Replied => match protocol {
                UDP | UDP_LITE => timeouts.udp,
                IpProtocol::ICMP => timeouts.icmp,
                IpProtocol::ICMPV6 => timeouts.icmpv6,
                _ => timeouts.generic,
            },
        }
    }
}

const UDP: IpProtocol = IpProtocol::UDP;
const UDP_LITE: IpProtocol = IpProtocol(136);

/// Returns whether a protocol has streams.
pub(crate) fn has_streams(protocol: IpProtocol) -> bool {
    matches!(protocol, UDP | UDP_LITE)
}

/// The class of a connection: whether it may be evicted, and for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    /// The entry has no connection.
    #[default]
    Free = 0,
    /// TCP: both sides use an outbound connection. It is never evicted.
    OpenOutbound,
    /// TCP: both sides use a connection whose opener is behind a trusted port. It is never evicted.
    OpenTrusted,
    /// TCP: the other side has not confirmed an outbound connection.
    HalfOpenOutbound,
    /// TCP: the other side has not confirmed an inbound connection.
    HalfOpenInbound,
    /// TCP: an outbound connection is closed.
    ClosedOutbound,
    /// TCP: an inbound connection is closed.
    ClosedInbound,
    /// TCP: both sides use an inbound connection. It is evicted if its opener has more than its
    /// part.
    OpenInbound,
    /// An outbound connection of UDP, or of another protocol without states.
    ExchangeOutbound,
    /// An inbound connection of UDP, or of another protocol without states.
    ExchangeInbound,
}

/// Number of classes.
pub(crate) const CLASSES: usize = 10;

/// The first class whose connections are evicted by the time of their last packet. The classes before are
/// in the order in which connections came into them.
pub(crate) const FIRST_BY_TIME: Class = Class::OpenInbound;

impl Class {
    /// All classes, in the order of their numbers.
    pub(crate) const ALL: [Self; CLASSES] = [
        Self::Free,
        Self::OpenOutbound,
        Self::OpenTrusted,
        Self::HalfOpenOutbound,
        Self::HalfOpenInbound,
        Self::ClosedOutbound,
        Self::ClosedInbound,
        Self::OpenInbound,
        Self::ExchangeOutbound,
        Self::ExchangeInbound,
    ];

    /// Returns whether each opener has a list of its own.
    pub(crate) fn is_by_opener(self) -> bool {
        matches!(self, Self::OpenInbound | Self::HalfOpenInbound | Self::ClosedInbound | Self::ExchangeInbound)
    }

    pub(crate) fn half_open(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::HalfOpenOutbound,
            Direction::Inbound => Self::HalfOpenInbound,
        }
    }

    pub(crate) fn closed(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::ClosedOutbound,
            Direction::Inbound => Self::ClosedInbound,
        }
    }

    pub(crate) fn exchange(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::ExchangeOutbound,
            Direction::Inbound => Self::ExchangeInbound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_from_its_byte() {
        assert!(State::ALL.into_iter().all(|state| State::from_byte(state as u8) == state));
    }
}
