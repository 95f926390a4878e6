//! The process that makes sockets for a process without privileges, and gives them to other users.
//!
//! Both ends are here, without the sandboxes of the two processes: [`SocketMaker`] is the end of the
//! process without privileges, and [`MakerServer`] is the loop of the other.
//!
//! The two share a pair of `SOCK_SEQPACKET` sockets. Each message is a JSON value:
//!
//! 1. The client names the folders of the configuration's sockets, one message each, and the sandbox
//!    that the maker is to enter. So far the client is trusted: it has its privileges still.
//! 2. The maker enters its sandbox, and answers with a [`HelperProcess`].
//! 3. The client asks for a socket at a path. The maker binds it, and remembers device and inode of
//!    the file. The client gets the socket and a number. It may have the file's owner and permission
//!    bits set, or the file removed, by that number. So it reaches no file that the maker did not
//!    make.
//!
//! The maker ends when the client's socket closes. It removes the files that are left.
//!
//! [`HelperProcess`]: crate::HelperProcess

mod client;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{SocketFileError, SocketStep};
use crate::helper_channel::{HelperProcess, HelperSandbox};
use crate::socket::socket_path::SocketState;
pub(super) use client::MadeFile;
pub use client::SocketMaker;
pub use server::MakerServer;

/// The most folders of a configuration.
const MAX_FOLDERS: usize = 1 << 16;

/// A message of the client.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// The next folder of the configuration.
    Folder(PathBuf),
    /// All folders are named: enter the sandbox and serve.
    Begin(HelperSandbox),
    /// Do this.
    Ask {
        /// The number that the answer repeats.
        id: u64,
        task: Task,
    },
}

/// A task of the maker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Task {
    /// Find out what is at this path.
    Look(PathBuf),
    /// Remove a stale socket at this path.
    Clear(PathBuf),
    /// Make a socket at this path.
    Bind(PathBuf),
    /// Set the owner, group and permission bits of the file with this number.
    Set { file: u64, owner: Option<u32>, group: Option<u32>, mode: u32 },
    /// Remove the file with this number.
    Remove(u64),
}

/// An answer of the maker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// The maker serves.
    Begun(HelperProcess),
    /// The maker cannot serve.
    CannotBegin(String),
    /// The end of the task with this number.
    Done { id: u64, end: End },
}

/// The end of a task.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum End {
    /// The path is in this state, after a stale socket was removed for [`Task::Clear`].
    Found(SocketState),
    /// The file has this number. Its socket comes with this message.
    Bound(u64),
    /// The file was changed or removed.
    Changed,
    Failed(Failure),
}

/// A step that failed in the maker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Failure {
    step: SocketStep,
    /// The system's number of the error, if it has one.
    errno: Option<i32>,
    message: String,
}

impl Failure {
    fn new(step: SocketStep, error: &io::Error) -> Self {
        Failure { step, errno: error.raw_os_error(), message: error.to_string() }
    }
}

impl From<Failure> for SocketFileError {
    fn from(Failure { step, errno, message }: Failure) -> Self {
        SocketFileError { step, source: errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error) }
    }
}
