//! What workers and operators tell the port's own thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// How a worker tells control that a link broke, or that a call was sent.
#[derive(Debug)]
pub(crate) struct PortInbox {
    message: Mutex<Option<(u64, String)>>,
    /// A ring that control does not watch has sent a call.
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
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some((generation, message));
        self.wake();
    }

    /// Asks control to watch the rings for a call that is not answered.
    #[cold]
    pub(crate) fn report_call(&self) {
        *self.called.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake();
    }

    /// Returns whether a ring has sent a call since the last time.
    pub(crate) fn take_called(&self) -> bool {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the event readable, with or without a message.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Readable when there is a message, or when the port is to stop.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The message, once, with the link that it is about.
    pub(crate) fn take_fault(&self) -> Option<(u64, String)> {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        self.message.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
