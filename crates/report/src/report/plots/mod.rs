//! The plots. Each is drawn for a desktop and for a phone, and knows only the data that it is
//! given.

mod canvas;
mod forest;
mod percentiles;
mod scale;

pub(super) use canvas::{Layout, STYLE};
pub(super) use forest::{Forest, Row, class};
pub(super) use percentiles::Curves;
