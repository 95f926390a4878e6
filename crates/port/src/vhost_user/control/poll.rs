//! Waits for descriptors.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use straightline_graph::Clock;

/// Waits until a descriptor is readable or the time has come. Returns whether the first one is
/// readable.
pub(crate) fn wait_for_any<const N: usize>(clock: &Clock, fds: [BorrowedFd<'_>; N], until: Option<Instant>) -> bool {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // After an interrupted wait, the caller checks everything again.
    let _ = clock.poll(&mut fds, until);
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}
