//! Rings: both halves against each other, each half against a hostile other half, every kind of
//! chain. A test is written once for both layouts, unless its rule belongs to one of them.

pub(crate) mod layout;
pub(crate) mod packed;
pub(crate) mod split;

mod chains;
mod hostile;
mod in_order;
mod notify;
mod packed_chains;
mod pair;
mod recover;
mod split_chains;
