//! The common part of `peers compare`, `peers devices`, `peers tunnels` and `peers linux`: comparisons
//! of switches, in rounds.
//!
//! | file | holds |
//! |---|---|
//! | `candidates` | switches by their names on the command line; how a binary of ours is configured, started and ended |
//! | `compile` | programs in C, compiled at run time |
//! | `options` | arguments that all these commands take |
//! | `rounds` | the order of trials, their samples, progress, and interruption |
//! | `table` | a metric's median, spread and ratio as text |

mod candidates;
mod compile;
mod options;
mod rounds;
mod table;

pub(crate) use candidates::{Candidate, Keys, OurSwitch, SwitchKind, end, wait_ready};
pub(crate) use compile::{compile, output_of};
#[cfg(test)]
pub(crate) use options::parsed;
pub(crate) use options::{CommonOptions, Peers, require, secs};
pub(crate) use rounds::{Cell, TrialPlan, TrialResult};
pub(crate) use table::{NO_VALID_TRIAL, samples_of, spread};
