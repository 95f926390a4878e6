//! Algorithms of the kernels, written once over [`Vector`]. `kernel.rs` and `run.rs` compile them
//! for each instruction set.
//!
//! In this outline `V` is the vector type of the instruction set, and `n` its length in bytes.
//!
//! ```text
//! copy
//!   up to 8n bytes:  copy 4, 2 or 1 vectors from the front, and as many from the end;
//!                    the two parts overlap in the middle
//!                    below n: the same with vectors of half the length, down to one byte
//!   more:            copy the first vector
//!                    go on where the destination is aligned: copy 4 vectors at a time
//!                    copy the last 4 vectors
//!
//! sum
//!   few bytes:       add words, by a chain of additions with carry
//!   more:            sum the last vector, without the bytes that other vectors cover
//!                    sum 4 vectors at a time, then 2, then 1
//!
//! copy_sum
//!   LONG or more:    copy and sum fewer than n bytes, up to where the destination is aligned
//!                    copy and sum 8 vectors at a time
//!   the rest:        copy and sum 4 vectors at a time, then 2, then 1
//!   the tail:        copy and sum n/2 bytes if as many are left, then n/4, down to one byte
//!
//! sum_shared
//!   copy_sum without the stores
//! ```
//!
//! Reasons:
//! 1. The main cost is a branch that the CPU predicts wrongly, and packet lengths are hard to
//!    predict. Therefore `copy` and `sum` have few branches. Vectors from both ends overlap in the
//!    middle, instead of fitting the length exactly.
//! 2. A byte in two overlapping vectors is loaded twice and, by `copy`, stored twice. A guest may
//!    change it in between. This does not harm a copy: no one reads the destination before the copy
//!    is done. The value that arrives is unspecified in any case. `sum` reads only bytes that no
//!    one else writes.
//! 3. `copy_sum` loads each byte once and stores it once. Its sum is therefore the sum of the bytes
//!    in the destination at the end, unless another thread or process writes the destination. This
//!    holds for overlapping ranges too. (A tail that overlaps is possible as well, if the bytes
//!    stored last are the bytes summed. It was measured; see docs/benchmarks/trials.md.)
//!    `sum_shared` reads bytes that others may write, so it is `copy_sum` without the stores.
//! 4. Long copies align the destination, because a store across two cache lines costs as much as
//!    two stores.
//! 5. Sums use two accumulators, because each addition waits for the one before it.
//! 6. All loads of a group come before its stores, so that they run in parallel. But a long copy
//!    loads its end last: lines that another core has written arrive sooner if they are accessed in
//!    order.
//!
//! Known imperfection: the tail of `copy_sum` takes one branch for each size.
//!
//! # Safety of all functions here
//! The machine has the instruction set of `V`. `src` is readable and `dst` writable for `len`
//! bytes, as [`copy`](crate::copy()) requires. Offsets are computed with `wrapping_add`, which is
//! safe. No offset beyond `len` is used.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use crate::arch::sum_words;
use crate::sum::add_carry;
use crate::vector::Vector;

/// The kernels of an instruction set, by any algorithm.
///
/// # Safety of the methods
/// As for the functions of this file.
pub(crate) trait Algorithms {
    unsafe fn copy(dst: *mut u8, src: *const u8, len: usize);
    unsafe fn sum(src: *const u8, len: usize) -> u64;
    unsafe fn copy_sum(dst: *mut u8, src: *const u8, len: usize) -> u64;
    unsafe fn sum_shared(src: *const u8, len: usize) -> u64;
}

impl<V: Vector> Algorithms for V {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: passed on, here and below.
        unsafe { copy::<V>(dst, src, len) }
    }

    #[inline(always)]
    unsafe fn sum(src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { sum::<V>(src, len) }
    }

    #[inline(always)]
    unsafe fn copy_sum(dst: *mut u8, src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { copy_sum::<V>(dst, src, len) }
    }

    #[inline(always)]
    unsafe fn sum_shared(src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { sum_shared::<V>(src, len) }
    }
}

/// Maximum number of bytes in a partial sum. A longer sum is reduced to one number after each
/// block, so that no lane of [`Vector::Acc`] overflows.
const SUM_BLOCK: usize = 1 << 16;

/// Returns the length up to which summing by words is faster than by vectors, whose lanes must be
/// added up at the end.
const fn word_sum_limit<V: Vector>() -> usize {
    match V::BYTES {
        0..=8 => usize::MAX,
        16 => 255,
        _ => 127,
    }
}

/// Length from which `copy_sum` aligns its destination and uses groups of eight vectors. Below it,
/// the tail needed for alignment and the reduction of the groups cost more than they save.
const LONG: usize = 2048;

/// Copies `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector>(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the conditions ensure that each function gets a `len` that it accepts.
    unsafe {
        if len > 8 * V::BYTES {
            copy_long::<V>(dst, src, len);
        } else if len > 4 * V::BYTES {
            let back = len - 4 * V::BYTES;
            let front = V::load4(src);
            let end = V::load4(src.wrapping_add(back));
            V::store4(front, dst);
            V::store4(end, dst.wrapping_add(back));
        } else if len > 2 * V::BYTES {
            let back = len - 2 * V::BYTES;
            let front = load2::<V>(src);
            let end = load2::<V>(src.wrapping_add(back));
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
            let front = V::load(src);
            let end = V::load(src.wrapping_add(back));
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
    // SAFETY: the first vector and the last four lie within `len`. The first iteration of the loop
    // begins at most one vector and ends at most five vectors after the start. Each further
    // iteration begins before `last`, so it ends before the end.
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

/// Copies more than eight vectors without aligning the destination. For comparisons.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn copy_unaligned<V: Vector>(mut dst: *mut u8, mut src: *const u8, len: usize) {
    let step = 4 * V::BYTES;
    let back = len - step;
    let last = dst.wrapping_add(back);
    // SAFETY: the first four vectors and the last four lie within `len`. Each further iteration
    // begins before `last`, so it ends before the end.
    unsafe {
        let end = src.wrapping_add(back);
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

/// Single byte of an instruction set.
type Byte<V> = <<<<V as Vector>::Word as Vector>::Half as Vector>::Half as Vector>::Half;

/// Returns the sum of `len` bytes that no one else writes.
///
/// The result is a sum of words in the machine's byte order, as if the first byte had an even
/// offset. This holds for all functions below.
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
    // SAFETY: `len` bytes are left.
    add_carry(total, unsafe { sum_block::<V>(src, len) })
}

/// Sums as [`sum`] does, for at most [`SUM_BLOCK`] bytes.
#[inline(always)]
unsafe fn sum_block<V: Vector>(mut src: *const u8, len: usize) -> u64 {
    if len < V::BYTES {
        // SAFETY: any `len` is accepted.
        return unsafe { sum_words(src, len) };
    }
    // A last odd byte is the first byte of its word. The vector before it begins at an even offset,
    // as all vectors do.
    let even = len & !1;
    // SAFETY: `len` is at least one vector, so there is a last byte and a last vector before
    // `even`. Groups of vectors are read only as long as `left` covers them.
    unsafe {
        let odd = Byte::<V>::load_owned(src.wrapping_add(len - 1)).keep_last(len & 1).widen();
        let end = V::load_owned(src.wrapping_add(even - V::BYTES)).keep_last(even % V::BYTES);
        let mut acc = end.widen();
        let mut other = V::zero();
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

/// Copies `len` bytes and returns the sum of the bytes that it stores.
#[inline(always)]
pub(crate) unsafe fn copy_sum<V: Vector>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { sum_once::<V, true>(dst, src, len) }
}

/// Returns the sum of `len` bytes that others may write.
#[inline(always)]
pub(crate) unsafe fn sum_shared<V: Vector>(src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's promise. Nothing is stored. As its own destination, the source is what
    // gets aligned.
    unsafe { sum_once::<V, false>(src.cast_mut(), src, len) }
}

/// Returns the sum of `len` bytes, each loaded once. With `STORE`, stores each of them once.
#[inline(always)]
unsafe fn sum_once<V: Vector, const STORE: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    if len >= LONG {
        // An even number of bytes, so that words stay words. With an odd destination address all
        // stores are therefore misaligned by one byte.
        let skip = (dst.addr().wrapping_neg() % V::BYTES) & !1;
        // SAFETY: `len` covers less than one vector.
        total = unsafe { tail::<V, STORE>(dst, src, skip, 0) };
        (dst, src, len) = advance(dst, src, len, skip);
        while len >= 8 * V::BYTES {
            let n = len.min(SUM_BLOCK) / (8 * V::BYTES);
            // SAFETY: `len` covers `n` groups, which are at most one block.
            total = add_carry(total, unsafe { sum_groups::<V, STORE>(dst, src, n) });
            (dst, src, len) = advance(dst, src, len, n * 8 * V::BYTES);
        }
    }
    // SAFETY: `len` bytes are left, fewer than a block.
    add_carry(total, unsafe { sum_short::<V, STORE>(dst, src, len) })
}

/// Sums as [`sum_once`] does, for `n` groups of eight vectors, at most a block.
#[inline(always)]
unsafe fn sum_groups<V: Vector, const STORE: bool>(mut dst: *mut u8, mut src: *const u8, n: usize) -> u64 {
    let half = 4 * V::BYTES;
    // SAFETY: the caller promises `n` groups.
    unsafe {
        let mut groups = V::no_groups();
        for _ in 0..n {
            let ([a, b, c, d], [e, f, g, h]) = (V::load4(src), V::load4(src.wrapping_add(half)));
            if STORE {
                V::store4([a, b, c, d], dst);
                V::store4([e, f, g, h], dst.wrapping_add(half));
            }
            groups = V::join_group(groups, [a, b, c, d, e, f, g, h]);
            (dst, src) = (dst.wrapping_add(2 * half), src.wrapping_add(2 * half));
        }
        V::reduce_groups(groups, n)
    }
}

/// Sums as [`sum_once`] does, for fewer than [`LONG`] bytes.
#[inline(always)]
unsafe fn sum_short<V: Vector, const STORE: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    // SAFETY: each step accesses the next 4, 2 or 1 vectors, and only if `len`, the number of bytes
    // left, covers them. The rest is the caller's promise.
    unsafe {
        let vectors = len / V::BYTES;
        let mut acc = V::zero();
        let mut other = V::zero();
        while len >= 4 * V::BYTES {
            let [a, b, c, d] = V::load4(src);
            if STORE {
                V::store4([a, b, c, d], dst);
            }
            acc = V::join(acc, widen2([a, b]));
            other = V::join(other, widen2([c, d]));
            (dst, src, len) = advance(dst, src, len, 4 * V::BYTES);
        }
        if len >= 2 * V::BYTES {
            let two = load2::<V>(src);
            if STORE {
                store2(two, dst);
            }
            acc = V::join(acc, widen2(two));
            (dst, src, len) = advance(dst, src, len, 2 * V::BYTES);
        }
        if len >= V::BYTES {
            let one = V::load(src);
            if STORE {
                one.store(dst);
            }
            other = V::join(other, one.widen());
            (dst, src, len) = advance(dst, src, len, V::BYTES);
        }
        tail::<V, STORE>(dst, src, len, V::reduce(V::join(acc, other), vectors))
    }
}

/// Adds the last bytes to `total`, as [`sum_once`] does. They are fewer than a vector has. The bits of the length decide
/// which sizes are loaded: half a vector, a quarter, down to one byte. Each size but the last is
/// even, so each word begins at an even offset. Sixteen bytes are loaded as two words of 8 bytes,
/// because they are summed faster.
#[inline(always)]
unsafe fn tail<V: Vector, const STORE: bool>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    mut total: u64,
) -> u64 {
    if V::BYTES == 1 {
        return total;
    }
    // SAFETY: `len` covers each access.
    unsafe {
        if len >= V::BYTES / 2 {
            if V::BYTES == 32 {
                let two = load2::<V::Word>(src);
                if STORE {
                    store2(two, dst);
                }
                total = add_carry(total, V::Word::reduce(widen2(two), 2));
            } else {
                let v = V::Half::load(src);
                if STORE {
                    v.store(dst);
                }
                total = add_carry(total, V::Half::reduce(v.widen(), 1));
            }
            (dst, src, len) = advance(dst, src, len, V::BYTES / 2);
        }
        tail::<V::Half, STORE>(dst, src, len, total)
    }
}

#[inline(always)]
unsafe fn load2<V: Vector>(src: *const u8) -> [V; 2] {
    // SAFETY: the caller's `len` covers 2 vectors.
    unsafe { [V::load(src), V::load(src.wrapping_add(V::BYTES))] }
}

/// Loads two registers from bytes that no one else writes, and returns their partial sum.
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
