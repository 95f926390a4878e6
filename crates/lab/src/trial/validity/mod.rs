//! The rules that decide whether a measurement is valid: all of them.
//!
//! A rule takes measured values and returns a [`Validity`]. The rules know no testbed; guests,
//! experiments and scenarios ask them.
//!
//! | file | the rules of |
//! |---|---|
//! | `generator` | a trial with the generator |
//! | `guests` | trials with guests that check packets themselves: the reflector, streams |
//! | `search` | searches |

mod generator;
mod guests;
mod search;

pub(super) use generator::TOLERANCE;
pub(crate) use generator::{beyond, came, measured};
pub(crate) use guests::{
    addresses, arrived, balance, checks_done, counted, lengths, line_used, no_faults, nothing_comes, returned,
    returned_once, same_packet, silence, silent, through, traced, wire_packets,
};
pub(crate) use search::search_result;

use straightline_guest::endpoints::NoCpu;
use straightline_report::results::{NotValid, Validity};

/// A measurement was ended by a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before its end")]
pub struct Stopped;

/// Returns the validity of a measurement that an error ended. An error without a validity is a
/// backend's: everything else is checked before the measurement.
#[must_use]
pub fn of_error(error: &anyhow::Error) -> Validity {
    if error.downcast_ref::<Stopped>().is_some() {
        return interrupted();
    }
    if let Some(NotValid(validity)) = error.downcast_ref() {
        return validity.clone();
    }
    let why = format!("{error:#}");
    if error.downcast_ref::<NoCpu>().is_some() { Validity::SpoiltByLoad(why) } else { Validity::SpoiltByBackend(why) }
}

/// Returns the validity of a trial with the generator that an error ended. If some of the planned
/// seconds were measured, the reason tells how many.
pub(crate) fn ended(error: &anyhow::Error, planned: f64, lasted: f64) -> Validity {
    let validity = of_error(error);
    if 0.0 < lasted && lasted < planned { cut_short(validity, lasted, planned) } else { validity }
}

/// Returns the validity of a measurement that a stop may have ended before the planned seconds.
pub(crate) fn whole(lasted: f64, planned: f64) -> Validity {
    if lasted < planned { cut_short(interrupted(), lasted, planned) } else { Validity::Valid }
}

/// Returns the validity of a trial during which a line's round trip between the CPUs took this many
/// nanoseconds.
pub fn near(round_trip_ns: f64, at_most: f64) -> Validity {
    if round_trip_ns > at_most {
        Validity::SpoiltByLoad(format!(
            "a line's round trip between the CPUs took {round_trip_ns:.0} ns, more than the {at_most:.0} ns of --near"
        ))
    } else {
        Validity::Valid
    }
}

/// Returns the validity of a soak that ended early. `lasted` is 0 without a valid trial.
pub(crate) fn soak_stopped(why: &Validity, lasted: f64, planned: f64) -> Validity {
    if lasted > 0.0 { cut_short(why.clone(), lasted, planned) } else { why.clone() }
}

/// Returns the validity if packets were corrupted. If a switch copies wrong bytes, its results are
/// not valid.
pub(crate) fn corrupted(count: f64) -> Validity {
    if count > 0.0 {
        Validity::SpoiltByBackend(format!("{count} of the checked packets came with other bytes than were sent"))
    } else {
        Validity::Valid
    }
}

fn interrupted() -> Validity {
    Validity::Interrupted("interrupted".to_owned())
}

/// Adds to the reason how many of the planned seconds were measured.
fn cut_short(validity: Validity, lasted: f64, planned: f64) -> Validity {
    let why = validity.reason().unwrap_or_default();
    let why = format!("{why}, after {lasted:.1} of {planned:.1} s");
    validity.because(why)
}

#[cfg(test)]
mod tests;
