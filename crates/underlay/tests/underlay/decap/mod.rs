//! The way in: packets of all kinds of tunnel, good and bad.

mod bad;
mod checksums;
mod good;
mod networks;
mod properties;
mod rig;
