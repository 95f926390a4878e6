//! The MTU of the way from a tunnel to a remote (RFC 1191, RFC 8201), as routers tell it.
//!
//! Anybody can forge a router's error. The smallest one quotes 8 bytes behind our IP header, which
//! is too little for most keys. So an error does little, and that rarely:
//!
//! - The MTU does not go below the least one, by default what leaves [`LEAST_INSIDE`] bytes inside.
//! - The tunnel has sent this remote a packet as long as the quoted one in the last seconds.
//! - It counts for one tunnel, whose headers are those of the quoted packet as far as it is quoted.
//! - It is forgotten after [`AGE_S`], and a tunnel believes [`MOST_BELIEVED`] errors in a second.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use az::SaturatingAs;
use straightline_graph::RateLimit;

/// Seconds after which an MTU is forgotten, so that a better way is noticed (RFC 8201, 4).
const AGE_S: u32 = 600;

/// Bytes of the longest inner IP packet that no error takes away by default: the least MTU of IPv6
/// (RFC 8200, 5). Inner IPv6 has no way to go below it.
pub(crate) const LEAST_INSIDE: u16 = 1280;

/// The least MTU of a link with IPv6 (RFC 8200, 5). An error with less is not believed.
const LEAST_V6: u32 = 1280;

/// Bytes of packets about which no error is believed: each router takes them (RFC 1122, 3.3.3). An
/// underlay's `path-mtu` is no less.
pub(crate) const LEAST_ERROR: u32 = 576;

/// The most errors that are believed in a second.
const MOST_BELIEVED: u32 = 4;

/// Seconds of one mark of [`Sent`]. An error about a packet arrives sooner.
const MARK_S: u32 = 4;

/// The MTU of the way to one remote, as routers tell it, and the packets that were sent on it.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// The least MTU that is believed; `None` if no error is.
    least: Option<u16>,
    /// Bits 0 to 15: the MTU that a router has told; 0 if none has. Bits 16 to 47: the end of its
    /// life.
    told: AtomicU64,
    sent: Sent,
    believed: RateLimit,
}

/// The longest packets of the last seconds.
///
/// There are two marks, each for [`MARK_S`] seconds in turn. A mark is a word, bits 0 to 15: the
/// length; bits 16 to 47: the number of its seconds. So the later one is the larger number, and
/// workers need no lock. They write a mark a few times only: packets that are no longer than the
/// mark says leave it.
#[derive(Debug, Default)]
struct Sent([AtomicU64; 2]);

/// An error of a router: a packet of `len` bytes is longer than the MTU of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong {
    pub(crate) len: u32,
    pub(crate) mtu: u32,
}

impl PathMtu {
    /// Returns the way to this remote, about which nothing was told. MTUs below `least` are not
    /// believed, or none at all.
    pub(crate) fn new(least: Option<u16>) -> Self {
        PathMtu { least, told: AtomicU64::new(0), sent: Sent::default(), believed: RateLimit::new(MOST_BELIEVED) }
    }

    /// Returns the bytes of the longest IP packet to the remote, by an underlay of this MTU.
    #[inline]
    pub(crate) fn get(&self, underlay: u16, now: u32) -> u16 {
        match self.told(now) {
            None => underlay,
            Some((mtu, _)) => mtu.min(underlay),
        }
    }

    /// Returns the MTU that a router has told, and the end of its life.
    #[inline]
    pub(crate) fn told(&self, now: u32) -> Option<(u16, u32)> {
        let word = self.told.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let [_, _, a, b, c, d, high, low] = word.to_be_bytes();
        let end = u32::from_be_bytes([a, b, c, d]);
        (now < end).then_some((u16::from_be_bytes([high, low]), end))
    }

    /// Notes that an IP packet of this length is sent to the remote.
    #[inline]
    pub(crate) fn note_sent(&self, len: u16, now: u32) {
        self.sent.note(len, now);
    }

    /// Returns the MTU that an error would set on a way of this MTU, if it can be about one of our
    /// packets.
    pub(crate) fn lower_to(&self, remote: IpAddr, error: TooLong, underlay: u16, now: u32) -> Option<u16> {
        if remote.is_ipv6() && error.mtu < LEAST_V6 {
            return None;
        }
        let mtu = error.mtu.saturating_as::<u16>().max(self.least?);
        let is_about_ours = error.len > mtu.into() && error.len <= self.sent.longest(now).into();
        (is_about_ours && mtu < self.get(underlay, now)).then_some(mtu)
    }

    /// Sets the MTU that [`Self::lower_to`] has returned. Returns `false` beyond the limit.
    pub(crate) fn lower(&self, mtu: u16, now: u32) -> bool {
        let is_within = self.believed.take(now);
        if is_within {
            self.told.store(u64::from(now.saturating_add(AGE_S)) << 16 | u64::from(mtu), Ordering::Relaxed);
        }
        is_within
    }
}

impl Sent {
    #[inline]
    fn note(&self, len: u16, now: u32) {
        let seconds = now / MARK_S;
        let word = u64::from(seconds) << 16 | u64::from(len);
        let mark = &self.0[usize::from(seconds % 2 == 1)];
        if mark.load(Ordering::Relaxed) < word {
            mark.fetch_max(word, Ordering::Relaxed);
        }
    }

    /// Returns the length of the longest packet of the last 4 seconds, or up to 8.
    fn longest(&self, now: u32) -> u16 {
        let seconds = u64::from(now / MARK_S);
        let marks = self.0.iter().map(|mark| mark.load(Ordering::Relaxed));
        let recent = marks.filter(|mark| (mark >> 16) + 1 >= seconds);
        recent.map(|mark| u16::try_from(mark & 0xffff).unwrap_or(0)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Takes an error about a packet of 1500 bytes.
    fn lower(path: &PathMtu, remote: IpAddr, mtu: u32, underlay: u16, now: u32) -> bool {
        let error = TooLong { len: 1500, mtu };
        path.lower_to(remote, error, underlay, now).is_some_and(|mtu| path.lower(mtu, now))
    }

    #[test]
    fn an_mtu_is_lowered_and_ages() {
        let path = PathMtu::new(Some(1330));
        let remote = ip("198.51.100.1");
        assert_eq!(path.get(1500, 0), 1500);
        path.note_sent(1500, 0);
        assert!(lower(&path, remote, 1400, 1500, 0));
        assert_eq!((path.get(1500, 0), path.told(5)), (1400, Some((1400, 600))));
        path.note_sent(1500, 300);
        for mtu in [1400, 1450, 70_000] {
            assert!(!lower(&path, remote, mtu, 1500, 300), "never raised, never made younger");
        }
        assert!(lower(&path, remote, 1399, 1500, 300));
        assert_eq!((path.get(1500, 899), path.get(1500, 900)), (1399, 1500));
        path.note_sent(1500, 900);
        assert!(lower(&path, remote, 1450, 1500, 900), "a forgotten one does not count");
    }

    #[test]
    fn no_way_has_more_than_the_underlay() {
        let path = PathMtu::new(Some(576));
        let remote = ip("198.51.100.1");
        path.note_sent(1500, 0);
        assert!(!lower(&path, remote, 1300, 1300, 0), "not lower");
        assert!(lower(&path, remote, 1400, 1500, 0));
        assert_eq!((path.get(1300, 0), path.get(1450, 0)), (1300, 1400));
    }

    #[test]
    fn the_least_mtu_is_kept() {
        for (remote, least) in [("192.0.2.1", 1330), ("2001:db8::1", 1350), ("192.0.2.1", 576)] {
            let remote = ip(remote);
            let path = PathMtu::new(Some(least));
            path.note_sent(1500, 0);
            assert!(!lower(&path, remote, u32::MAX, 9000, 0) && !lower(&path, remote, 1500, 9000, 0));
            if remote.is_ipv6() {
                assert!(!lower(&path, remote, 1279, 9000, 0) && !lower(&path, remote, 0, 9000, 0));
                assert!(lower(&path, remote, 1280, 9000, 0));
            } else {
                assert!(lower(&path, remote, 0, 9000, 0));
            }
            assert_eq!(path.get(9000, 0), least);
        }
        let off = PathMtu::new(None);
        off.note_sent(1500, 0);
        assert!(!lower(&off, ip("192.0.2.1"), 1400, 1500, 0));
    }

    #[test]
    fn only_errors_about_packets_of_the_last_seconds_are_believed() {
        let remote = ip("192.0.2.1");
        let path = PathMtu::new(Some(1330));
        let takes = |now| path.lower_to(remote, TooLong { len: 1500, mtu: 1400 }, 1500, now).is_some();
        assert!(!takes(0), "nothing was sent");
        path.note_sent(1499, 0);
        assert!(!takes(0), "no packet was as long");
        path.note_sent(1500, 2);
        path.note_sent(60, 3);
        assert!(takes(3) && takes(7) && !takes(8));
        path.note_sent(60, 8);
        assert!(!takes(8));
        // The clock of another worker is behind.
        path.note_sent(1500, 7);
        assert!(takes(8) && takes(11) && !takes(12));
        path.note_sent(1500, u32::MAX);
        assert!(takes(u32::MAX));
    }

    #[test]
    fn a_few_errors_are_believed_in_a_second() {
        let path = PathMtu::new(Some(1330));
        let remote = ip("192.0.2.1");
        path.note_sent(1500, 9);
        let believed = |now| (1400..1480).rev().filter(|&mtu| lower(&path, remote, mtu, 1500, now)).count();
        assert_eq!((believed(9), path.get(1500, 9)), (4, 1476));
        assert_eq!((believed(10), path.get(1500, 10)), (4, 1472));
    }
}
