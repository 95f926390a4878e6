//! What an algorithm needs of an instruction set, and no more.

/// A register of `BYTES` bytes: how it is loaded, stored and summed.
///
/// # Safety of the methods
/// Each method may be compiled for an instruction set of its own, so each caller owes: *the machine has the
/// instruction set of this type*. The loads and stores add what they need of the pointer.
///
/// An implementation owes in return: a load or a store is one access instruction for each register, opaque to the
/// compiler, which therefore cannot repeat, split, merge or drop it. No alignment is needed.
pub(crate) trait Vector: Copy {
    /// The length in bytes, a power of two.
    const BYTES: usize;

    /// The register of half the length; of a single byte, the byte itself (and never used).
    type Half: Vector;

    /// The word of 8 bytes.
    type Word: Vector;

    /// A partial sum. It must hold the sum of 64 KiB (`generic::SUM_BLOCK`) without overflow, or carry it round.
    type Acc: Copy;

    /// Loads `BYTES` bytes.
    ///
    /// # Safety
    /// As said above, and `src` is mapped and readable for `BYTES` bytes.
    unsafe fn load(src: *const u8) -> Self;

    /// Stores `BYTES` bytes.
    ///
    /// # Safety
    /// As said above, and `dst` is mapped and writable for `BYTES` bytes that no live reference covers.
    unsafe fn store(self, dst: *mut u8);

    /// Loads four registers in a row.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for `4 * BYTES` bytes.
    #[inline(always)]
    unsafe fn load4(src: *const u8) -> [Self; 4] {
        let at = |i: usize| src.wrapping_add(i * Self::BYTES);
        // SAFETY: the caller's `4 * BYTES` bytes hold these four.
        unsafe { [Self::load(src), Self::load(at(1)), Self::load(at(2)), Self::load(at(3))] }
    }

    /// Stores four registers in a row.
    ///
    /// # Safety
    /// As for [`store`](Self::store), for `4 * BYTES` bytes.
    #[inline(always)]
    unsafe fn store4(four: [Self; 4], dst: *mut u8) {
        for (i, v) in four.into_iter().enumerate() {
            // SAFETY: the caller's `4 * BYTES` bytes hold these four.
            unsafe { v.store(dst.wrapping_add(i * Self::BYTES)) };
        }
    }

    /// Loads `BYTES` bytes that nobody writes meanwhile, in whatever way the compiler likes.
    ///
    /// # Safety
    /// As for [`load`](Self::load), and it is a live reference's memory that is read.
    #[inline(always)]
    unsafe fn load_owned(src: *const u8) -> Self {
        // SAFETY: passed on.
        unsafe { Self::load(src) }
    }

    /// The last `n` bytes, with zeros in place of those before. `n` is at most `BYTES`.
    ///
    /// # Safety
    /// As said above.
    unsafe fn keep_last(self, n: usize) -> Self;

    /// The sum of no register.
    ///
    /// # Safety
    /// As said above.
    unsafe fn zero() -> Self::Acc;

    /// The sum of this register's words, in the machine's byte order.
    ///
    /// # Safety
    /// As said above.
    unsafe fn widen(self) -> Self::Acc;

    /// The sum of both.
    ///
    /// # Safety
    /// As said above.
    unsafe fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;

    /// The partial sum of as many registers as one number, which is equal to the sum of the 16-bit words modulo 0xffff,
    /// and zero only if all words were.
    ///
    /// # Safety
    /// As said above.
    unsafe fn reduce(acc: Self::Acc, vectors: usize) -> u64;

    /// A partial sum of groups of eight registers, which costs less for each and more at the end. It too must hold the sum
    /// of 64 KiB.
    type Groups: Copy;

    /// The sum of no group.
    ///
    /// # Safety
    /// As said above.
    unsafe fn no_groups() -> Self::Groups;

    /// The sum with one group more.
    ///
    /// # Safety
    /// As said above.
    unsafe fn join_group(groups: Self::Groups, group: [Self; 8]) -> Self::Groups;

    /// As [`reduce`](Self::reduce), of as many groups.
    ///
    /// # Safety
    /// As said above.
    unsafe fn reduce_groups(groups: Self::Groups, n: usize) -> u64;
}

/// The groups of a set that has no way of its own to sum eight registers.
macro_rules! default_groups {
    () => {
        type Groups = Self::Acc;

        #[inline(always)]
        unsafe fn no_groups() -> Self::Acc {
            // SAFETY: passed on, as below.
            unsafe { Self::zero() }
        }

        #[inline(always)]
        unsafe fn join_group(groups: Self::Acc, group: [Self; 8]) -> Self::Acc {
            // SAFETY: passed on.
            group.into_iter().fold(groups, |sum, v| unsafe { Self::join(sum, v.widen()) })
        }

        #[inline(always)]
        unsafe fn reduce_groups(groups: Self::Acc, n: usize) -> u64 {
            // SAFETY: passed on.
            unsafe { Self::reduce(groups, 8 * n) }
        }
    };
}
pub(crate) use default_groups;
