//! Testbeds: switches and endpoints around a device under test.
//!
//! The generator's two ports stand for the physical ports, or for the guests. They are on sockets or
//! on interfaces of this machine. A guest that forwards takes turns with the generator on the same
//! CPU. The switch is ours, with a worker on the second CPU, or a third-party one.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a testbed: the device under test, its endpoints, their loads |
//! | `endpoints` | a generator and a guest, connected to a switch |
//! | `our_switch` | our switch in this process |
//! | `cell` | a switch with endpoints, and trials |
//! | `patched`, `phases` | the configuration of a switch with patches; the switch's work by phase |
//! | `drops` | a switch's drops, as text |
//! | `tunnel` | kinds of tunnels, and a switch with a tunnel between two guests |
//! | `namespace` | a network namespace that ends with the process |
//! | `neighbour` | a neighbour that fills the caches |

mod cell;
mod drops;
mod endpoints;
pub(crate) mod namespace;
pub mod neighbour;
mod options;
mod our_switch;
mod patched;
mod phases;
pub mod tunnel;

pub(crate) use cell::Testbed;
#[cfg(test)]
pub(crate) use cell::{MadeTrial, TrialMaker};
pub(crate) use drops::drops;
pub(crate) use endpoints::{Endpoints, TrialResult, limit};
pub use options::{Loads, Scenario, TestbedOptions};
pub(crate) use patched::{MTU, patched};
#[cfg(test)]
pub(crate) use phases::phase;
pub use phases::phases;
pub(crate) use phases::{Spent, spent, vectors};
