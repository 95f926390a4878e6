//! Threads that receive from a client or close what it has sent: the client may hold them.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use super::interrupt::interrupt;

/// A thread that takes longer than this to receive or to close is held by a client's descriptor.
const HELD: Duration = Duration::from_secs(1);

/// A thread that takes longer than this is interrupted when its place is needed.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// The threads that receive or close now, at all sockets.
static CLOSING: Mutex<Vec<Closing>> = Mutex::new(Vec::new());

/// A thread that receives or closes.
struct Closing {
    thread: Pid,
    since: Instant,
    clock: Clock,
}

impl Closing {
    fn time(&self) -> Duration {
        self.clock.since(self.since)
    }
}

/// Returns the number of threads that a client's descriptor holds: it does not close.
pub(crate) fn held_threads() -> usize {
    held().len()
}

/// Returns the threads that are held now.
fn held() -> Vec<Pid> {
    let threads = threads();
    let held = threads.iter().filter(|closing| closing.time() > HELD);
    held.map(|closing| closing.thread).collect()
}

/// Runs what may close a descriptor of a client, which may take for ever.
pub(super) fn closing<T>(clock: &Clock, work: impl FnOnce() -> T) -> T {
    /// Ends the entry of this thread.
    struct Entry(Pid);
    impl Drop for Entry {
        fn drop(&mut self) {
            threads().retain(|closing| closing.thread != self.0);
        }
    }
    let thread = gettid();
    threads().push(Closing { thread, since: clock.now(), clock: clock.clone() });
    let _entry = Entry(thread);
    work()
}

/// Interrupts the threads that a client holds. A thread with an entry exists: its number is not
/// another's.
pub(super) fn interrupt_held() {
    threads().iter().filter(|closing| closing.time() > MAX_WAIT).for_each(|held| interrupt(held.thread));
}

fn threads() -> MutexGuard<'static, Vec<Closing>> {
    CLOSING.lock().ignore_poison()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use straightline_testing::wait_until;

    use super::*;
    use crate::api::interrupt::prepare;

    #[test]
    fn a_thread_that_waits_is_seen_and_can_be_interrupted() {
        prepare().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let clock = Clock::moved();
        let is_seen = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let waits = std::thread::spawn({
            let clock = clock.clone();
            let is_seen = Arc::clone(&is_seen);
            move || {
                tell.send(gettid()).unwrap();
                loop {
                    let error = closing(&clock, || rustix::io::read(&ours, &mut [0][..]).unwrap_err());
                    // Sockets of other tests may interrupt it before. Then it begins again.
                    if is_seen.load(Ordering::Relaxed) {
                        return error;
                    }
                }
            }
        });
        let thread = told.recv().unwrap();
        wait_until("the thread begins", || threads().iter().any(|closing| closing.thread == thread));
        clock.advance(HELD);
        assert!(!held().contains(&thread), "it has waited for this time, but not for longer");
        wait_until("the thread is held", || {
            clock.advance(HELD);
            held().contains(&thread)
        });
        is_seen.store(true, Ordering::Relaxed);
        wait_until("the thread is interrupted", || {
            // An interrupt that comes before the thread reads has no effect.
            clock.advance(HELD);
            interrupt_held();
            waits.is_finished()
        });
        assert_eq!(waits.join().unwrap(), rustix::io::Errno::INTR);
    }
}
