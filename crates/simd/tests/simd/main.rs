//! Kernels: in one program, which links once.

mod common;
mod reference;
mod shared;
