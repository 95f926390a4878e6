//! The control side of a vhost-user port: its own thread, which serves one frontend after the other.
//!
//! | file | holds |
//! |---|---|
//! | `thread` | the port's own thread: one frontend after the other |
//! | `frontend` | a connected frontend: its messages, its memory |
//! | `rings` | rings that start and stop |
//! | `dirty_log` | the log of what we write while a guest is being moved |
//! | `calls` | calls that drivers do not answer, repeated |
//! | `commands` | the control queue |
//! | `inflight` | tables of buffers in flight |
//! | `transfer` | device state, moved from one backend to another |
//! | `channel` | the pipe, socket or file that device state moves through |
//! | `listener` | the socket file: made with its owner and permissions, a stale one replaced |
//! | `connector` | the connection to a frontend that listens itself |
//! | `status` | the link's status, as operators see it |
//! | `history` | the link's changes, and why it was down |
//! | `peer` | the process at the other end of a socket |
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
