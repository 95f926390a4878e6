//! How a guest is spoken to: its memory, its virtqueues, the virtio-net header, and the vhost-user protocol.
//!
//! Both halves of everything are here: the device half serves guests, the driver half is a guest's own (the embedded
//! one's, and the tests'). Guest memory is reached through [`memory`] alone.
//!
//! Not here: ports, nodes, threads.
//!
//! ```
//! use straightline_virtio::net_header::NetHeader;
//!
//! let header = NetHeader { num_buffers: 1, ..NetHeader::default() };
//! assert_eq!(NetHeader::parse(&header.to_bytes()), header);
//! ```

pub mod fail;
pub mod features;
pub mod memory;
pub mod net_control;
pub mod net_header;
pub mod ring;
pub mod vhost_user;
