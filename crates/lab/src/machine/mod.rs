//! This machine: its CPUs, and its description for results.
//!
//! | file | holds |
//! |---|---|
//! | `cpus` | the choice of CPUs |
//! | `environment` | the environment of samples: hardware and software |
//! | `memory` | the bounds of its memory: bandwidth and latency of each level, and from core to core |

mod cpus;
mod environment;
mod memory;

#[cfg(test)]
pub(crate) use cpus::tests;
pub(crate) use cpus::{Topology, are_apart, cpu_beside, share_core, two_cpus, usable_cpus, used, warning};
pub use environment::environment;
pub use memory::memory_bounds;
pub use straightline_graph::clock::hertz;
