//! The connection of a port to a frontend that listens. It is tried again and again, with a growing
//! pause.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use straightline_graph::DownCause;

/// The pause after the first attempt. A frontend that starts together with us listens within this
/// time.
const SHORTEST: Duration = Duration::from_millis(10);

/// The pause between attempts that keep failing. A connection that lasts less counts as a failure.
const LONGEST: Duration = Duration::from_secs(1);

/// The path to connect to, and the outcome of the attempts so far.
#[derive(Debug)]
pub(crate) struct Connector {
    path: PathBuf,
    pause: Duration,
    /// Attempts since the last connection.
    tries: u64,
    /// The error of the last attempt.
    failure: Option<String>,
}

/// An attempt that failed.
pub(crate) struct ConnectFailure {
    /// The error, and the number of attempts.
    pub(crate) why: String,
    pub(crate) cause: DownCause,
    /// True if the previous attempt failed for another reason, or if this was the first one.
    pub(crate) is_new: bool,
    /// The pause before the next attempt.
    pub(crate) pause: Duration,
}

impl Connector {
    pub(crate) fn new(path: &Path) -> Self {
        Connector { path: path.to_owned(), pause: SHORTEST, tries: 0, failure: None }
    }

    /// Tries once, and does not wait.
    pub(crate) fn connect(&mut self) -> Result<UnixStream, ConnectFailure> {
        self.tries += 1;
        match self.try_once() {
            Ok(stream) => {
                (self.tries, self.failure) = (0, None);
                Ok(stream)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns the pause after a connection that lasted for `lasted`: none if it lasted long
    /// enough. A listener that closes accepted connections at once is treated like a missing one.
    pub(crate) fn pause_after(&mut self, lasted: Duration) -> Duration {
        if lasted >= LONGEST {
            self.pause = SHORTEST;
            return Duration::ZERO;
        }
        self.next_pause()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn try_once(&self) -> io::Result<UnixStream> {
        let address = SocketAddrUnix::new(&self.path)?;
        // The socket does not block. A blocking connection to a listener with a full queue would
        // wait, and the wait could not be ended.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    fn failed(&mut self, error: &io::Error) -> ConnectFailure {
        let failure = match error.kind() {
            io::ErrorKind::WouldBlock => "its listener's queue is full".to_owned(),
            _ => error.to_string(),
        };
        let times = if self.tries == 1 { "once".to_owned() } else { format!("{} times", self.tries) };
        let why = format!("connecting to {}: {failure}; tried {times}", self.path.display());
        let cause = match error.kind() {
            io::ErrorKind::PermissionDenied => DownCause::ConnectDenied,
            _ => DownCause::Connecting,
        };
        let is_new = self.failure.as_ref() != Some(&failure);
        self.failure = Some(failure);
        ConnectFailure { why, cause, is_new, pause: self.next_pause() }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_pause_grows_and_a_reason_is_new_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let mut connector = Connector::new(&path);
        let mut pauses = Vec::new();
        for n in 1..=10 {
            let failed = connector.connect().unwrap_err();
            assert!(failed.why.contains("No such file"), "{}", failed.why);
            let times = if n == 1 { "tried once".to_owned() } else { format!("tried {n} times") };
            assert!(failed.why.ends_with(&times), "{}", failed.why);
            assert_eq!(failed.is_new, n == 1);
            pauses.push(failed.pause);
        }
        assert_eq!((pauses[0], pauses[9]), (SHORTEST, LONGEST));
        assert!(pauses.is_sorted());

        drop(UnixListener::bind(&path).unwrap());
        let failed = connector.connect().unwrap_err();
        assert!(failed.is_new && failed.why.ends_with("refused (os error 111); tried 11 times"), "{}", failed.why);

        std::fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        connector.connect().map_err(|failed| failed.why).unwrap();
        // A connection that ends at once does not make the next attempts faster.
        assert_eq!(connector.pause_after(Duration::ZERO), LONGEST);
        assert_eq!(connector.pause_after(LONGEST), Duration::ZERO);
        drop(listener);
        let failed = connector.connect().unwrap_err();
        assert!(failed.is_new && failed.why.ends_with("tried once"), "{}", failed.why);
        assert_eq!(failed.pause, SHORTEST);
    }

    #[test]
    fn a_listener_that_accepts_nobody_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut connector = Connector::new(&path);
        let mut waiting = Vec::new();
        let failed = loop {
            match connector.connect() {
                Ok(stream) => waiting.push(stream),
                Err(failed) => break failed,
            }
        };
        assert!(failed.why.contains("its listener's queue is full"), "{}", failed.why);
    }
}
