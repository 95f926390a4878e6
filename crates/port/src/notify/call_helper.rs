//! A thread that notifies the guest of one port by system calls that may wait.
//!
//! A notification normally uses the kernel's asynchronous requests (see `signal`), which never
//! wait. Where these are not available, for sockets, and for notifications that cost too much (see
//! `call_cost`), the helper notifies. It alone waits if the frontend makes its descriptor block. Each port has a helper of its own, so no frontend can hold
//! up the notifications of another.
//!
//! The helper starts when it is first needed. A worker may need it, but a worker cannot start a
//! thread. So the port's thread is woken and starts it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use straightline_packet::IgnorePoison;

use crate::notify::call_cost::CallCost;
use crate::notify::notifier::Notifier;

/// The most notifiers that wait for the helper: the call and the error descriptor of each of 256
/// rings, once each. More can wait only if a frontend holds the helper up and sends new
/// descriptors. That frontend then misses notifications.
const MOST_PENDING: usize = 512;

/// The interval at which a helper that must end is freed from a wait.
const PAUSE: Duration = Duration::from_millis(1);

/// The helper of one frontend. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct CallHelper {
    calls: Arc<PendingCalls>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the helper's thread and its callers.
pub(crate) struct PendingCalls {
    port: String,
    /// The time that the port's notifications take.
    cost: Arc<CallCost>,
    pending: ArrayQueue<Notifier>,
    thread: OnceLock<Thread>,
    /// The thread is needed and has not been started.
    is_wanted: AtomicBool,
    is_stopped: AtomicBool,
    /// The notifier whose descriptor the thread may be waiting for.
    current: Mutex<Option<Notifier>>,
    /// Wakes the port's thread, so that it calls [`CallHelper::start_if_wanted`].
    wake_port: Box<dyn Fn() + Send + Sync>,
}

impl CallHelper {
    /// Returns a helper without a thread.
    pub(crate) fn new(port: &str, cost: Arc<CallCost>, wake_port: impl Fn() + Send + Sync + 'static) -> Self {
        let calls = PendingCalls {
            port: port.to_owned(),
            cost,
            pending: ArrayQueue::new(MOST_PENDING),
            thread: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            current: Mutex::default(),
            wake_port: Box::new(wake_port),
        };
        CallHelper { calls: Arc::new(calls), thread: None }
    }

    pub(crate) fn calls(&self) -> &Arc<PendingCalls> {
        &self.calls
    }

    /// Returns the time that the port's notifications take.
    pub(crate) fn cost(&self) -> &Arc<CallCost> {
        &self.calls.cost
    }

    /// Starts the thread if a notification waits for it.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread. The notification then waits for the next
    /// attempt.
    pub(crate) fn start_if_wanted(&mut self) -> io::Result<()> {
        if !self.calls.is_wanted.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.thread.is_none() {
            let calls = Arc::clone(&self.calls);
            let name = format!("call {}", calls.port);
            let thread = std::thread::Builder::new().name(name).spawn(move || calls.serve())?;
            let _ = self.calls.thread.set(thread.thread().clone());
            self.thread = Some(thread);
        }
        self.calls.is_wanted.store(false, Ordering::Release);
        // A notification that came before the thread was known has woken the port's thread, not
        // this one.
        self.calls.unpark();
        Ok(())
    }
}

impl Drop for CallHelper {
    /// Ends the thread. If a frontend holds it up by a full eventfd, the eventfd is emptied. The
    /// frontend may empty the eventfd between our check and our read. Then it holds up the calling
    /// thread, which is the thread of its own port.
    fn drop(&mut self) {
        self.calls.is_stopped.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        while !thread.is_finished() {
            let current = self.calls.current().clone();
            if let Some(notifier) = current {
                notifier.drain();
            }
            // The system's time: the thread ends by itself, and nobody needs to move a clock for it.
            std::thread::sleep(PAUSE);
        }
        // A panic was logged already.
        let _ = thread.join();
    }
}

impl PendingCalls {
    /// Makes the helper notify. Never waits, and takes no lock.
    pub(crate) fn ask(&self, notifier: &Notifier) {
        if notifier.set_pending(true) {
            return;
        }
        if self.pending.push(notifier.clone()).is_err() {
            notifier.set_pending(false);
            return;
        }
        if !self.unpark() {
            self.is_wanted.store(true, Ordering::Release);
            (self.wake_port)();
        }
    }

    /// Wakes the thread, now or as soon as it would sleep. Returns whether the thread has been
    /// started.
    fn unpark(&self) -> bool {
        self.thread.get().map(Thread::unpark).is_some()
    }

    fn serve(&self) {
        while !self.is_stopped.load(Ordering::Acquire) {
            let Some(notifier) = self.pending.pop() else {
                std::thread::park();
                continue;
            };
            *self.current() = Some(notifier.clone());
            // From here on, another notification needs a new request.
            notifier.set_pending(false);
            self.cost.measure_closely(|| notifier.notify_blocking());
            *self.current() = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Notifier>> {
        self.current.lock().ignore_poison()
    }
}

impl std::fmt::Debug for PendingCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCalls")
            .field("port", &self.port)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use straightline_testing::wait_until;

    use super::*;

    fn cost() -> Arc<CallCost> {
        Arc::new(CallCost::new())
    }

    fn event() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"))
    }

    /// Returns the counter, and waits until it is not zero.
    fn count(event: &OwnedFd) -> u64 {
        fcntl_setfl(event, OFlags::empty()).expect("flags");
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).expect("it was signalled");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn a_helper_starts_when_it_is_needed_and_notifies_each() {
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let mut helper = CallHelper::new("test", cost(), move || wake.store(true, Ordering::Relaxed));
        helper.start_if_wanted().expect("nothing to start");
        assert!(helper.thread.is_none());
        let events = [event(), event()];
        let [first, second] = events.each_ref().map(|e| Notifier::new(Arc::clone(e), &helper).expect("an eventfd"));
        helper.calls.ask(&first);
        assert!(woken.load(Ordering::Relaxed), "the port's thread is to start it");
        helper.start_if_wanted().expect("a thread");
        assert_eq!(count(&events[0]), 1);
        for _ in 0..100 {
            helper.calls.ask(&second);
            helper.calls.ask(&first);
            assert_eq!((count(&events[0]), count(&events[1])), (1, 1));
        }
    }

    #[test]
    fn an_eventfd_that_is_full_and_blocks_ends_with_its_helper() {
        let event = event();
        let mut helper = CallHelper::new("test", cost(), || ());
        let notifier = Notifier::new(Arc::clone(&event), &helper).expect("an eventfd");
        fcntl_setfl(&*event, fcntl_getfl(&*event).expect("flags") & !OFlags::NONBLOCK).expect("flags");
        rustix::io::write(&*event, &(u64::MAX - 1).to_ne_bytes()).expect("to the brim");
        helper.calls.ask(&notifier);
        helper.start_if_wanted().expect("a thread");
        wait_until("the helper notifies", || helper.calls.current().is_some());
        // The helper waits for a free counter. Callers do not wait, no matter how many there are.
        let calls = Arc::clone(&helper.calls);
        let others: Vec<_> = (0..2 * MOST_PENDING).map(|_| Notifier::new(super::tests::event(), &helper)).collect();
        for other in others.iter().flatten() {
            calls.ask(other);
            calls.ask(other);
        }
        assert_eq!(calls.pending.len(), MOST_PENDING);
        drop(helper);
        assert!(calls.is_stopped.load(Ordering::Relaxed));
        let after = Notifier::new(super::tests::event(), &CallHelper::new("gone", cost(), || ())).expect("an eventfd");
        after.notify();
    }
}
