//! Words of 1, 2, 4 and 8 bytes: the scalar level, and the tails of all levels.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use crate::sum::add_carry;
use crate::vector::{Vector, default_groups};

macro_rules! word {
    ($word:ty, $half:ty, $load:ident, $store:ident) => {
        impl Vector for $word {
            const BYTES: usize = size_of::<$word>();
            type Half = $half;
            type Word = u64;
            type Acc = u64;

            #[inline(always)]
            unsafe fn load(src: *const u8) -> Self {
                // SAFETY: the caller's promise is the one required.
                unsafe { access::$load(src) }
            }

            #[inline(always)]
            unsafe fn store(self, dst: *mut u8) {
                // SAFETY: the caller's promise is the one required.
                unsafe { access::$store(dst, self) }
            }

            #[inline(always)]
            unsafe fn zero() -> u64 {
                0
            }

            #[inline(always)]
            unsafe fn keep_last(self, n: usize) -> Self {
                let before = 8 * (size_of::<$word>() - n);
                let mask = u32::try_from(before).ok().and_then(|bits| <$word>::MAX.checked_shl(bits)).unwrap_or(0);
                self & <$word>::from_le(mask)
            }

            #[inline(always)]
            unsafe fn widen(self) -> u64 {
                widen(self.to_ne_bytes())
            }

            #[inline(always)]
            unsafe fn join(a: u64, b: u64) -> u64 {
                add_carry(a, b)
            }

            #[inline(always)]
            unsafe fn reduce(acc: u64, _: usize) -> u64 {
                acc
            }

            default_groups!();
        }
    };
}

word!(u64, u32, load8, store8);
word!(u32, u16, load4, store4);
word!(u16, u8, load2, store2);
word!(u8, u8, load1, store1);

/// Returns the sum of `len` bytes that no one else writes, by a chain of additions with carry.
/// Every level sums small numbers of bytes in this way. The scalar level sums all bytes in this
/// way.
///
/// # Safety
/// A live reference covers the bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn sum(mut src: *const u8, len: usize) -> u64 {
    use core::arch::asm;

    if len < 8 {
        // SAFETY: the caller's bytes.
        let bytes = unsafe { std::slice::from_raw_parts(src, len) };
        let (words, rest) = bytes.as_chunks::<4>();
        let (pairs, odd) = rest.as_chunks::<2>();
        let high = words.first().map_or(0, |&word| widen(word));
        let low = pairs.first().map_or(0, |&pair| widen(pair)) + odd.first().map_or(0, |&byte| widen([byte]));
        return high + low;
    }
    // The bytes behind the last whole word are shifted down to the position of a word of their own.
    // The first of them has an even offset. SAFETY: `len` covers a word.
    let last = unsafe { src.wrapping_add(len - 8).cast::<u64>().read_unaligned() };
    let mut total = last >> (8 * (7 - len % 8)) >> 8;
    let mut left = len;
    // SAFETY: each block reads no more bytes than are left, and changes only flags.
    unsafe {
        while left >= 64 {
            asm!(
                "add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, [{p} + 16]", "adc {a}, [{p} + 24]",
                "adc {a}, [{p} + 32]", "adc {a}, [{p} + 40]", "adc {a}, [{p} + 48]", "adc {a}, [{p} + 56]", "adc {a}, 0",
                a = inout(reg) total, p = in(reg) src, options(nostack, readonly));
            (src, left) = (src.wrapping_add(64), left - 64);
        }
        if left & 32 != 0 {
            asm!(
                "add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, [{p} + 16]", "adc {a}, [{p} + 24]", "adc {a}, 0",
                a = inout(reg) total, p = in(reg) src, options(nostack, readonly));
            src = src.wrapping_add(32);
        }
        if left & 16 != 0 {
            asm!("add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, 0",
                a = inout(reg) total, p = in(reg) src, options(nostack, readonly));
            src = src.wrapping_add(16);
        }
        if left & 8 != 0 {
            asm!("add {a}, [{p}]", "adc {a}, 0", a = inout(reg) total, p = in(reg) src, options(nostack, readonly));
        }
    }
    total
}

/// Returns the sum of `len` bytes, on machines without an addition with carry.
///
/// # Safety
/// A live reference covers the bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn sum(src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's bytes.
    let (words, rest) = unsafe { std::slice::from_raw_parts(src, len) }.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().fold(u64::from_ne_bytes(last), |total, &word| add_carry(total, u64::from_ne_bytes(word)))
}

/// Returns the bytes followed by zeros, as a number in the machine's byte order. A last odd byte is
/// thus the first byte of its word, as RFC 1071 section 4.1 requires, on machines of either byte
/// order.
#[inline(always)]
fn widen<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes);
    u64::from_ne_bytes(wide)
}

/// Accesses by one instruction each.
#[cfg(target_arch = "x86_64")]
mod access {
    use core::arch::asm;

    // SAFETY (of every block below): the instruction accesses the bytes at the pointer and the
    // named register, no stack and no flag. The caller promises that the bytes are mapped and may
    // be read or written. Loads are `readonly` but not `pure`: each runs exactly once each time
    // control reaches it.

    #[inline(always)]
    pub(super) unsafe fn load8(src: *const u8) -> u64 {
        let word: u64;
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov {w}, qword ptr [{p}]", p = in(reg) src, w = lateout(reg) word,
                options(nostack, preserves_flags, readonly));
        }
        word
    }

    #[inline(always)]
    pub(super) unsafe fn load4(src: *const u8) -> u32 {
        let word: u32;
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov {w:e}, dword ptr [{p}]", p = in(reg) src, w = lateout(reg) word,
                options(nostack, preserves_flags, readonly));
        }
        word
    }

    #[inline(always)]
    pub(super) unsafe fn load2(src: *const u8) -> u16 {
        let word: u16;
        // SAFETY: see the head of this module.
        unsafe {
            asm!("movzx {w:e}, word ptr [{p}]", p = in(reg) src, w = lateout(reg) word,
                options(nostack, preserves_flags, readonly));
        }
        word
    }

    #[inline(always)]
    pub(super) unsafe fn load1(src: *const u8) -> u8 {
        let word: u16;
        // SAFETY: see the head of this module.
        unsafe {
            asm!("movzx {w:e}, byte ptr [{p}]", p = in(reg) src, w = lateout(reg) word,
                options(nostack, preserves_flags, readonly));
        }
        word.to_le_bytes()[0]
    }

    #[inline(always)]
    pub(super) unsafe fn store8(dst: *mut u8, word: u64) {
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov qword ptr [{p}], {w}", p = in(reg) dst, w = in(reg) word,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store4(dst: *mut u8, word: u32) {
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov dword ptr [{p}], {w:e}", p = in(reg) dst, w = in(reg) word,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store2(dst: *mut u8, word: u16) {
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov word ptr [{p}], {w:x}", p = in(reg) dst, w = in(reg) word,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store1(dst: *mut u8, word: u8) {
        // SAFETY: see the head of this module.
        unsafe {
            asm!("mov byte ptr [{p}], {w}", p = in(reg) dst, w = in(reg_byte) word,
                options(nostack, preserves_flags));
        }
    }
}

/// Volatile accesses, for machines without an implementation of their own. On a machine that needs
/// alignment an access may be split into bytes; each byte is still accessed once.
#[cfg(not(target_arch = "x86_64"))]
use volatile as access;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod volatile {
    /// Word without alignment.
    #[derive(Clone, Copy)]
    #[repr(C, packed)]
    struct Packed<T>(T);

    macro_rules! access {
        ($word:ty, $load:ident, $store:ident) => {
            #[inline(always)]
            pub(super) unsafe fn $load(src: *const u8) -> $word {
                // SAFETY: the caller has promised that the bytes may be read; the type requires no
                // alignment.
                unsafe { src.cast::<Packed<$word>>().read_volatile().0 }
            }

            #[inline(always)]
            pub(super) unsafe fn $store(dst: *mut u8, word: $word) {
                // SAFETY: the caller has promised that the bytes may be written; the type requires
                // no alignment.
                unsafe { dst.cast::<Packed<$word>>().write_volatile(Packed(word)) }
            }
        };
    }

    access!(u64, load8, store8);
    access!(u32, load4, store4);
    access!(u16, load2, store2);
    access!(u8, load1, store1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that both access modules move the same bytes, at any alignment. On x86-64 this is the
    /// only use of `volatile`.
    macro_rules! same_bytes {
        ($name:ident, $word:ty, $load:ident, $store:ident) => {
            #[test]
            fn $name() {
                const N: usize = size_of::<$word>();
                let src: [u8; 24] = std::array::from_fn(|i| u8::try_from(i * 7 + 1).unwrap());
                for at in 0..8 {
                    let mut a = [0u8; 24];
                    let mut b = [0u8; 24];
                    // SAFETY: `at + N` is at most 16, within all three arrays.
                    unsafe {
                        access::$store(a.as_mut_ptr().add(at), access::$load(src.as_ptr().add(at)));
                        volatile::$store(b.as_mut_ptr().add(at), volatile::$load(src.as_ptr().add(at)));
                    }
                    assert_eq!(a[at..at + N], src[at..at + N]);
                    assert!(a[..at].iter().chain(&a[at + N..]).all(|&byte| byte == 0));
                    assert_eq!(a, b);
                }
            }
        };
    }

    same_bytes!(words_of_8, u64, load8, store8);
    same_bytes!(words_of_4, u32, load4, store4);
    same_bytes!(words_of_2, u16, load2, store2);
    same_bytes!(words_of_1, u8, load1, store1);
}
