//! The kinds of ports: where packets enter and leave the switch.
//!
//! Each kind implements the traits [`Port`](straightline_graph::Port) and
//! [`PortControl`](straightline_graph::PortControl). A port does not know the configuration, nodes, or
//! other ports.
//!
//! | module | holds |
//! |---|---|
//! | `vhost_user` | the port whose peer is a guest's network device |
//! | `device` | ports whose peer is a network interface of this machine |
//! | `pair_counters` | the counters of queue pairs, made when a pair is first used |
//! | `socket` | listening sockets and their files |
//! | `descriptor_share` | the descriptors that peers may have the process keep |
//! | `notify` | kicks that wake workers; calls that never hold one up |

mod descriptor_share;
pub mod device;
mod helper_channel;
mod log_limit;
mod notify;
mod pair_counters;
mod socket;
pub mod vhost_user;

pub use descriptor_share::{descriptors_free, descriptors_taken, set_descriptor_limit};
pub use helper_channel::{HelperError, HelperProcess, HelperSandbox};
pub use socket::closing::ClosedApart;
pub use socket::listener::{Listener, raised};
pub use socket::{socket_file, socket_path};
