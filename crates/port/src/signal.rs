//! Adds one to an eventfd and never waits for room in it.
//!
//! An eventfd's write waits while its counter is full, unless its open file description says otherwise; and that
//! description is shared with whoever sent us the descriptor, who may say so at any moment, between any two calls of
//! ours. It cannot be opened anew (an anonymous inode has no `open`), and it takes no flags with a write (RWF_NOWAIT:
//! "operation not supported"). What never waits is a signal from within the kernel: an asynchronous read that completes
//! adds one to the eventfd that its request names (`IOCB_FLAG_RESFD`, see `io_submit(2)`), and a full counter stays
//! full. So a notification is a read of nothing, which completes at once. It costs about twice what a write does.

use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::event::{EventfdFlags, eventfd};

/// A request, as the kernel has it (`linux/aio_abi.h`) on a little-endian machine.
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

/// What a request came to. Nobody looks.
#[repr(C)]
struct Event([u64; 4]);

const READ: u16 = 0;
const SIGNAL: u32 = 1;

/// Requests that have completed and were not collected fill the context. It has room for some more than this.
const COLLECTED: usize = 64;

/// Counts of requests and events, in the width that the kernel has them.
const NONE: libc::c_long = 0;
const ONE: libc::c_long = 1;

/// A context for requests of one thread.
struct Requests {
    context: libc::c_ulong,
    /// What is read from: an eventfd, of which nothing shorter than 8 bytes is read.
    nothing: OwnedFd,
}

thread_local! {
    /// `None` where the kernel does not have it or a filter forbids it.
    static REQUESTS: OnceCell<Option<Requests>> = const { OnceCell::new() };
}

/// Adds one to the counter of `event`, which is an eventfd. Where the kernel has no asynchronous requests for us it is
/// written to, which waits if somebody wants it to.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    let signalled = REQUESTS.with(|cell| cell.get_or_init(Requests::new).as_ref().is_some_and(|r| r.signal(event)));
    if !signalled {
        // What is full has its notification already.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}

impl Requests {
    fn new() -> Option<Self> {
        let nothing = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's id there and nothing else.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ONE, &raw mut context) };
        (made == 0).then_some(Requests { context, nothing })
    }

    fn signal(&self, event: BorrowedFd<'_>) -> bool {
        if self.submit(event) {
            return true;
        }
        // Mostly since the context is full of what has completed.
        self.collect();
        self.submit(event)
    }

    fn submit(&self, event: BorrowedFd<'_>) -> bool {
        let number = |fd: BorrowedFd<'_>| u32::try_from(fd.as_raw_fd()).unwrap_or(u32::MAX);
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
        // SAFETY: the context is ours, the list has one request, and the request is read before the call returns. It
        // has no buffer. (The kernel writes its key, into the request.)
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.context, ONE, requests.as_mut_ptr()) };
        submitted == 1
    }

    fn collect(&self) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; COLLECTED];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most so many events there; nothing is read of them.
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
        // SAFETY: the context is ours and used no more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).expect("it was signalled");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn every_signal_counts() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        for n in [1, 7, 10_000] {
            (0..n).for_each(|_| signal(event.as_fd()));
            assert_eq!(count(&event), n);
        }
    }

    #[test]
    fn a_full_counter_that_blocks_holds_nobody_up() {
        // As after a frontend took O_NONBLOCK back.
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("to the brim");
        let (done, wait) = mpsc::channel();
        let ours = rustix::io::dup(&event).expect("another descriptor of it");
        std::thread::spawn(move || {
            (0..1000).for_each(|_| signal(ours.as_fd()));
            done.send(()).expect("somebody waits");
        });
        let ended = wait.recv_timeout(Duration::from_secs(20));
        // Whoever waits in vain goes on once there is room.
        count(&event);
        ended.expect("no signal waits");
    }
}
