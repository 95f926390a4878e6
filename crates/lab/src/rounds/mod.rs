//! Interleaved rounds: the one engine of experiments, of scenarios and of comparisons with other
//! switches.
//!
//! Each round visits every variant of every cell once. The variants of a cell follow one another, and
//! each round begins with the next one. So each variant is first equally often, and a change of the
//! machine over time affects all alike.
//!
//! The number of rounds is fixed in advance. Cells with an unclear comparison may get further rounds
//! ([`Rounds`]). A trial that fails is kept with its reason, and the run continues. After a stop, the
//! results so far are kept.
//!
//! | file | holds |
//! |---|---|
//! | `run` | the order of visits, their samples, and the end of a run |
//! | `plan` | cells and their variants, for runs in which each visit is one trial |
//! | `table` | medians and ratios as Markdown |

mod plan;
mod run;
pub mod table;

pub use plan::{Cell, Measured, Plan, Shown, Stop, Variant};
pub use run::{Keep, Outcome, Record, Rounds, Run, Trials, Visit, run};
