//! One client of the server: its input, its output, and its deadlines.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use serde::Serialize;

use super::{DynamicPortGuard, RequestHandler};

/// The maximum length of a request in bytes, including its newline.
pub(super) const MAX_REQUEST: usize = 4096;

/// A client that makes no progress for this long is disconnected, whether it reads or writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A client that has not read its whole answer after this time is disconnected, even if it makes
/// progress.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);

/// A connected client.
pub(super) struct Connection {
    /// The port that this client has added. It is the first field so that it is dropped first: when
    /// the socket closes, the port is gone.
    dynamic_port: Option<DynamicPortGuard>,
    /// The descriptor that came with the request.
    fd: Option<OwnedFd>,
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// The time at which the client is disconnected unless it makes progress.
    deadline: Instant,
    /// The time by which the present answer must be written.
    end_of_write: Instant,
    /// True if no more input is read: the client has sent its last byte, or a request that is too
    /// long.
    closing: bool,
}

impl Connection {
    /// Creates a client on this socket, which does not block.
    pub(super) fn new(socket: OwnedFd, now: Instant) -> Self {
        Self {
            dynamic_port: None,
            fd: None,
            socket,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            deadline: now + PATIENCE,
            end_of_write: now,
            closing: false,
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns the time at which the client is disconnected. `None` while it has a dynamic port and
    /// no answer to read.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.has_dynamic_port() || !self.output.is_empty()).then_some(self.deadline)
    }

    pub(super) fn has_dynamic_port(&self) -> bool {
        self.dynamic_port.is_some()
    }

    /// Returns the event that the client waits for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Makes as much progress as possible without waiting. Returns false when the client is done.
    pub(super) fn step(&mut self, handler: &RequestHandler, now: Instant) -> bool {
        loop {
            let moved = if self.output.is_empty() { self.read(handler, now) } else { self.write(now) };
            match moved {
                Ok(true) => {}
                Ok(false) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Reads until there is a request, and answers it. Returns false when the client is done.
    fn read(&mut self, handler: &RequestHandler, now: Instant) -> rustix::io::Result<bool> {
        if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let fd = self.fd.take();
            let line = respond(&line, fd, handler, &mut self.dynamic_port);
            self.answer(line, now);
            return Ok(true);
        }
        if self.input.len() >= MAX_REQUEST {
            self.input.clear();
            self.closing = true;
            self.answer(failure(format!("the request is too long; send at most {MAX_REQUEST} bytes")), now);
            return Ok(true);
        }
        if self.closing {
            return Ok(false);
        }
        let mut buffer = [0; MAX_REQUEST];
        let free = MAX_REQUEST - self.input.len();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let count = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer[..free])], &mut control, flags)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                // A request has one descriptor. The kernel closes descriptors that do not fit;
                // descriptors that no request uses are closed here.
                self.fd = rights.next();
            }
        }
        self.input.extend_from_slice(&buffer[..count]);
        if count == 0 {
            self.closing = true;
            // A last line without a newline is a request as well.
            if !self.input.is_empty() {
                self.input.push(b'\n');
            }
        }
        Ok(true)
    }

    fn answer(&mut self, line: String, now: Instant) {
        self.output = line.into_bytes();
        self.output.push(b'\n');
        self.written = 0;
        self.deadline = now + PATIENCE;
        self.end_of_write = now + MAX_WRITE_TIME;
    }

    fn write(&mut self, now: Instant) -> rustix::io::Result<bool> {
        // NOSIGNAL: a client that left must not end the process that embeds the switch.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.written += send(&self.socket, &self.output[self.written..], flags)?;
        self.deadline = (now + PATIENCE).min(self.end_of_write);
        if self.written == self.output.len() {
            self.output = Vec::new();
            self.deadline = now + PATIENCE;
        }
        Ok(true)
    }
}

/// Returns the answer line to a request line.
fn respond(
    line: &[u8],
    fd: Option<OwnedFd>,
    handler: &RequestHandler,
    dynamic_port: &mut Option<DynamicPortGuard>,
) -> String {
    match serde_json::from_slice(line) {
        Ok(request) => handler.answer(&request, fd, dynamic_port).unwrap_or_else(failure),
        Err(error) => failure(format!("not a request: {error}; write for example {{\"cmd\":\"ports\"}}")),
    }
}

fn failure(error: String) -> String {
    #[derive(Serialize)]
    struct Bad {
        error: String,
    }
    // Only a map with keys that are no strings could fail to serialise.
    serde_json::to_string(&Bad { error }).unwrap_or_else(|_| "{\"error\":\"internal\"}".to_owned())
}
