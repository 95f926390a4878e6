//! A clock that a test moves, and the threads that wait by it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use straightline_packet::IgnorePoison;

use super::{cycles, whole_seconds};
use crate::EpollWaiter;

/// Real time that a thread needs at most to come back, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Real time between two looks at the clock, by waits that no descriptor can end.
const SLICE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Moved {
    began: Instant,
    began_of_day: SystemTime,
    began_seconds: u32,
    state: Mutex<State>,
    /// Notified when a waiter begins to wait, or ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    by: Duration,
    /// The threads that have waited by this clock, and still run.
    waiters: HashMap<ThreadId, Waiter>,
    workers: Vec<Weak<EpollWaiter>>,
}

#[derive(Debug)]
struct Waiter {
    /// The name of the thread; empty if it has none.
    name: String,
    /// The end of the present wait. The outer `None` means that the thread runs.
    waits_until: Option<Option<Instant>>,
    /// Ends the poll of the thread.
    bell: Arc<OwnedFd>,
}

impl Waiter {
    fn is_due(&self, now: Instant) -> bool {
        self.waits_until.flatten().is_some_and(|until| until <= now)
    }
}

/// The clocks that a thread has waited by. At its end they forget it.
struct Memberships(RefCell<Vec<Weak<Moved>>>);

thread_local! {
    static MEMBERSHIPS: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

impl Drop for Memberships {
    fn drop(&mut self) {
        for moved in self.0.borrow().iter().filter_map(Weak::upgrade) {
            moved.state().waiters.remove(&std::thread::current().id());
            moved.changed.notify_all();
        }
    }
}

impl Moved {
    pub(super) fn new() -> Self {
        Moved {
            began: Instant::now(),
            began_of_day: SystemTime::now(),
            began_seconds: whole_seconds(cycles()),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.began + self.state().by
    }

    pub(super) fn time_of_day(&self) -> SystemTime {
        self.began_of_day + self.state().by
    }

    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.workers_time().as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn workers_time(&self) -> Duration {
        Duration::from_secs(self.began_seconds.into()) + self.state().by
    }

    pub(super) fn wake_worker(&self, waiter: Weak<EpollWaiter>) {
        self.state().workers.push(waiter);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    pub(super) fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.by += by;
        let now = self.began + state.by;
        let due: Vec<_> = state.waiters.iter().filter(|(_, waiter)| waiter.is_due(now)).map(|(id, _)| *id).collect();
        for id in &due {
            ring(&state.waiters[id].bell);
        }
        state.workers.iter().filter_map(Weak::upgrade).for_each(|worker| worker.wake());
        let is_away = |state: &mut State| {
            let is_back = |waiter: &Waiter| waiter.waits_until.is_some() && !waiter.is_due(now);
            due.iter().any(|id| state.waiters.get(id).is_some_and(|waiter| !is_back(waiter)))
        };
        let (state, timeout) = self.changed.wait_timeout_while(state, PATIENCE, is_away).ignore_poison();
        drop(state);
        assert!(!timeout.timed_out(), "a thread whose wait has ended does not wait again");
    }

    pub(super) fn waits(&self, thread: &str) -> bool {
        self.state().waiters.values().any(|waiter| waiter.name == thread && waiter.waits_until.is_some())
    }

    #[cfg(test)]
    pub(super) fn wait_for_waiters(&self, number: usize) {
        let waits = |state: &State| state.waiters.values().filter(|waiter| waiter.waits_until.is_some()).count();
        drop(self.changed.wait_while(self.state(), |state| waits(state) < number).ignore_poison());
    }

    /// Begins a wait of this thread. Returns the bell that ends it.
    fn begin(self: &Arc<Self>, until: Option<Instant>) -> Arc<OwnedFd> {
        let mut state = self.state();
        let waiter = state.waiters.entry(std::thread::current().id()).or_insert_with(|| {
            MEMBERSHIPS.with(|of| of.0.borrow_mut().push(Arc::downgrade(self)));
            let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            Waiter { name, waits_until: None, bell: Arc::new(bell) }
        });
        waiter.waits_until = Some(until);
        let bell = Arc::clone(&waiter.bell);
        drop(state);
        self.changed.notify_all();
        bell
    }

    /// Ends the wait of this thread.
    fn end(&self) {
        if let Some(waiter) = self.state().waiters.get_mut(&std::thread::current().id()) {
            waiter.waits_until = None;
        }
    }

    pub(super) fn poll(self: &Arc<Self>, fds: &mut [PollFd<'_>], until: Option<Instant>) -> rustix::io::Result<usize> {
        let bell = self.begin(until);
        let polled = loop {
            // A clock that is moved after this question rings the bell.
            let has_come = until.is_some_and(|until| until <= self.now());
            match poll(fds, Some(&Timespec::default())) {
                Ok(0) if !has_come => {}
                polled => break polled,
            }
            let mut with_bell: Vec<_> = fds.iter().cloned().chain([PollFd::new(&bell, PollFlags::IN)]).collect();
            if let Err(error) = poll(&mut with_bell, None) {
                break Err(error);
            }
            let _ = rustix::io::read(&bell, &mut [0; 8]);
        };
        self.end();
        polled
    }

    /// Waits in slices of real time until `wait` returns true or the time has come.
    pub(super) fn wait_slices(self: &Arc<Self>, until: Instant, mut wait: impl FnMut(Duration) -> bool) {
        self.begin(Some(until));
        while self.now() < until && !wait(SLICE) {}
        self.end();
    }

    /// Waits one slice of real time.
    pub(super) fn slice(self: &Arc<Self>, until: Instant, wait: impl FnOnce(Duration)) {
        self.begin(Some(until));
        wait(SLICE);
        self.end();
    }
}

fn ring(bell: &OwnedFd) {
    // A bell that has rung already is not read yet.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
