//! The packed ring: both halves against each other, each half against a hostile other half, every
//! kind of chain.

mod chains;
mod common;
#[path = "../ring/guest.rs"]
#[expect(dead_code, reason = "shared with the split ring's tests, which use all of it")]
mod guest;
mod hostile;
mod in_order;
mod notify;
mod pair;
mod recover;
