//! The helper process that opens interfaces for a process without privileges.
//!
//! Both ends are here, without the sandboxes of the two processes: [`Helper`] is the [`Opener`] of
//! the process without privileges, and [`HelperServer`] is the loop of the helper process.
//!
//! The two share a pair of `SOCK_SEQPACKET` sockets. Each message is a JSON value:
//!
//! 1. The client names the interfaces that the configuration has, one message each, and the sandbox
//!    that the helper is to enter. So far the client is trusted: it has its privileges still.
//! 2. The helper enters its sandbox, keeps the privileges that these interfaces take, and answers
//!    with a [`HelperProcess`].
//! 3. The client asks for interfaces by their number. It cannot name another one, nor other
//!    settings. The helper answers with facts and descriptors, or with an [`OpenError`].
//!
//! The helper ends when the client's socket closes. It restores the interfaces' settings first.
//!
//! [`Opener`]: super::Opener
//! [`OpenError`]: super::OpenError

mod client;
mod server;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use straightline_graph::DeviceFacts;

use super::{DeviceRequest, OpenError};
use crate::helper_channel::{HelperProcess, HelperSandbox};
pub use client::Helper;
pub use server::HelperServer;

/// The most interfaces of a configuration.
const MAX_REQUESTS: usize = 1 << 14;

/// A message of the client.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// The next interface of the configuration.
    Add(DeviceRequest),
    /// All interfaces are named: enter the sandbox and serve.
    Begin(HelperSandbox),
    /// Open this interface.
    Open {
        /// The number that the answer repeats.
        id: u64,
        /// The interface's number, by the order of [`Self::Add`].
        interface: usize,
    },
    /// Restore the settings of this interface. It has no answer.
    Close {
        /// The interface's number.
        interface: usize,
    },
}

/// An answer of the helper.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// The helper serves.
    Begun(HelperProcess),
    /// The helper cannot serve.
    CannotBegin(String),
    /// The interface is open. Messages that repeat the number bring its descriptors.
    Opened {
        /// The number of the request.
        id: u64,
        /// The facts.
        facts: DeviceFacts,
        /// The number of descriptors.
        descriptors: usize,
    },
    /// Descriptors of the interface with this number of the request come with this message.
    Descriptors(u64),
    /// The interface cannot be opened.
    Failed {
        /// The number of the request.
        id: u64,
        /// The reason.
        error: OpenError,
    },
    /// The message was none, and the helper has ignored it.
    Refused(String),
}
