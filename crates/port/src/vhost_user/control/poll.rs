//! Waits for descriptors.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until a descriptor is readable or the time has passed. Returns whether the first one is
/// readable.
pub(crate) fn wait_for_any<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> bool {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // After an interrupted wait, the caller checks everything again.
    let _ = poll(&mut fds, timeout.as_ref());
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}
