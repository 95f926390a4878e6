//! The device half of a packed ring, over a driver's arbitrary writes.
//!
//! Must hold: every segment lies in guest memory and is as long as its descriptor says; no more is out than the ring has
//! entries; a refused chain stages nothing; what was given back is what the driver sees.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use straightline_fuzz::{FuzzGuest, device};

thread_local!(static GUEST: RefCell<FuzzGuest> = RefCell::default());

fuzz_target!(|data: &[u8]| {
    // Input that ends early is as good as any.
    let _ = GUEST.with_borrow_mut(|guest| device::run(guest, true, &mut Unstructured::new(data)));
});
