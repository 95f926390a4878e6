//! The dirty log of a guest that is being migrated.
//!
//! A new link turns the log on or off. So the change takes effect between two turns. When the
//! frontend gets its answer, every later write is marked. Rings mark their own writes to ring
//! memory; `deliver` marks buffers.

use std::os::fd::AsFd;
use std::sync::Arc;

use straightline_virtio::memory::{DirtyLog, GuestMemory};
use straightline_virtio::vhost_user::LogFd;

use super::frontend::ConnectedFrontend;

impl ConnectedFrontend {
    /// Maps another log. When this returns, no worker writes to the previous log.
    pub(crate) fn set_log(&mut self, base: &LogFd) -> Result<(), String> {
        let log = DirtyLog::map(base.fd.as_fd(), base.offset, base.size).map_err(|e| format!("the dirty log: {e}"))?;
        check_covers(&log, &self.memory)?;
        self.log = Some(Arc::new(log));
        if self.session.logs() {
            self.publish();
        }
        Ok(())
    }

    /// Returns the log if it is in use.
    pub(crate) fn active_log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref().filter(|_| self.session.logs())
    }

    /// Checks that every write to `memory` can be marked.
    pub(crate) fn check_log(&self, memory: &GuestMemory) -> Result<(), String> {
        self.active_log().map_or(Ok(()), |log| check_covers(log, memory))
    }
}

fn check_covers(log: &DirtyLog, memory: &GuestMemory) -> Result<(), String> {
    // Cites vhost-user-migration-6.
    if log.covers(memory) {
        return Ok(());
    }
    Err(format!("the dirty log has too few bits for guest memory, which ends at {:#x}", memory.end()))
}
