//! Time: the time-stamp counter of workers, and the clock of control code, which a test can move.

mod moved;
mod tsc;

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, Timespec, poll};
use straightline_packet::IgnorePoison;

use crate::EpollWaiter;
use moved::Moved;
pub use tsc::{cycles, hertz, in_cycles, nanoseconds, seconds, whole_seconds};

/// The clock of control code, which also owns its waits: the machine's, or one that a test moves.
///
/// All clones of a moved clock show the same time. It stands still until [`Self::advance`], which
/// wakes each thread whose wait ends by then. An event ends a wait by either clock at once.
///
/// ```
/// use std::time::Duration;
/// use straightline_graph::Clock;
///
/// let clock = Clock::moved();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(300));
/// assert_eq!(clock.now() - before, Duration::from_secs(300));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Moved>>);

impl Clock {
    /// Returns the machine's clock.
    pub fn real() -> Self {
        Clock(None)
    }

    /// Returns a clock that shows the present time until a test moves it.
    pub fn moved() -> Self {
        Clock(Some(Arc::new(Moved::new())))
    }

    /// Returns the time.
    pub fn now(&self) -> Instant {
        self.0.as_ref().map_or_else(Instant::now, |moved| moved.now())
    }

    /// Returns the time of day.
    pub fn time_of_day(&self) -> SystemTime {
        self.0.as_ref().map_or_else(SystemTime::now, |moved| moved.time_of_day())
    }

    /// Returns the time since `past`, or zero if `past` is later.
    pub fn since(&self, past: Instant) -> Duration {
        self.now().saturating_duration_since(past)
    }

    /// Returns the whole seconds of a worker's time: those of a reading of the time-stamp counter, or
    /// those of the moved clock. See [`whole_seconds`].
    #[inline]
    pub fn seconds_at(&self, cycles: u64) -> u32 {
        match &self.0 {
            None => whole_seconds(cycles),
            Some(moved) => moved.seconds(),
        }
    }

    /// Returns the whole seconds of workers' time now, for control code that shares a table with them.
    pub fn seconds(&self) -> u32 {
        self.seconds_at(cycles())
    }

    /// Returns workers' time now. [`Self::seconds`] returns its whole seconds.
    pub fn workers_time(&self) -> Duration {
        match &self.0 {
            None => Duration::from_nanos(nanoseconds(cycles())),
            Some(moved) => moved.workers_time(),
        }
    }

    /// Has each move of a moved clock wake a worker, so that its next turn has the new time. The move
    /// does not wait for that turn: a worker with packets would never sleep again.
    pub fn wake_worker(&self, waiter: &Arc<EpollWaiter>) {
        if let Some(moved) = &self.0 {
            moved.wake_worker(Arc::downgrade(waiter));
        }
    }

    /// Moves a moved clock, and wakes each thread whose wait ends by then. Returns when each of these
    /// threads waits again, or has ended. Time that other threads do not wait for by this clock is
    /// unknown to it: wait for the effect.
    ///
    /// # Panics
    /// Panics if it is the machine's clock, or if such a thread does not come back in time.
    pub fn advance(&self, by: Duration) {
        self.0.as_ref().expect("only a moved clock can be moved").advance(by);
    }

    /// Returns whether a thread of this name waits by a moved clock now. From then on, each move waits
    /// for what that thread does. Nobody moves the machine's clock, so there the answer is yes.
    pub fn waits(&self, thread: &str) -> bool {
        self.0.as_ref().is_none_or(|moved| moved.waits(thread))
    }

    /// Polls descriptors until one is ready or the time has come. Without a time it waits for an event only.
    ///
    /// # Errors
    /// Those of `poll`, such as an interrupt.
    pub fn poll(&self, fds: &mut [PollFd<'_>], until: Option<Instant>) -> rustix::io::Result<usize> {
        let Some(moved) = &self.0 else {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // A time that the kernel cannot express is none.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            return poll(fds, timeout.as_ref());
        };
        moved.poll(fds, until)
    }

    /// Waits for a time.
    pub fn sleep(&self, time: Duration) {
        match &self.0 {
            None => std::thread::sleep(time),
            Some(moved) => moved.wait_slices(moved.now() + time, |slice| {
                std::thread::sleep(slice);
                false
            }),
        }
    }

    /// Waits for a thread's `unpark`, or until the time has come. Like the standard library's function,
    /// it may return for no reason.
    pub fn park(&self, until: Instant) {
        let left = until.saturating_duration_since(self.now());
        match &self.0 {
            None => std::thread::park_timeout(left),
            // A thread cannot ask whether it was unparked, so each slice is a return for no reason.
            Some(moved) => moved.slice(until, |slice| std::thread::park_timeout(slice.min(left))),
        }
    }

    /// Waits for a message, or until the time has come.
    ///
    /// # Errors
    /// The time has come, or the channel is closed.
    pub fn receive<T>(&self, from: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
        let Some(moved) = &self.0 else {
            return from.recv_timeout(until.saturating_duration_since(Instant::now()));
        };
        let mut received = Err(RecvTimeoutError::Timeout);
        moved.wait_slices(until, |slice| {
            received = from.recv_timeout(slice);
            !matches!(received, Err(RecvTimeoutError::Timeout))
        });
        // A message may have come before the move that ended the wait.
        if received.is_err() { from.recv_timeout(Duration::ZERO) } else { received }
    }

    /// Waits until `is_done` returns true, at most for `limit`. Returns whether it did. For an end that
    /// no descriptor and no thread tells: the function asks each millisecond.
    pub fn is_within(&self, limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
        let until = self.now() + limit;
        let Some(moved) = &self.0 else {
            while !is_done() {
                if Instant::now() > until {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            return true;
        };
        let mut has_come = is_done();
        moved.wait_slices(until, |slice| {
            if !has_come {
                std::thread::sleep(slice);
                has_come = is_done();
            }
            has_come
        });
        has_come || is_done()
    }

    /// Waits at a condition variable while `waits` returns true, or until the time has come.
    pub fn wait_while<'a, T>(
        &self,
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        until: Instant,
        mut waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let Some(moved) = &self.0 else {
            let left = until.saturating_duration_since(Instant::now());
            return condvar.wait_timeout_while(guard, left, waits).ignore_poison().0;
        };
        let mut held = Some(guard);
        moved.wait_slices(until, |slice| {
            let Some(guard) = held.take() else { return true };
            let (guard, timeout) = condvar.wait_timeout_while(guard, slice, &mut waits).ignore_poison();
            held = Some(guard);
            !timeout.timed_out()
        });
        held.expect("each slice gives the guard back")
    }
}

#[cfg(test)]
mod tests;
