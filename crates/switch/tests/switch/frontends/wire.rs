//! Messages as a program sends them, and the strictest checks of answers that any program makes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use straightline_testing::PATIENCE;
use straightline_virtio::vhost_user::message::{FLAG_REPLY, VERSION, decode_u64};
use straightline_virtio::vhost_user::{Connection, Message, Request};

use super::table::Acks;

/// A connection to the backend.
pub(crate) struct Wire {
    connection: Connection,
    acks: Acks,
    /// True if REPLY_ACK is negotiated.
    pub(crate) reply_ack: bool,
}

impl Wire {
    pub(crate) fn connect(socket: &Path, acks: Acks) -> Result<Wire> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire { connection: Connection::new(stream), acks, reply_ack: false })
    }

    /// Sends a request that has no answer of its own, and waits for its acknowledgement if the
    /// program does.
    pub(crate) fn set(&self, request: Request, payload: Vec<u8>, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let wanted = match self.acks {
            Acks::All => true,
            Acks::AllAfter => request != Request::SetProtocolFeatures,
            Acks::Only(requests) => requests.contains(&request),
        };
        let message = Message::request(request, payload);
        if !(wanted && self.reply_ack) {
            return self.send(request, &message, fds);
        }
        self.send(request, &message.with_need_reply(), fds)?;
        let failed = number(request, &self.answer(request, 0)?.0)?;
        ensure!(failed == 0, "{request:?} is refused with {failed}");
        Ok(())
    }

    pub(crate) fn set_number(&self, request: Request, number: u64) -> Result<()> {
        self.set(request, number.to_ne_bytes().to_vec(), &[])
    }

    /// Sends a request that is answered with a number.
    pub(crate) fn get(&self, request: Request) -> Result<u64> {
        number(request, &self.ask(request, Vec::new(), 0)?.0)
    }

    /// Sends a request whose answer has so many descriptors.
    pub(crate) fn ask(&self, request: Request, payload: Vec<u8>, fds: usize) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.send(request, &Message::request(request, payload), &[])?;
        self.answer(request, fds)
    }

    fn send(&self, request: Request, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.connection.send(&message.to_bytes(), fds).with_context(|| format!("{request:?}"))
    }

    fn answer(&self, request: Request, wanted: usize) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        let received = self.connection.recv().with_context(|| format!("{request:?}"))?;
        let (answer, fds) = received.with_context(|| format!("the backend closes the connection at {request:?}"))?;
        ensure!(answer.request == request.code(), "{request:?} is answered by {}", answer.request);
        // QEMU, virtio-user and User Mode Linux compare all flags.
        ensure!(answer.flags == VERSION | FLAG_REPLY, "{request:?} is answered with flags {:#x}", answer.flags);
        ensure!(fds.len() == wanted, "{request:?} is answered with {} descriptors", fds.len());
        Ok((answer.payload, fds))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn number(request: Request, payload: &[u8]) -> Result<u64> {
    ensure!(payload.len() == 8, "{request:?} is answered with {} bytes", payload.len());
    decode_u64(payload).context("8 bytes")
}
