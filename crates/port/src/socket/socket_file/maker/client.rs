//! The client of the process that makes sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use super::{Answer, End, Message, Task};
use crate::helper_channel::{Channel, HelperError, HelperProcess, HelperSandbox};
use crate::socket::socket_file::{SocketFileError, SocketStep};
use crate::socket::socket_path::SocketState;

/// The time after which a silent maker counts as stuck. Its tasks take no time, unless a folder is
/// on a file system that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has sockets made by a process that has the privileges to give them to other users.
#[derive(Clone, Debug)]
pub struct SocketMaker(Arc<Client>);

#[derive(Debug)]
struct Client {
    process: HelperProcess,
    channel: Channel,
    /// The number of the last task. Held while the client waits for an answer.
    last_id: Mutex<u64>,
}

/// A file that the maker has made. When dropped, the maker removes it.
#[derive(Debug)]
pub(in crate::socket::socket_file) struct MadeFile {
    maker: SocketMaker,
    number: u64,
}

impl SocketMaker {
    /// Begins the work with a maker, which has the other end of `socket`. Returns when it is in its
    /// sandbox, where it makes sockets in these folders only.
    ///
    /// # Errors
    /// The maker has ended, does not answer, or cannot enter its sandbox.
    pub fn begin(
        socket: OwnedFd,
        folders: Vec<PathBuf>,
        sandbox: HelperSandbox,
        clock: Clock,
    ) -> Result<Self, HelperError> {
        // A maker that reads nothing must not hold us up for ever either.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).map_err(io::Error::from)?;
        let channel = Channel::new(socket, clock);
        for folder in folders {
            channel.send(&Message::Folder(folder), &[])?;
        }
        channel.send(&Message::Begin(sandbox), &[])?;
        match channel.receive_with(channel.end_of(PATIENCE), PATIENCE, &mut Vec::new())? {
            Answer::Begun(process) => Ok(SocketMaker(Arc::new(Client { process, channel, last_id: Mutex::new(0) }))),
            Answer::CannotBegin(why) => Err(HelperError::CannotBegin(why)),
            other @ Answer::Done { .. } => Err(HelperError::Invalid(format!("{other:?} instead of its first answer"))),
        }
    }

    /// Returns the facts about the maker.
    pub fn process(&self) -> &HelperProcess {
        &self.0.process
    }

    /// Returns whether the maker still serves.
    pub fn is_running(&self) -> bool {
        self.0.channel.is_open()
    }

    /// Removes a stale socket, as [`super::super::clear_stale`] does.
    pub(in crate::socket::socket_file) fn clear_stale(&self, path: &Path) -> io::Result<SocketState> {
        match self.ask(Task::Clear(path.to_owned())).map_err(|error| error.source)? {
            (End::Found(state), _) => Ok(state),
            (other, _) => Err(unexpected(&other).source),
        }
    }

    /// Returns what is at `path`.
    pub(in crate::socket::socket_file) fn state(&self, path: &Path) -> io::Result<SocketState> {
        match self.ask(Task::Look(path.to_owned())).map_err(|error| error.source)? {
            (End::Found(state), _) => Ok(state),
            (other, _) => Err(unexpected(&other).source),
        }
    }

    /// Makes a socket at `path`.
    pub(in crate::socket::socket_file) fn bind(&self, path: &Path) -> Result<(OwnedFd, MadeFile), SocketFileError> {
        match self.ask(Task::Bind(path.to_owned()))? {
            (End::Bound(number), Some(socket)) => Ok((socket, MadeFile { maker: self.clone(), number })),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Has a task done, and waits for its end.
    fn ask(&self, task: Task) -> Result<(End, Option<OwnedFd>), SocketFileError> {
        match self.0.ask(task) {
            Ok((End::Failed(failure), _)) => Err(failure.into()),
            Ok(done) => Ok(done),
            Err(HelperError::Ended) => Err(failed("the process has ended; restart the switch".to_owned())),
            Err(error) => Err(failed(format!("{error}; restart the switch if this lasts"))),
        }
    }
}

impl Client {
    fn ask(&self, task: Task) -> Result<(End, Option<OwnedFd>), HelperError> {
        let mut last_id = self.last_id.lock().ignore_poison();
        *last_id += 1;
        let asked = *last_id;
        self.channel.send(&Message::Ask { id: asked, task }, &[])?;
        let until = self.channel.end_of(PATIENCE);
        loop {
            let mut fds = Vec::new();
            match self.channel.receive_with(until, PATIENCE, &mut fds)? {
                Answer::Done { id, end } if id == asked => return Ok((end, fds.pop())),
                // The end of a task that the client no longer waits for. Its socket is closed here.
                Answer::Done { .. } => {}
                other => return Err(HelperError::Invalid(format!("{other:?}"))),
            }
        }
    }
}

impl MadeFile {
    pub(in crate::socket::socket_file) fn set_permissions(
        &self,
        owner: Option<u32>,
        group: Option<u32>,
        mode: u32,
    ) -> Result<(), SocketFileError> {
        match self.maker.ask(Task::Set { file: self.number, owner, group, mode })? {
            (End::Changed, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        // A maker that has ended has removed the file, unless it was killed.
        let _ = self.maker.ask(Task::Remove(self.number));
    }
}

fn failed(why: String) -> SocketFileError {
    SocketFileError { step: SocketStep::Ask, source: io::Error::other(why) }
}

fn unexpected(end: &End) -> SocketFileError {
    failed(format!("it answered {end:?}"))
}
