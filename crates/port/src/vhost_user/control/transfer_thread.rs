//! The thread that moves a device's state, and the outcome of the last transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::Thread;

use straightline_graph::Clock;
use straightline_virtio::net_control::SavedState;

use super::state_channel::LIMIT;

/// The last transfer.
#[derive(Debug, Default)]
pub(crate) enum Transfer {
    /// No transfer has taken place.
    #[default]
    None,
    Saving(TransferThread),
    Loading(TransferThread),
    /// The state was written completely.
    Saved,
    /// The state was read completely, and the device can continue with it.
    Loaded(Box<SavedState>),
    Failed(String),
}

/// The thread of a transfer under way. It ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct TransferThread {
    pub(crate) orders: Arc<Orders>,
    /// Receives the bytes that were moved, or the reason why they were not.
    pub(crate) end: Receiver<Result<Vec<u8>, String>>,
    pub(crate) thread: Thread,
    pub(crate) clock: Clock,
}

/// The orders that the frontend's thread gives to the transfer's thread.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) at_end: AtomicBool,
    pub(crate) stop: AtomicBool,
}

impl TransferThread {
    /// Waits for the outcome. The frontend has done its part.
    pub(crate) fn finish(self) -> Result<Vec<u8>, String> {
        self.orders.at_end.store(true, Ordering::Release);
        self.thread.unpark();
        let done = self.clock.receive(&self.end, self.clock.now() + LIMIT);
        done.unwrap_or_else(|_| Err("its channel blocks its thread".to_owned()))
    }
}

impl Drop for TransferThread {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
