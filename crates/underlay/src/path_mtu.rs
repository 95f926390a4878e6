//! The MTU of the way to each remote (RFC 1191, RFC 8201).
//!
//! The table has the remotes of the underlay's tunnels: an entry lives as long as a tunnel holds its
//! [`PathMtu`]. Packets read that without a lock. What routers tell ages.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time after which an MTU is forgotten, so that a better way is noticed (RFC 8201, 4).
const AGE_S: u32 = 600;

/// The least MTU that is believed: no router of IPv4 in use has less, and IPv6 has no link with
/// less (RFC 8200, 5).
const LEAST_V4: u32 = 576;
const LEAST_V6: u32 = 1280;

/// The MTUs that routers have told.
#[derive(Debug)]
pub(crate) struct PathMtus {
    /// The MTU of the underlay itself: no way has more.
    mtu: AtomicU16,
    /// The number of remotes whose MTU a router has told. Most of the time there are none.
    lowered: AtomicUsize,
    remotes: Mutex<BTreeMap<IpAddr, PathMtu>>,
}

/// The MTU that a router has told for one remote.
///
/// Bits 0 to 15: the MTU; 0 if no router has told one. Bits 16 to 47: the end of its life.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathMtu(Arc<AtomicU64>);

impl PathMtus {
    /// Returns an empty table for an underlay of this MTU.
    pub(crate) fn new(mtu: u16) -> Self {
        PathMtus { mtu: AtomicU16::new(mtu), lowered: AtomicUsize::new(0), remotes: Mutex::default() }
    }

    /// Sets the MTU of the underlay itself.
    pub(crate) fn set_mtu(&self, mtu: u16) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    #[inline]
    fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the longest IP packet to a remote.
    #[inline]
    pub(crate) fn get(&self, path: &PathMtu) -> u16 {
        if self.lowered.load(Ordering::Relaxed) == 0 {
            return self.mtu();
        }
        path.told().map_or(self.mtu(), |(mtu, _)| mtu.min(self.mtu()))
    }

    fn remotes(&self) -> MutexGuard<'_, BTreeMap<IpAddr, PathMtu>> {
        self.remotes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a tunnel has added this remote.
    pub(crate) fn has(&self, remote: IpAddr) -> bool {
        self.remotes().contains_key(&remote)
    }

    /// Finds a remote or adds it. An MTU is believed for it as long as somebody holds the result.
    pub(crate) fn add(&self, remote: IpAddr) -> PathMtu {
        self.remotes().entry(remote).or_default().clone()
    }

    /// Returns the MTU that is believed when a router tells this one: 576 at least for IPv4. `None`
    /// for less than the least MTU of IPv6.
    pub(crate) fn believed(remote: IpAddr, mtu: u32) -> Option<u32> {
        match remote {
            IpAddr::V4(_) => Some(mtu.max(LEAST_V4)),
            IpAddr::V6(_) => Some(mtu).filter(|&mtu| mtu >= LEAST_V6),
        }
    }

    /// Notes that a router takes packets of at most `mtu` bytes on the way to a remote. Returns
    /// `false` if that is not believed: for a remote of no tunnel, for less than the least MTU of
    /// IPv6, and for an MTU that is not lower than before. IPv4 goes down to 576.
    pub(crate) fn lower(&self, remote: IpAddr, mtu: u32, now: u32) -> bool {
        let Some(mtu) = Self::believed(remote, mtu) else { return false };
        let remotes = self.remotes();
        let Some(path) = remotes.get(&remote) else { return false };
        let told = path.told();
        let Some(mtu) = u16::try_from(mtu).ok().filter(|&mtu| mtu < told.map_or(self.mtu(), |(old, _)| old)) else {
            return false;
        };
        path.0.store(u64::from(now.saturating_add(AGE_S)) << 16 | u64::from(mtu), Ordering::Relaxed);
        self.lowered.fetch_add(usize::from(told.is_none()), Ordering::Relaxed);
        true
    }

    /// Forgets remotes that no tunnel has any more, and MTUs that are old.
    pub(crate) fn tick(&self, now: u32) {
        self.remotes().retain(|_, path| {
            let is_held = Arc::strong_count(&path.0) > 1;
            if path.told().is_some_and(|(_, end)| !is_held || now >= end) {
                path.0.store(0, Ordering::Relaxed);
                self.lowered.fetch_sub(1, Ordering::Relaxed);
            }
            is_held
        });
    }
}

impl PathMtu {
    /// Returns the MTU that a router has told, and the end of its life.
    fn told(&self) -> Option<(u16, u32)> {
        let word = self.0.load(Ordering::Relaxed);
        let [_, _, a, b, c, d, high, low] = word.to_be_bytes();
        (word != 0).then_some((u16::from_be_bytes([high, low]), u32::from_be_bytes([a, b, c, d])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_mtu_is_lowered_and_ages() {
        let table = PathMtus::new(1500);
        let (near, far, v6) = (ip("192.0.2.1"), ip("198.51.100.1"), ip("2001:db8::1"));
        assert!(!table.lower(far, 1400, 0), "no tunnel has this remote");
        let paths = [near, far, v6, v6].map(|remote| table.add(remote));
        assert!(table.lower(far, 1400, 0) && table.lower(v6, 1300, 100));
        assert_eq!(paths.each_ref().map(|path| table.get(path)), [1500, 1400, 1300, 1300]);
        assert!(!table.lower(far, 1400, 300) && !table.lower(far, 1450, 300), "never raised, never made younger");
        assert!(table.lower(far, 1399, 300));
        table.tick(699);
        assert_eq!((table.get(&paths[1]), table.get(&paths[2])), (1399, 1300));
        table.tick(700);
        assert_eq!((table.get(&paths[1]), table.get(&paths[2])), (1399, 1500));
        table.tick(900);
        assert_eq!((table.get(&paths[1]), table.lowered.load(Ordering::Relaxed)), (1500, 0));
    }

    #[test]
    fn no_way_has_more_than_the_underlay() {
        let table = PathMtus::new(1500);
        let [near, far] = ["192.0.2.1", "198.51.100.1"].map(ip);
        let paths = [near, far].map(|remote| table.add(remote));
        assert!(table.lower(far, 1400, 0));
        table.set_mtu(1300);
        assert_eq!(paths.each_ref().map(|path| table.get(path)), [1300, 1300]);
        assert!(!table.lower(near, 1300, 0), "not lower");
        table.set_mtu(1450);
        assert_eq!(paths.each_ref().map(|path| table.get(path)), [1450, 1400]);
    }

    #[test]
    fn the_least_mtu_is_kept() {
        let table = PathMtus::new(9000);
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(ip);
        let paths = [v4, v6].map(|remote| table.add(remote));
        assert!(!table.lower(v6, 1279, 0) && !table.lower(v6, 0, 0));
        assert!(!table.lower(v6, 9000, 0) && !table.lower(v6, u32::MAX, 0) && !table.lower(v4, 70_000, 0));
        assert!(table.lower(v6, 1280, 0) && table.lower(v4, 0, 0));
        assert_eq!(paths.each_ref().map(|path| table.get(path)), [576, 1280]);
    }

    #[test]
    fn remotes_that_no_tunnel_has_are_forgotten() {
        let table = PathMtus::new(1500);
        // Reloads name new remotes again and again. One tunnel stays, and one comes back in time.
        let stays = table.add(ip("2001:db8::1"));
        for round in 0..30_u32 {
            let remotes = (0..100).map(|n| IpAddr::V4((round * 100 + n).into()));
            let paths: Vec<_> = remotes.clone().map(|remote| table.add(remote)).collect();
            assert!(remotes.clone().all(|remote| table.has(remote) && table.lower(remote, 1400, round)));
            assert!(paths.iter().all(|path| table.get(path) == 1400));
            drop(paths);
            let again = table.add(IpAddr::V4((round * 100).into()));
            table.tick(round);
            assert_eq!((table.get(&again), table.remotes().len()), (1400, 2));
            assert_eq!(table.lowered.load(Ordering::Relaxed), 1);
        }
        table.tick(30);
        assert_eq!((table.get(&stays), table.remotes().len(), table.lowered.load(Ordering::Relaxed)), (1500, 1, 0));
    }
}
