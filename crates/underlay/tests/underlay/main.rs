//! Underlays and tunnels from outside of the crate: in one program, which links once.

mod decap;
#[path = "../golden/mod.rs"]
mod golden;
mod golden_headers;
mod kernel;
