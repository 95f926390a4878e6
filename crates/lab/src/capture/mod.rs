//! Capture files: pcap and pcapng are read, pcapng is written.
//!
//! A file is read whole, so that what is wrong with it is known before anything is sent of it.

mod read;
mod write;

pub use read::{Capture, Captured};
pub use write::Writer;
