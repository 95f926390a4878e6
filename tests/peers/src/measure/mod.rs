//! The common part of `peers compare`, `peers devices`, `peers tunnels`, `peers rates`, `peers flows`,
//! `peers linux` and `peers memcpy`: comparisons of switches, in the rounds of [`straightline_lab::rounds`].
//!
//! | file | holds |
//! |---|---|
//! | `candidates` | switches by their names on the command line; how a binary of ours is configured, started and ended |
//! | `compile` | programs in C, compiled at run time |
//! | `options` | arguments that all these commands take |
//! | `rounds` | rounds of trials, their samples, progress, and interruption |

mod candidates;
mod compile;
mod options;
mod rounds;

pub(crate) use candidates::{Candidate, JoinedPort, Keys, OurSwitch, SwitchKind, SwitchPort, end, wait_ready};
pub(crate) use compile::{compile, long_output_of, output_of};
#[cfg(test)]
pub(crate) use options::parsed;
pub(crate) use options::{CommonOptions, Peers, require, secs};
pub(crate) use rounds::{Cell, Interrupts, TrialPlan, in_quiet, invalid, run_plan};

/// The text for a combination whose trials were all invalid, or that was not tried.
pub(crate) const NO_VALID_TRIAL: &str = "no valid trial";
