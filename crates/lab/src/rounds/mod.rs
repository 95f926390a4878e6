//! Interleaved rounds: the one engine of experiments, of scenarios and of comparisons with other
//! switches.
//!
//! Each round visits every variant of every cell once. The variants of a cell follow one another,
//! and begin with another one in each round: so each of them is as often the first, and a change of
//! the machine over time meets all alike. After a number of rounds that is fixed before, cells in
//! which a comparison is unclear may have further ones ([`Rounds`]). A trial that fails is kept with its reason, and the run
//! continues. A stop ends the run, with what there is.
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
