//! The dirty log of a guest that is being moved: where it is kept, and when it is in use.
//!
//! It is turned on and off with a new link, so between two turns: whoever is answered knows that from there on every
//! write is marked. Rings mark what they write into themselves; `deliver` marks buffers.

use std::os::fd::AsFd;
use std::sync::Arc;

use straightline_virtio::memory::{DirtyLog, GuestMemory};
use straightline_virtio::vhost_user::LogFd;

use super::frontend::ConnectedFrontend;

impl ConnectedFrontend {
    /// Takes another log. The one before is not written to any more when this returns.
    pub(crate) fn set_log(&mut self, base: &LogFd) -> Result<(), String> {
        let log = DirtyLog::map(base.fd.as_fd(), base.offset, base.size).map_err(|e| format!("the dirty log: {e}"))?;
        check_covers(&log, &self.memory)?;
        self.log = Some(Arc::new(log));
        if self.session.logs() {
            self.publish();
        }
        Ok(())
    }

    /// The log that is in use.
    pub(crate) fn active_log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref().filter(|_| self.session.logs())
    }

    /// Whether every write to `memory` can be marked.
    pub(crate) fn check_log(&self, memory: &GuestMemory) -> Result<(), String> {
        self.active_log().map_or(Ok(()), |log| check_covers(log, memory))
    }
}

fn check_covers(log: &DirtyLog, memory: &GuestMemory) -> Result<(), String> {
    if log.covers(memory) {
        return Ok(());
    }
    Err(format!("the dirty log has too few bits for guest memory, which ends at {:#x}", memory.end()))
}
