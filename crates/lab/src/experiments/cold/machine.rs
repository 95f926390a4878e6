//! Instructions that safe Rust does not have: prefetches of each kind, a counter behind fences, and
//! the eviction of a line. Other machines than x86-64 do not have them, so nothing happens there.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use super::pool::Line;

/// Kind of prefetch.
pub(super) trait Hint: Copy + 'static {
    /// Prefetches the line at this address, which may be any.
    fn prefetch(line: *const Line);
}

/// No prefetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoHint;

impl Hint for NoHint {
    #[inline(always)]
    fn prefetch(_: *const Line) {}
}

macro_rules! hints {
    ($($name:ident: $instruction:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name;

        impl Hint for $name {
            #[inline(always)]
            #[cfg_attr(
                target_arch = "x86_64",
                expect(clippy::pointers_in_nomem_asm_block, reason = "a hint reads and writes nothing")
            )]
            fn prefetch(line: *const Line) {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a prefetch changes no register and no memory, and does not fault on any
                // address (Intel SDM volume 2, PREFETCHh and PREFETCHW).
                unsafe {
                    core::arch::asm!(
                        concat!($instruction, " byte ptr [{line}]"),
                        line = in(reg) line,
                        options(nomem, nostack, preserves_flags)
                    );
                }
                #[cfg(not(target_arch = "x86_64"))]
                let _ = line;
            }
        }
    )*};
}

hints! {
    T0: "prefetcht0", "Into all caches, for reading: `__builtin_prefetch(address, 0, 3)`.";
    T1: "prefetcht1", "Into the second cache: locality 2.";
    T2: "prefetcht2", "Into the third cache, or the second: locality 1.";
    Nta: "prefetchnta", "With little trace in the caches: locality 0.";
    Write: "prefetchw", "Into all caches, for writing: `__builtin_prefetch(address, 1)`.";
}

/// Returns the time-stamp counter once all instructions before are done, and their stores are in the
/// cache. No instruction behind has begun.
#[inline(always)]
pub(super) fn cycles_when_done() -> u64 {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    wait_for_loads();
    let now = straightline_graph::clock::cycles();
    wait_for_loads();
    now
}

#[inline(always)]
fn wait_for_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE is part of the x86-64 baseline and accesses no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}

/// Writes a line back to memory, and evicts it from all caches of the machine.
#[inline]
pub(super) fn evict(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: CLFLUSH is part of the x86-64 baseline. It changes no byte, and the reference proves
    // that the address is mapped.
    unsafe {
        core::arch::x86_64::_mm_clflush(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
