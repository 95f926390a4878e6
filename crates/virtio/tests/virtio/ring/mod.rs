//! The split ring: both halves against each other, each half against a hostile other half, every
//! kind of chain.

mod chains;
mod hostile;
mod in_order;
mod notify;
mod pair;
