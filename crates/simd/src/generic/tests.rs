#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use super::*;
use crate::level::Level;
use crate::vector::default_groups;
use std::cell::RefCell;
use std::ops::Range;

thread_local! {
    /// Byte ranges of all loads and of all stores, in order.
    static LOADS: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
    static STORES: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

fn bytes(at: usize, len: usize) -> Range<usize> {
    at..at + len
}

/// Vector that records its accesses.
#[derive(Clone, Copy)]
struct Logged<V>(V);

impl<V: Vector> Vector for Logged<V> {
    const BYTES: usize = V::BYTES;
    type Half = Logged<V::Half>;
    type Word = Logged<V::Word>;
    type Acc = V::Acc;

    unsafe fn load(src: *const u8) -> Self {
        LOADS.with_borrow_mut(|log| log.push(bytes(src.addr(), V::BYTES)));
        // SAFETY: passed on.
        Self(unsafe { V::load(src) })
    }

    unsafe fn store(self, dst: *mut u8) {
        STORES.with_borrow_mut(|log| log.push(bytes(dst.addr(), V::BYTES)));
        // SAFETY: passed on.
        unsafe { self.0.store(dst) }
    }

    unsafe fn load4(src: *const u8) -> [Self; 4] {
        LOADS.with_borrow_mut(|log| log.push(bytes(src.addr(), 4 * V::BYTES)));
        // SAFETY: passed on.
        unsafe { V::load4(src).map(Self) }
    }

    unsafe fn store4(four: [Self; 4], dst: *mut u8) {
        STORES.with_borrow_mut(|log| log.push(bytes(dst.addr(), 4 * V::BYTES)));
        // SAFETY: passed on.
        unsafe { V::store4(four.map(|v| v.0), dst) }
    }

    unsafe fn load_owned(src: *const u8) -> Self {
        LOADS.with_borrow_mut(|log| log.push(bytes(src.addr(), V::BYTES)));
        // SAFETY: passed on.
        Self(unsafe { V::load_owned(src) })
    }

    unsafe fn keep_last(self, n: usize) -> Self {
        assert!(n <= V::BYTES);
        // SAFETY: passed on.
        Self(unsafe { self.0.keep_last(n) })
    }

    unsafe fn zero() -> V::Acc {
        // SAFETY: passed on.
        unsafe { V::zero() }
    }

    unsafe fn widen(self) -> V::Acc {
        // SAFETY: passed on.
        unsafe { self.0.widen() }
    }

    unsafe fn join(a: V::Acc, b: V::Acc) -> V::Acc {
        // SAFETY: passed on.
        unsafe { V::join(a, b) }
    }

    unsafe fn reduce(acc: V::Acc, vectors: usize) -> u64 {
        // SAFETY: passed on.
        unsafe { V::reduce(acc, vectors) }
    }

    type Groups = V::Groups;

    unsafe fn no_groups() -> V::Groups {
        // SAFETY: passed on.
        unsafe { V::no_groups() }
    }

    unsafe fn join_group(groups: V::Groups, group: [Self; 8]) -> V::Groups {
        // SAFETY: passed on.
        unsafe { V::join_group(groups, group.map(|v| v.0)) }
    }

    unsafe fn reduce_groups(groups: V::Groups, n: usize) -> u64 {
        // SAFETY: passed on.
        unsafe { V::reduce_groups(groups, n) }
    }
}

/// Two adjacent vectors. They test the algorithms at a length for which this machine has no
/// register.
#[derive(Clone, Copy)]
struct Twice<V>(V, V);

impl<V: Vector> Vector for Twice<V> {
    const BYTES: usize = 2 * V::BYTES;
    type Half = V;
    type Word = V::Word;
    type Acc = V::Acc;

    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: passed on.
        unsafe { Self(V::load(src), V::load(src.wrapping_add(V::BYTES))) }
    }

    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: passed on.
        unsafe {
            self.0.store(dst);
            self.1.store(dst.wrapping_add(V::BYTES));
        }
    }

    unsafe fn keep_last(self, n: usize) -> Self {
        // SAFETY: passed on.
        unsafe { Self(self.0.keep_last(n.saturating_sub(V::BYTES)), self.1.keep_last(n.min(V::BYTES))) }
    }

    unsafe fn zero() -> V::Acc {
        // SAFETY: passed on.
        unsafe { V::zero() }
    }

    unsafe fn widen(self) -> V::Acc {
        // SAFETY: passed on.
        unsafe { widen2([self.0, self.1]) }
    }

    unsafe fn join(a: V::Acc, b: V::Acc) -> V::Acc {
        // SAFETY: passed on.
        unsafe { V::join(a, b) }
    }

    unsafe fn reduce(acc: V::Acc, vectors: usize) -> u64 {
        // SAFETY: passed on.
        unsafe { V::reduce(acc, 2 * vectors) }
    }

    default_groups!();
}

/// Asserts that the accesses cover `len` bytes from `start` and no others, and each byte at most
/// `most` times.
fn assert_covered(log: &[Range<usize>], start: usize, len: usize, most: u8, what: &str) {
    let mut times = vec![0u8; len];
    for access in log {
        assert!(access.start >= start && access.end <= start + len, "{what}: {access:?} is outside");
        times[access.start - start..access.end - start].iter_mut().for_each(|times| *times += 1);
    }
    assert!(times.iter().all(|&times| (1..=most).contains(&times)), "{what}: {times:?}");
}

/// Checks which bytes `V` accesses, and that the copies and the sums are right.
fn check<V: Vector>(name: &str) {
    let src: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(i) >> 5).to_le_bytes()[0]).collect();
    let mut dst = vec![0u8; 70_000];
    let lens = (0..=1200).chain([LONG - 1, LONG, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, SUM_BLOCK + 77]);
    for len in lens {
        let at = len * 7 % 67;
        let from = src[at..].as_ptr();
        let to = dst[at * 3 % 64..].as_mut_ptr();
        for pass in ["copy", "copy_sum", "sum"] {
            let what = format!("{name} {pass} len {len} at {at}");
            // SAFETY: both buffers are longer; the caller has detected the instruction set.
            let sum = unsafe {
                match pass {
                    "copy" => {
                        copy::<Logged<V>>(to, from, len);
                        None
                    }
                    "copy_sum" => Some(copy_sum::<Logged<V>>(to, from, len)),
                    _ => Some(sum::<Logged<V>>(from, len)),
                }
            };
            if let Some(partial) = sum {
                let mut total = crate::Sum::new();
                total.append(partial, len);
                assert_eq!(total.fold(), crate::reference::sum(&[&src[at..at + len]]), "{what}");
            }
            // `copy_sum` accesses each byte once, because others may write it. In the other kernels
            // the ends overlap, and `sum` also reads the last byte separately, whether the length
            // is odd or not.
            let most = match pass {
                "copy_sum" => 1,
                "copy" => 2,
                _ => 3,
            };
            let loads = LOADS.take();
            // Sums by words are not recorded.
            let by_words = len <= word_sum_limit::<V>() || (len > SUM_BLOCK && len - SUM_BLOCK < V::BYTES);
            if pass != "sum" || !by_words {
                assert_covered(&loads, from.addr(), len, most, &what);
            }
            let stores = STORES.take();
            if pass == "sum" {
                assert_eq!(stores, [], "{what}");
            } else {
                assert_covered(&stores, to.addr(), len, most, &what);
                let stored = to.addr() - dst.as_ptr().addr();
                assert!(dst[stored..stored + len] == src[at..at + len], "{what}");
                dst[stored..stored + len].fill(0);
            }
        }
    }
}

#[test]
fn what_is_touched() {
    for level in Level::supported() {
        match level {
            Level::Scalar => check::<u64>(level.name()),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => check::<crate::arch::Sse2Vector>(level.name()),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => {
                check::<crate::arch::Avx2Vector>(level.name());
                // Twice AVX2 has the length of AVX-512.
                check::<Twice<crate::arch::Avx2Vector>>("pairs of avx2");
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => {} // `wide.rs` has its sums, and AVX2 its copies.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Copies(_) => check::<crate::arch::Avx512Vector>(level.name()),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => {
                check::<crate::arch::NeonVector>(level.name());
                check::<Twice<crate::arch::NeonVector>>("pairs of neon");
            }
            other => panic!("{other} is no instruction set"),
        }
    }
}
