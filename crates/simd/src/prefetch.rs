//! Prefetch hints. A hint never faults at any address, so these functions are safe.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

/// Prefetches the cache line at `ptr` for reading.
#[inline(always)]
#[cfg_attr(
    target_arch = "x86_64",
    expect(clippy::pointers_in_nomem_asm_block, reason = "a hint reads and writes nothing")
)]
pub fn prefetch_read(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes no register and no memory, and does not fault on any address
    // (Intel SDM volume 2, PREFETCHh).
    unsafe {
        core::arch::asm!("prefetcht0 byte ptr [{p}]", p = in(reg) ptr, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Prefetches the cache line at `ptr` for writing. The later store need not wait until the line
/// leaves another core's cache.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(clippy::pointers_in_nomem_asm_block, reason = "as above"))]
pub fn prefetch_write(ptr: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above. Machines without PREFETCHW execute it as a no-operation in 64-bit mode
    // (AMD64 manual volume 3, PREFETCHW; Intel SDM volume 2, PREFETCHW).
    unsafe {
        core::arch::asm!("prefetchw byte ptr [{p}]", p = in(reg) ptr, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn any_address_will_do() {
        let mut byte = 7;
        for address in [&raw mut byte, ptr::null_mut(), ptr::dangling_mut(), ptr::without_provenance_mut(usize::MAX)] {
            prefetch_read(address);
            prefetch_write(address);
        }
        assert_eq!(byte, 7);
    }
}
