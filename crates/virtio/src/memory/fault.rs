//! Guest memory can vanish: a guest that truncates its memory file turns our next access into SIGBUS.
//!
//! The handler puts zeros from there to the region's end, marks the region as poisoned and lets the access go on.
//! Workers look at [`epoch`] before they publish anything; the port whose region is poisoned stops, nobody else.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most regions mapped at one time in this process.
pub const MAX_REGIONS: usize = 4096;

struct Entry {
    start: AtomicUsize,
    /// One past the last byte; 0 while the entry is free.
    end: AtomicUsize,
    page: AtomicUsize,
    taken: AtomicBool,
    poisoned: AtomicBool,
}

static TABLE: [Entry; MAX_REGIONS] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        taken: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
    }
}; MAX_REGIONS];

/// On lines of its own: all workers read it with every burst, and what lies beside it may be written as often.
#[repr(align(128))]
struct Epoch(AtomicU64);

static EPOCH: Epoch = Epoch(AtomicU64::new(0));

/// What handled SIGBUS before us.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Changes whenever any region of the process is poisoned.
#[inline]
pub fn epoch() -> u64 {
    EPOCH.0.load(Ordering::Acquire)
}

/// A range of addresses that the handler watches, for as long as this lives.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches `len` bytes from `start`, a mapping with pages of `page` bytes. `None` when the table is full.
    pub(super) fn new(start: usize, len: usize, page: usize) -> Option<Watch> {
        install();
        let free = |e: &Entry| e.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let at = TABLE.iter().position(free)?;
        let entry = &TABLE[at];
        entry.poisoned.store(false, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry.page.store(page, Ordering::Relaxed);
        entry.end.store(start + len, Ordering::Release);
        Some(Watch(at))
    }

    /// Whether a part of the range has vanished.
    #[inline]
    pub(super) fn poisoned(&self) -> bool {
        TABLE[self.0].poisoned.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].end.store(0, Ordering::Release);
        TABLE[self.0].taken.store(false, Ordering::Release);
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: both structures are plain data for which zeros are valid; the handler has the signature that
        // SA_SIGINFO asks for and does only what a signal handler may (atomics and mmap).
        unsafe {
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            let mut ours: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
            ours.sa_sigaction = handler as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut ours.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const ours, before.as_mut_ptr());
            before.assume_init()
        }
    });
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler; SIGBUS has an address in it.
    let address = unsafe { (*info).si_addr() }.addr();
    for entry in &TABLE {
        let end = entry.end.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Acquire);
        let page = entry.page.load(Ordering::Acquire);
        // The same end twice: start and page are not those of a region that takes over the entry meanwhile.
        if address < start || address >= end || entry.end.load(Ordering::Relaxed) != end {
            continue;
        }
        // Before anybody can see zeros, everybody can see that something has vanished.
        entry.poisoned.store(true, Ordering::Release);
        EPOCH.0.fetch_add(1, Ordering::AcqRel);
        // From here to the region's end, as a truncated file has lost it: page by page, a guest could make more mappings
        // than a process may have. What lies before is still there, or has its own fault.
        let at = address & !(page - 1);
        // SAFETY: the range is a mapping of ours that guest memory was in; it is replaced in place, so every pointer
        // into it stays valid. mmap is a plain system call.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(at),
                end - at,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            break;
        }
        return;
    }
    hand_on(signal, info, context);
}

/// Not ours: what was there before us decides, or the default action ends the process.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    match before {
        Some(b) if b.sa_flags & libc::SA_SIGINFO != 0 && b.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: with SA_SIGINFO the kernel would have called this same address with these arguments.
            unsafe {
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(b.sa_sigaction);
                call(signal, info, context);
            }
        }
        // SAFETY: the default action is restored; the access repeats and ends the process, as it must.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}
