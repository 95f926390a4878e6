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
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(5) };

/// The time after which a switch that is silent about a long request counts as stuck.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

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
    #[error("the switch on {} did not answer within {} s", path.display(), after.as_secs())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// The time for which the client waited.
        after: Duration,
    },
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

/// Sends a request that may take long, such as a reload, as [`send`] does. Calls `still` every 5 seconds
/// until the answer comes, with the time so far.
///
/// # Errors
/// No switch listens there, or the switch does not answer within 10 minutes.
pub fn send_long(path: &Path, request: &Request, mut still: impl FnMut(Duration)) -> Result<String, RequestError> {
    let mut waited = Duration::ZERO;
    let mut waits_on = || {
        waited += PATIENCE;
        still(waited);
        waited < LONG_PATIENCE
    };
    match exchange_by(path, request, None, &mut waits_on) {
        Err(RequestError::Timeout { path, .. }) => Err(RequestError::Timeout { path, after: LONG_PATIENCE }),
        done => Ok(done?.0),
    }
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
        let reply = write_and_read(&mut reader, line.as_bytes(), &mut || false).map_err(|error| failed(path, error))?;
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
        _ if is_timeout(&error) => RequestError::Timeout { path: path.to_owned(), after: PATIENCE },
        _ => RequestError::Io { path: path.to_owned(), error },
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Sends a request. Returns the answer and the connection, which may have more to read.
pub(crate) fn exchange(
    path: &Path,
    request: &impl Serialize,
    fd: Option<BorrowedFd<'_>>,
) -> Result<(String, BufReader<UnixStream>), RequestError> {
    exchange_by(path, request, fd, &mut || false)
}

/// Sends a request as [`exchange`] does. Asks `waits_on` after each 5 seconds of silence whether to wait
/// on.
fn exchange_by(
    path: &Path,
    request: &impl Serialize,
    fd: Option<BorrowedFd<'_>>,
    waits_on: &mut dyn FnMut() -> bool,
) -> Result<(String, BufReader<UnixStream>), RequestError> {
    let mut line = serde_json::to_string(request).map_err(|error| failed(path, error.into()))?;
    line.push('\n');
    let is_cut = |done: &io::Result<(String, _)>| match done {
        Ok((answer, _)) => answer.is_empty(),
        Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset),
    };
    let mut done = send_and_read(path, &line, fd, waits_on);
    // The switch has closed without a byte: it may have taken us for a client that stalls, or it stops.
    if is_cut(&done) {
        done = send_and_read(path, &line, fd, waits_on);
    }
    let (answer, reader) = done.map_err(|error| failed(path, error))?;
    Ok((parse_reply(path, &answer)?, reader))
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
    line: &str,
    fd: Option<BorrowedFd<'_>>,
    waits_on: &mut dyn FnMut() -> bool,
) -> io::Result<(String, BufReader<UnixStream>)> {
    let stream = connect(path)?;
    let mut bytes = line.as_bytes();
    if let Some(fd) = fd {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        // The descriptor travels with the first bytes.
        match sendmsg(&stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            // The kernel sends no descriptors to a socket that changes nothing. The switch says so, in
            // its answer to a request without one.
            Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut reader = BufReader::new(stream);
    let answer = write_and_read(&mut reader, bytes, waits_on)?;
    Ok((answer, reader))
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Writes a request, and reads the line of its answer. The line is empty if the switch has closed.
fn write_and_read(
    reader: &mut BufReader<UnixStream>,
    request: &[u8],
    waits_on: &mut dyn FnMut() -> bool,
) -> io::Result<String> {
    match reader.get_mut().write_all(request) {
        // A switch that serves no more clients says why, and closes.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    let mut answer = Vec::new();
    // An interrupted read keeps the bytes before.
    while let Err(error) = reader.by_ref().take(MAX_ANSWER).read_until(b'\n', &mut answer) {
        match error.kind() {
            _ if is_timeout(&error) && waits_on() => {}
            io::ErrorKind::ConnectionReset if !answer.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut"));
            }
            _ => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(crate) fn invalid_answer(path: &Path, error: &serde_json::Error) -> RequestError {
    RequestError::InvalidAnswer { path: path.to_owned(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::ReloadRequest;

    /// The request may have changed something by then.
    #[test]
    fn a_request_is_not_sent_again_behind_a_part_of_an_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api");
        let listener = UnixListener::bind(&path).unwrap();
        let switch = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The kernel resets a connection whose end has not read all.
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(b"{\"ok\":").unwrap();
            drop(stream);
            listener
        });
        let error = send_long(&path, &Request::Ports, |_| ()).unwrap_err();
        assert!(error.to_string().contains("the answer was cut"), "{error}");
        let listener = switch.join().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_long_request_is_told_and_has_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api");
        let listener = UnixListener::bind(&path).unwrap();
        let (told, times) = channel();
        let switch = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            reader.read_line(&mut String::new()).unwrap();
            // The first half of the answer comes after two times of silence, the second one after two more.
            for half in ["{\"ok\":", "{}}\n"] {
                let _: [Duration; 2] = [times.recv().unwrap(), times.recv().unwrap()];
                reader.get_mut().write_all(half.as_bytes()).unwrap();
            }
        });
        let request = Request::Reload(ReloadRequest::default());
        let answer = send_long(&path, &request, |waited| _ = told.send(waited)).unwrap();
        assert_eq!(answer, "{}");
        switch.join().unwrap();
    }
}
