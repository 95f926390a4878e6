//! Cache lines that another core has just written. A separate thread writes the source again before
//! each run.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Thread on another CPU that writes the source. It ends when this value is dropped.
pub struct Writer {
    asked: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    rounds: u64,
    thread: Option<JoinHandle<()>>,
}

/// Round number that ends the thread.
const END: u64 = u64::MAX;

impl Writer {
    /// Pins this thread to one CPU and the writer to another. Returns `None` if there is only one
    /// CPU.
    ///
    /// # Safety
    /// `bytes` are mapped as long as the writer lives, and only this module and the kernels access
    /// them.
    pub unsafe fn new(bytes: *const u8, len: usize) -> Option<Self> {
        // Read before this thread is pinned for the first time.
        static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
        let [ours, other] = CPUS.get_or_init(cpus).first_chunk().copied()?;
        pin(ours);
        // SAFETY: the caller's promise; atomics may be shared.
        let bytes: &'static [AtomicU8] = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
        let asked = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicU64::new(0));
        let shared = (Arc::clone(&asked), Arc::clone(&done));
        let thread = thread::spawn(move || {
            pin(other);
            let (asked, done) = shared;
            let mut last = 0;
            loop {
                let round = wait_for(|| Some(asked.load(Ordering::Acquire)).filter(|&round| round != last));
                if round == END {
                    return;
                }
                for byte in bytes.iter().step_by(64) {
                    byte.store(round.to_le_bytes()[0], Ordering::Relaxed);
                }
                last = round;
                done.store(round, Ordering::Release);
            }
        });
        Some(Self { asked, done, rounds: 0, thread: Some(thread) })
    }

    /// Makes the thread write every line, and waits until it is done.
    pub fn write(&mut self) {
        self.rounds += 1;
        self.asked.store(self.rounds, Ordering::Release);
        wait_for(|| (self.done.load(Ordering::Acquire) == self.rounds).then_some(()));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.asked.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the writer");
        }
    }
}

/// Waits for the other thread without giving the CPU away, as a worker does. The time is the subject: what
/// sleeps finds other contents in the caches.
fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    let mut turns = 0u32;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        turns += 1;
        if turns.is_multiple_of(1024) {
            // On a busy machine the other thread may wait for this CPU.
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Returns the CPUs that this process may use.
fn cpus() -> Vec<usize> {
    // SAFETY: a set of zeros is an empty set; the call writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..1024).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

fn pin(cpu: usize) {
    // SAFETY: as above. If it fails, the measurement is less exact; it has no other effect.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
