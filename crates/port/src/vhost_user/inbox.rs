//! Messages to the port's own thread, from workers and operators.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};
use straightline_packet::IgnorePoison;

/// The inbox of the port's own thread. Workers report faults and calls; operators wake it to stop
/// the port or to change it.
#[derive(Debug)]
pub(crate) struct PortInbox {
    message: Mutex<Option<(u64, String)>>,
    /// A ring has sent a call while the port's thread was not watching it.
    called: Mutex<bool>,
    event: OwnedFd,
}

impl PortInbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(PortInbox {
            message: Mutex::default(),
            called: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(crate) fn report_fault(&self, generation: u64, message: String) {
        *self.message.lock().ignore_poison() = Some((generation, message));
        self.wake();
    }

    /// Asks the port's thread to watch the rings for an unanswered call.
    #[cold]
    pub(crate) fn report_call(&self) {
        *self.called.lock().ignore_poison() = true;
        self.wake();
    }

    /// Returns whether a ring has sent a call since the last time.
    pub(crate) fn take_called(&self) -> bool {
        std::mem::take(&mut *self.called.lock().ignore_poison())
    }

    /// Makes the event readable, with or without a message.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Returns a descriptor that is readable while there is a message, and after [`Self::wake`].
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes the message, with the generation of the link that it is about. Clears the event.
    pub(crate) fn take_fault(&self) -> Option<(u64, String)> {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        self.message.lock().ignore_poison().take()
    }
}
