//! Operations that the algorithms need from an instruction set.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

/// Register of `BYTES` bytes, with operations to load, store and sum it.
///
/// # Safety of the methods
/// A method may be compiled for the instruction set of its type. The caller must ensure that *the
/// machine has this instruction set*. Loads and stores have further requirements on the pointer.
///
/// In return, an implementation ensures that a load or a store is one access instruction for each
/// register. The instruction is opaque to the compiler, which therefore cannot repeat, split, merge
/// or remove it. No alignment is needed.
pub(crate) trait Vector: Copy {
    /// Length in bytes, a power of two.
    const BYTES: usize;

    /// Register of half the length. For a single byte it is the byte itself, and is never used.
    type Half: Vector;

    /// Word of 8 bytes.
    type Word: Vector;

    /// Partial sum. It must hold the sum of 64 KiB (`generic::SUM_BLOCK`) without overflow, or with
    /// end-around carry.
    type Acc: Copy;

    /// Loads `BYTES` bytes.
    ///
    /// # Safety
    /// As above, and `src` is mapped and readable for `BYTES` bytes.
    unsafe fn load(src: *const u8) -> Self;

    /// Stores `BYTES` bytes.
    ///
    /// # Safety
    /// As above, and `dst` is mapped and writable for `BYTES` bytes that no live reference covers.
    unsafe fn store(self, dst: *mut u8);

    /// Loads four consecutive registers.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for `4 * BYTES` bytes.
    #[inline(always)]
    unsafe fn load4(src: *const u8) -> [Self; 4] {
        let at = |i: usize| src.wrapping_add(i * Self::BYTES);
        // SAFETY: the caller's `4 * BYTES` bytes contain these four registers.
        unsafe { [Self::load(src), Self::load(at(1)), Self::load(at(2)), Self::load(at(3))] }
    }

    /// Stores four consecutive registers.
    ///
    /// # Safety
    /// As for [`store`](Self::store), for `4 * BYTES` bytes.
    #[inline(always)]
    unsafe fn store4(four: [Self; 4], dst: *mut u8) {
        for (i, v) in four.into_iter().enumerate() {
            // SAFETY: the caller's `4 * BYTES` bytes contain these four registers.
            unsafe { v.store(dst.wrapping_add(i * Self::BYTES)) };
        }
    }

    /// Loads `BYTES` bytes that no one writes at the same time. The compiler is free to choose the
    /// instructions.
    ///
    /// # Safety
    /// As for [`load`](Self::load), and a live reference covers the bytes.
    #[inline(always)]
    unsafe fn load_owned(src: *const u8) -> Self {
        // SAFETY: passed on.
        unsafe { Self::load(src) }
    }

    /// Keeps the last `n` bytes and replaces the bytes before them by zeros. `n` is at most
    /// `BYTES`.
    ///
    /// # Safety
    /// As above.
    unsafe fn keep_last(self, n: usize) -> Self;

    /// Returns the empty partial sum.
    ///
    /// # Safety
    /// As above.
    unsafe fn zero() -> Self::Acc;

    /// Returns the partial sum of this register's words, in the machine's byte order.
    ///
    /// # Safety
    /// As above.
    unsafe fn widen(self) -> Self::Acc;

    /// Adds two partial sums.
    ///
    /// # Safety
    /// As above.
    unsafe fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;

    /// Reduces the partial sum of `vectors` registers to one number. The number equals the sum of
    /// the 16-bit words modulo 0xffff, and is zero only if all words are zero.
    ///
    /// # Safety
    /// As above.
    unsafe fn reduce(acc: Self::Acc, vectors: usize) -> u64;

    /// Partial sum of groups of eight registers. It costs less per register and more at the end. It
    /// must hold the sum of 64 KiB too.
    type Groups: Copy;

    /// Returns the empty partial sum of groups.
    ///
    /// # Safety
    /// As above.
    unsafe fn no_groups() -> Self::Groups;

    /// Adds one group to the partial sum.
    ///
    /// # Safety
    /// As above.
    unsafe fn join_group(groups: Self::Groups, group: [Self; 8]) -> Self::Groups;

    /// Reduces the partial sum of `n` groups as [`reduce`](Self::reduce) does.
    ///
    /// # Safety
    /// As above.
    unsafe fn reduce_groups(groups: Self::Groups, n: usize) -> u64;
}

/// Default implementation of groups, for sets that have no special method to sum eight registers.
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
