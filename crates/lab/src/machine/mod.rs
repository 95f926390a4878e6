//! This machine: its CPUs, and its description for results.
//!
//! | file | holds |
//! |---|---|
//! | `cpus` | the choice of CPUs |
//! | `environment` | the environment of samples: hardware and software |
//! | `memory` | the bounds of its memory: bandwidth and latency of each level, and from core to core |
//! | `touched` | the cost of memory that another CPU has touched |
//! | `turns` | two threads on two CPUs that take turns |

mod cpus;
mod environment;
mod memory;
mod touched;
mod turns;

#[cfg(test)]
pub(crate) use cpus::tests;
pub(crate) use cpus::{Topology, are_apart, cpu_beside, share_core, two_cpus, usable_cpus, used, warning};
pub use environment::environment;
pub use memory::{line_round_trip_ns, memory_bounds};
pub use straightline_graph::clock::hertz;
