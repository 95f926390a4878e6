//! Guarantees when source and destination overlap, or when another thread writes the source at the
//! same time.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use crate::common::{Guarded, Variant, comparison_variants, random_bytes, variants};
use straightline_simd::{Sum, reference};
use straightline_testing::wait_until;

/// With overlap the bytes are unspecified. But nothing outside the destination changes. Each byte
/// is stored once, so the sum covers the bytes in the destination afterwards.
#[test]
fn overlap_stays_inside_and_sums_what_it_stored() {
    let mut memory = Guarded::new(8192);
    let fresh = random_bytes(memory.len, 0x0e7a);
    let base = 2500;
    let lengths = (0..=320).chain((321..2400).step_by(61));
    for variant in variants().chain(comparison_variants()) {
        for len in lengths.clone() {
            for distance in [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 300, 1024] {
                for dst in [base + distance, base - distance] {
                    let what = format!("{variant} len {len} from {base} to {dst}");
                    memory.bytes().copy_from_slice(&fresh);
                    let start = memory.start();
                    let mut total = Sum::new();
                    // SAFETY: both ranges lie within the mapping, and no reference to it is live.
                    unsafe { variant.copy_sum(start.add(dst), start.add(base), len, &mut total) };
                    let after = &*memory.bytes();
                    assert!(after[..dst] == fresh[..dst], "{what}: before");
                    assert!(after[dst + len..] == fresh[dst + len..], "{what}: behind");
                    assert_eq!(total.fold(), reference::sum(&[&after[dst..dst + len]]), "{what}");
                    if distance >= len || distance == 0 {
                        assert!(after[dst..dst + len] == fresh[base..base + len], "{what}: no overlap, wrong bytes");
                    }

                    memory.bytes().copy_from_slice(&fresh);
                    // SAFETY: as above.
                    unsafe { variant.copy(start.add(dst), start.add(base), len) };
                    let after = &*memory.bytes();
                    assert!(after[..dst] == fresh[..dst], "{what}: before");
                    assert!(after[dst + len..] == fresh[dst + len..], "{what}: behind");
                }
            }
        }
    }
}

/// Overlapping ranges at the edges of guard pages. A kernel that changed its direction or rounded
/// up the length would fault.
#[test]
fn overlap_at_the_guard_pages() {
    let memory = Guarded::new(4096);
    for variant in variants() {
        for len in 0..=600 {
            for distance in [1, 16, 33, 64, 130] {
                let first = memory.start();
                let last = memory.end().wrapping_sub(len);
                let mut total = Sum::new();
                // SAFETY: all ranges lie between the guard pages: `len + distance` is far below
                // 4096.
                unsafe {
                    variant.copy_sum(first, first.add(distance), len, &mut total);
                    variant.copy_sum(first.add(distance), first, len, &mut total);
                    variant.copy_sum(last, last.sub(distance), len, &mut total);
                    variant.copy_sum(last.sub(distance), last, len, &mut total);
                }
                assert_eq!(total.fold(), 0, "{variant} len {len}: the pages were zero");
            }
        }
    }
}

/// Like a hostile guest, a thread rewrites the source while it is copied. The sum is the sum of the
/// bytes that arrived.
#[test]
fn the_sum_is_that_of_the_bytes_stored() {
    const LEN: usize = 1499;
    let source: Vec<AtomicU8> = random_bytes(LEN, 0xbad).into_iter().map(AtomicU8::new).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut step = 1u8;
            while !stop.load(Ordering::Relaxed) {
                for byte in &source {
                    byte.store(step, Ordering::Relaxed);
                    step = step.wrapping_mul(5).wrapping_add(3);
                }
            }
        });
        let _stop = Stop(&stop);
        variants().for_each(|variant| copies_of_a_changing_source(variant, &source));
    });
}

/// Stops the writer, also where an assertion has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies until 500 changes of the source were seen.
fn copies_of_a_changing_source(variant: Variant, source: &[AtomicU8]) {
    let mut before = Vec::new();
    let mut changed = 0;
    let mut round = 0;
    wait_until("the writer was seen", || {
        // Between two questions, the writer gets this CPU if it has no other.
        for _ in 0..64 {
            let len = source.len() - round % 200;
            let mut dst = vec![0; len];
            let mut total = Sum::new();
            // SAFETY: the atomics may be read at any time; `dst` is owned and holds `len` bytes.
            unsafe { variant.copy_sum(dst.as_mut_ptr(), source.as_ptr().cast(), len, &mut total) };
            assert_eq!(total.fold(), reference::sum(&[&dst]), "{variant}: {len} bytes in round {round}");
            changed += usize::from(before.first_chunk::<1024>() != dst.first_chunk::<1024>());
            before = dst;
            round += 1;
        }
        if changed < 500 { Err(format!("{variant}: {changed} changes in {round} rounds")) } else { Ok(()) }
    });
}
