//! One client of the server: its input, its output, and its deadlines.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};

use super::{ErrorCode, Held, Refusal, Reply, Request, RequestHandler, Stream};

/// The maximum length of a request in bytes, including its newline.
pub(super) const MAX_REQUEST: usize = 4096;

/// A client that makes no progress for this long is disconnected, whether it reads or writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A client that has not read its whole answer after this time is disconnected, even if it makes
/// progress.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);

/// A connected client.
pub(super) struct Connection {
    /// The port that this client has added, or its stream. It is the first field so that it is
    /// dropped first: when the socket closes, the port is gone.
    held: Held,
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
            held: Held::Nothing,
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

    /// Returns the time at which the client is disconnected. A client that has a dynamic port and no
    /// answer to read may stay, and so may a client that has a stream.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let may_stay = match self.held {
            Held::Nothing => false,
            Held::DynamicPort(_) => self.output.is_empty(),
            Held::Stream(_) => !self.closing,
        };
        (!may_stay).then_some(self.deadline)
    }

    pub(super) fn has_dynamic_port(&self) -> bool {
        matches!(self.held, Held::DynamicPort(_))
    }

    pub(super) fn has_stream(&self) -> bool {
        matches!(self.held, Held::Stream(_))
    }

    /// Returns the event that the client waits for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Returns the stream whose next output the client can get now.
    pub(super) fn waiting_stream(&self) -> Option<&dyn Stream> {
        match &self.held {
            Held::Stream(stream) if self.output.is_empty() => Some(&**stream),
            _ => None,
        }
    }

    /// Makes progress without waiting. Returns false when the client is done. `streams` is the
    /// number of clients that have a stream.
    pub(super) fn step(&mut self, handler: &RequestHandler, streams: &mut usize, now: Instant) -> bool {
        loop {
            let moved = match (self.output.is_empty(), &self.held) {
                (false, _) => self.write(now),
                (true, Held::Stream(_)) => return self.step_stream(now),
                (true, _) => self.read(handler, streams, now),
            };
            match moved {
                Ok(true) => {}
                Ok(false) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Gives a client more of its stream. A stream that always has more must not keep the thread from
    /// the other clients, so it is filled once.
    fn step_stream(&mut self, now: Instant) -> bool {
        if !self.closing {
            // The client sends nothing but the end of its interest.
            let mut buffer = [0; 64];
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                // The client gets the rest: what the stream has now.
                Ok((_, 0)) => self.close(now),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        let Held::Stream(stream) = &mut self.held else { return false };
        self.written = 0;
        let has_more = stream.fill(&mut self.output);
        if !has_more || self.closing && self.output.is_empty() {
            self.close(now);
            self.held = Held::Nothing;
        }
        loop {
            if self.output.is_empty() {
                return self.has_stream();
            }
            match self.write(now) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// From now on the client reads the rest of its stream, with the time limits of an answer.
    fn close(&mut self, now: Instant) {
        if !self.closing {
            self.closing = true;
            self.deadline = now + PATIENCE;
            self.end_of_write = now + MAX_WRITE_TIME;
        }
    }

    /// Reads until there is a request, and answers it. Returns false when the client is done.
    fn read(&mut self, handler: &RequestHandler, streams: &mut usize, now: Instant) -> rustix::io::Result<bool> {
        if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let fd = self.fd.take();
            let reply = Request::parse(&line).and_then(|request| handler.answer(&request, fd, &self.held, *streams));
            match reply {
                Ok(Reply { line, held }) => {
                    if matches!(held, Held::Stream(_)) {
                        *streams += 1;
                        // A stream is the last answer of a connection.
                        self.input.clear();
                    }
                    if !matches!(held, Held::Nothing) {
                        self.held = held;
                    }
                    self.answer(line, now);
                }
                Err(refusal) => self.answer(failure(&refusal), now),
            }
            return Ok(true);
        }
        if self.input.len() >= MAX_REQUEST {
            self.input.clear();
            self.closing = true;
            let error = format!("the request is too long; send at most {MAX_REQUEST} bytes");
            self.answer(failure(&Refusal::new(ErrorCode::BadRequest, error)), now);
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

fn failure(refusal: &Refusal) -> String {
    // Only a map with keys that are no strings could fail to serialise.
    serde_json::to_string(refusal).unwrap_or_else(|_| "{\"error\":\"internal\",\"code\":\"internal\"}".to_owned())
}
