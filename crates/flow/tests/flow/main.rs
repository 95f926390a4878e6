//! Tests of the crate from outside.

mod model;
mod tables;
