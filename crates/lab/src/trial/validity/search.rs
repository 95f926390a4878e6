//! The rule of searches.

use straightline_report::results::Validity;

/// Returns the validity of a search's result. `irregular` is the reason why the result is not
/// regular, `stopped` the reason why the search ended early. `has_bounds` tells whether there is a
/// lower and an upper bound.
pub(crate) fn search_result(irregular: Option<&str>, stopped: Option<&Validity>, has_bounds: [bool; 2]) -> Validity {
    match (irregular, stopped) {
        (None, _) => Validity::Valid,
        // The bounds found so far are in the metrics.
        (Some(_), Some(stopped)) => {
            let why = format!("the search did not finish: {}", stopped.reason().unwrap_or_default());
            stopped.clone().because(why)
        }
        (Some(why), None) if has_bounds == [true, false] => Validity::LowerBound(why.to_owned()),
        (Some(why), None) => Validity::SpoiltByBackend(why.to_owned()),
    }
}
