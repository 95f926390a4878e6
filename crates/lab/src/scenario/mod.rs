//! What people ask of a switch: how much it takes between physical ports and a guest (PVP), between two guests, or between
//! any two sockets of a switch that is not ours.
//!
//! Everything is there already and only put together here: the generator's two ports play the physical ports, or the guests;
//! a guest that forwards takes turns with it on the same CPU; the switch is ours, with a worker on the second CPU, or anybody's.
//!
//! | file | holds |
//! |---|---|
//! | `options` | what can be asked for |
//! | `parties` | a generator and a guest, connected to a switch |
//! | `bed` | a switch beside them, and trials |
//! | `run` | cells, loads and rounds, one after the other |
//! | `find` | searches, and what follows from what they find |
//! | `soak` | a load that is carried for long |
//! | `left` | how long it will take |
//! | `table` | what came out, for people |

mod endpoints;
mod find;
mod options;
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
