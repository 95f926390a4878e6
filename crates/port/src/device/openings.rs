//! Threads that open devices: to open one may take seconds, and the thread of all device ports goes on
//! meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::devices::{WakeEvent, guarded};
use super::port::Shared;

/// The most devices that are opened at the same time.
pub(super) const MAX_OPENINGS: usize = 4;

/// A port whose device is to be opened, with the time of its last attempt.
pub(super) type DuePort = (Option<Instant>, Arc<Shared>);

/// The threads that are at work.
#[derive(Debug)]
pub(super) struct Openings {
    running: Arc<AtomicUsize>,
    wake: Arc<WakeEvent>,
}

/// A thread at work. Its end wakes the thread of all device ports.
struct Opening {
    port: Arc<Shared>,
    running: Arc<AtomicUsize>,
    wake: Arc<WakeEvent>,
}

impl Openings {
    pub(super) fn new(wake: Arc<WakeEvent>) -> Self {
        Openings { running: Arc::default(), wake }
    }

    /// Has the devices of these ports opened, as many as there are places. Who has waited longest
    /// comes first. The end of a thread is the time to ask again.
    pub(super) fn begin(&self, mut due: Vec<DuePort>) {
        due.sort_by_key(|(tried, _)| *tried);
        for (_, port) in due {
            if self.running.load(Ordering::Acquire) >= MAX_OPENINGS {
                return;
            }
            self.start(port);
        }
    }

    fn start(&self, port: Arc<Shared>) {
        port.set_opening(true);
        self.running.fetch_add(1, Ordering::AcqRel);
        let opening =
            Opening { port: Arc::clone(&port), running: Arc::clone(&self.running), wake: Arc::clone(&self.wake) };
        let thread = std::thread::Builder::new().name("opening".to_owned());
        let started = thread.spawn(move || guarded(&opening.port, Shared::open_due));
        if started.is_err() {
            // The system has no thread for us. All ports wait for this one.
            guarded(&port, Shared::open_due);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.port.set_opening(false);
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.wake.wake();
    }
}
