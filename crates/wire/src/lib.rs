//! Protocol headers: their fields, checked views, and builders.
//!
//! Each protocol has its own file, and all files follow one pattern:
//! - `Header` is a view over bytes. Its constructor checks once that the header lies within them.
//! - `Repr` holds plain values, from which a header is built.
//! - Tests are at the end of the file.
//!
//! [`locate`] walks through a whole frame down to its transport header, and [`Layout`] says all that
//! it passes. [`frame::Frame`] builds
//! such a frame.
//!
//! This crate does not copy or sum bodies, keeps no state, allocates nothing and has no unsafe
//! code. It does not decide whether a frame is accepted: a node does.
//!
//! ```
//! use straightline_wire::frame::{Checksum, Frame, Net, Transport};
//! use straightline_wire::{IpProtocol, MacAddr, locate, udp};
//!
//! let frame = Frame {
//!     src: "02:00:00:00:00:01".parse().unwrap(),
//!     dst: MacAddr::BROADCAST,
//!     tags: [None, None],
//!     net: Net::v4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
//!     transport: Transport::Udp { src_port: 1000, dst_port: 2000 },
//!     payload_len: 18,
//! };
//! let mut head = [0; 64];
//! let len = frame.emit(&mut head, Checksum::Partial).unwrap();
//!
//! let layers = locate(&head[..len]).unwrap();
//! assert_eq!((layers.l3, layers.l4, layers.protocol), (14, 34, IpProtocol::UDP));
//! let udp = udp::Header::new_checked(&head[layers.l4.into()..len]).unwrap();
//! assert_eq!((udp.dst_port(), udp.length()), (2000, 26));
//! ```
//!
//! All numbers are host values. Only the views know the byte order of the wire, which is
//! big-endian.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod crc32c;
pub mod dhcp;
pub mod dhcpv6;
mod dscp;
pub mod ecn;
mod error;
pub mod ethernet;
mod field;
mod flow;
pub mod frame;
mod frame_limit;
pub mod geneve;
pub mod geometry;
pub mod gre;
pub mod group_records;
pub mod gtpu;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod imix;
mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod l2tpv3;
pub mod messages;
pub mod mld;
pub mod mpls;
pub mod ndp;
mod payload;
pub mod pim;
mod question;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;
pub mod vxlan_gpe;

pub use dscp::{Dscp, DscpSet, dscp_of};
pub use error::WireError;
pub use ethernet::{EtherType, MacAddr};
pub use flow::{PlainFlow, flow_hash, flow_hash_of, plain_flow};
pub use frame_limit::FrameLimit;
pub use geometry::{Layers, Layout, locate, locate_ip};
pub use ip::{IpProtocol, IpVersion};
pub use payload::payload;
pub use question::Question;
pub use vlan::{VlanId, VlanSet};
