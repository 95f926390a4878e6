//! The socket of the process: it answers one line, `status` or `routes`, with a line of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader as AsyncReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{News, Question};

/// The time in which a client must ask, and take its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest question, in bytes.
const MAX_QUESTION: u64 = 64;

/// The reason why the process gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The socket does not answer.
    #[error(
        "no `straightline evpn` answers at {}: {error}; start one, or name its socket with --socket",
        path.display()
    )]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The answer cannot be read. Another program may have sent it.
    #[error("the process at {} answers something else: {why}", path.display())]
    Invalid {
        /// The socket.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

/// Asks the process that answers at `path`. Returns its answer, and the same as a line of JSON.
///
/// # Errors
/// No process answers there.
pub fn ask<A: DeserializeOwned>(path: &Path, question: Question) -> Result<(A, String), AskError> {
    let exchange = || {
        let mut stream = StdStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{}", question.word())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = exchange().map_err(|error| AskError::Io { path: path.to_owned(), error })?;
    let invalid = |error: serde_json::Error| AskError::Invalid { path: path.to_owned(), why: error.to_string() };
    Ok((serde_json::from_str(&line).map_err(invalid)?, line))
}

/// Listens at `path`. A socket that nobody listens on is replaced.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    if StdStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // The answers contain addresses of stations: they are for this user and group.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Answers clients, one after the other.
pub(super) async fn serve(listener: UnixListener, news: Sender<News>) {
    loop {
        match listener.accept().await {
            // A client that is slow, or asks nonsense, ends its own connection only.
            Ok((stream, _)) => drop(timeout(PATIENCE, reply(stream, &news)).await),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn reply(stream: UnixStream, news: &Sender<News>) -> io::Result<()> {
    let mut reader = AsyncReader::new(stream.take(MAX_QUESTION));
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let Some(question) = Question::ALL.into_iter().find(|question| question.word() == line.trim_end()) else {
        return Ok(());
    };
    let (sender, answer) = oneshot::channel();
    if news.send(News::Asked(question, sender)).await.is_err() {
        return Ok(());
    }
    if let Ok(answer) = answer.await {
        let mut stream = reader.into_inner().into_inner();
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(b"\n").await?;
    }
    Ok(())
}
