//! Settings of a table: timeouts, shares, how strictly windows are checked.

/// The longest timeout in milliseconds: 24 days. A time is 32 bits, and half of them are the future.
const LONGEST: u32 = 24 * 24 * 3600 * 1000;

/// Timeouts in milliseconds. Names and defaults are those of Linux: `tcp_syn_sent` is
/// `nf_conntrack_tcp_timeout_syn_sent`, for example. A timeout above 24 days counts as 24 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP: a SYN was seen.
    pub tcp_syn_sent: u32,
    /// TCP: a SYN and its answer were seen.
    pub tcp_syn_recv: u32,
    /// TCP: both sides have opened the connection.
    pub tcp_established: u32,
    /// TCP: one side has sent a FIN.
    pub tcp_fin_wait: u32,
    /// TCP: the other side has acknowledged the FIN.
    pub tcp_close_wait: u32,
    /// TCP: both sides have sent a FIN.
    pub tcp_last_ack: u32,
    /// TCP: both sides have closed the connection.
    pub tcp_time_wait: u32,
    /// TCP: a side has reset the connection.
    pub tcp_close: u32,
    /// TCP: the most time for a connection whose last segment was sent again and again.
    pub tcp_max_retrans: u32,
    /// TCP: the most time for a connection whose data nobody has acknowledged.
    pub tcp_unacknowledged: u32,
    /// UDP, and no answer or only a short exchange.
    pub udp: u32,
    /// UDP, and packets of both sides for more than two seconds.
    pub udp_stream: u32,
    /// An ICMP query.
    pub icmp: u32,
    /// An ICMPv6 query.
    pub icmpv6: u32,
    /// All other protocols.
    pub generic: u32,
    /// A datagram whose fragments are not complete. It is shorter than the 30 seconds of Linux: a sender
    /// may use an identification again after some seconds.
    pub fragments: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        const SECOND: u32 = 1000;
        const MINUTE: u32 = 60 * SECOND;
        Timeouts {
            tcp_syn_sent: 2 * MINUTE,
            tcp_syn_recv: MINUTE,
            tcp_established: 5 * 24 * 60 * MINUTE,
            tcp_fin_wait: 2 * MINUTE,
            tcp_close_wait: MINUTE,
            tcp_last_ack: 30 * SECOND,
            tcp_time_wait: 2 * MINUTE,
            tcp_close: 10 * SECOND,
            tcp_max_retrans: 5 * MINUTE,
            tcp_unacknowledged: 5 * MINUTE,
            udp: 30 * SECOND,
            udp_stream: 2 * MINUTE,
            icmp: 30 * SECOND,
            icmpv6: 30 * SECOND,
            generic: 10 * MINUTE,
            fragments: 2 * SECOND,
        }
    }
}

/// Returns the time at which a timeout ends.
#[inline]
pub(crate) fn deadline(now: u32, timeout: u32) -> u32 {
    now.wrapping_add(timeout.min(LONGEST))
}

/// Returns whether a time has come. Times are milliseconds, and begin again after 2^32.
#[inline]
pub(crate) fn has_come(time: u32, now: u32) -> bool {
    now.wrapping_sub(time) < 1 << 31
}

/// How strictly the sequence and acknowledgment numbers of TCP are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Windows {
    /// A segment outside of the window is invalid.
    #[default]
    Strict,
    /// Only a RST outside of the window is invalid.
    Liberal,
}

/// Settings of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Timeouts by state.
    pub timeouts: Timeouts,
    /// Check of TCP's windows.
    pub windows: Windows,
}

/// The share of a port: the connections that it may have. No limit is that of another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShare {
    /// All connections of the port.
    pub connections: u32,
    /// The part of `connections` that only outbound ones may take.
    pub outbound_reserve: u32,
    /// The most inbound connections of each opener.
    pub each_opener: u32,
    /// Number of openers that are told apart. Others share a limit with one of them.
    pub openers: u16,
    /// A quarter of each half is for TCP alone, and a quarter for exchanges: UDP and all other protocols
    /// without states. Then openers share the established TCP connections, too: a few never keep all. And
    /// exchanges of DNS end soon after their answer.
    pub by_protocol: bool,
    /// Half-open TCP connections of each direction: those that the other side has not confirmed.
    pub half_open: u32,
    /// New connections of TCP a second, of each direction; and as many exchanges.
    pub new_per_second: u32,
    /// Fragmented datagrams of each direction that are not complete.
    pub fragments: u32,
}

impl PortShare {
    /// Returns a share of this number of connections, with limits that suit most ports: half are
    /// reserved for outbound ones, and both halves are divided by protocols.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        PortShare {
            connections,
            outbound_reserve: connections / 2,
            each_opener: u32::MAX,
            openers: 256,
            by_protocol: true,
            half_open: (connections / 4).max(1),
            new_per_second: connections.max(1000),
            fragments: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_begin_again() {
        for now in [0, 5, u32::MAX - 1, 1 << 31] {
            let time = deadline(now, 1000);
            assert!(!has_come(time, now) && !has_come(time, now.wrapping_add(999)));
            assert!(has_come(time, now.wrapping_add(1000)));
            assert!(!has_come(deadline(now, u32::MAX), now), "as long as a timeout may be");
        }
    }
}
