//! The control side of a vhost-user port: its own thread, which serves one frontend after the
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `port` | the port as its users hold it: opened, changed, asked and stopped |
//! | `shared` | the state that the port's thread and its users share |
//! | `thread` | the port's own thread: one frontend after the other |
//! | `stop` | what makes the thread leave its frontend: a stop or a pause |
//! | `frontend_source` | the ways in which a port comes to a frontend |
//! | `connector` | the connection to a frontend that listens itself |
//! | `frontend` | a connected frontend: its messages and what follows from them |
//! | `memory` | the guest's memory regions |
//! | `rings` | rings that start and stop |
//! | `running_ring` | a ring that runs, with its descriptors |
//! | `publish` | the link that workers see |
//! | `status` | the link's status as operators see it |
//! | `dirty_log` | the log of writes while a guest is being moved |
//! | `lost_calls` | calls that drivers do not answer, repeated |
//! | `control_queue` | the control queue and its commands |
//! | `inflight` | tables of buffers in flight |
//! | `state_transfer` | device state, moved from one backend to another |
//! | `state_channel` | the pipe, socket or file that device state moves through |
//! | `log_limit` | the rate limit for log lines that a frontend can cause |

pub(crate) mod connector;
pub(crate) mod control_queue;
pub(crate) mod dirty_log;
pub(crate) mod frontend;
pub(crate) mod frontend_source;
pub(crate) mod inflight;
pub(crate) mod log_limit;
pub(crate) mod lost_calls;
pub(crate) mod memory;
pub(crate) mod port;
pub(crate) mod publish;
pub(crate) mod rings;
pub(crate) mod running_ring;
pub(crate) mod shared;
pub(crate) mod state_channel;
pub(crate) mod state_transfer;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod thread;
