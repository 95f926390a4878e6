//! Fuzz target: the device half of a packed ring, with a driver that writes anything.
//!
//! Invariants:
//! - Every segment lies in guest memory and is as long as its descriptor says.
//! - No more chains are taken than the ring has entries.
//! - A refused chain stages nothing.
//! - The driver sees the chains that were given back.

use std::cell::RefCell;

use crate::{FuzzGuest, device};
use arbitrary::Unstructured;

thread_local!(static GUEST: RefCell<FuzzGuest> = RefCell::default());

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    // An input that ends early is valid.
    let _ = GUEST.with_borrow_mut(|guest| device::run(guest, true, &mut Unstructured::new(data)));
}
