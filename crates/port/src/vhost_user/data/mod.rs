//! The data side of a vhost-user port: all that a worker touches while packets pass.
//!
//! | file | holds |
//! |---|---|
//! | `worker_port` | the port as one of its workers serves it |
//! | `link` | a connected guest: its memory and its rings, published by control |
//! | `queue` | one virtqueue, as workers and control share it |
//! | `receive` | packets out of the guest's transmit rings |
//! | `spread` | which of several receive rings a packet goes to |
//! | `deliver` | packets into a receive ring |
//! | `announcement` | the packet that is sent in the name of a guest that has moved here |

pub(crate) mod announcement;
pub(crate) mod buffer_waiters;
pub(crate) mod deliver;
pub(crate) mod delivery_plan;
pub(crate) mod dispatch;
pub(crate) mod link;
pub(crate) mod port_data;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod steering;
pub(crate) mod worker_port;
pub(crate) mod worker_queues;

/// Header bytes before every frame, as a length of guest memory.
const HEADER: u32 = 12;
