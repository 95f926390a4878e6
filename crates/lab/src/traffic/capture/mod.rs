//! Capture files: pcap and pcapng are read.
//!
//! Each file is read whole, so that all errors in the file are known before the first frame is
//! sent.

mod read;

pub use read::{Capture, Captured};
