//! The data side of a vhost-user port: all that a worker touches while packets pass.
//!
//! A worker reaches it through [`worker_port::WorkerPort`]. Each file imports only files further
//! down in this table.
//!
//! | file | holds |
//! |---|---|
//! | `worker_port` | the port as one of its workers serves it |
//! | `dispatch` | a batch, dealt out to a guest's receive rings |
//! | `deliver` | packets into one receive ring |
//! | `receive` | packets out of the guest's transmit rings |
//! | `worker_queues` | the queues that one worker serves |
//! | `port_data` | the port's state that its workers read |
//! | `link` | a connected guest: its memory and its rings, published by control |
//! | `steering` | the choice of a receive ring for a flow |
//! | `queue` | one virtqueue, as workers and control share it |
//! | `queue_state` | the part of a queue that one worker uses at a time |
//! | `buffer_waiters` | workers that wait for free buffers of a receive ring |
//! | `delivery_plan` | packets of a batch with the buffers reserved for them |
//! | `announcement` | the packet that announces a guest that has moved here |

pub(crate) mod announcement;
pub(crate) mod buffer_waiters;
pub(crate) mod deliver;
pub(crate) mod delivery_plan;
pub(crate) mod dispatch;
pub(crate) mod link;
pub(crate) mod port_data;
pub(crate) mod queue;
pub(crate) mod queue_state;
pub(crate) mod receive;
pub(crate) mod steering;
pub(crate) mod worker_port;
pub(crate) mod worker_queues;

/// Bytes of the virtio-net header before every packet, as a length of guest memory.
const HEADER: u32 = 12;
