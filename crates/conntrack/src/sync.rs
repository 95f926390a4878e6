//! The atomics of the table, and their memory. The test with loom brings others.

use zerocopy::{FromZeros, KnownLayout};

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;

/// Words of a cache line.
#[derive(FromZeros, KnownLayout)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

/// Words of two cache lines that are fetched together.
#[derive(FromZeros, KnownLayout)]
#[repr(C, align(128))]
pub(crate) struct TwoLines(pub(crate) [AtomicU64; 16]);

/// Returns zeros. The kernel gives them when a page is first touched, so a large share costs little
/// until it is used.
pub(crate) fn zeroed<T>(count: usize) -> Box<[T]>
where
    [T]: FromZeros + KnownLayout<PointerMetadata = usize>,
{
    <[T]>::new_box_zeroed_with_elems(count).expect("there is no memory for the connections of a port")
}
