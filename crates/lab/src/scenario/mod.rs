//! Scenarios: the throughput of a switch between physical ports and a guest (PVP), between two
//! guests, or between two sockets of a third-party switch.
//!
//! The scenarios combine other modules. The generator's two ports stand for the physical ports, or
//! for the guests. They are on sockets or on interfaces of this machine. A guest that forwards takes turns with the generator on the same CPU. The switch
//! is ours, with a worker on the second CPU, or a third-party one.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a scenario |
//! | `endpoints` | a generator and a guest, connected to a switch |
//! | `our_switch` | our switch in this process |
//! | `testbed` | a switch with endpoints, and trials |
//! | `run` | cells, loads and rounds, one after the other |
//! | `find` | searches, and the measurements that depend on them |
//! | `soak` | a load over a long time |
//! | `remaining` | the estimated remaining time |
//! | `table` | the results as a table |

mod endpoints;
mod find;
mod options;
mod our_switch;
mod remaining;
mod run;
mod soak;
mod table;
mod testbed;
#[cfg(test)]
mod tests;

pub(crate) use endpoints::{Endpoints, limit};
pub use options::{Loads, Options, Scenario};
pub use run::{Outcome, ScenarioRecord, run};
pub use table::table;
