//! The device's state on its way to or from a frontend that moves its guest ("Migrating back-end state"). What it is
//! stands in `virtio/src/net_control/saved.rs`.
//!
//! The channel is the frontend's: a pipe (QEMU), a file in memory (Cloud Hypervisor), a socket. It is never waited for:
//! what cannot be moved now is tried again soon, and after [`LIMIT`] the transfer has failed. Whether a pipe blocks is
//! said by an open file description that the frontend shares, and so may change at any moment; it cannot be opened anew,
//! since it may be another user's. But splice(2) has a flag for each call (`SPLICE_F_NONBLOCK`), so bytes go through a
//! pipe of ours.
//!
//! All of that is done by a thread of its own: a frontend that reads or writes its end of a pipe with memory that it
//! never fills keeps the kernel's lock on the pipe, and no flag helps whoever wants it next. Such a thread stays until
//! the frontend lets it go, one for a port.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, Thread, park_timeout};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use straightline_virtio::features::{list, names};
use straightline_virtio::net_control::{NetControl, Saved};

use super::guest::Guest;
use super::is_within;

/// How long a frontend may take for its part.
const LIMIT: Duration = Duration::from_secs(5);

/// How often a transfer that is under way is tried.
const PACE: Duration = Duration::from_millis(10);

/// Bytes moved at a time: less than any pipe holds.
const PIECE: usize = 4096;

const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The last transfer.
#[derive(Debug, Default)]
pub(super) enum Transfer {
    /// There was none.
    #[default]
    None,
    Saving(Mover),
    Loading(Mover),
    /// All was written.
    Saved,
    /// All was read, and can be gone on by.
    Loaded(Box<Saved>),
    Failed(String),
}

/// Beside the state that is in force, for a device whose rings are stopped.
#[derive(Debug, Default)]
pub(super) enum Kept {
    #[default]
    Nothing,
    /// What it was before SET_STATUS with 0, by which QEMU stops a device that it is about to save.
    Stopped(NetControl),
    /// What a frontend has loaded, for a driver that negotiated the same. Its frontend may say so only later.
    Loaded(Box<Saved>),
}

impl Guest {
    /// Begins to write the state; the frontend reads when it has our answer.
    pub(super) fn save_state(&mut self, channel: OwnedFd) -> Result<(), String> {
        let announces = self.session.announces();
        let saved = match &self.commands.kept {
            Kept::Nothing => self.commands.state.save(announces),
            Kept::Stopped(state) => state.save(announces),
            Kept::Loaded(saved) => (**saved).clone(),
        };
        self.transfer = Transfer::None;
        self.transfer = Transfer::Saving(self.start_moving(Moving::begin(channel, saved.to_bytes())?, Moving::write)?);
        Ok(())
    }

    /// Begins to read a state.
    pub(super) fn load_state(&mut self, channel: OwnedFd) -> Result<(), String> {
        self.transfer = Transfer::None;
        self.transfer = Transfer::Loading(self.start_moving(Moving::begin(channel, Vec::new())?, Moving::read)?);
        Ok(())
    }

    /// What was moved is past: the device has run since, or begins anew.
    pub(super) fn forget_state(&mut self) {
        self.commands.kept = Kept::Nothing;
        if matches!(self.transfer, Transfer::Loaded(_)) {
            self.transfer = Transfer::None;
        }
    }

    /// Whether the last transfer was whole; what was loaded is what the device goes on by.
    pub(super) fn check_state(&mut self) -> Result<(), String> {
        let done = match std::mem::take(&mut self.transfer) {
            Transfer::Saving(mover) => mover.finish().map(|_| Transfer::Saved),
            Transfer::Loading(mover) => mover.finish().and_then(|bytes| match Saved::read(&bytes) {
                Ok(saved) => Ok(Transfer::Loaded(Box::new(saved))),
                Err(error) => Err(error.to_string()),
            }),
            before => Ok(before),
        };
        self.transfer = done.unwrap_or_else(Transfer::Failed);
        let loaded = match &self.transfer {
            Transfer::Saved => return Ok(()),
            Transfer::Loaded(saved) => saved,
            Transfer::Failed(why) => return Err(format!("device state: {why}")),
            _ => return Err("device state: none was moved".to_owned()),
        };
        let extra = loaded.features() & !self.session.offered_features();
        if extra != 0 {
            let extra = list(names(extra));
            return Err(format!("device state: its driver negotiated what is not offered here: {extra}"));
        }
        let (pairs, most) = (loaded.pairs(), self.shared.config.queues.max(1));
        if pairs > most {
            return Err(format!("device state: its driver uses {pairs} queue pairs; the port has {most}"));
        }
        self.commands.kept = Kept::Loaded(loaded.clone());
        if loaded.fits(self.session.acked_features()) {
            self.reset_commands();
        }
        Ok(())
    }
}

impl Guest {
    /// Moves all in a thread, a step at a time, once the transfer before has ended.
    fn start_moving(&self, mut moving: Moving, step: Step) -> Result<Mover, String> {
        let mut last = self.shared.mover.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|thread| !is_within(LIMIT, || thread.is_finished())) {
            return Err("device state: the channel of the last transfer still holds its thread".to_owned());
        }
        let orders = Arc::new(Orders::default());
        let (sender, end) = channel();
        let theirs = Arc::clone(&orders);
        let run = move || {
            let done = loop {
                let at_end = theirs.at_end.load(Ordering::Acquire);
                match step(&mut moving, at_end) {
                    Ok(false) if at_end => break Err("it had not come to its end when it was checked".to_owned()),
                    Ok(false) if theirs.stop.load(Ordering::Acquire) => return,
                    Ok(false) => park_timeout(PACE),
                    Ok(true) => break Ok(std::mem::take(&mut moving.bytes)),
                    Err(why) => break Err(why),
                }
            };
            drop(moving);
            // Nobody hears it if the frontend has left.
            let _ = sender.send(done);
        };
        let name = format!("state {}", self.shared.config.name);
        let thread = Builder::new().name(name).spawn(run).map_err(|e| format!("device state: no thread: {e}"))?;
        let mover = Mover { orders, end, thread: thread.thread().clone() };
        *last = Some(thread);
        Ok(mover)
    }
}

/// A step of a transfer: `true` at its end. The second argument: the frontend has done its part.
type Step = fn(&mut Moving, bool) -> Result<bool, String>;

/// The thread of a transfer that is under way; it ends soon after this does.
#[derive(Debug)]
pub(super) struct Mover {
    orders: Arc<Orders>,
    /// What was moved, or why not.
    end: Receiver<Result<Vec<u8>, String>>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Orders {
    at_end: AtomicBool,
    stop: AtomicBool,
}

impl Mover {
    /// The frontend has done its part: what has come of it?
    fn finish(self) -> Result<Vec<u8>, String> {
        self.orders.at_end.store(true, Ordering::Release);
        self.thread.unpark();
        self.end.recv_timeout(LIMIT).unwrap_or_else(|_| Err("its channel holds its thread".to_owned()))
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Bytes on their way through a frontend's channel.
#[derive(Debug)]
pub(super) struct Moving {
    channel: Channel,
    bytes: Vec<u8>,
    /// Bytes written, into a pipe of ours perhaps.
    at: usize,
    until: Instant,
}

#[derive(Debug)]
enum Channel {
    Pipe {
        theirs: OwnedFd,
        reader: OwnedFd,
        writer: OwnedFd,
        /// Bytes in the pipe between `writer` and `reader`.
        inside: usize,
    },
    Socket(OwnedFd),
    File(OwnedFd),
}

impl Moving {
    /// Looks at what the channel is. What can block whatever it is told is refused.
    fn begin(channel: OwnedFd, bytes: Vec<u8>) -> Result<Self, String> {
        let system = |error: rustix::io::Errno| format!("device state: cannot use its channel: {error}");
        let channel = match FileType::from_raw_mode(fstat(&channel).map_err(system)?.st_mode) {
            FileType::Fifo => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(system)?;
                Channel::Pipe { theirs: channel, reader, writer, inside: 0 }
            }
            FileType::Socket => Channel::Socket(channel),
            FileType::RegularFile
                if u64::try_from(fstatfs(&channel).map_err(system)?.f_type).unwrap_or(0) == TMPFS_MAGIC =>
            {
                Channel::File(channel)
            }
            _ => return Err("device state: its channel is no pipe, no socket and no file in memory".to_owned()),
        };
        Ok(Moving { channel, bytes, at: 0, until: Instant::now() + LIMIT })
    }

    /// Writes; `true` when all is written.
    fn write(&mut self, _at_end: bool) -> Result<bool, String> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            let piece = &rest[..rest.len().min(PIECE)];
            let moved = match &mut self.channel {
                Channel::Pipe { theirs, reader, writer, inside } => {
                    if *inside == 0 && !piece.is_empty() {
                        *inside = rustix::io::write(&*writer, piece).map_err(|e| e.to_string())?;
                        self.at += *inside;
                    }
                    if *inside == 0 {
                        return Ok(true);
                    }
                    let moved = splice(&*reader, None, &*theirs, None, *inside, SpliceFlags::NONBLOCK);
                    moved.inspect(|n| *inside -= n)
                }
                _ if piece.is_empty() => return Ok(true),
                Channel::Socket(fd) => {
                    send(&*fd, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).inspect(|n| self.at += n)
                }
                Channel::File(fd) => rustix::io::write(&*fd, piece).inspect(|n| self.at += n),
            };
            match moved {
                Ok(0) => return Err("its channel takes nothing".to_owned()),
                Ok(_) => {}
                Err(error) => return self.later(error).map(|()| false),
            }
        }
    }

    /// Reads; `true` when all is read. A file is read only `at_end`: until then it may grow.
    fn read(&mut self, at_end: bool) -> Result<bool, String> {
        let mut piece = [0; PIECE];
        loop {
            let got = match &mut self.channel {
                Channel::Pipe { theirs, reader, writer, .. } => {
                    match splice(&*theirs, None, &*writer, None, PIECE, SpliceFlags::NONBLOCK) {
                        Ok(0) => Ok(0),
                        Ok(_) => rustix::io::read(&*reader, &mut piece),
                        Err(error) => Err(error),
                    }
                }
                Channel::Socket(fd) => recv(&*fd, &mut piece, RecvFlags::DONTWAIT).map(|(n, _)| n),
                Channel::File(_) if !at_end => return self.in_time().map(|()| false),
                Channel::File(fd) => rustix::io::read(&*fd, &mut piece),
            };
            match got {
                Ok(0) => return Ok(true),
                Ok(n) => self.bytes.extend(&piece[..n]),
                Err(error) => return self.later(error).map(|()| false),
            }
            if self.bytes.len() > Saved::LONGEST {
                return Err(format!("it has more than {} bytes", Saved::LONGEST));
            }
        }
    }

    /// What only takes its time is tried again.
    fn later(&self, error: rustix::io::Errno) -> Result<(), String> {
        match io::Error::from(error).kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => self.in_time(),
            _ => Err(format!("its channel failed: {error}")),
        }
    }

    fn in_time(&self) -> Result<(), String> {
        if Instant::now() < self.until {
            return Ok(());
        }
        Err(format!("the frontend did not do its part within {} s", LIMIT.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, OFlags, SeekFrom, fcntl_setfl, memfd_create, seek};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::pipe;

    use super::*;

    fn some(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect()
    }

    fn read_all(fd: impl AsFd) -> Vec<u8> {
        let mut all = Vec::new();
        let mut piece = [0; 1000];
        while let Ok(n @ 1..) = rustix::io::read(&fd, &mut piece) {
            all.extend(&piece[..n]);
        }
        all
    }

    fn sockets() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets")
    }

    /// A pipe whose ends wait, as a frontend's may at any moment.
    fn waiting_pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = pipe().expect("a pipe");
        for end in [&reader, &writer] {
            fcntl_setfl(end, OFlags::empty()).expect("flags");
        }
        (reader, writer)
    }

    #[test]
    fn all_arrives_by_every_channel() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, Saved::LONGEST] {
            for (reader, writer) in [waiting_pipe(), sockets()] {
                let mut there = Moving::begin(writer, some(len)).expect("a channel");
                let mut here = Moving::begin(reader, Vec::new()).expect("a channel");
                assert_eq!(here.read(false), Ok(false), "nothing has come, and it is not the end");
                assert_eq!(there.write(false), Ok(true));
                assert_eq!((here.read(false), here.bytes.len()), (Ok(false), len));
                drop(there);
                assert_eq!((here.read(false), here.bytes), (Ok(true), some(len)));
            }
            // As Cloud Hypervisor does it: it goes on at the place where the file stands, on both ways.
            let file = memfd_create("state", MemfdFlags::CLOEXEC).expect("a file");
            let ours = || rustix::io::dup(&file).expect("dup");
            assert_eq!(Moving::begin(ours(), some(len)).expect("a channel").write(false), Ok(true));
            seek(&file, SeekFrom::Start(0)).expect("seek");
            let mut here = Moving::begin(ours(), Vec::new()).expect("a channel");
            assert_eq!(here.read(false), Ok(false), "it may grow");
            assert_eq!((here.read(true), here.bytes), (Ok(true), some(len)));
        }
    }

    #[test]
    fn a_full_channel_is_tried_again_and_not_waited_for() {
        for (reader, writer) in [waiting_pipe(), sockets()] {
            let len = 1 << 20;
            let mut there = Moving::begin(writer, some(len)).expect("a channel");
            assert_eq!(there.write(false), Ok(false));
            assert_eq!(there.write(false), Ok(false));
            let taken = std::thread::spawn(move || read_all(reader));
            while !there.write(false).expect("it goes on") {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(there);
            assert!(taken.join().expect("the reader") == some(len));
        }
    }

    #[test]
    fn who_takes_too_long_or_has_left_is_told_so() {
        let (reader, writer) = waiting_pipe();
        let mut here = Moving::begin(reader, Vec::new()).expect("a channel");
        here.until = Instant::now();
        assert!(here.read(false).expect_err("too late").contains("within 5 s"));
        drop(here);
        let mut there = Moving::begin(writer, some(10)).expect("a channel");
        assert!(there.write(false).expect_err("nobody reads").contains("its channel failed"));
        for (reader, writer) in [waiting_pipe(), sockets()] {
            let mut here = Moving::begin(reader, Vec::new()).expect("a channel");
            // More than there can be, and no end.
            rustix::io::write(&writer, &some(Saved::LONGEST + 1)).expect("room");
            assert!(here.read(false).expect_err("too long").contains("more than"));
        }
        // The wrong end of a pipe.
        let (reader, writer) = waiting_pipe();
        assert!(Moving::begin(reader, some(10)).expect("a channel").write(false).is_err());
        assert!(Moving::begin(writer, Vec::new()).expect("a channel").read(false).is_err());
    }

    #[test]
    fn what_can_block_is_refused() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let on_disk = std::fs::File::open("/proc/self/exe").expect("this program");
        for fd in [event, null.into(), on_disk.into()] {
            assert!(Moving::begin(fd, Vec::new()).is_err());
        }
    }
}
