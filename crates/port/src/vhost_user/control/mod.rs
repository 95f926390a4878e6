//! The control side of a vhost-user port: its own thread, which serves one frontend after the
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `port` | the port as its users hold it: opened, changed, asked and stopped |
//! | `shared` | the state that the port's thread and its users share |
//! | `thread` | the port's own thread: one frontend after the other |
//! | `stop` | stop and pause, which make the thread leave its frontend |
//! | `frontend_source`, `connector` | the ways in which a port comes to a frontend |
//! | `poll` | waits for descriptors |
//! | `frontend` | a connected frontend: its state and its messages |
//!
//! Each of the following files handles one kind of message, or of work, of a connected frontend.
//! The state that the frontend keeps for it is in a file that does not know the frontend.
//!
//! | file | handles | state |
//! |---|---|---|
//! | `memory` | the guest's memory regions | |
//! | `rings` | rings that start and stop | `running_ring` |
//! | `publish` | the link that workers see | |
//! | `status` | the link's status as operators see it | |
//! | `dirty_log` | the log of writes while a guest is being moved | |
//! | `lost_calls` | calls that drivers do not answer, repeated | `call_watch` |
//! | `commands` | commands of the control queue | `control_queue` |
//! | `inflight` | tables of buffers in flight | `inflight_tables` |
//! | `state_transfer` | device state, moved from one backend to another | `transfer_thread`, `state_channel` |

pub(crate) mod call_watch;
pub(crate) mod commands;
pub(crate) mod connector;
pub(crate) mod control_queue;
pub(crate) mod dirty_log;
pub(crate) mod frontend;
pub(crate) mod frontend_source;
pub(crate) mod inflight;
pub(crate) mod inflight_tables;
pub(crate) mod lost_calls;
pub(crate) mod memory;
pub(crate) mod poll;
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
pub(crate) mod transfer_thread;
