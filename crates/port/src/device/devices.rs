//! The thread of all device ports: it tells ports about changes of their interfaces, and has devices
//! opened again after they have gone ([`super::openings`]).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use super::netlink::{DropCounts, Interface, Interfaces};
use super::openings::Openings;
use super::port::{Served, Shared};
use super::{Direct, Opener};

/// Time between two attempts to open a device that is not open, and until the kernel is asked again
/// for the interfaces if it has not answered.
const RETRY: Duration = Duration::from_secs(1);

/// The device ports of a process, with the opener that all of them use.
///
/// Its thread ends when the last handle is dropped.
pub struct Devices {
    opener: Arc<dyn Opener>,
    wake: Arc<WakeEvent>,
    interfaces: Arc<Mutex<Interfaces>>,
    /// A socket of its own, with its own lock: the kernel may take long to answer, and the thread
    /// does not wait for operators' questions.
    counts: Mutex<Interfaces>,
    ports: Arc<Mutex<Ports>>,
    /// Time between two attempts ([`RETRY`]).
    retry: Duration,
    clock: Clock,
}

/// The result of a search for an interface by its index.
#[derive(Debug)]
pub(super) enum Lookup {
    Found(Interface),
    Missing,
    /// The interface has no index, or the kernel's messages were lost.
    Unknown,
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
        Self::by_clock(opener, Clock::real())
    }

    /// Returns device ports as [`Self::new`] does, whose thread and histories have this clock.
    ///
    /// # Errors
    /// The system's error.
    pub fn by_clock(opener: Arc<dyn Opener>, clock: Clock) -> io::Result<Arc<Self>> {
        Self::with_retry(opener, clock, RETRY)
    }

    /// Returns device ports with another time between two attempts.
    pub(super) fn with_retry(opener: Arc<dyn Opener>, clock: Clock, retry: Duration) -> io::Result<Arc<Self>> {
        let interfaces = Arc::new(Mutex::new(Interfaces::new(clock.clone())?));
        let counts = Mutex::new(Interfaces::for_questions(clock.clone())?);
        let wake = Arc::new(WakeEvent::new()?);
        Ok(Arc::new(Devices { opener, wake, interfaces, counts, ports: Arc::default(), retry, clock }))
    }

    /// Returns the device ports of a process that keeps its privileges.
    ///
    /// # Errors
    /// The system's error.
    pub fn direct() -> io::Result<Arc<Self>> {
        Self::new(Arc::new(Direct::default()))
    }

    /// Returns the opener of all device ports.
    pub fn opener(&self) -> &Arc<dyn Opener> {
        &self.opener
    }

    /// Returns the time between two attempts to open a device that is not open.
    pub(super) fn retry(&self) -> Duration {
        self.retry
    }

    /// Returns the clock of all device ports.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn wake_event(&self) -> &Arc<WakeEvent> {
        &self.wake
    }

    /// Returns the interface of this index, as it is now.
    pub(super) fn get(&self, index: u32) -> Lookup {
        let mut interfaces = lock(&self.interfaces);
        if index == 0 || !self.refresh(&mut interfaces) {
            return Lookup::Unknown;
        }
        interfaces.get(index).cloned().map_or(Lookup::Missing, Lookup::Found)
    }

    /// Returns the interface of this name, as far as it is known.
    pub(super) fn find(&self, name: &str) -> Option<Interface> {
        let mut interfaces = lock(&self.interfaces);
        self.refresh(&mut interfaces);
        interfaces.find(name).cloned()
    }

    /// Returns the packets that the kernel has dropped at an interface.
    pub(super) fn drop_counts(&self, index: u32) -> Option<DropCounts> {
        lock(&self.counts).drop_counts(index).ok()
    }

    /// Calls `then` while the list of interfaces is locked, as it is while the kernel is asked.
    #[cfg(test)]
    pub(super) fn with_interfaces_locked(&self, then: impl FnOnce()) {
        let _locked = lock(&self.interfaces);
        then();
    }

    /// Takes in all changes so far. Returns `false` if the interfaces are not known at the moment.
    fn refresh(&self, interfaces: &mut Interfaces) -> bool {
        let is_known = interfaces.refresh();
        self.tell_changed(interfaces);
        is_known
    }

    /// Wakes the thread if messages about changes were read here. They may be about ports that it
    /// has served already, and the socket does not wake it any more.
    fn tell_changed(&self, interfaces: &mut Interfaces) {
        if interfaces.take_changed() {
            self.wake.wake();
        }
    }

    /// Adds a port. From now on the thread opens its device again when it has gone.
    pub(super) fn add(&self, port: &Arc<Shared>) -> io::Result<()> {
        let mut ports = lock(&self.ports);
        ports.open.push(Arc::downgrade(port));
        if !ports.has_thread {
            let (wake, all, interfaces) =
                (Arc::clone(&self.wake), Arc::clone(&self.ports), Arc::clone(&self.interfaces));
            let openings = Openings::new(Arc::clone(&wake));
            let clock = self.clock.clone();
            let retry = self.retry;
            let thread = std::thread::Builder::new().name("links".to_owned());
            thread.spawn(move || run(&wake, &all, &interfaces, &openings, retry, &clock))?;
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
fn run(
    wake: &WakeEvent,
    all: &Mutex<Ports>,
    interfaces: &Mutex<Interfaces>,
    openings: &Openings,
    retry: Duration,
    clock: &Clock,
) {
    let socket = Arc::clone(lock(interfaces).socket());
    loop {
        let ports: Vec<Arc<Shared>> = {
            let mut all = lock(all);
            if all.stops {
                return;
            }
            all.open.retain(|port| port.strong_count() > 0);
            all.open.iter().filter_map(Weak::upgrade).collect()
        };
        let is_known = {
            let mut interfaces = lock(interfaces);
            let is_known = interfaces.refresh();
            // All ports are served below.
            interfaces.take_changed();
            is_known
        };
        let mut next = None;
        let mut due = Vec::new();
        for port in ports {
            let served = guarded(&port, Shared::serve).unwrap_or(Served::Until(Some(clock.now() + retry)));
            match served {
                Served::Until(time) => next = next.into_iter().chain(time).min(),
                Served::Due(tried) => due.push((tried, port)),
            }
        }
        openings.begin(due);
        let mut fds = vec![PollFd::new(&wake.0, PollFlags::IN)];
        if is_known {
            fds.push(PollFd::new(&socket, PollFlags::IN));
        } else {
            // The socket may fail again and again.
            next = Some(clock.now() + retry);
        }
        // A failure of poll is a signal, or a lack of memory that passes.
        let _ = clock.poll(&mut fds, next);
        let _ = rustix::io::read(&wake.0, &mut [0; 8]);
    }
}

/// Lets a port do something. A panic is a bug in one port's handling of its interface, and the others
/// go on. Returns `None` after a panic.
pub(super) fn guarded<T>(port: &Shared, work: impl FnOnce(&Shared) -> T) -> Option<T> {
    let done = panic::catch_unwind(AssertUnwindSafe(|| work(port)));
    if done.is_err() {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| port.close_after_panic()));
    }
    done.ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
