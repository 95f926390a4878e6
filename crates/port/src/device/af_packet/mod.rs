//! The port whose peer is an existing interface of this machine, by packet sockets (packet(7)).
//!
//! The host's own network stack gets the same packets. A packet socket passes up to 64 packets a
//! system call, each with a virtio-net header before it.
//!
//! | module | holds |
//! |---|---|
//! | `open` | making and binding the sockets, which takes privileges |
//! | `socket` | the options of packet sockets |
//! | `link` | packets from and to the open sockets |

mod link;
mod open;
mod socket;

pub(crate) use link::AfPacketLink;
pub(crate) use open::open;
