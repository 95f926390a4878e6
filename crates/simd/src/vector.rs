//! What an algorithm needs of an instruction set, and no more.

/// A register of `BYTES` bytes: how it is loaded, stored and summed.
///
/// # Safety of the methods
/// Each method may be compiled for an instruction set of its own, so each caller owes: *the machine has the
/// instruction set of this type*. `load` and `store` add what they need of the pointer.
///
/// An implementation owes in return: `load` and `store` are one access instruction each, opaque to the
/// compiler, which therefore cannot repeat, split, merge or drop it. No alignment is needed.
pub(crate) trait Vector: Copy {
    /// The length in bytes, a power of two.
    const BYTES: usize;

    /// The register of half the length; of a single byte, the byte itself (and never used).
    type Half: Vector;

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

    /// The sum of nothing.
    ///
    /// # Safety
    /// As said above.
    unsafe fn zero() -> Self::Acc;

    /// Adds this register's words, in the machine's byte order, to a partial sum.
    ///
    /// # Safety
    /// As said above.
    unsafe fn accumulate(self, acc: Self::Acc) -> Self::Acc;

    /// The partial sum as one number, which is equal to the sum of the 16-bit words modulo 0xffff, and
    /// zero only if all words were.
    ///
    /// # Safety
    /// As said above.
    unsafe fn reduce(acc: Self::Acc) -> u64;
}
