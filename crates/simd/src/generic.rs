//! The algorithms, written once over [`Vector`] and compiled for each instruction set by `kernel.rs`.
//!
//! ```text
//! copy      up to 8 vectors:   1, 2 or 4 from each end
//!           more:              the first; then 4 at a time from where the destination is aligned; the last 4
//! sum       few bytes:         words, by a chain of additions with carry
//!           more:              the last vector, without the bytes that the others have; 4 at a time, then 2, then 1
//! copy_sum  long:              from where the destination is aligned, 8 at a time
//!           what is left:      4 at a time, then 2, then 1; then half a vector, if it is due, and so on to one byte
//! ```
//!
//! Why so:
//! 1. What costs is a branch that nobody can foresee, and lengths of packets are not to be foreseen. So `copy` and
//!    `sum` have few of them: vectors from both ends overlap in the middle instead of being fitted to the length.
//! 2. A byte in two vectors is loaded twice and, by `copy`, stored twice, and a guest may change it between the two.
//!    That is no harm to a copy, whose destination is looked at when it is done and not before: which of the values
//!    arrives is as unspecified as it was. `sum` has only bytes that are ours.
//! 3. `copy_sum` loads each byte once and stores it once, so that its sum is that of the bytes that stand in the
//!    destination at the end, unless somebody else writes it; for overlapping ranges too. (A tail that overlaps
//!    can be had as well, if what is stored last is what is summed. It was measured, see BENCHMARKING.md.)
//! 4. The destination is aligned in long copies, since a store that crosses a line costs two.
//! 5. Sums have two accumulators: each addition waits for the one before it.
//! 6. All loads of a group stand before its stores, so that they run in parallel. But long copies load their end last:
//!    lines that another core has written come sooner if they are met in order.
//!
//! Known imperfection: a tail of `copy_sum` takes one branch for each size.
//!
//! # Safety of all functions here
//! The machine has the instruction set of `V`; `src` is readable and `dst` writable for `len` bytes, as
//! [`copy`](crate::copy) says. Offsets are computed with `wrapping_add`, which is safe; no offset beyond `len` is used.

use crate::arch::sum_words;
use crate::sum::add_carry;
use crate::vector::Vector;

/// Sums are reduced to one number after as many bytes, so that no lane of [`Vector::Acc`] can overflow.
const SUM_BLOCK: usize = 1 << 16;

/// Up to as many bytes are summed sooner by words than by vectors, whose lanes must be added up.
const fn word_sum_limit<V: Vector>() -> usize {
    match V::BYTES {
        0..=8 => usize::MAX,
        16 => 255,
        _ => 127,
    }
}

/// From this length on `copy_sum` aligns its destination and takes groups of eight vectors; below, the tail that this needs
/// and the end of the groups cost more than they save.
const LONG: usize = 2048;

/// Copies `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector>(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: each call is made for a `len` that it is for.
    unsafe {
        if len > 8 * V::BYTES {
            copy_long::<V>(dst, src, len);
        } else if len > 4 * V::BYTES {
            let back = len - 4 * V::BYTES;
            let (front, end) = (V::load4(src), V::load4(src.wrapping_add(back)));
            V::store4(front, dst);
            V::store4(end, dst.wrapping_add(back));
        } else if len > 2 * V::BYTES {
            let back = len - 2 * V::BYTES;
            let (front, end) = (load2::<V>(src), load2::<V>(src.wrapping_add(back)));
            store2(front, dst);
            store2(end, dst.wrapping_add(back));
        } else {
            copy_short::<V>(dst, src, len);
        }
    }
}

/// Copies at most two vectors.
#[inline(always)]
unsafe fn copy_short<V: Vector>(dst: *mut u8, src: *const u8, len: usize) {
    if len >= V::BYTES {
        let back = len - V::BYTES;
        // SAFETY: `len` covers one vector from either end.
        unsafe {
            let (front, end) = (V::load(src), V::load(src.wrapping_add(back)));
            front.store(dst);
            end.store(dst.wrapping_add(back));
        }
    } else if V::BYTES > 1 {
        // SAFETY: `len` is below two halves.
        unsafe { copy_short::<V::Half>(dst, src, len) };
    }
}

/// Copies more than five vectors.
#[inline(always)]
unsafe fn copy_long<V: Vector>(mut dst: *mut u8, mut src: *const u8, len: usize) {
    let step = 4 * V::BYTES;
    let back = len - step;
    let last = dst.wrapping_add(back);
    // SAFETY: the first vector and the last four lie within `len`. The loop's first round begins at most one vector in
    // and ends at most five in; another begins only before `last`, and ends before the end.
    unsafe {
        let end = src.wrapping_add(back);
        V::load(src).store(dst);
        let skip = V::BYTES - dst.addr() % V::BYTES;
        (dst, src) = (dst.wrapping_add(skip), src.wrapping_add(skip));
        loop {
            V::store4(V::load4(src), dst);
            (dst, src) = (dst.wrapping_add(step), src.wrapping_add(step));
            if dst >= last {
                break;
            }
        }
        V::store4(V::load4(end), last);
    }
}

/// The single byte of a set.
type Byte<V> = <<<<V as Vector>::Word as Vector>::Half as Vector>::Half as Vector>::Half;

/// The sum of `len` bytes that nobody else writes.
///
/// The result is a sum of words in the machine's byte order, the first byte at an even place; so for all below.
#[inline(always)]
pub(crate) unsafe fn sum<V: Vector>(mut src: *const u8, mut len: usize) -> u64 {
    if len <= word_sum_limit::<V>() {
        // SAFETY: the caller's promise.
        return unsafe { sum_words(src, len) };
    }
    let mut total = 0;
    while len > SUM_BLOCK {
        // SAFETY: `len` covers the block.
        total = add_carry(total, unsafe { sum_block::<V>(src, SUM_BLOCK) });
        (src, len) = (src.wrapping_add(SUM_BLOCK), len - SUM_BLOCK);
    }
    // SAFETY: `len` is what is left.
    add_carry(total, unsafe { sum_block::<V>(src, len) })
}

/// As [`sum`], for at most [`SUM_BLOCK`] bytes.
#[inline(always)]
unsafe fn sum_block<V: Vector>(mut src: *const u8, len: usize) -> u64 {
    if len < V::BYTES {
        // SAFETY: any `len` will do.
        return unsafe { sum_words(src, len) };
    }
    // A last odd byte is the first of its word. The vector before it begins at an even place, as all do.
    let even = len & !1;
    // SAFETY: `len` is a vector at least, so that there is a last byte and, up to `even`, a last vector; the
    // groups of vectors are taken as long as `left` covers them.
    unsafe {
        let odd = Byte::<V>::load_owned(src.wrapping_add(len - 1)).keep_last(len & 1).widen();
        let end = V::load_owned(src.wrapping_add(even - V::BYTES)).keep_last(even % V::BYTES);
        let (mut acc, mut other) = (end.widen(), V::zero());
        let mut left = even;
        while left >= 4 * V::BYTES {
            acc = V::join(acc, widen2_owned::<V>(src));
            other = V::join(other, widen2_owned::<V>(src.wrapping_add(2 * V::BYTES)));
            (src, left) = (src.wrapping_add(4 * V::BYTES), left - 4 * V::BYTES);
        }
        if left >= 2 * V::BYTES {
            acc = V::join(acc, widen2_owned::<V>(src));
            (src, left) = (src.wrapping_add(2 * V::BYTES), left - 2 * V::BYTES);
        }
        if left >= V::BYTES {
            other = V::join(other, V::load_owned(src).widen());
        }
        acc = V::join(acc, other);
        add_carry(V::reduce(acc, 1 + even / V::BYTES), Byte::<V>::reduce(odd, 1))
    }
}

/// Copies `len` bytes and sums what it stores.
#[inline(always)]
pub(crate) unsafe fn copy_sum<V: Vector>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    if len >= LONG {
        // An even number, so that words stay words: from an odd address all stores are one byte off.
        let skip = (dst.addr().wrapping_neg() % V::BYTES) & !1;
        // SAFETY: `len` covers less than one vector.
        total = unsafe { tail::<V>(dst, src, skip, 0) };
        (dst, src, len) = advance(dst, src, len, skip);
        while len >= 8 * V::BYTES {
            let n = len.min(SUM_BLOCK) / (8 * V::BYTES);
            // SAFETY: `len` covers as many groups, which are a block at most.
            total = add_carry(total, unsafe { copy_sum_groups::<V>(dst, src, n) });
            (dst, src, len) = advance(dst, src, len, n * 8 * V::BYTES);
        }
    }
    // SAFETY: `len` is what is left, and less than a block.
    add_carry(total, unsafe { copy_sum_short::<V>(dst, src, len) })
}

/// Copies `n` groups of eight vectors, at most a block, and sums what it stores.
#[inline(always)]
unsafe fn copy_sum_groups<V: Vector>(mut dst: *mut u8, mut src: *const u8, n: usize) -> u64 {
    let half = 4 * V::BYTES;
    // SAFETY: the caller has as many groups.
    unsafe {
        let mut groups = V::no_groups();
        for _ in 0..n {
            let ([a, b, c, d], [e, f, g, h]) = (V::load4(src), V::load4(src.wrapping_add(half)));
            V::store4([a, b, c, d], dst);
            V::store4([e, f, g, h], dst.wrapping_add(half));
            groups = V::join_group(groups, [a, b, c, d, e, f, g, h]);
            (dst, src) = (dst.wrapping_add(2 * half), src.wrapping_add(2 * half));
        }
        V::reduce_groups(groups, n)
    }
}

/// As [`copy_sum`], for less than [`LONG`].
#[inline(always)]
unsafe fn copy_sum_short<V: Vector>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    // SAFETY: each group touches the next 4, 2 or 1 vectors, and is taken only if `len`, which counts the bytes left,
    // covers them; the rest is the caller's promise.
    unsafe {
        let vectors = len / V::BYTES;
        let (mut acc, mut other) = (V::zero(), V::zero());
        while len >= 4 * V::BYTES {
            let [a, b, c, d] = V::load4(src);
            V::store4([a, b, c, d], dst);
            acc = V::join(acc, widen2([a, b]));
            other = V::join(other, widen2([c, d]));
            (dst, src, len) = advance(dst, src, len, 4 * V::BYTES);
        }
        if len >= 2 * V::BYTES {
            let two = load2::<V>(src);
            store2(two, dst);
            acc = V::join(acc, widen2(two));
            (dst, src, len) = advance(dst, src, len, 2 * V::BYTES);
        }
        if len >= V::BYTES {
            let one = V::load(src);
            one.store(dst);
            other = V::join(other, one.widen());
            (dst, src, len) = advance(dst, src, len, V::BYTES);
        }
        tail::<V>(dst, src, len, V::reduce(V::join(acc, other), vectors))
    }
}

/// Copies fewer bytes than a vector has and adds them to `total`. Each size but the last is even, so each word begins at an
/// even place. The bits of the length say which of the halves are due. Sixteen bytes are two words: they are summed sooner
/// so.
#[inline(always)]
unsafe fn tail<V: Vector>(mut dst: *mut u8, mut src: *const u8, mut len: usize, mut total: u64) -> u64 {
    if V::BYTES == 1 {
        return total;
    }
    // SAFETY: `len` covers what is taken of it.
    unsafe {
        if len >= V::BYTES / 2 {
            if V::BYTES == 32 {
                let two = load2::<V::Word>(src);
                store2(two, dst);
                total = add_carry(total, V::Word::reduce(widen2(two), 2));
            } else {
                let v = V::Half::load(src);
                v.store(dst);
                total = add_carry(total, V::Half::reduce(v.widen(), 1));
            }
            (dst, src, len) = advance(dst, src, len, V::BYTES / 2);
        }
        tail::<V::Half>(dst, src, len, total)
    }
}

#[inline(always)]
unsafe fn load2<V: Vector>(src: *const u8) -> [V; 2] {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe { [V::load(src), V::load(src.wrapping_add(V::BYTES))] }
}

/// The sum of two registers.
#[inline(always)]
unsafe fn widen2_owned<V: Vector>(src: *const u8) -> V::Acc {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe { V::join(V::load_owned(src).widen(), V::load_owned(src.wrapping_add(V::BYTES)).widen()) }
}

#[inline(always)]
unsafe fn store2<V: Vector>([a, b]: [V; 2], dst: *mut u8) {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe {
        a.store(dst);
        b.store(dst.wrapping_add(V::BYTES));
    }
}

#[inline(always)]
unsafe fn widen2<V: Vector>([a, b]: [V; 2]) -> V::Acc {
    // SAFETY: the caller has the instruction set.
    unsafe { V::join(a.widen(), b.widen()) }
}

#[inline(always)]
fn advance(dst: *mut u8, src: *const u8, len: usize, by: usize) -> (*mut u8, *const u8, usize) {
    (dst.wrapping_add(by), src.wrapping_add(by), len - by)
}

#[cfg(test)]
mod tests;
