//! A port whose peer is a guest's network device behind a vhost-user socket.
//!
//! | folder | holds |
//! |---|---|
//! | `data` | what workers touch while packets pass |
//! | `control` | the port's own thread, which serves one frontend after the other |
//!
//! Control imports data. Data imports nothing of control. Files beside the folders have the parts
//! that both need.

mod config;
mod control;
mod data;
mod inbox;
mod ring_name;

pub use config::{CALL_PAUSES, Mode, VhostUserConfig};
pub use control::port::VhostUser;
pub use straightline_virtio::vhost_user::MAX_QUEUE_PAIRS;
