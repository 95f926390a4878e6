//! The loop of the process that makes sockets.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use straightline_graph::Clock;

use super::{Answer, End, Failure, MAX_FOLDERS, Message, Task};
use crate::helper_channel::{Channel, HelperError, HelperProcess, HelperSandbox};
use crate::socket::socket_file::own::{self, OwnFile};
use crate::socket::socket_file::{SocketFileError, SocketStep};
use crate::socket::socket_path::SocketState;

/// Permission bits that a socket may get. It gets no special ones.
const BITS: u32 = 0o777;

/// The maker's end of the work: it has received the folders in which it may make sockets.
#[derive(Debug)]
pub struct MakerServer {
    channel: Channel,
    folders: Vec<PathBuf>,
    sandbox: HelperSandbox,
}

/// The files that the maker has made and not removed.
#[derive(Debug, Default)]
struct Files {
    last: u64,
    files: BTreeMap<u64, OwnFile>,
}

impl MakerServer {
    /// Receives the folders and the sandbox from the client, which has the other end of `socket`.
    ///
    /// # Errors
    /// The client has ended, or is none.
    pub fn receive(socket: OwnedFd) -> Result<Self, HelperError> {
        let channel = Channel::new(socket, Clock::real());
        let mut folders = Vec::new();
        loop {
            match channel.receive()? {
                Message::Folder(folder) if folders.len() < MAX_FOLDERS => folders.push(folder),
                Message::Folder(_) => return Err(HelperError::Invalid(format!("more than {MAX_FOLDERS} folders"))),
                Message::Begin(sandbox) => return Ok(MakerServer { channel, folders, sandbox }),
                other @ Message::Ask { .. } => {
                    return Err(HelperError::Invalid(format!("{other:?} before the beginning")));
                }
            }
        }
    }

    /// Returns the folders in which the process is to make sockets.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Returns the sandbox that the process is to enter before it serves.
    pub fn sandbox(&self) -> &HelperSandbox {
        &self.sandbox
    }

    /// Tells the client why the process cannot serve.
    pub fn refuse(self, why: impl Into<String>) {
        // If the client has ended, nobody wants to know.
        let _ = self.channel.send(&Answer::CannotBegin(why.into()), &[]);
    }

    /// Serves the client until it ends, then removes the files that are left. From now on the client
    /// is not trusted.
    pub fn serve(self, process: HelperProcess) {
        let mut files = Files::default();
        let mut answered = self.channel.send(&Answer::Begun(process), &[]);
        while answered.is_ok() {
            answered = match self.channel.receive() {
                Ok(Message::Ask { id, task }) => {
                    let (end, socket) = files.execute(task).unwrap_or_else(|failure| (End::Failed(failure), None));
                    self.channel.send(&Answer::Done { id, end }, socket.as_slice())
                }
                // No message of this client: nobody waits for an answer.
                Ok(_) | Err(HelperError::Invalid(_)) => Ok(()),
                Err(error) => Err(error),
            };
        }
    }
}

impl Files {
    fn execute(&mut self, task: Task) -> Result<(End, Option<OwnedFd>), Failure> {
        match task {
            Task::Look(path) => found(own::state(&path)),
            Task::Clear(path) => found(own::clear_stale(&path)),
            Task::Bind(path) => {
                let (socket, file) = OwnFile::make(&path).map_err(failure)?;
                self.last += 1;
                self.files.insert(self.last, file);
                Ok((End::Bound(self.last), Some(socket)))
            }
            Task::Set { file, owner, group, mode } => {
                let known = self.files.get(&file).filter(|_| mode & !BITS == 0).ok_or_else(unknown)?;
                known.set_permissions(owner, group, mode).map_err(failure)?;
                Ok((End::Changed, None))
            }
            Task::Remove(file) => {
                self.files.remove(&file).ok_or_else(unknown)?;
                Ok((End::Changed, None))
            }
        }
    }
}

fn found(state: io::Result<SocketState>) -> Result<(End, Option<OwnedFd>), Failure> {
    let state = state.map_err(|error| Failure::new(SocketStep::Find, &error))?;
    Ok((End::Found(state), None))
}

fn failure(error: SocketFileError) -> Failure {
    Failure::new(error.step, &error.source)
}

fn unknown() -> Failure {
    Failure::new(SocketStep::Find, &io::Error::other("no such file, or bits that none may have"))
}
