//! The client's side of a stream.

use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::client::{exchange, failed};
use super::{Request, RequestError};

/// A stream that the switch sends. Dropping it ends the stream.
///
/// Reading waits until the switch sends more. It returns the end when the switch has ended, or has
/// no more to send.
#[derive(Debug)]
pub struct StreamReader {
    answer: String,
    reader: BufReader<UnixStream>,
}

/// A handle that ends a stream while another thread reads it.
#[derive(Debug)]
pub struct StreamEnd(UnixStream);

/// Sends a request whose answer is a stream to the switch that listens at `path`. Waits for the
/// first line: the answer to the request.
///
/// # Errors
/// No switch listens there, or the switch refuses the request.
pub fn stream(path: &Path, request: &Request) -> Result<StreamReader, RequestError> {
    let (answer, reader) = exchange(path, request, None)?;
    // The next bytes may come late, so reading has no time limit any more.
    reader.get_ref().set_read_timeout(None).map_err(|error| failed(path, error))?;
    Ok(StreamReader { answer, reader })
}

impl StreamReader {
    /// Returns the first answer as JSON, on one line.
    #[must_use]
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// Returns the bytes that are here already. The descriptor does not become readable for them.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        self.reader.buffer()
    }

    /// Returns a handle that ends the stream.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn ender(&self) -> io::Result<StreamEnd> {
        self.reader.get_ref().try_clone().map(StreamEnd)
    }
}

impl StreamEnd {
    /// Asks the switch to end the stream. The reader still gets what the switch has so far, and
    /// then the end.
    ///
    /// # Errors
    /// The stream has ended already.
    pub fn end(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for StreamReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
    }
}

impl AsFd for StreamReader {
    /// The connection. It is readable when more has come than [`Self::buffered`] returns.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}
