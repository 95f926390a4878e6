//! Adds one to an eventfd and never waits.
//!
//! A write into an eventfd waits while its counter is full, unless its open file description says
//! otherwise. That description is shared with the process that sent us the descriptor, which may
//! change it at any moment, also between two calls of ours. The description cannot be opened anew
//! (an anonymous inode has no `open`). An eventfd takes no flags with a write (RWF_NOWAIT:
//! "operation not supported").
//!
//! A signal from within the kernel never waits. An asynchronous read that completes adds one to the
//! eventfd that its request names (`IOCB_FLAG_RESFD`, see `io_submit(2)`), and a full counter stays
//! full. So a notification is a read of nothing, which completes at once. It costs about twice as
//! much as a write.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};
use straightline_packet::IgnorePoison;

/// A request in the kernel's layout (`linux/aio_abi.h`) on a little-endian machine.
#[repr(C)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    /// The eventfd to be signalled.
    result_fd: u32,
}

/// The outcome of a request. It is never read.
#[repr(C)]
struct Event([u64; 4]);

const READ: u16 = 0;
const SIGNAL: u32 = 1;

/// Completed requests that were not collected fill the context. Its capacity is somewhat larger
/// than this.
const COLLECTED: usize = 64;

/// Numbers of requests and events, in the width that the kernel expects.
const NONE: libc::c_long = 0;
const ONE: libc::c_long = 1;

/// A context for requests.
#[derive(Debug)]
struct Requests {
    context: libc::c_ulong,
    /// The file to read from: an eventfd, from which a read of less than 8 bytes reads nothing.
    nothing: OwnedFd,
}

/// The context by which one thread signals eventfds without waiting.
///
/// The system has a limited number of contexts (`fs.aio-max-nr`), and any user can take all of
/// them. So a thread's context is made when its switch starts, not when the thread first needs it.
#[derive(Debug)]
pub struct Signals(Option<Requests>);

thread_local! {
    /// Unset in threads that use [`CONTROL`].
    static OWN: OnceCell<Signals> = const { OnceCell::new() };
}

/// The context of all threads without one of their own: the ports' threads, which signal rarely.
static CONTROL: Mutex<Option<Requests>> = Mutex::new(None);

/// Contexts of threads that have ended. To destroy one, the kernel waits for some 30 milliseconds, so the
/// next threads use them again.
static KEPT: Mutex<Vec<Requests>> = Mutex::new(Vec::new());

/// The most contexts that are kept.
const MOST_KEPT: usize = 16;

impl Signals {
    /// Makes a context. The thread that uses it calls [`Self::install`].
    #[must_use]
    pub fn new() -> Self {
        let kept = KEPT.lock().ignore_poison().pop();
        Signals(kept.filter(Requests::works).or_else(Requests::new))
    }

    /// Makes the context of all threads that install none, unless it exists already. Returns
    /// whether it exists.
    pub fn prepare_control() -> bool {
        let mut control = CONTROL.lock().ignore_poison();
        if control.is_none() {
            *control = Requests::new();
        }
        control.is_some()
    }

    /// Returns whether there is a context. Without one, helper threads write to eventfds.
    #[must_use]
    pub fn has_context(&self) -> bool {
        self.0.is_some()
    }

    /// Makes this thread signal by this context, until it ends.
    pub fn install(self) {
        // A second context of a thread would change nothing.
        let _ = OWN.with(|own| own.set(self));
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().ignore_poison();
        if kept.len() < MOST_KEPT {
            kept.extend(self.0.take());
        }
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds one to the counter of `event`, which is an eventfd, and never waits. Returns `false` if
/// that is not possible: there was no context, or a filter forbids its use.
#[must_use]
pub fn signal(event: BorrowedFd<'_>) -> bool {
    OWN.with(|own| match own.get() {
        Some(signals) => signals.0.as_ref().is_some_and(|requests| requests.signal(event)),
        None => {
            let control = CONTROL.lock().ignore_poison();
            control.as_ref().is_some_and(|requests| requests.signal(event))
        }
    })
}

impl Requests {
    fn new() -> Option<Self> {
        let nothing = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's id there and nothing else.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ONE, &raw mut context) };
        (made == 0).then_some(Requests { context, nothing }).filter(Self::works)
    }

    /// Returns whether a signal arrives. A filter of this thread may forbid `io_submit`, and allow
    /// `io_setup`.
    fn works(&self) -> bool {
        self.signal(self.nothing.as_fd()) && rustix::io::read(&self.nothing, &mut [0; 8]).is_ok()
    }

    fn signal(&self, event: BorrowedFd<'_>) -> bool {
        if self.submit(event) {
            return true;
        }
        // Mostly because the context is full of completed requests.
        self.collect();
        self.submit(event)
    }

    fn submit(&self, event: BorrowedFd<'_>) -> bool {
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
        let mut request = Request {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: READ,
            priority: 0,
            fd: number(self.nothing.as_fd()),
            buffer: 0,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: SIGNAL,
            result_fd: number(event),
        };
        let mut requests = [&raw mut request];
        // SAFETY: the context is ours, the list has one request, and the request is read before the
        // call returns. It has no buffer. (The kernel writes its key, into the request.)
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.context, ONE, requests.as_mut_ptr()) };
        submitted == 1
    }

    fn collect(&self) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; COLLECTED];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most this many events there. None is read.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                NONE,
                COLLECTED,
                events.as_mut_ptr(),
                ptr::from_ref(&now),
            )
        };
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: the context is ours and not used any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use straightline_testing::wait_until;

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).expect("it was signalled");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn every_signal_counts() {
        assert!(Signals::prepare_control(), "the kernel has asynchronous requests");
        every_signal_counts_here();
        let own = Signals::new();
        assert!(own.has_context());
        let thread = std::thread::spawn(move || {
            own.install();
            every_signal_counts_here();
        });
        thread.join().expect("every signal counts");
    }

    fn every_signal_counts_here() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        for n in [1, 7, 10_000] {
            (0..n).for_each(|_| assert!(signal(event.as_fd()), "the kernel has asynchronous requests"));
            assert_eq!(count(&event), n);
        }
    }

    #[test]
    fn a_context_is_used_again() {
        // Other tests may take the kept ones meanwhile, but not all of these.
        let many: Vec<_> = (0..2 * MOST_KEPT).map(|_| Signals::new()).collect();
        assert!(many.iter().all(Signals::has_context));
        drop(many);
        assert!((1..=MOST_KEPT).contains(&KEPT.lock().ignore_poison().len()));
        let own = Signals::new();
        std::thread::spawn(move || {
            own.install();
            every_signal_counts_here();
        })
        .join()
        .expect("every signal counts");
    }

    #[test]
    fn a_full_counter_that_blocks_holds_nobody_up() {
        // The flags are as after a frontend has cleared O_NONBLOCK.
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("to the brim");
        let (done, wait) = mpsc::channel();
        let ours = rustix::io::dup(&event).expect("another descriptor of it");
        let signals = Signals::new();
        std::thread::spawn(move || {
            signals.install();
            (0..1000).for_each(|_| assert!(signal(ours.as_fd()), "the kernel has asynchronous requests"));
            done.send(()).expect("somebody waits");
        });
        wait_until("no signal waits", || wait.try_recv());
    }
}
