//! The socket between this process and a helper process: JSON messages with descriptors.
//!
//! A helper process keeps privileges that this process has given up. It is this program once more,
//! and serves this process alone: one opens interfaces (`device/helper`), another makes sockets for
//! other users (`socket_file/maker`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use straightline_graph::Clock;

/// Bytes of the longest message.
pub(crate) const MAX_MESSAGE: usize = 1 << 16;

/// The most descriptors of one message. The kernel allows 253 (`SCM_MAX_FD`).
pub(crate) const MAX_DESCRIPTORS: usize = 250;

/// The sandbox that a helper process is to enter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperSandbox {
    /// The names of the mechanisms.
    pub mechanisms: Vec<String>,
    /// True if the helper must not start without one of them.
    pub required: bool,
}

/// Facts about a helper process that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperProcess {
    /// Its process id.
    pub pid: u32,
    /// The names of the capabilities that it keeps.
    pub capabilities: Vec<String>,
    /// The names of the mechanisms that confine it.
    pub mechanisms: Vec<String>,
}

/// The reason why client and helper cannot work together.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The other process has ended, or closed its socket.
    #[error("the other process has ended")]
    Ended,
    /// The other process does not answer.
    #[error("the other process has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// The message is not one of this protocol.
    #[error("the other process sent an invalid message: {0}")]
    Invalid(String),
    /// The helper cannot enter its sandbox.
    #[error("{0}")]
    CannotBegin(String),
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    clock: Clock,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd, clock: Clock) -> Self {
        Channel { socket, clock }
    }

    /// Returns the end of the time that the other process has for an answer.
    pub(crate) fn end_of(&self, patience: Duration) -> Instant {
        self.clock.now() + patience
    }

    /// Sends a message with at most [`MAX_DESCRIPTORS`] descriptors.
    pub(crate) fn send(&self, message: &impl Serialize, fds: &[OwnedFd]) -> Result<(), HelperError> {
        let bytes = serde_json::to_vec(message).map_err(|error| HelperError::Invalid(error.to_string()))?;
        if bytes.len() > MAX_MESSAGE {
            return Err(HelperError::Invalid(format!("it has {} bytes, at most {MAX_MESSAGE} are sent", bytes.len())));
        }
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(HelperError::Invalid(format!("{} descriptors, at most {MAX_DESCRIPTORS} fit", fds.len())));
        }
        match retry_on_intr(|| sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(HelperError::Ended),
            Err(error) => Err(HelperError::Io(error.into())),
        }
    }

    /// Receives a message. Descriptors that come with it are closed.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Result<T, HelperError> {
        // Without space for them, the kernel closes all descriptors.
        self.receive_into(&mut RecvAncillaryBuffer::default(), false)
    }

    /// Receives a message by this time, and adds the descriptors that come with it to `fds`.
    pub(crate) fn receive_with<T: DeserializeOwned>(
        &self,
        until: Instant,
        patience: Duration,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<T, HelperError> {
        if !self.wait(until)? {
            return Err(HelperError::Silent(patience));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = self.receive_into(&mut control, true);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        received
    }

    fn receive_into<T: DeserializeOwned>(
        &self,
        control: &mut RecvAncillaryBuffer<'_>,
        wants_fds: bool,
    ) -> Result<T, HelperError> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let received = retry_on_intr(|| {
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer)], control, RecvFlags::CMSG_CLOEXEC)
        });
        let received = match received {
            Ok(received) => received,
            Err(Errno::CONNRESET) => return Err(HelperError::Ended),
            Err(error) => return Err(HelperError::Io(error.into())),
        };
        // A message of no bytes looks like the end, and is treated as the end.
        if received.bytes == 0 {
            return Err(HelperError::Ended);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(HelperError::Invalid(format!("it is longer than {MAX_MESSAGE} bytes")));
        }
        // A receiver without space for descriptors wants none.
        if received.flags.contains(ReturnFlags::CTRUNC) && wants_fds {
            return Err(HelperError::Invalid(
                "this process has too few free descriptors: raise the limit (`ulimit -n`)".to_owned(),
            ));
        }
        serde_json::from_slice(&buffer[..received.bytes]).map_err(|error| HelperError::Invalid(error.to_string()))
    }

    /// Waits until there is a message or the other end is closed. Returns `false` if there is
    /// neither by this time.
    fn wait(&self, until: Instant) -> Result<bool, HelperError> {
        loop {
            match self.clock.poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(until)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(HelperError::Io(error.into())),
            }
        }
    }

    /// Returns whether the other end is open.
    pub(crate) fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())));
        polled.is_ok() && !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Closes our direction, and waits at most for `limit` until the other end is closed.
    pub(crate) fn end(&self, limit: Duration) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        let until = self.clock.now() + limit;
        // Late answers are discarded.
        while self.wait(until).is_ok_and(|ready| ready) {
            match self.receive::<serde_json::Value>() {
                Ok(_) | Err(HelperError::Invalid(_)) => {}
                Err(_) => return,
            }
        }
    }
}
