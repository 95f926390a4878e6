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
//! | `kick_routing` | which kick wakes which worker |
//! | `pair_counters` | the counters of queue pairs, made when a pair is first used |
//! | `listener`, `socket_file`, `socket_path` | listening sockets and their files |
//! | `descriptor_share` | the descriptors that peers may have the process keep |
//! | `notifier`, `call_helper`, `call_cost` | notifications that never hold a worker up |

mod af_packet;
mod af_xdp;
mod backoff;
mod call_cost;
mod call_helper;
mod closing;
mod descriptor_share;
pub mod device;
mod frames;
mod helper_channel;
mod kick_routing;
mod listener;
mod log_limit;
mod notifier;
mod pair_counters;
mod pool;
pub mod socket_file;
pub mod socket_path;
mod tap;
mod vectored;
pub mod vhost_user;
mod vnet;

pub use closing::ClosedApart;
pub use descriptor_share::{descriptors_free, descriptors_taken, set_descriptor_limit};
pub use helper_channel::{HelperError, HelperProcess, HelperSandbox};
pub use listener::{Listener, raised};
