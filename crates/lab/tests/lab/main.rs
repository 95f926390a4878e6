//! The laboratory: guests, trials and results: in one program, which links once.

mod experiments;
mod forward;
mod long;
mod mlrsearch;
mod no_alloc;
mod reflector;
mod results;
mod trial;
mod wires;
