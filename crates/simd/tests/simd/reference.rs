//! Compares every kernel with its reference implementation: each supported level, called and
//! inlined, over lengths, misalignments, guard pages and consecutive chunks.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use crate::common::{Guarded, MAX, comparison_variants, lengths, offsets, random_bytes, variants};
use straightline_simd::{Level, Sum, copy, reference};

/// Margin around the destination, in bytes. No byte of it may change.
const MARGIN: usize = 64;
const CANARY: u8 = 0xa5;

/// Returns the data sets of the tests.
fn data() -> [(&'static str, Vec<u8>); 2] {
    [("random", random_bytes(MAX + 64, 0x5eed)), ("ones", vec![0xff; MAX + 64])]
}

/// Runs `check(source, destination with its margins, offset, length, name)` over data, lengths and
/// misalignments.
fn for_each_alignment(mut check: impl FnMut(&[u8], &mut [u8], usize, usize, &str)) {
    let mut around = vec![CANARY; MARGIN + 64 + MAX + MARGIN];
    for (name, data) in data() {
        for len in lengths() {
            for (from, to) in offsets(len) {
                let dst = &mut around[..MARGIN + to + len + MARGIN];
                dst.fill(CANARY);
                check(&data[from..from + len], dst, MARGIN + to, len, name);
            }
        }
    }
}

fn assert_only_inside(around: &[u8], at: usize, src: &[u8], what: impl Fn() -> String) {
    let (before, rest) = around.split_at(at);
    let (inside, behind) = rest.split_at(src.len());
    assert!(inside == src, "{}: wrong bytes", what());
    assert!(before.iter().chain(behind).all(|&byte| byte == CANARY), "{}: touched the margin", what());
}

#[test]
fn copy_matches_the_reference() {
    let mut expected_bytes = vec![0; MAX];
    for variant in variants().chain(comparison_variants()) {
        for_each_alignment(|src, around, at, len, name| {
            // SAFETY: `around` holds `len` bytes from `at`, and is apart from `src`.
            unsafe { variant.copy(around.as_mut_ptr().add(at), src.as_ptr(), len) };
            reference::copy(&mut expected_bytes[..len], src);
            assert_only_inside(around, at, &expected_bytes[..len], || format!("{variant} {name} len {len} at {at}"));
        });
    }
}

#[test]
fn sum_matches_the_reference() {
    for_each_alignment(|src, _, _, len, name| {
        let expected = reference::sum(&[src]);
        for variant in variants() {
            let mut total = Sum::new();
            variant.sum(src, &mut total);
            assert_eq!(total.fold(), expected, "{variant} {name} len {len}");
            assert_eq!(total.finish(), !expected);
        }
        for variant in variants().chain(comparison_variants()) {
            let mut total = Sum::new();
            // SAFETY: the bytes belong to a slice.
            unsafe { variant.sum_shared(src.as_ptr(), src.len(), &mut total) };
            assert_eq!(total.fold(), expected, "shared, {variant} {name} len {len}");
        }
        let mut total = Sum::new();
        total.add_bytes(src);
        assert_eq!(total.fold(), expected, "add_bytes {name} len {len}");
    });
}

#[test]
fn copy_sum_matches_the_reference() {
    let mut expected_bytes = vec![0; MAX];
    for_each_alignment(|src, around, at, len, name| {
        let expected = reference::copy_sum(&mut expected_bytes[..len], src);
        for variant in variants() {
            around.fill(CANARY);
            let mut total = Sum::new();
            // SAFETY: `around` holds `len` bytes from `at`, and is apart from `src`.
            unsafe { variant.copy_sum(around.as_mut_ptr().add(at), src.as_ptr(), len, &mut total) };
            let what = || format!("{variant} {name} len {len} at {at}");
            assert_only_inside(around, at, &expected_bytes[..len], what);
            assert_eq!(total.fold(), expected, "{}", what());
        }
    });
}

/// Every pair of misalignments, at lengths on both sides of each length at which a kernel changes
/// its method.
#[test]
fn every_pair_of_misalignments() {
    let data = random_bytes(4096 + 64, 0xa119);
    let mut around = vec![CANARY; MARGIN + 64 + 4096 + MARGIN];
    for len in [1, 7, 15, 31, 33, 64, 65, 128, 130, 200, 256, 257, 300, 512, 513, 700, 1500, 2048, 3000, 4096] {
        for from in 0..64 {
            let src = &data[from..from + len];
            let expected = reference::sum(&[src]);
            for to in 0..64 {
                let at = MARGIN + to;
                for variant in variants() {
                    for fused in [false, true] {
                        let dst = &mut around[..at + len + MARGIN];
                        let what = || format!("{variant} len {len} from {from} to {to} fused {fused}");
                        let mut total = Sum::new();
                        // SAFETY: `dst` holds `len` bytes from `at`, and is apart from `src`.
                        unsafe {
                            let dst = dst.as_mut_ptr().add(at);
                            if fused {
                                variant.copy_sum(dst, src.as_ptr(), len, &mut total);
                                assert_eq!(total.fold(), expected, "{}", what());
                            } else {
                                variant.copy(dst, src.as_ptr(), len);
                            }
                        }
                        assert_only_inside(dst, at, src, what);
                        dst.fill(CANARY);
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_in_a_row_sum_as_one() {
    let (_, data) = &data()[0];
    let cuts = random_bytes(1 << 14, 0xc075);
    for variant in variants().chain(comparison_variants()) {
        for (round, cut) in cuts.chunks_exact(8).enumerate() {
            // Odd and even lengths, short and long, appended by each of the four functions.
            let mut chunks: Vec<&[u8]> = Vec::new();
            let mut at = round % 61;
            let mut total = Sum::new();
            for (i, &byte) in cut.iter().enumerate() {
                let len = usize::from(byte) * [1, 1, 3, 7][i % 4] / [1, 16, 1, 1][i % 4];
                let chunk = &data[at..at + len];
                match (usize::from(byte) + i) % 4 {
                    0 => variant.sum(chunk, &mut total),
                    1 => total.add_bytes(chunk),
                    // SAFETY: the bytes belong to a slice.
                    2 => unsafe { variant.sum_shared(chunk.as_ptr(), len, &mut total) },
                    _ => {
                        let mut dst = vec![0; len];
                        // SAFETY: `dst` holds `len` bytes and is apart from `chunk`.
                        unsafe { variant.copy_sum(dst.as_mut_ptr(), chunk.as_ptr(), len, &mut total) };
                        assert_eq!(dst, chunk);
                    }
                }
                chunks.push(chunk);
                at += len;
                assert_eq!(total.fold(), reference::sum(&chunks), "{variant} after {i} chunks of {cut:?}");
            }
        }
    }
}

/// The source and the destination each lie directly behind the first guard page, or directly before
/// the last.
#[test]
fn guard_pages_are_not_touched() {
    let data = random_bytes(MAX, 0x9a9e);
    let mut src = Guarded::new(MAX);
    let mut dst = Guarded::new(MAX);
    for variant in variants().chain(comparison_variants()) {
        for len in lengths() {
            for corner in 0..4 {
                let from = if corner & 1 == 0 { 0 } else { src.len - len };
                let to = if corner & 2 == 0 { 0 } else { dst.len - len };
                src.bytes()[from..from + len].copy_from_slice(&data[..len]);
                let what = || format!("{variant} len {len} corner {corner}");

                let mut fused = Sum::new();
                dst.bytes()[to..to + len].fill(0);
                // SAFETY: both ranges lie between the guard pages of their own mapping.
                unsafe {
                    variant.copy_sum(dst.start().add(to), src.start().add(from), len, &mut fused);
                }
                assert!(dst.bytes()[to..to + len] == data[..len], "{}: copy_sum", what());

                dst.bytes()[to..to + len].fill(0);
                // SAFETY: as above.
                unsafe { variant.copy(dst.start().add(to), src.start().add(from), len) };
                assert!(dst.bytes()[to..to + len] == data[..len], "{}: copy", what());

                let mut separate = Sum::new();
                let mut shared = Sum::new();
                // SAFETY: as above.
                unsafe { variant.sum_shared(src.start().add(from), len, &mut shared) };
                variant.sum(&src.bytes()[from..from + len], &mut separate);
                assert_eq!(fused.fold(), separate.fold(), "{}: sums", what());
                assert_eq!(shared.fold(), separate.fold(), "{}: shared", what());
            }
        }
    }
}

/// Checks that an access to a guard page of the test above is fatal.
#[test]
fn a_touched_guard_page_kills() {
    for behind in [false, true] {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let guarded = Guarded::new(1);
        let address = if behind { guarded.end() } else { guarded.start().wrapping_sub(1) };
        // SAFETY: the child makes one access, which is expected to fault, and otherwise ends by
        // `_exit`. It takes no lock and allocates nothing, as required of a child of a process with
        // threads.
        let status = unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                // No core file, because the fault is expected.
                libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                let mut byte = 0u8;
                copy(Level::Scalar, &raw mut byte, address, 1);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:#x}");
    }
}
