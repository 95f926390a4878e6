//! The algorithms, written once over [`Vector`] and compiled for each instruction set by `kernel.rs`.
//!
//! ```text
//! while at least 4 vectors are left:  load 4, store 4
//! if 2 more fit:                      load 2, store 2
//! if 1 more fits:                     load 1, store 1
//! then the same with half the vector, and its half, down to one byte
//! ```
//!
//! Why so:
//! 1. Each byte is loaded once and stored once. The usual trick for tails, a last vector that overlaps the one
//!    before, would load bytes a second time; a guest may have changed them by then, and the sum would cover
//!    other bytes than those that were stored.
//! 2. All loads of a group stand before its stores, so that they run in parallel, however the ranges overlap.
//! 3. What is left is below the vector's length once the vectors are done, so the bits of the length say which of
//!    the halves are due: at most one of each.
//!
//! Since each byte of the destination is stored once, the sum also covers what stands in the destination at the
//! end, unless somebody else writes it. That holds for overlapping ranges too.
//!
//! Known imperfection: a tail of `BYTES - 1` takes one branch for each size. Masked accesses or a jump table may
//! do better.
//!
//! # Safety of all functions here
//! The machine has the instruction set of `V`; `src` is readable and `dst` writable for `len` bytes, as
//! [`copy`](crate::copy) says. Offsets are computed with `wrapping_add`, which is safe; no offset beyond `len` is used.

use crate::sum::add_carry;
use crate::vector::Vector;

/// Sums are reduced to one number after as many bytes, so that no lane of [`Vector::Acc`] can overflow.
const SUM_BLOCK: usize = 1 << 16;

/// Copies `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector>(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    // SAFETY: each call touches the next 4, 2 or 1 vectors, and is made only if `len`, which counts the bytes left,
    // covers them; the rest is the caller's promise.
    unsafe {
        while len >= 4 * V::BYTES {
            let (a, b, c, d) = load4::<V>(src);
            store4(dst, a, b, c, d);
            (dst, src, len) = advance(dst, src, len, 4 * V::BYTES);
        }
        if len >= 2 * V::BYTES {
            let (a, b) = load2::<V>(src);
            store2(dst, a, b);
            (dst, src, len) = advance(dst, src, len, 2 * V::BYTES);
        }
        copy_tail::<V>(dst, src, len);
    }
}

/// Copies fewer than two vectors: one, if it fits, and then the halves.
#[inline(always)]
unsafe fn copy_tail<V: Vector>(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    if len >= V::BYTES {
        // SAFETY: `len` covers this vector.
        unsafe { V::load(src).store(dst) };
        (dst, src, len) = advance(dst, src, len, V::BYTES);
    }
    if V::BYTES > 1 {
        // SAFETY: `len` is what is left, and below two halves.
        unsafe { copy_tail::<V::Half>(dst, src, len) };
    }
}

/// The sum of `len` bytes, which are also copied if `COPY`; otherwise `dst` is not used.
///
/// The result is a sum of words in the machine's byte order, the first byte at an even place.
#[inline(always)]
pub(crate) unsafe fn sum<V: Vector, const COPY: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    while len > SUM_BLOCK {
        // SAFETY: `len` covers the block.
        total = add_carry(total, unsafe { sum_block::<V, COPY>(dst, src, SUM_BLOCK) });
        (dst, src, len) = advance(dst, src, len, SUM_BLOCK);
    }
    // SAFETY: `len` is what is left.
    add_carry(total, unsafe { sum_block::<V, COPY>(dst, src, len) })
}

/// As [`sum`], for at most [`SUM_BLOCK`] bytes.
#[inline(always)]
unsafe fn sum_block<V: Vector, const COPY: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    // SAFETY: as in `copy`.
    unsafe {
        let mut acc = V::zero();
        while len >= 4 * V::BYTES {
            let (a, b, c, d) = load4::<V>(src);
            if COPY {
                store4(dst, a, b, c, d);
            }
            acc = d.accumulate(c.accumulate(b.accumulate(a.accumulate(acc))));
            (dst, src, len) = advance(dst, src, len, 4 * V::BYTES);
        }
        if len >= 2 * V::BYTES {
            let (a, b) = load2::<V>(src);
            if COPY {
                store2(dst, a, b);
            }
            acc = b.accumulate(a.accumulate(acc));
            (dst, src, len) = advance(dst, src, len, 2 * V::BYTES);
        }
        sum_tail::<V, COPY>(dst, src, len, V::reduce(acc))
    }
}

/// Adds fewer than two vectors to `total`. Each size but the last is even, so each word begins at an even place.
#[inline(always)]
unsafe fn sum_tail<V: Vector, const COPY: bool>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    mut total: u64,
) -> u64 {
    if len >= V::BYTES {
        // SAFETY: `len` covers this vector.
        unsafe {
            let v = V::load(src);
            if COPY {
                v.store(dst);
            }
            total = add_carry(total, V::reduce(v.accumulate(V::zero())));
        }
        (dst, src, len) = advance(dst, src, len, V::BYTES);
    }
    if V::BYTES > 1 {
        // SAFETY: `len` is what is left, and below two halves.
        total = unsafe { sum_tail::<V::Half, COPY>(dst, src, len, total) };
    }
    total
}

#[inline(always)]
unsafe fn load4<V: Vector>(src: *const u8) -> (V, V, V, V) {
    // SAFETY: the caller's `len` covers 4 vectors.
    unsafe {
        let ((a, b), (c, d)) = (load2(src), load2(src.wrapping_add(2 * V::BYTES)));
        (a, b, c, d)
    }
}

#[inline(always)]
unsafe fn load2<V: Vector>(src: *const u8) -> (V, V) {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe { (V::load(src), V::load(src.wrapping_add(V::BYTES))) }
}

#[inline(always)]
unsafe fn store4<V: Vector>(dst: *mut u8, a: V, b: V, c: V, d: V) {
    // SAFETY: the caller's `len` covers 4 vectors.
    unsafe {
        store2(dst, a, b);
        store2(dst.wrapping_add(2 * V::BYTES), c, d);
    }
}

#[inline(always)]
unsafe fn store2<V: Vector>(dst: *mut u8, a: V, b: V) {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe {
        a.store(dst);
        b.store(dst.wrapping_add(V::BYTES));
    }
}

#[inline(always)]
fn advance(dst: *mut u8, src: *const u8, len: usize, by: usize) -> (*mut u8, *const u8, usize) {
    (dst.wrapping_add(by), src.wrapping_add(by), len - by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use std::cell::RefCell;

    thread_local! {
        /// (address, length) of each load and of each store.
        static LOADS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
        static STORES: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }

    /// A vector that writes down its accesses.
    #[derive(Clone, Copy)]
    struct Logged<V>(V);

    impl<V: Vector> Vector for Logged<V> {
        const BYTES: usize = V::BYTES;
        type Half = Logged<V::Half>;
        type Acc = V::Acc;

        unsafe fn load(src: *const u8) -> Self {
            LOADS.with_borrow_mut(|log| log.push((src.addr(), V::BYTES)));
            // SAFETY: passed on.
            Self(unsafe { V::load(src) })
        }

        unsafe fn store(self, dst: *mut u8) {
            STORES.with_borrow_mut(|log| log.push((dst.addr(), V::BYTES)));
            // SAFETY: passed on.
            unsafe { self.0.store(dst) }
        }

        unsafe fn zero() -> V::Acc {
            // SAFETY: passed on.
            unsafe { V::zero() }
        }

        unsafe fn accumulate(self, acc: V::Acc) -> V::Acc {
            // SAFETY: passed on.
            unsafe { self.0.accumulate(acc) }
        }

        unsafe fn reduce(acc: V::Acc) -> u64 {
            // SAFETY: passed on.
            unsafe { V::reduce(acc) }
        }
    }

    /// That the accesses lie end to end from `start` and are `len` bytes in all.
    fn assert_once(mut log: Vec<(usize, usize)>, start: usize, len: usize, what: &str) {
        log.sort_unstable();
        let end = log.into_iter().fold(start, |at, (address, bytes)| {
            assert_eq!(address, at, "{what}: a byte touched twice or never");
            at + bytes
        });
        assert_eq!(end, start + len, "{what}");
    }

    fn check<V: Vector>(name: &str) {
        let src = vec![1u8; 66_000];
        let mut dst = vec![0u8; 66_000];
        let (from, to) = (src.as_ptr(), dst.as_mut_ptr());
        for len in (0..=600).chain([SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, SUM_BLOCK + 77]) {
            for pass in ["copy", "copy_sum", "sum"] {
                // SAFETY: both buffers are longer; the caller has looked for the instruction set.
                unsafe {
                    match pass {
                        "copy" => copy::<Logged<V>>(to, from, len),
                        "copy_sum" => _ = sum::<Logged<V>, true>(to, from, len),
                        _ => _ = sum::<Logged<V>, false>(to, from, len),
                    }
                }
                let what = format!("{name} {pass} len {len}");
                assert_once(LOADS.take(), from.addr(), len, &what);
                assert_once(STORES.take(), to.addr(), if pass == "sum" { 0 } else { len }, &what);
            }
        }
    }

    #[test]
    fn each_byte_is_loaded_once_and_stored_once() {
        for level in Level::supported() {
            match level {
                Level::Scalar => check::<u64>(level.name()),
                #[cfg(target_arch = "x86_64")]
                Level::Sse2 => check::<crate::arch::Sse2Vector>(level.name()),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2(_) => check::<crate::arch::Avx2Vector>(level.name()),
            }
        }
    }
}
