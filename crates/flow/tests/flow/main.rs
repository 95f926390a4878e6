//! Tests of the crate from outside.

mod model;
mod published;
mod tables;
