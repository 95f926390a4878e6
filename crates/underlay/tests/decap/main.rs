//! The way in: packets of all kinds of tunnel, good and bad.

#[path = "../golden/mod.rs"]
mod golden;

mod bad;
mod checksums;
mod good;
mod properties;
mod rig;
