//! Guest memory can vanish: if a guest truncates its memory file, our next access raises SIGBUS.
//!
//! The handler maps zeros where memory has vanished, marks the region as poisoned, and lets the
//! access continue. Workers check [`epoch`] before they publish anything. The port whose region is
//! poisoned stops; no other port does.
//!
//! The zeros are pages of a memfd of this process; see `substitute`.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

mod substitute;

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use substitute::{Page, Substitute};

/// The most regions that this process can map at one time.
pub const MAX_REGIONS: usize = 4096;

/// Regions beside these that the process can map for itself.
const OWN_REGIONS: usize = 1024;

/// The side that has the file of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A frontend, or a program that it knows.
    Frontend,
    /// This process, and the kernel.
    Process,
}

/// An address beyond all regions, for entries without a substitute.
const NOT_REPLACED: usize = usize::MAX;

struct Entry {
    start: AtomicUsize,
    /// Address behind the last byte; 0 while the entry is free.
    end: AtomicUsize,
    taken: AtomicBool,
    poisoned: AtomicBool,
    /// Address from which on the substitute is mapped in place of the region; [`NOT_REPLACED`] if
    /// it is not mapped.
    replaced_from: AtomicUsize,
}

/// The regions of frontends, then those of the process.
static TABLE: [Entry; MAX_REGIONS + OWN_REGIONS] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        taken: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        replaced_from: AtomicUsize::new(NOT_REPLACED),
    }
}; MAX_REGIONS + OWN_REGIONS];

/// The epoch, on cache lines of its own: all workers read it with every burst, and neighbouring
/// data may be written as often.
#[repr(align(128))]
struct Epoch(AtomicU64);

static EPOCH: Epoch = Epoch(AtomicU64::new(0));

/// The SIGBUS handler that was installed before ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Returns a number that changes whenever any region of the process is poisoned.
#[inline]
pub fn epoch() -> u64 {
    // Acquire: a thread that sees a new epoch sees which region is poisoned.
    EPOCH.0.load(Ordering::Acquire)
}

/// A range of addresses that the handler watches, for as long as this value lives.
#[derive(Debug)]
pub(super) struct Watch(usize);

/// The reason why a range cannot be watched.
#[derive(Debug)]
pub(super) enum WatchError {
    /// The table is full.
    TooMany,
    /// The memfd of the substitute cannot be created.
    NoSubstitute(Errno),
}

impl Watch {
    /// Watches the `len` bytes of the mapping at `start`.
    pub(super) fn new(owner: Owner, start: usize, len: usize) -> Result<Watch, WatchError> {
        Substitute::prepare().map_err(WatchError::NoSubstitute)?;
        install();
        let free = |e: &Entry| e.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let (first, end) = match owner {
            Owner::Frontend => (0, MAX_REGIONS),
            Owner::Process => (MAX_REGIONS, TABLE.len()),
        };
        let at = first + TABLE[first..end].iter().position(free).ok_or(WatchError::TooMany)?;
        let entry = &TABLE[at];
        entry.poisoned.store(false, Ordering::Relaxed);
        entry.replaced_from.store(NOT_REPLACED, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        // Release: `end` makes the entry valid, so the other fields are visible before it.
        entry.end.store(start + len, Ordering::Release);
        Ok(Watch(at))
    }

    /// Returns whether a part of the range has vanished.
    #[inline]
    pub(super) fn poisoned(&self) -> bool {
        TABLE[self.0].poisoned.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let entry = &TABLE[self.0];
        let from = entry.replaced_from.load(Ordering::Acquire);
        let end = entry.end.load(Ordering::Relaxed);
        if from != NOT_REPLACED
            && let Some(substitute) = Substitute::get()
        {
            substitute.free(from, end - from);
        }
        // Release: the entry is invalid before it can be taken again.
        entry.end.store(0, Ordering::Release);
        entry.taken.store(false, Ordering::Release);
    }
}

fn install() {
    PREVIOUS.get_or_init(|| {
        // SAFETY: both structures are plain data for which zeros are valid. The handler has the
        // signature that SA_SIGINFO asks for. It does only what a signal handler may do (atomics,
        // mmap and fallocate).
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
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler; for SIGBUS it has an
    // address.
    let address = unsafe { (*info).si_addr() }.addr();
    for entry in &TABLE {
        // Acquire: once `end` is visible, so are the fields stored before it.
        let end = entry.end.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Acquire);
        // The end is the same before and after, so no other region has taken the entry in between,
        // and `start` belongs to this one.
        if address < start || address >= end || entry.end.load(Ordering::Relaxed) != end {
            continue;
        }
        // Mark before mapping: a thread that can see zeros can see that memory has vanished.
        // Release: the mark is visible before the epoch, and the epoch before the zeros.
        entry.poisoned.store(true, Ordering::Release);
        EPOCH.0.fetch_add(1, Ordering::AcqRel);
        if replace(entry, start, end, address) {
            return;
        }
        break;
    }
    forward_signal(signal, info, context);
}

/// Makes the region from `start` to `end` accessible again from `address` on. Returns false if the
/// system refuses.
fn replace(entry: &Entry, start: usize, end: usize, address: usize) -> bool {
    let Some(substitute) = Substitute::get() else { return false };
    let map = |start: usize, len, offset| {
        // SAFETY: the range is a mapping of guest memory by this process, or a page of it. It is
        // replaced in place, so every pointer into it stays valid. Its users expect its bytes to
        // change at any time. mmap is a plain system call.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::without_provenance_mut(start),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                substitute.file(),
                offset,
            )
        };
        mapped.is_ok()
    };
    let page = address & !(substitute.page() - 1);
    // A truncated file loses its end, so the rest of the region is replaced too. If pages were
    // replaced one by one, a guest could cause more mappings than a process may have. Adjoining
    // parts of the substitute become one mapping. Two threads may replace the same range at once:
    // the second replacement changes nothing. A fault inside a replaced range means that the kernel
    // had no page to give.
    if page < entry.replaced_from.load(Ordering::Acquire) {
        // The second attempt is for huge pages. A part of a huge page cannot be replaced.
        let Some(from) = [page, start].into_iter().find(|&from| map(from, end - from, Substitute::offset(from))) else {
            return false;
        };
        entry.replaced_from.fetch_min(from, Ordering::AcqRel);
    }
    match substitute.allocate(page) {
        Page::Own => true,
        Page::Spare(offset) => map(page, substitute.page(), offset),
    }
}

/// Forwards a signal that does not concern a region to the previous handler. Without one, the
/// default action ends the process.
fn forward_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = PREVIOUS.get();
    match before {
        Some(b) if b.sa_flags & libc::SA_SIGINFO != 0 && b.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: with SA_SIGINFO the kernel would have called this same address with these
            // arguments.
            unsafe {
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(b.sa_sigaction);
                call(signal, info, context);
            }
        }
        // SAFETY: this restores the default action. The access repeats and ends the process, as it
        // must.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}
