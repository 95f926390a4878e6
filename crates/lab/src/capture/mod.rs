//! Capture files: pcap and pcapng are read, pcapng is written.
//!
//! A file is read as a whole, so that its errors are known before any of its frames is sent.

mod read;
mod write;

pub use read::{Capture, Captured};
pub use write::Writer;
