//! Asks a running switch.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Changes, Command, Drops, Fdb, Ports, Runtime, Status};

/// A switch that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// No answer is as long as this, so what is does not come from a switch.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nobody listens.
    #[error(
        "no switch listens on {}; a switch whose configuration has no \"api\" listens nowhere, \
         and --api names another socket",
        .0.display()
    )]
    Nobody(PathBuf),
    /// The system refused, for example because we may not connect.
    #[error("cannot ask the switch on {}: {error}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The switch did not answer in time.
    #[error("the switch on {} did not answer within {} s", .0.display(), PATIENCE.as_secs())]
    Timeout(PathBuf),
    /// The switch answered that it cannot.
    #[error("the switch on {} says: {message}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// Its words.
        message: String,
    },
    /// What came back is no answer that we know.
    #[error("what listens on {} does not answer like a switch: {why}", path.display())]
    Nonsense {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// An answer's type, which knows its command.
pub trait Answer: DeserializeOwned {
    /// The command that it answers.
    const COMMAND: Command;
}

impl Answer for Status {
    const COMMAND: Command = Command::Status;
}
impl Answer for Ports {
    const COMMAND: Command = Command::Ports;
}
impl Answer for Fdb {
    const COMMAND: Command = Command::Fdb;
}
impl Answer for Runtime {
    const COMMAND: Command = Command::Runtime;
}
impl Answer for Drops {
    const COMMAND: Command = Command::Drops;
}
impl Answer for Changes {
    const COMMAND: Command = Command::Reload;
}

/// Asks the switch that listens at `path` for an answer of this type.
///
/// # Errors
/// If nobody listens there, or no such answer comes back.
pub fn ask<A: Answer>(path: &Path) -> Result<A, RequestError> {
    let json = request(path, A::COMMAND)?;
    serde_json::from_str(&json).map_err(|error| nonsense(path, &error))
}

/// Asks the switch that listens at `path`; its answer as JSON, unchanged, on one line.
///
/// # Errors
/// If nobody listens there, or no answer comes back.
pub fn request(path: &Path, command: Command) -> Result<String, RequestError> {
    let line = exchange(path, command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => RequestError::Nobody(path.to_owned()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => RequestError::Timeout(path.to_owned()),
        _ => RequestError::Io { path: path.to_owned(), error },
    })?;
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Reply {
        Ok(Box<RawValue>),
        Error(String),
    }
    match serde_json::from_str(&line) {
        Ok(Reply::Ok(json)) => Ok(json.get().to_owned()),
        Ok(Reply::Error(message)) => Err(RequestError::Refused { path: path.to_owned(), message }),
        Err(error) => Err(nonsense(path, &error)),
    }
}

fn exchange(path: &Path, command: Command) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{{\"cmd\":\"{}\"}}", command.as_str())?;
    let mut line = String::new();
    BufReader::new(stream).take(LONGEST_ANSWER).read_line(&mut line)?;
    Ok(line)
}

fn nonsense(path: &Path, error: &serde_json::Error) -> RequestError {
    RequestError::Nonsense { path: path.to_owned(), why: error.to_string() }
}
