//! The instruction sets: every access to memory that a kernel makes stands in this folder.
//!
//! | file | types | set |
//! |---|---|---|
//! | `word.rs` | `u8` to `u64` | any machine: the scalar level, and everybody's tails |
//! | `aarch64.rs` | `NeonVector` | NEON |
//! | `x86_64.rs` | `Sse2Vector`, `AvxHalf`, `Avx2Vector`, `Avx512Vector` | SSE2, AVX2 and AVX-512 |
//!
//! Why assembly: a plain load in Rust assumes that nobody writes the bytes meanwhile, so the compiler may load
//! twice and find two values. A guest does write meanwhile. An `asm!` block that is not `pure` runs as
//! often as the source says, in order, and the compiler knows nothing of the memory behind it.

mod word;
pub(crate) use word::sum as sum_words;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::NeonVector;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Avx2Vector, Avx512Vector, Sse2Vector};
