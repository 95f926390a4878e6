//! The packed ring: both halves against each other, each half against a hostile other half, every
//! kind of chain.

mod chains;
mod common;
mod hostile;
mod in_order;
mod notify;
mod pair;
mod recover;
