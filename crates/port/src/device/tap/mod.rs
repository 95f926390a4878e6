//! The port whose peer is a tap interface of this machine.
//!
//! A tap takes and gives one packet a system call, with a virtio-net header before it. So large
//! TCP and UDP packets pass unsegmented, and checksums stay unfinished, in both directions.
//!
//! | module | holds |
//! |---|---|
//! | `open` | making, attaching and setting up a tap, which takes privileges |
//! | `link` | packets from and to an open tap |

mod link;
mod open;

pub(crate) use link::TapLink;
pub(crate) use open::open;
