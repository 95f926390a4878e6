//! The plots. Each is drawn for a desk and for a telephone, and knows of samples no more than what it is given.

mod bars;
mod canvas;
mod heat;
mod percentiles;
mod scale;
mod stacked;

pub(super) use bars::Groups;
pub(super) use canvas::Layout;
pub(super) use heat::{Map, short};
pub(super) use percentiles::Curves;
pub(super) use stacked::{Stack, Stacks};
