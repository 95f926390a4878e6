//! Messages and file descriptors over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::message::{HEADER_LEN, Header, MAX_FDS, MAX_PAYLOAD, Message};

/// One end of a vhost-user connection. Calls block. A peer that stops in the middle of a message,
/// or does not read, blocks only the thread that waits for it. A [`Stopper`] frees that thread.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    /// Creates a connection on a connected stream, which must block.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Returns the stream, for timeouts, for the credentials of the peer, and for waiting on
    /// several streams.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns a handle with which another thread can end this connection.
    pub fn stopper(&self) -> io::Result<Stopper> {
        Ok(Stopper { stream: self.stream.try_clone()? })
    }

    /// Receives the next message with its file descriptors; `None` if the peer closed between two
    /// messages.
    ///
    /// After an error the stream may be in the middle of a message: close the connection.
    /// Descriptors that came before the error are closed.
    pub fn recv(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut fds = Vec::new();
        let mut header = [0; HEADER_LEN];
        match self.fill(&mut header, &mut fds)? {
            0 => return Ok(None),
            HEADER_LEN => {}
            got => return Err(cut_off(got, HEADER_LEN, "a header")),
        }
        let Header { request, flags, size } = Header::decode(&header);
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_PAYLOAD).ok_or_else(|| {
            invalid(format!("request {request} has a payload of {size} bytes; at most {MAX_PAYLOAD} are accepted"))
        })?;
        let mut payload = vec![0; size];
        let got = self.fill(&mut payload, &mut fds)?;
        if got != size {
            return Err(cut_off(got, size, "a payload"));
        }
        Ok(Some((Message { request, flags, payload }, fds)))
    }

    /// Sends bytes, and file descriptors together with the first of them.
    pub fn send(&self, mut bytes: &[u8], mut fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if fds.len() > MAX_FDS {
            return Err(invalid(format!(
                "{} file descriptors are too many for one message; at most {MAX_FDS} can be sent",
                fds.len()
            )));
        }
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                let fits = control.push(SendAncillaryMessage::ScmRights(fds));
                debug_assert!(fits, "the space is for as many as may be sent");
            }
            // NOSIGNAL: if the peer is gone, this call fails, and the process gets no SIGPIPE.
            match sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    bytes = bytes.get(sent..).unwrap_or(&[]);
                    fds = &[];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads until the buffer is full or the peer closes, and returns the number of bytes. It never
    /// reads beyond the buffer, so that the next message's descriptors stay with that message.
    fn fill(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buffer[filled..])];
            let received = match recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            // The kernel closed the descriptors that did not fit, so the message is incomplete.
            if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_FDS {
                return Err(invalid(format!(
                    "a message has more than {MAX_FDS} file descriptors, or this process has none left to receive them"
                )));
            }
            if received.bytes == 0 {
                break;
            }
            filled += received.bytes;
        }
        Ok(filled)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Ends a connection from another thread.
#[derive(Debug)]
pub struct Stopper {
    stream: UnixStream,
}

impl Stopper {
    /// Ends both directions. A thread that waits in `recv` sees the end of the connection. A thread
    /// that waits in `send` gets an error.
    pub fn stop(&self) {
        // The only possible error is that the peer has closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn cut_off(got: usize, want: usize, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the peer closed after {got} of {want} bytes of {what}"))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;
    use std::thread::{self, JoinHandle};

    use straightline_testing::KernelThread;

    use super::*;
    use crate::vhost_user::Request;
    use crate::vhost_user::message::VringState;

    fn pair() -> (Connection, Connection) {
        let (a, b) = UnixStream::pair().unwrap();
        (Connection::new(a), Connection::new(b))
    }

    fn request() -> Message {
        Message::request(Request::SetVringNum, VringState { index: 3, num: 256 }.encode())
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    #[test]
    fn messages_follow_each_other_with_their_own_descriptors() {
        let (a, b) = pair();
        let (reader, writer) = pipe();
        a.send(&request().to_bytes(), &[]).unwrap();
        a.send(&request().to_bytes(), &[reader.as_fd(), writer.as_fd()]).unwrap();
        a.send(&Message::request(Request::SetOwner, Vec::new()).to_bytes(), &[]).unwrap();
        drop(a);
        let counts: Vec<_> = std::iter::from_fn(|| b.recv().unwrap())
            .map(|(message, fds)| (message.request, message.payload.len(), fds.len()))
            .collect();
        assert_eq!(counts, [(8, 8, 0), (8, 8, 2), (3, 0, 0)]);
    }

    #[test]
    fn received_descriptors_close_on_exec() {
        let (a, b) = pair();
        let (reader, _writer) = pipe();
        a.send(&request().to_bytes(), &[reader.as_fd()]).unwrap();
        let (_, fds) = b.recv().unwrap().unwrap();
        let flags = rustix::io::fcntl_getfd(&fds[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_message_may_come_byte_by_byte_and_its_descriptors_with_any_of_them() {
        let (a, b) = pair();
        let bytes = request().to_bytes();
        let (reader, _writer) = pipe();
        let sender = thread::spawn(move || {
            for (i, byte) in bytes.iter().enumerate() {
                // One descriptor with the first byte of the header, one with the last, one with the
                // payload.
                let fds = [reader.as_fd()];
                let with = [0, HEADER_LEN - 1, HEADER_LEN + 3].contains(&i);
                a.send(&[*byte], if with { &fds } else { &[] }).unwrap();
            }
        });
        let (message, fds) = b.recv().unwrap().unwrap();
        assert_eq!(message, request());
        assert_eq!(fds.len(), 3);
        sender.join().unwrap();
        assert!(b.recv().unwrap().is_none());
    }

    #[test]
    fn an_end_within_a_message_is_an_error() {
        let bytes = request().to_bytes();
        for len in 1..bytes.len() {
            let (a, b) = pair();
            a.send(&bytes[..len], &[]).unwrap();
            drop(a);
            assert_eq!(b.recv().unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }

    #[test]
    fn a_large_payload_is_refused_by_its_header() {
        for size in [MAX_PAYLOAD + 1, u32::MAX as usize] {
            let (a, b) = pair();
            let mut header = request().to_bytes();
            header.truncate(8);
            header.extend(u32::try_from(size).unwrap().to_ne_bytes());
            a.send(&header, &[]).unwrap();
            assert_eq!(b.recv().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let (a, b) = pair();
        let whole = Message { request: 77, flags: 1, payload: vec![9; MAX_PAYLOAD] };
        a.send(&whole.to_bytes(), &[]).unwrap();
        assert_eq!(b.recv().unwrap().unwrap().0, whole);
    }

    #[test]
    fn eight_descriptors_pass_and_more_are_an_error() {
        let (reader, _writer) = pipe();
        let (a, b) = pair();
        a.send(&request().to_bytes(), &[reader.as_fd(); MAX_FDS]).unwrap();
        assert_eq!(b.recv().unwrap().unwrap().1.len(), MAX_FDS);
        assert!(a.send(&request().to_bytes(), &[reader.as_fd(); MAX_FDS + 1]).is_err());
        // Nine descriptors in two parts of one message.
        let bytes = request().to_bytes();
        a.send(&bytes[..4], &[reader.as_fd(); 5]).unwrap();
        a.send(&bytes[4..], &[reader.as_fd(); 4]).unwrap();
        assert_eq!(b.recv().unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Nine or more at once, from a sender without our limit.
        for count in [9, 10, 40] {
            let (a, b) = pair();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let many = vec![reader.as_fd(); count];
            assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
            sendmsg(a.stream(), &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
            assert_eq!(b.recv().unwrap_err().kind(), io::ErrorKind::InvalidData, "{count}");
        }
    }

    /// Starts a thread, and waits until the thread waits for its peer.
    fn blocked<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            tell.send(KernelThread::current()).unwrap();
            f()
        });
        told.recv().unwrap().wait_until_blocked("the thread waits for its peer");
        thread
    }

    #[test]
    fn a_stopper_frees_a_thread_that_waits_for_a_stalled_peer() {
        // In the middle of a message.
        let mut a = UnixStream::pair().unwrap().0;
        let b = pair();
        let stopper = b.1.stopper().unwrap();
        let (peer, stalled) = b;
        peer.send(&request().to_bytes()[..5], &[]).unwrap();
        let waiter = blocked(move || stalled.recv());
        stopper.stop();
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(a.write(&[0]).is_err(), "a peer that is gone is an error and no signal");

        // Between messages.
        let (_peer, idle) = pair();
        let stopper = idle.stopper().unwrap();
        let waiter = blocked(move || idle.recv());
        stopper.stop();
        assert!(waiter.join().unwrap().unwrap().is_none());

        // A peer that does not read.
        let (_peer, writer) = pair();
        let stopper = writer.stopper().unwrap();
        let waiter = blocked(move || writer.send(&vec![0; 16 << 20], &[]));
        stopper.stop();
        assert!(waiter.join().unwrap().is_err());
    }
}
