//! Tables of buffers in flight: one that the frontend gets from us (GET_INFLIGHT_FD), or one that
//! it has kept from an earlier connection (SET_INFLIGHT_FD). Their format is in
//! `straightline_virtio`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use straightline_virtio::features::VIRTIO_F_RING_PACKED;
use straightline_virtio::ring::{InflightFile, InflightShape, InflightTable};
use straightline_virtio::vhost_user::{InflightSpec, RequestOutcome};
use tracing::Level;

use super::frontend::ConnectedFrontend;

impl ConnectedFrontend {
    fn inflight_shape(&self, spec: InflightSpec) -> InflightShape {
        let packed = self.session.acked_features() & VIRTIO_F_RING_PACKED != 0;
        InflightShape { packed, queues: spec.queues, size: spec.queue_size }
    }

    /// Makes a table for the frontend. It is empty, except for the parts of running rings.
    pub(crate) fn make_inflight(&mut self, spec: InflightSpec) -> RequestOutcome {
        let shape = self.inflight_shape(spec);
        if self.inflight.has(shape) {
            // The frontend asks again: running rings have their parts already.
            let stopped = (0..).zip(&self.rings).filter(|(_, ring)| ring.is_none());
            stopped.for_each(|(index, _)| self.forget_inflight(index));
            return RequestOutcome::Inflight(shape.bytes());
        }
        // Cites vhost-user-get-inflight-fd-1.
        match self.make_table(shape) {
            Ok(table) => {
                self.use_table(table);
                self.inflight.is_own = true;
                RequestOutcome::Inflight(shape.bytes())
            }
            Err(error) => {
                // The port continues without a table.
                self.shared.log(Level::WARN, format_args!("cannot make a table of buffers in flight: {error}"));
                RequestOutcome::Done
            }
        }
    }

    /// Makes an empty table in our file. The table in use is dropped first, because it may lie in
    /// the same file.
    fn make_table(&mut self, shape: InflightShape) -> io::Result<InflightTable> {
        self.drop_table();
        let file = match self.inflight.own.take() {
            Some(file) => file,
            None => InflightFile::create(self.session.rings())?,
        };
        self.inflight.own.insert(file).table(shape)
    }

    pub(crate) fn keep_inflight(&mut self, spec: InflightSpec, file: &OwnedFd) -> Result<(), String> {
        let shape = self.inflight_shape(spec);
        // Cites vhost-user-set-inflight-fd-1.
        let table = InflightTable::map(shape, spec.mmap_offset, spec.mmap_size, file.as_fd());
        self.use_table(table.map_err(|error| format!("table of buffers in flight: {error}"))?);
        // Frontends first ask for a table, and then send it back to be used.
        self.inflight.is_own = spec.mmap_offset == 0 && self.inflight.owns(file);
        Ok(())
    }

    /// Forgets the buffers in flight of a ring that does not run.
    pub(crate) fn forget_inflight(&self, index: u16) {
        if let Some(table) = self.inflight.table() {
            table.clear(index);
        }
    }

    /// Moves running rings to another table. So a port has only one table mapped, no matter how
    /// many its frontend asks for.
    fn use_table(&mut self, table: InflightTable) {
        self.track(Some(&table));
        self.inflight.table = Some(table);
    }

    /// Takes the table in use away from all rings and unmaps it.
    fn drop_table(&mut self) {
        self.track(None);
        self.inflight.table = None;
        self.inflight.is_own = false;
    }

    fn track(&self, table: Option<&InflightTable>) {
        for (index, ring) in (0..).zip(&self.rings) {
            if let Some(running) = ring
                && self.session.control_ring() != Some(index)
            {
                let queue = &running.queue;
                // The part has an entry for each buffer. It is written before the lock is taken, so
                // that no worker waits for it.
                let part = table.and_then(|table| table.queue_anew(index, queue.size(), queue.is_packed()));
                queue.lock().ring.track(part);
            }
        }
    }
}
