//! Runs a caller's loop that is compiled once for each instruction set, with the kernels inlined.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

#[cfg(target_arch = "aarch64")]
use crate::arch::NeonVector;
#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2Vector, Sse2Vector};
use crate::comparison::Comparison;
use crate::generic::Algorithms;
use crate::kernel;
use crate::level::Level;
use crate::sum::Sum;
#[cfg(target_arch = "x86_64")]
use crate::tokens::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use crate::wide::{Avx512All, Avx512Sums};

/// Instruction set as a type, for loops that are generic over it. A value proves that the machine
/// has the set.
///
/// [`Level`] implements this trait too and chooses the set in each call. Generic code can therefore
/// be used without a fixed set.
///
/// The kernels of a set are inlined into their caller. They are fast only in the inlined part of
/// the code that [`Level::run`] runs, because the set is enabled there. Elsewhere they are correct
/// too, but each load and each store is a function call.
pub trait Kernels: Copy + sealed::Sealed {
    /// Returns the set as a [`Level`].
    fn level(self) -> Level;

    /// Copies `len` bytes as [`copy`](crate::copy()) does.
    ///
    /// # Safety
    /// As for [`copy`](crate::copy()).
    unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize);

    /// Appends `bytes` to `sum`.
    fn sum(self, bytes: &[u8], sum: &mut Sum);

    /// Copies and sums as [`copy_sum`](crate::copy_sum) does.
    ///
    /// # Safety
    /// As for [`copy_sum`](crate::copy_sum).
    unsafe fn copy_sum(self, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum);

    /// Sums as [`sum_shared`](crate::sum_shared) does.
    ///
    /// # Safety
    /// As for [`sum_shared`](crate::sum_shared).
    unsafe fn sum_shared(self, src: *const u8, len: usize, sum: &mut Sum);
}

mod sealed {
    pub trait Sealed {}
}

/// Work for [`Level::run`]: in effect a closure that is generic over the instruction set.
pub trait WithKernels {
    /// Result of the work.
    type Output;

    /// Does the work. This method must be `#[inline(always)]`, and so must every function to which
    /// it passes `kernels`. Otherwise the set is not enabled where the kernels are called. `cargo
    /// xtask test` searches the switch for such calls.
    fn with<K: Kernels>(self, kernels: K) -> Self::Output;
}

impl Level {
    /// Runs `work` compiled for this level.
    ///
    /// ```
    /// use straightline_simd::{Kernels, Level, Sum, WithKernels};
    ///
    /// struct SumAll<'a>(&'a [&'a [u8]]);
    ///
    /// impl WithKernels for SumAll<'_> {
    ///     type Output = u16;
    ///
    ///     #[inline(always)]
    ///     fn with<K: Kernels>(self, kernels: K) -> u16 {
    ///         let mut total = Sum::new();
    ///         for bytes in self.0 {
    ///             kernels.sum(bytes, &mut total);
    ///         }
    ///         total.fold()
    ///     }
    /// }
    ///
    /// assert_eq!(Level::detect().run(SumAll(&[b"odd", b"even"])), straightline_simd::reference::sum(&[b"oddeven"]));
    /// ```
    #[inline]
    pub fn run<W: WithKernels>(self, work: W) -> W::Output {
        match self {
            Self::Scalar => work.with(Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => work.with(Sse2),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the set.
            Self::Avx2(token) => unsafe { with_avx2(work, token) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the set.
            Self::Avx512(token) => unsafe { with_avx512(work, token) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the set.
            Self::Avx512Copies(token) => unsafe { with_avx512(work, Avx512Copies(token)) },
            #[cfg(target_arch = "aarch64")]
            Self::Neon => work.with(Neon),
            // One loop for all comparisons: they are of the laboratory only, and each loop of its own
            // makes the program larger. The branch that chooses the copy is predicted.
            Self::Compared(copy) => {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the comparison proves the set.
                let done = unsafe { with_avx2(work, Compared(copy)) };
                #[cfg(not(target_arch = "x86_64"))]
                let done = work.with(Compared(copy));
                copy.end();
                done
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<W: WithKernels>(work: W, kernels: impl Kernels) -> W::Output {
    work.with(kernels)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2")]
fn with_avx512<W: WithKernels>(work: W, kernels: impl Kernels) -> W::Output {
    work.with(kernels)
}

/// Instruction set of [`Level::Scalar`].
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

/// Instruction set of [`Level::Sse2`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Sse2;

/// Instruction set of [`Level::Avx512Copies`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx512Copies(Avx512);

/// Instruction set of [`Level::Neon`].
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
pub struct Neon;

/// Implements the kernels of a set by the algorithms of `generic.rs`.
macro_rules! kernels {
    ($(#[$attribute:meta])* $set:ty: $self:ident => $level:expr, $algorithms:ty) => {
        $(#[$attribute])*
        impl sealed::Sealed for $set {}

        $(#[$attribute])*
        impl Kernels for $set {
            #[inline(always)]
            fn level($self) -> Level {
                $level
            }

            #[inline(always)]
            unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: a value proves the set; the pointers are the caller's promise.
                unsafe { <$algorithms>::copy(dst, src, len) }
            }

            #[inline(always)]
            fn sum(self, bytes: &[u8], sum: &mut Sum) {
                // SAFETY: a value proves the set; the bytes belong to a slice.
                sum.append(unsafe { <$algorithms>::sum(bytes.as_ptr(), bytes.len()) }, bytes.len());
            }

            #[inline(always)]
            unsafe fn copy_sum(self, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum) {
                // SAFETY: a value proves the set; the pointers are the caller's promise.
                sum.append(unsafe { <$algorithms>::copy_sum(dst, src, len) }, len);
            }

            #[inline(always)]
            unsafe fn sum_shared(self, src: *const u8, len: usize, sum: &mut Sum) {
                // SAFETY: a value proves the set; the pointer is the caller's promise.
                sum.append(unsafe { <$algorithms>::sum_shared(src, len) }, len);
            }
        }
    };
}

kernels!(Scalar: self => Level::Scalar, u64);
kernels!(#[cfg(target_arch = "x86_64")] Sse2: self => Level::Sse2, Sse2Vector);
kernels!(#[cfg(target_arch = "x86_64")] Avx2: self => Level::Avx2(self), Avx2Vector);
kernels!(#[cfg(target_arch = "x86_64")] Avx512: self => Level::Avx512(self), Avx512Sums);
kernels!(#[cfg(target_arch = "x86_64")] Avx512Copies: self => Level::Avx512Copies(self.0), Avx512All);
kernels!(#[cfg(target_arch = "aarch64")] Neon: self => Level::Neon, NeonVector);

/// Copies in the way of a comparison, and sums as the detected level does. Only [`Level::run`] makes it,
/// and ends the copies afterwards.
#[derive(Clone, Copy, Debug)]
struct Compared(Comparison);

impl sealed::Sealed for Compared {}

impl Kernels for Compared {
    #[inline(always)]
    fn level(self) -> Level {
        Level::Compared(self.0)
    }

    #[inline(always)]
    unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy_inlined(dst, src, len) }
    }

    #[inline(always)]
    fn sum(self, bytes: &[u8], sum: &mut Sum) {
        Level::detect().sum(bytes, sum);
    }

    #[inline(always)]
    unsafe fn copy_sum(self, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum) {
        // SAFETY: the caller's promise.
        unsafe { Level::detect().copy_sum(dst, src, len, sum) }
    }

    #[inline(always)]
    unsafe fn sum_shared(self, src: *const u8, len: usize, sum: &mut Sum) {
        // SAFETY: the caller's promise.
        unsafe { Level::detect().sum_shared(src, len, sum) }
    }
}

impl sealed::Sealed for Level {}

/// Chooses the set in each call.
impl Kernels for Level {
    #[inline(always)]
    fn level(self) -> Level {
        self
    }

    #[inline(always)]
    unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { kernel::copy(self, dst, src, len) }
    }

    #[inline(always)]
    fn sum(self, bytes: &[u8], sum: &mut Sum) {
        kernel::sum(self, bytes, sum);
    }

    #[inline(always)]
    unsafe fn copy_sum(self, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum) {
        // SAFETY: the caller's promise.
        unsafe { kernel::copy_sum(self, dst, src, len, sum) }
    }

    #[inline(always)]
    unsafe fn sum_shared(self, src: *const u8, len: usize, sum: &mut Sum) {
        // SAFETY: the caller's promise.
        unsafe { kernel::sum_shared(self, src, len, sum) }
    }
}
