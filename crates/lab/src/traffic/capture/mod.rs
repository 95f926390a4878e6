//! Capture files: pcap and pcapng are read, pcapng is written.
//!
//! Each file is read whole, so that all errors in the file are known before the first frame is
//! sent.

mod read;
mod write;

pub use read::{Capture, Captured};
pub use write::Writer;
