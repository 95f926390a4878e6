//! Instruction sets. Every access to memory by a kernel is in this folder.
//!
//! | file | types | set |
//! |---|---|---|
//! | `word.rs` | `u8` to `u64` | any machine: the scalar level, and the tails of all levels |
//! | `aarch64.rs` | `NeonVector` | NEON |
//! | `x86_64.rs` | `Sse2Vector`, `AvxHalf`, `Avx2Vector`, `Avx512Vector` | SSE2, AVX2 and AVX-512 |
//! | `avx512.rs` | none: sums with byte masks and dot products | AVX-512 with BW and VNNI |
//!
//! The accesses are in assembly, for this reason. A plain load in Rust assumes that no other thread
//! writes the bytes at the same time. The compiler may therefore load twice and get two values,
//! because a guest does write at the same time. An `asm!` block that is not `pure` runs as often as
//! the source says, and in order. The compiler knows nothing about the memory that it accesses.

mod word;
pub(crate) use word::sum as sum_words;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::NeonVector;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Avx2Vector, Avx512Vector, Sse2Vector, store_fence};
