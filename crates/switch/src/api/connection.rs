//! One client of the server: its input, its output, and its deadlines.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use straightline_graph::Clock;

use super::places::Place;
use super::server::Shared;
use super::{ErrorCode, Held, Readiness, Refusal, Reply, Request, failure};

/// The maximum length of a request in bytes, including its newline.
pub(super) const MAX_REQUEST: usize = 4096;

/// A client that makes no progress for this long is disconnected, whether it reads or writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A client that has not read its whole answer after this time is disconnected, even if it makes
/// progress.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);

/// A connected client. Its thread alone receives from it and closes what it has sent.
pub(super) struct Connection {
    /// The port that this client has added, or its stream. It goes first: when the socket closes,
    /// the port is gone.
    held: Held,
    /// The descriptor that came with the request.
    fd: Option<OwnedFd>,
    /// A second descriptor of the dynamic port's socket. So no thread but this one closes the socket
    /// for the last time.
    port_socket: Option<OwnedFd>,
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    clock: Clock,
    /// The time at which the client is disconnected unless it makes progress.
    deadline: Instant,
    /// The time by which the present answer must be written.
    end_of_write: Instant,
    /// True if no more input is read: the client has sent its last byte, or a request that is too
    /// long.
    closing: bool,
    /// The place of the answer that is being written.
    answer: Option<Place>,
    place: Place,
}

impl Connection {
    /// Creates a client on this socket, which does not block.
    pub(super) fn new(socket: OwnedFd, place: Place, clock: Clock) -> Self {
        let now = clock.now();
        Self {
            held: Held::Nothing,
            fd: None,
            port_socket: None,
            socket,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            clock,
            deadline: now + PATIENCE,
            end_of_write: now,
            closing: false,
            answer: None,
            place,
        }
    }

    /// Serves the client until it is done or the API stops.
    pub(super) fn run(mut self, shared: &Shared) {
        // The thread may begin late.
        self.deadline = self.clock.now() + PATIENCE;
        while self.wait(shared) && self.step(shared) {}
        let Self { held, fd, port_socket, socket, answer, place, .. } = self;
        drop((held, answer));
        shared.closing(|| drop((fd, port_socket, socket)));
        drop(place);
    }

    /// Waits until something can be done for the client. Returns false if its time is up, or the
    /// API stops.
    fn wait(&self, shared: &Shared) -> bool {
        loop {
            let now = self.clock.now();
            let deadline = self.deadline();
            let interest = if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            let mut fds = vec![PollFd::new(shared.stop(), PollFlags::IN), PollFd::new(&self.socket, interest)];
            let mut until = deadline;
            if let Held::Stream(stream) = &self.held
                && self.output.is_empty()
            {
                match stream.readiness() {
                    Readiness::Descriptor(fd) => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                    Readiness::From(time) if time <= now => return !shared.is_stopping(),
                    Readiness::From(time) => until = until.into_iter().chain([time]).min(),
                }
            }
            // This thread may have been away since the deadline. So it looks first, and judges then.
            match self.clock.poll(&mut fds, until) {
                Ok(0) if deadline.is_some_and(|deadline| deadline <= now) => return false,
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return fds[0].revents().is_empty(),
                Err(error) => {
                    tracing::error!("the API drops a client: poll: {error}");
                    return false;
                }
            }
        }
    }

    /// Returns the time at which the client is disconnected, or `None` if it may stay. Two clients may
    /// stay: one with a dynamic port that has read all answers, and one with a stream.
    fn deadline(&self) -> Option<Instant> {
        let may_stay = match self.held {
            Held::Nothing | Held::Lines(_) => false,
            Held::DynamicPort(_) => self.output.is_empty(),
            Held::Stream(_) => !self.closing,
        };
        (!may_stay).then_some(self.deadline)
    }

    /// Makes progress without waiting for the client. Returns false when the client is done.
    fn step(&mut self, shared: &Shared) -> bool {
        loop {
            let moved = match (self.output.is_empty(), &self.held) {
                (false, _) => self.write(),
                (true, Held::Stream(_)) => return self.step_stream(shared),
                (true, _) => self.read(shared),
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

    /// Gives a client more of its stream: what there is now.
    fn step_stream(&mut self, shared: &Shared) -> bool {
        if !self.closing {
            // The client sends nothing but the end of its interest.
            let mut buffer = [0; 64];
            match shared.closing(|| recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT)) {
                // The client gets the rest: what the stream has now.
                Ok((_, 0)) => self.close(),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        let Held::Stream(stream) = &mut self.held else { return false };
        self.written = 0;
        let has_more = stream.fill(&mut self.output);
        if !has_more || self.closing && self.output.is_empty() {
            self.close();
            self.held = Held::Nothing;
        }
        loop {
            if self.output.is_empty() {
                return matches!(self.held, Held::Stream(_));
            }
            match self.write() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// From now on the client reads the rest of its stream, with the time limits of an answer.
    fn close(&mut self) {
        if !self.closing {
            let now = self.clock.now();
            self.closing = true;
            self.deadline = now + PATIENCE;
            self.end_of_write = now + MAX_WRITE_TIME;
        }
    }

    /// Reads until there is a request, and answers it. Returns false when the client is done.
    fn read(&mut self, shared: &Shared) -> rustix::io::Result<bool> {
        if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            // An answer takes memory until the client has read it.
            self.answer = self.place.wait_for_answer();
            if self.answer.is_none() {
                return Ok(false);
            }
            match Request::parse(&line).and_then(|request| self.execute(&request, shared)) {
                Ok(Some(line)) => self.answer(line),
                Ok(None) => return Ok(false),
                Err(refusal) => self.answer(failure(&refusal)),
            }
            return Ok(true);
        }
        if self.input.len() >= MAX_REQUEST {
            self.input.clear();
            self.closing = true;
            let error = format!("the request is too long; send at most {MAX_REQUEST} bytes");
            self.answer(failure(&Refusal::new(ErrorCode::BadRequest, error)));
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
        let count = shared.closing(|| {
            let count = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer[..free])], &mut control, flags)?.bytes;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                    // A request has one descriptor. The kernel closes descriptors that do not fit;
                    // descriptors that no request uses are closed here.
                    self.fd = rights.next();
                }
            }
            Ok::<_, Errno>(count)
        })?;
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

    /// Executes a request. Returns the line of its answer, or none when the API stops.
    fn execute(&mut self, request: &Request, shared: &Shared) -> Result<Option<String>, Refusal> {
        let next_place = match request {
            Request::Port(_) => Some(self.place.dynamic_port()?),
            request if request.begins_stream() => Some(self.place.stream()?),
            _ => None,
        };
        let fd = self.fd.take();
        let second = fd.as_ref().map(OwnedFd::try_clone).transpose();
        let second = second.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()));
        let done = second.and_then(|second| shared.answer(request, second, &self.held));
        let Ok(Some(Reply { write_line, held })) = done else {
            shared.closing(|| drop(fd));
            return done.map(|_| None);
        };
        let line = match write_line() {
            Ok(line) => line,
            Err(refusal) => {
                shared.closing(|| drop(fd));
                return Err(refusal);
            }
        };
        match held {
            Held::Nothing => shared.closing(|| drop(fd)),
            Held::Lines(_) => {
                shared.closing(|| drop(fd));
                self.held = held;
                return Ok(Some(line));
            }
            Held::DynamicPort(_) => self.port_socket = fd,
            // A stream is the last answer of a connection.
            Held::Stream(_) => self.input.clear(),
        }
        if let Some(place) = next_place {
            (self.held, self.place) = (held, place);
        }
        Ok(Some(line))
    }

    fn answer(&mut self, line: String) {
        let now = self.clock.now();
        self.output = line.into_bytes();
        self.output.push(b'\n');
        self.written = 0;
        self.deadline = now + PATIENCE;
        self.end_of_write = now + MAX_WRITE_TIME;
    }

    fn write(&mut self) -> rustix::io::Result<bool> {
        // NOSIGNAL: a client that left must not end the process that embeds the switch.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.written += send(&self.socket, &self.output[self.written..], flags)?;
        // The answer may have taken long, so the client's time begins now.
        let now = self.clock.now();
        self.deadline = (now + PATIENCE).min(self.end_of_write);
        if self.written == self.output.len() {
            self.output = Vec::new();
            self.answer = None;
            self.deadline = now + PATIENCE;
        }
        Ok(true)
    }
}
