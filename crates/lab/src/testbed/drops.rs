//! The packets that a switch has dropped, as text for errors.

use straightline_switch::api::Source;

/// Returns the drops of a switch: port, reason and number of each; `none` without any.
pub(crate) fn drops(source: &dyn Source) -> String {
    let drops = source.drops().drops;
    let drops: Vec<_> = drops.iter().map(|drop| format!("{} {} {}", drop.port, drop.reason, drop.count)).collect();
    if drops.is_empty() { "none".to_owned() } else { drops.join(", ") }
}
