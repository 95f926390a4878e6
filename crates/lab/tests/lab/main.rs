//! The laboratory: guests, trials and results: in one program, which links once.

#[path = "../../../switch/tests/common/mod.rs"]
mod common;

mod experiments;
mod forward;
mod mlrsearch;
mod reflector;
mod results;
mod trial;
mod wires;
