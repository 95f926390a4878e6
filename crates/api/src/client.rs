//! The client of a running switch's API.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Answer, Command, ErrorCode, LinkRequest, PortRequest, Request};

/// The time after which a silent switch counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum length of an answer in bytes. Anything longer does not come from a switch.
const MAX_ANSWER: u64 = 1 << 30;

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process listens on the socket.
    #[error(
        "no switch listens on {}; start one, or name its socket with --api (a switch whose configuration has \
         no \"api\" has no socket)",
        .0.display()
    )]
    NotListening(PathBuf),
    /// The system refused, for example because this user may not connect.
    #[error("the request to the switch at {} failed: {error}{}", path.display(), access_remedy(error))]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The switch did not answer in time.
    #[error("the switch on {} did not answer within {} s", .0.display(), PATIENCE.as_secs())]
    Timeout(PathBuf),
    /// The switch answered with an error.
    #[error("the switch on {} says: {message}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The switch's message.
        message: String,
        /// The kind of error.
        code: ErrorCode,
        /// The thing that the error is about, if the switch names one.
        culprit: Option<String>,
        /// The place of the wrong entry in a change with several.
        index: Option<u64>,
    },
    /// The answer is not the answer of a switch.
    #[error("the process that listens on {} does not answer like a switch: {why}", path.display())]
    InvalidAnswer {
        /// The socket.
        path: PathBuf,
        /// The fault of the answer.
        why: String,
    },
}

/// Returns how a user gets access, if that is missing.
fn access_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; use sudo, or let a group of yours use the API: `api-group` in [switch]",
        _ => "",
    }
}

/// Asks the switch that listens at `path` for an answer of this type.
///
/// # Errors
/// No switch listens at `path`, or its answer is not of this type.
pub fn ask<A: Answer>(path: &Path) -> Result<A, RequestError> {
    let json = request(path, A::COMMAND)?;
    serde_json::from_str(&json).map_err(|error| invalid_answer(path, &error))
}

/// Sends a command without arguments to the switch that listens at `path`. Returns its answer as
/// JSON, unchanged, on one line.
///
/// # Errors
/// No switch listens there, or the switch does not answer.
pub fn request(path: &Path, command: Command) -> Result<String, RequestError> {
    #[derive(Serialize)]
    struct Word {
        cmd: &'static str,
    }
    Ok(exchange(path, &Word { cmd: command.as_str() }, None)?.0)
}

/// Sends a request to the switch that listens at `path`. Returns its answer as JSON, unchanged, on
/// one line.
///
/// # Errors
/// No switch listens there, or the switch does not answer.
pub fn send(path: &Path, request: &Request) -> Result<String, RequestError> {
    Ok(exchange(path, request, None)?.0)
}

/// Sends requests to the switch that listens at `path`, one after the other on one connection. Returns
/// the answer to the last one. A refused request is the last one that is sent.
///
/// # Errors
/// No switch listens there, or the switch refuses a request.
pub fn send_all(path: &Path, requests: impl IntoIterator<Item = Request>) -> Result<String, RequestError> {
    let stream = connect(path).map_err(|error| failed(path, error))?;
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    for request in requests {
        let mut line = serde_json::to_string(&request).map_err(|error| failed(path, error.into()))?;
        line.push('\n');
        let reply = write_and_read(&mut reader, line.as_bytes()).map_err(|error| failed(path, error))?;
        answer = parse_reply(path, &reply)?;
    }
    Ok(answer)
}

/// Sets a port's link down, or allows it to be up again, at the switch that listens at `path`.
///
/// # Errors
/// No switch listens there, or the switch has no such port.
pub fn set_link(path: &Path, port: &str, up: bool) -> Result<(), RequestError> {
    send(path, &Request::Link(LinkRequest { port: port.to_owned(), up })).map(drop)
}

/// A port that this process has added to a switch. The switch removes the port when this value is
/// dropped or the process ends.
#[derive(Debug)]
pub struct AddedPort {
    stream: UnixStream,
    path: PathBuf,
}

/// Adds a port to the switch that listens at `path`. `socket` listens, or is connected to a
/// frontend.
///
/// # Errors
/// No switch listens there, or the switch refuses the port.
pub fn add_port(path: &Path, port_request: &PortRequest, socket: BorrowedFd<'_>) -> Result<AddedPort, RequestError> {
    let (_, reader) = exchange(path, &Request::Port(port_request.clone()), Some(socket))?;
    Ok(AddedPort { stream: reader.into_inner(), path: path.to_owned() })
}

impl AddedPort {
    /// Removes the port, and waits until it is gone.
    ///
    /// # Errors
    /// The switch does not confirm the removal in time.
    pub fn end(mut self) -> Result<(), RequestError> {
        let gone = self.stream.shutdown(Shutdown::Write).and_then(|()| self.stream.read(&mut [0]));
        match gone {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(failed(&self.path, error)),
        }
    }
}

impl AsFd for AddedPort {
    /// The connection: it becomes readable when the switch has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

pub(crate) fn failed(path: &Path, error: io::Error) -> RequestError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => RequestError::NotListening(path.to_owned()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => RequestError::Timeout(path.to_owned()),
        _ => RequestError::Io { path: path.to_owned(), error },
    }
}

/// Sends a request. Returns the answer and the connection, which may have more to read.
pub(crate) fn exchange(
    path: &Path,
    request: &impl Serialize,
    fd: Option<BorrowedFd<'_>>,
) -> Result<(String, BufReader<UnixStream>), RequestError> {
    let line = serde_json::to_string(request).map_err(|error| failed(path, error.into()))?;
    let (line, reader) = send_and_read(path, line, fd).map_err(|error| failed(path, error))?;
    Ok((parse_reply(path, &line)?, reader))
}

/// Returns the answer in a line of the switch.
fn parse_reply(path: &Path, line: &str) -> Result<String, RequestError> {
    // The fields of `Refusal`, flat: a `RawValue` cannot pass serde's buffers.
    #[derive(Deserialize)]
    struct Reply {
        ok: Option<Box<RawValue>>,
        error: Option<String>,
        #[serde(default)]
        code: ErrorCode,
        culprit: Option<String>,
        index: Option<u64>,
    }
    match serde_json::from_str(line).map_err(|error| invalid_answer(path, &error))? {
        Reply { ok: Some(json), .. } => Ok(json.get().to_owned()),
        Reply { error: Some(message), code, culprit, index, .. } => {
            Err(RequestError::Refused { path: path.to_owned(), message, code, culprit, index })
        }
        Reply { .. } => {
            Err(RequestError::InvalidAnswer { path: path.to_owned(), why: "it has neither ok nor error".to_owned() })
        }
    }
}

fn send_and_read(
    path: &Path,
    mut line: String,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<(String, BufReader<UnixStream>)> {
    let stream = connect(path)?;
    line.push('\n');
    let mut bytes = line.into_bytes();
    if let Some(fd) = fd {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        // The descriptor travels with the first bytes.
        match sendmsg(&stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => drop(bytes.drain(..sent)),
            // The kernel sends no descriptors to a socket that changes nothing. The switch says so, in
            // its answer to a request without one.
            Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut reader = BufReader::new(stream);
    let answer = write_and_read(&mut reader, &bytes)?;
    Ok((answer, reader))
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Writes a request, and reads the line of its answer.
fn write_and_read(reader: &mut BufReader<UnixStream>, request: &[u8]) -> io::Result<String> {
    match reader.get_mut().write_all(request) {
        // A switch that serves no more clients says why, and closes.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    let mut answer = String::new();
    reader.by_ref().take(MAX_ANSWER).read_line(&mut answer)?;
    Ok(answer)
}

pub(crate) fn invalid_answer(path: &Path, error: &serde_json::Error) -> RequestError {
    RequestError::InvalidAnswer { path: path.to_owned(), why: error.to_string() }
}
