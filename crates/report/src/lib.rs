//! Samples of measurements, their statistics, and reports about them.
//!
//! This crate is pure: it takes samples, and returns text. It opens no file, reads no clock, and
//! does not look at the machine. It knows of a scenario only its question.
//!
//! | module | holds |
//! |---|---|
//! | [`results`] | samples, the environment in which they were taken, their series, and the comparison of two runs |
//! | [`statistics`] | medians with their intervals, ratios, verdicts and outcomes |
//! | [`report`] | a run as a page, as Markdown, and as comma-separated values |
//! | [`random`] | pseudo-random numbers, the same ones for the same seed |

pub mod random;
pub mod report;
pub mod results;
pub mod statistics;
