//! The thread of all device ports: it opens devices, and opens them again after they have gone.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::port::Shared;
use super::{Direct, Opener};

/// Time between two attempts to open a device that is not open.
const RETRY: Duration = Duration::from_secs(1);

/// The device ports of a process, with the opener that all of them use.
///
/// Its thread ends when the last handle is dropped.
pub struct Devices {
    opener: Arc<dyn Opener>,
    wake: Arc<WakeEvent>,
    ports: Arc<Mutex<Ports>>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("opener", &self.opener).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Ports {
    open: Vec<Weak<Shared>>,
    has_thread: bool,
    stops: bool,
}

/// Wakes the thread of the device ports.
#[derive(Debug)]
pub(crate) struct WakeEvent(OwnedFd);

impl WakeEvent {
    pub(super) fn new() -> io::Result<Self> {
        Ok(WakeEvent(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn wake(&self) {
        // A full counter also wakes the thread, and the write has no other error.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Devices {
    /// Returns the device ports of a process that opens interfaces by `opener`. Everything that
    /// takes privileges or new sockets is done here; the thread starts with the first port.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(opener: Arc<dyn Opener>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Devices { opener, wake: Arc::new(WakeEvent::new()?), ports: Arc::default() }))
    }

    /// Returns the device ports of a process that keeps its privileges.
    ///
    /// # Errors
    /// The system's error.
    pub fn direct() -> io::Result<Arc<Self>> {
        Self::new(Arc::new(Direct))
    }

    /// Returns the opener of all device ports.
    pub fn opener(&self) -> &Arc<dyn Opener> {
        &self.opener
    }

    pub(super) fn wake_event(&self) -> &Arc<WakeEvent> {
        &self.wake
    }

    /// Adds a port. From now on the thread opens its device again when it has gone.
    pub(super) fn add(&self, port: &Arc<Shared>) -> io::Result<()> {
        let mut ports = lock(&self.ports);
        ports.open.push(Arc::downgrade(port));
        if !ports.has_thread {
            let (wake, all) = (Arc::clone(&self.wake), Arc::clone(&self.ports));
            std::thread::Builder::new().name("links".to_owned()).spawn(move || run(&wake, &all))?;
            ports.has_thread = true;
        }
        drop(ports);
        self.wake.wake();
        Ok(())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        lock(&self.ports).stops = true;
        self.wake.wake();
    }
}

/// Serves all ports until the last handle is gone.
fn run(wake: &WakeEvent, all: &Mutex<Ports>) {
    loop {
        let ports: Vec<Arc<Shared>> = {
            let mut all = lock(all);
            if all.stops {
                return;
            }
            all.open.retain(|port| port.strong_count() > 0);
            all.open.iter().filter_map(Weak::upgrade).collect()
        };
        // A port without a device is tried again later. All others wait for events.
        let mut retries = false;
        for port in &ports {
            retries |= !port.serve();
        }
        drop(ports);
        let timeout = Timespec { tv_sec: RETRY.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(&wake.0, PollFlags::IN)];
        // A failure of poll is a signal, or a lack of memory that passes.
        let _ = poll(&mut fds, retries.then_some(&timeout));
        let _ = rustix::io::read(&wake.0, &mut [0; 8]);
    }
}

fn lock(ports: &Mutex<Ports>) -> MutexGuard<'_, Ports> {
    ports.lock().unwrap_or_else(PoisonError::into_inner)
}
