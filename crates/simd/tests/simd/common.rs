//! Data, lengths and guarded memory for the tests.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]
#![expect(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fmt;
use std::ptr;

use straightline_simd::{Kernels, Level, Sum, WithKernels, copy, copy_sum, sum, sum_shared};

/// Kernels of a level, called or inlined.
#[derive(Clone, Copy)]
pub struct Variant {
    level: Level,
    /// True if the kernel is inlined into code compiled for the level; false if each call chooses
    /// the kernel.
    inlined: bool,
}

/// Returns both variants of all levels.
pub fn variants() -> impl Iterator<Item = Variant> {
    Level::supported().flat_map(Variant::of)
}

/// Returns both variants of the copies for comparisons.
pub fn comparison_variants() -> impl Iterator<Item = Variant> {
    Level::for_comparison().flat_map(Variant::of)
}

impl Variant {
    /// Returns both variants of one level.
    pub fn of(level: Level) -> impl Iterator<Item = Self> {
        [false, true].into_iter().map(move |inlined| Self { level, inlined })
    }

    /// # Safety
    /// As for the crate's `copy`.
    pub unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        if self.inlined {
            self.level.run(Work::Copy(dst, src, len, None));
        } else {
            // SAFETY: passed on.
            unsafe { copy(self.level, dst, src, len) }
        }
    }

    pub fn sum(self, bytes: &[u8], total: &mut Sum) {
        if self.inlined { self.level.run(Work::Sum(bytes, total)) } else { sum(self.level, bytes, total) }
    }

    /// # Safety
    /// As for the crate's `copy_sum`.
    pub unsafe fn copy_sum(self, dst: *mut u8, src: *const u8, len: usize, total: &mut Sum) {
        if self.inlined {
            self.level.run(Work::Copy(dst, src, len, Some(total)));
        } else {
            // SAFETY: passed on.
            unsafe { copy_sum(self.level, dst, src, len, total) }
        }
    }

    /// # Safety
    /// As for the crate's `sum_shared`.
    pub unsafe fn sum_shared(self, src: *const u8, len: usize, total: &mut Sum) {
        if self.inlined {
            self.level.run(Work::SumShared(src, len, total));
        } else {
            // SAFETY: passed on.
            unsafe { sum_shared(self.level, src, len, total) }
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.level, if self.inlined { " inlined" } else { "" })
    }
}

/// Arguments of one kernel.
enum Work<'a> {
    Copy(*mut u8, *const u8, usize, Option<&'a mut Sum>),
    Sum(&'a [u8], &'a mut Sum),
    SumShared(*const u8, usize, &'a mut Sum),
}

impl WithKernels for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) {
        match self {
            // SAFETY: the promise of the callers of `copy` and `copy_sum` above.
            Work::Copy(dst, src, len, None) => unsafe { kernels.copy(dst, src, len) },
            // SAFETY: as above.
            Work::Copy(dst, src, len, Some(total)) => unsafe { kernels.copy_sum(dst, src, len, total) },
            Work::Sum(bytes, total) => kernels.sum(bytes, total),
            // SAFETY: the promise of the caller of `sum_shared` above.
            Work::SumShared(src, len, total) => unsafe { kernels.sum_shared(src, len, total) },
        }
    }
}

/// Returns bytes without a period. A kernel that adds the wrong vector cannot be right by chance.
pub fn random_bytes(len: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64*, Vigna 2016.
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        bytes.extend_from_slice(&seed.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Largest length of the tests. It is above the 64 KiB after which a kernel reduces its sum.
pub const MAX: usize = 70_000;

/// Length up to which every length is tested.
pub const EACH: usize = 4096;

/// Returns each length up to [`EACH`], then steps of a prime up to [`MAX`], and the neighbours of
/// powers of two.
pub fn lengths() -> Vec<usize> {
    let near_powers = (12..=16).flat_map(|bit| (1usize << bit) - 2..=(1 << bit) + 2);
    (0..=EACH).chain((EACH + 1..MAX).step_by(593)).chain(near_powers).chain([65_536 + 128, MAX]).collect()
}

/// Returns misalignments of source and destination, 0 to 63. A short length gets all 64 source
/// offsets. A longer length gets every eighth or sixteenth, from a start that changes with the
/// length, so that 8 or 16 consecutive lengths cover all. The destination offset changes with the
/// length too.
pub fn offsets(len: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = match len {
        0..=320 => 1,
        321..=EACH => 8,
        _ => 16,
    };
    (len % step..64).step_by(step).map(move |from| (from, (from * 3 + len) % 64))
}

/// Pages that may be read and written, between two guard pages that may not be accessed.
pub struct Guarded {
    map: *mut u8,
    page: usize,
    /// Length of the accessible pages, in bytes.
    pub len: usize,
}

impl Guarded {
    /// Maps at least `min` bytes between two guard pages.
    pub fn new(min: usize) -> Self {
        // SAFETY: sysconf takes no pointer.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page size");
        let len = min.next_multiple_of(page);
        // SAFETY: a new anonymous mapping replaces no other.
        let map = unsafe {
            libc::mmap(ptr::null_mut(), len + 2 * page, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        let map = map.cast::<u8>();
        // SAFETY: the middle of the mapping that was just made.
        let done = unsafe { libc::mprotect(map.add(page).cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
        Self { map, page, len }
    }

    /// Returns the address of the first accessible byte, behind the first guard page.
    pub fn start(&self) -> *mut u8 {
        self.map.wrapping_add(self.page)
    }

    /// Returns the address of the second guard page.
    pub fn end(&self) -> *mut u8 {
        self.start().wrapping_add(self.len)
    }

    /// Returns the accessible bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the kernel has mapped and zeroed the bytes, nobody else uses them, and they are
        // borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made by `new`; no slice of it is left.
        unsafe { libc::munmap(self.map.cast(), self.len + 2 * self.page) };
    }
}
