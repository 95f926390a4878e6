//! Queues of the kernel that are polled by system calls: when to look, and how to sleep.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::link::DevicePortData;

/// Most turns that are skipped after empty reads. A read that finds nothing costs about a third of
/// one that finds a small packet.
const MOST_SKIPPED: u32 = 32;

/// Skips turns after empty reads: first one, then two, and at most [`MOST_SKIPPED`].
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Turns to skip now.
    left: AtomicU32,
    /// Turns that the last empty read skipped.
    last: AtomicU32,
}

impl Backoff {
    /// Returns whether to skip this turn.
    #[inline]
    pub(crate) fn skips(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Notes whether a turn has found packets, or must look in any case.
    #[inline]
    pub(crate) fn note(&self, found: bool) {
        let last = if found { 0 } else { (2 * self.last.load(Ordering::Relaxed)).clamp(1, MOST_SKIPPED) };
        self.last.store(last, Ordering::Relaxed);
        self.left.store(last, Ordering::Relaxed);
    }
}

/// Returns whether a descriptor has packets. Reports a fault if its interface has gone.
pub(crate) fn is_ready(port: &DevicePortData, fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut fds, Some(&now)).is_err() {
        return false;
    }
    let ready = fds[0].revents();
    if ready.intersects(PollFlags::ERR | PollFlags::NVAL) {
        port.report_fault();
        return false;
    }
    ready.contains(PollFlags::IN)
}
