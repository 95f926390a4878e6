//! The changes of a table, for those who follow it.

use super::{Fdb, PortLimit, Writer};
use crate::journal::{FdbChange, FdbChangeKind};
use crate::port::FdbPort;
use crate::sync::Ordering;
use crate::word::Station;

/// The claims of a port that are told in a second.
pub(super) const CLAIM_LIMIT: PortLimit = PortLimit { most: Some(256), second: 0, count: 0 };

impl<P: FdbPort> Fdb<P> {
    /// Keeps changes from now on. Returns the number of those so far.
    pub fn follow(&self) -> u64 {
        let mut writer = self.lock();
        writer.journal.begin();
        self.is_followed.store(true, Ordering::Relaxed);
        writer.journal.count()
    }

    /// Returns the changes after the first `since` ones, and the number of all. `None`: some of them are
    /// not kept any more.
    pub fn changes(&self, since: u64) -> Option<(Vec<FdbChange>, u64)> {
        if self.changes.load(Ordering::Acquire) == since {
            return Some((Vec::new(), since));
        }
        let writer = self.lock();
        Some((writer.journal.after(since)?, writer.journal.count()))
    }

    /// Notes a change. The caller holds the lock.
    pub(super) fn note(&self, writer: &mut Writer<P>, key: Station, port: u16, kind: FdbChangeKind) {
        writer.journal.add(key, port, kind);
        self.changes.store(writer.journal.count(), Ordering::Release);
    }

    /// Notes that a station of an owner was heard at another port.
    #[cold]
    #[inline(never)]
    pub(super) fn claim(&self, key: Station, port: P, now: u32) {
        let number = key.number() ^ u64::from(port.index()) << 48 ^ u64::from(now) << 20;
        if self.claimed.swap(number, Ordering::Relaxed) == number {
            return;
        }
        let mut writer = self.lock();
        let index = port.index();
        if writer.journal.knows_claim(key, index, now) {
            return;
        }
        // A station that has moved may send a single frame, so its claim is told, unless the port claims
        // more than any VM that moves. A guest that claims all stations would fill the journal, and
        // each follower would have to read the whole table again.
        let limit = writer.claim_limits.get_mut(usize::from(index));
        if !limit.is_some_and(|limit| limit.take(now)) {
            self.held.fetch_add(1, Ordering::Relaxed);
            return;
        }
        writer.journal.claim(key, index, now);
        self.changes.store(writer.journal.count(), Ordering::Release);
    }
}
