//! NEON, part of the baseline of 64-bit ARM. Pairs of 16-bit words are added into lanes of 32 bits.
//!
//! Tested under emulation, not measured: the project has no such machine. On Debian the test needs
//! the packages `gcc-aarch64-linux-gnu`, `libc6-dev-arm64-cross` and `qemu-user-static`, and the
//! target from `rustup target add aarch64-unknown-linux-gnu`:
//!
//! ```text
//! CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
//! CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
//! cargo test -p straightline-simd --target aarch64-unknown-linux-gnu
//! ```

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use core::arch::aarch64::{uint8x16_t, uint32x4_t};
use core::arch::aarch64::{vaddlvq_u32, vaddq_u32, vandq_u8, vdupq_n_u32, vld1q_u8, vpaddlq_u16, vreinterpretq_u16_u8};
use core::arch::asm;

use crate::vector::{Vector, default_groups};

#[cfg(not(target_endian = "little"))]
compile_error!("the NEON kernels assume little-endian byte order");

/// Register of 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct NeonVector(uint8x16_t);

/// Zeros, then ones. A load of a register's length at an offset is a mask for the last bytes.
static MASKS: [u8; 32] = {
    let mut masks = [0; 32];
    let mut i = 16;
    while i < 32 {
        masks[i] = 0xff;
        i += 1;
    }
    masks
};

impl Vector for NeonVector {
    const BYTES: usize = 16;
    type Half = u64;
    type Word = u64;
    type Acc = uint32x4_t;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        let v: uint8x16_t;
        // SAFETY: one load of bytes that the caller has promised to be readable; no stack, no
        // flags.
        unsafe {
            asm!("ldr {v:q}, [{p}]", p = in(reg) src, v = lateout(vreg) v, options(nostack, preserves_flags, readonly));
        }
        Self(v)
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: one store of bytes that the caller has promised to be writable; no stack, no
        // flags.
        unsafe {
            asm!("str {v:q}, [{p}]", p = in(reg) dst, v = in(vreg) self.0, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn load4(src: *const u8) -> [Self; 4] {
        let (a, b, c, d): (uint8x16_t, uint8x16_t, uint8x16_t, uint8x16_t);
        // SAFETY: loads of four registers that the caller has promised to be readable; no stack, no
        // flags.
        unsafe {
            asm!("ldp {a:q}, {b:q}, [{p}]", "ldp {c:q}, {d:q}, [{p}, #32]", p = in(reg) src,
                a = out(vreg) a, b = out(vreg) b, c = lateout(vreg) c, d = lateout(vreg) d,
                options(nostack, preserves_flags, readonly));
        }
        [Self(a), Self(b), Self(c), Self(d)]
    }

    #[inline(always)]
    unsafe fn store4([a, b, c, d]: [Self; 4], dst: *mut u8) {
        // SAFETY: stores of four registers that the caller has promised to be writable; no stack,
        // no flags.
        unsafe {
            asm!("stp {a:q}, {b:q}, [{p}]", "stp {c:q}, {d:q}, [{p}, #32]", p = in(reg) dst,
                a = in(vreg) a.0, b = in(vreg) b.0, c = in(vreg) c.0, d = in(vreg) d.0,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn load_owned(src: *const u8) -> Self {
        // SAFETY: the caller's promise; NEON is on every machine of the target.
        Self(unsafe { vld1q_u8(src) })
    }

    #[inline(always)]
    unsafe fn keep_last(self, n: usize) -> Self {
        // SAFETY: `n` is at most the register's length, so the mask ends at 32 or sooner.
        Self(unsafe { vandq_u8(self.0, vld1q_u8(MASKS.as_ptr().wrapping_add(n))) })
    }

    #[inline(always)]
    unsafe fn zero() -> uint32x4_t {
        // SAFETY: NEON is on every machine of the target, as for all below.
        unsafe { vdupq_n_u32(0) }
    }

    #[inline(always)]
    unsafe fn widen(self) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vpaddlq_u16(vreinterpretq_u16_u8(self.0)) }
    }

    #[inline(always)]
    unsafe fn join(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vaddq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn reduce(acc: uint32x4_t, _: usize) -> u64 {
        // After 64 KiB each lane is below 2^30. SAFETY: as above.
        unsafe { vaddlvq_u32(acc) }
    }

    default_groups!();
}
