//! Copy and checksum kernels for each instruction set.
//!
//! The crate has four kernels. [`copy()`] copies bytes between two ranges of memory. [`sum()`] adds
//! bytes to an Internet checksum ([RFC 1071](https://www.rfc-editor.org/rfc/rfc1071)). [`copy_sum`]
//! does both in one pass. [`sum_shared`] sums memory that others may write.
//!
//! The kernels may run on memory that other processes write at the same time, such as the memory of
//! a guest. The two ranges may overlap. No byte outside the ranges is touched. The sum of
//! [`copy_sum`] covers exactly the bytes that it stored, and it loads each of them once.
//!
//! This crate does not know packets or headers. It allocates nothing, starts no thread and does no
//! I/O. It does not decide which pointers are valid: the caller does.
//!
//! A [`Level`] is an instruction set that was detected on this machine. Choose it once per thread,
//! outside the loop. Pass it to each call, or have the loop [compiled for it](Level::run):
//!
//! ```
//! use straightline_simd::{Level, Sum, copy_sum};
//!
//! let level = Level::detect();
//! let src = *b"an odd number of bytes, yes";
//! let mut dst = [0; 27];
//! let mut sum = Sum::new();
//! // SAFETY: both arrays hold 27 bytes, and nobody else uses `dst`.
//! unsafe { copy_sum(level, dst.as_mut_ptr(), src.as_ptr(), 27, &mut sum) };
//! assert_eq!(dst, src);
//! assert_eq!(sum.fold(), straightline_simd::reference::sum(&[&src]));
//! ```
//!
//! # Map
//! | file | holds |
//! |---|---|
//! | `level.rs` | [`Level`] |
//! | `tokens.rs` | the tokens that prove an instruction set |
//! | `kernel.rs` | the public functions: dispatch by level, and one `#[target_feature]` wrapper for each set |
//! | `comparison.rs` | copies for comparisons |
//! | `run.rs` | [`Kernels`] and [`Level::run`]: a caller's loop, compiled for each set |
//! | `generic.rs` | the algorithms, written once over `vector.rs` |
//! | `wide.rs` | the sums of AVX-512 |
//! | `vector.rs` | the trait that an instruction set implements |
//! | `arch/` | its implementations: all accesses to memory, in assembly |
//! | `sum.rs` | [`Sum`], the running checksum |
//! | `prefetch.rs` | hints for the caches |
//! | `reference.rs` | the reference implementation of each kernel, for tests |
//!
//! `unsafe` code is in `kernel.rs`, `comparison.rs`, `run.rs`, `generic.rs`, `wide.rs`, `arch/`,
//! `prefetch.rs` and in the trait of `vector.rs`. The tokens in `tokens.rs` have constructors that are unsafe to call.

mod arch;
mod comparison;
mod generic;
mod kernel;
mod level;
mod prefetch;
pub mod reference;
mod run;
mod sum;
#[cfg(target_arch = "x86_64")]
mod tokens;
mod vector;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use comparison::Comparison;
pub use kernel::{copy, copy_sum, load8, load12, store2, store4, store8, sum, sum_shared};
pub use level::{Level, ParseLevelError};
pub use prefetch::{prefetch_read, prefetch_write};
#[cfg(target_arch = "aarch64")]
pub use run::Neon;
#[cfg(target_arch = "x86_64")]
pub use run::{Avx512Copies, Sse2};
pub use run::{Kernels, Scalar, WithKernels};
pub use sum::Sum;
#[cfg(target_arch = "x86_64")]
pub use tokens::{Avx2, Avx512};
