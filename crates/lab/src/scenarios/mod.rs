//! Scenarios: the throughput of a switch between physical ports and a guest (PVP), between two
//! guests, or between two sockets of a third-party switch.
//!
//! The scenarios combine other modules, above all [`testbed`](crate::testbed).
//!
//! | file | holds |
//! |---|---|
//! | `run` | the tasks in each cell, in [rounds](crate::rounds) |
//! | `find` | searches, and the measurements that depend on them |
//! | `soak` | a load over a long time |
//! | `task` | the tasks of a scenario: a load in each cell |
//! | `table` | the results as a table |
//! | `demo` | two guests, or two network namespaces, and a switch |

pub mod demo;
mod find;
mod run;
mod soak;
mod table;
mod task;
#[cfg(test)]
mod tests;

pub use run::run;
pub use table::table;
