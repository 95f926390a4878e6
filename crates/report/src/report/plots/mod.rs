//! The plots. Each is drawn for a desktop and for a phone, and knows only the data that it is
//! given.

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
