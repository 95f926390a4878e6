//! Underlays and tunnels from outside of the crate: in one program, which links once.

mod decap;
mod golden_headers;
mod kernel;
