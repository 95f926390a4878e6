//! An allocator that counts the allocations of a thread, and their bytes. A test program uses it for all its memory:
//!
//! ```
//! use straightline_testing::allocations::{CountingAllocator, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! // One allocation, and one deallocation.
//! assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 2);
//! ```

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a counter for the thread that allocates.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Notes a call of the allocator: `more` and `fewer` are the bytes that are in use by it, and no longer.
fn note(more: usize, fewer: usize) {
    // A thread that ends has no cell any more, and does not count.
    let _ = COUNTING.try_with(|counting| {
        if counting.get() {
            COUNT.with(|count| count.set(count.get() + 1));
            BYTES.with(|bytes| bytes.set(bytes.get().wrapping_add_unsigned(more).wrapping_sub_unsigned(fewer)));
        }
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of its
// own.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `f`. Returns the number of its allocations and deallocations, which is 0 if the program does
/// not use [`CountingAllocator`].
pub fn allocations(f: impl FnOnce()) -> u64 {
    COUNT.set(0);
    COUNTING.set(true);
    f();
    COUNTING.set(false);
    COUNT.get()
}

/// Runs `f`. Returns its result, and the bytes that it has allocated and not freed. They are 0 if the program
/// does not use [`CountingAllocator`].
pub fn bytes_kept<T>(f: impl FnOnce() -> T) -> (T, isize) {
    BYTES.set(0);
    COUNTING.set(true);
    let result = f();
    COUNTING.set(false);
    (result, BYTES.get())
}
