//! Guests and trials of the laboratory, through our switch: in one program, which links once.

#[path = "../../../switch/tests/common/mod.rs"]
mod common;

mod forward;
mod reflector;
mod trial;
mod wires;
