//! A frontend's channel for a device's state, and bytes on their way through it.
//!
//! The channel is a pipe (QEMU), a file in memory (Cloud Hypervisor), or a socket. No call waits
//! for it: bytes that cannot be moved now are tried again soon, and after [`LIMIT`] the transfer
//! fails.
//!
//! A flag of a pipe's open file description decides whether the pipe blocks. The frontend shares
//! the description and may change the flag at any moment. The pipe cannot be opened anew, because
//! it may belong to another user. But splice(2) has a flag for each call (`SPLICE_F_NONBLOCK`), so
//! bytes go through a pipe of ours.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use straightline_graph::Clock;
use straightline_virtio::net_control::SavedState;

/// The time that a frontend may take for its part.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Bytes moved at a time: less than any pipe holds.
const CHUNK: usize = 4096;

const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Bytes on their way through a frontend's channel.
#[derive(Debug)]
pub(crate) struct ChannelTransfer {
    channel: Channel,
    bytes: Vec<u8>,
    /// Bytes written, perhaps only into our pipe.
    at: usize,
    clock: Clock,
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

impl ChannelTransfer {
    /// Finds out the kind of channel. A descriptor that can block regardless of its flags is
    /// refused.
    pub(crate) fn begin(channel: OwnedFd, bytes: Vec<u8>, clock: &Clock) -> Result<Self, String> {
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
            _ => return Err("device state: its channel is not a pipe, a socket or a file in memory".to_owned()),
        };
        Ok(ChannelTransfer { channel, bytes, at: 0, clock: clock.clone(), until: clock.now() + LIMIT })
    }

    /// Writes bytes to the channel. Returns true when all bytes are written.
    pub(crate) fn write(&mut self, _at_end: bool) -> Result<bool, String> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            let chunk = &rest[..rest.len().min(CHUNK)];
            let moved = match &mut self.channel {
                Channel::Pipe { theirs, reader, writer, inside } => {
                    if *inside == 0 && !chunk.is_empty() {
                        *inside = rustix::io::write(&*writer, chunk).map_err(|e| e.to_string())?;
                        self.at += *inside;
                    }
                    if *inside == 0 {
                        return Ok(true);
                    }
                    let moved = splice(&*reader, None, &*theirs, None, *inside, SpliceFlags::NONBLOCK);
                    moved.inspect(|n| *inside -= n)
                }
                _ if chunk.is_empty() => return Ok(true),
                Channel::Socket(fd) => {
                    send(&*fd, chunk, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).inspect(|n| self.at += n)
                }
                Channel::File(fd) => rustix::io::write(&*fd, chunk).inspect(|n| self.at += n),
            };
            match moved {
                Ok(0) => return Err("its channel accepts no bytes".to_owned()),
                Ok(_) => {}
                Err(error) => return self.later(error).map(|()| false),
            }
        }
    }

    /// Reads bytes from the channel. Returns true when all bytes are read. A file is read only
    /// `at_end`: until then it may grow.
    pub(crate) fn read(&mut self, at_end: bool) -> Result<bool, String> {
        let mut chunk = [0; CHUNK];
        loop {
            let got = match &mut self.channel {
                Channel::Pipe { theirs, reader, writer, .. } => {
                    match splice(&*theirs, None, &*writer, None, CHUNK, SpliceFlags::NONBLOCK) {
                        Ok(0) => Ok(0),
                        Ok(_) => rustix::io::read(&*reader, &mut chunk),
                        Err(error) => Err(error),
                    }
                }
                Channel::Socket(fd) => recv(&*fd, &mut chunk, RecvFlags::DONTWAIT).map(|(n, _)| n),
                Channel::File(_) if !at_end => return self.in_time().map(|()| false),
                Channel::File(fd) => rustix::io::read(&*fd, &mut chunk),
            };
            match got {
                // Cites vhost-user-migrating-1.
                Ok(0) => return Ok(true),
                Ok(n) => self.bytes.extend(&chunk[..n]),
                Err(error) => return self.later(error).map(|()| false),
            }
            if self.bytes.len() > SavedState::LONGEST {
                return Err(format!("it has more than {} bytes", SavedState::LONGEST));
            }
        }
    }

    /// Takes the bytes that were read.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns an error unless the transfer may be tried again.
    fn later(&self, error: rustix::io::Errno) -> Result<(), String> {
        match io::Error::from(error).kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => self.in_time(),
            _ => Err(format!("its channel failed: {error}")),
        }
    }

    fn in_time(&self) -> Result<(), String> {
        if self.clock.now() < self.until {
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
    use straightline_testing::wait_until;

    use super::*;

    fn begin(channel: OwnedFd, bytes: Vec<u8>) -> Result<ChannelTransfer, String> {
        ChannelTransfer::begin(channel, bytes, &Clock::real())
    }

    fn some(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect()
    }

    fn read_all(fd: impl AsFd) -> Vec<u8> {
        let mut all = Vec::new();
        let mut chunk = [0; 1000];
        while let Ok(n @ 1..) = rustix::io::read(&fd, &mut chunk) {
            all.extend(&chunk[..n]);
        }
        all
    }

    fn sockets() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets")
    }

    /// Returns a pipe whose ends block, as a frontend's may at any moment.
    fn waiting_pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = pipe().expect("a pipe");
        for end in [&reader, &writer] {
            fcntl_setfl(end, OFlags::empty()).expect("flags");
        }
        (reader, writer)
    }

    // Cites vhost-user-migrating-1.
    #[test]
    fn all_arrives_by_every_channel() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, SavedState::LONGEST] {
            for (reader, writer) in [waiting_pipe(), sockets()] {
                let mut there = begin(writer, some(len)).expect("a channel");
                let mut here = begin(reader, Vec::new()).expect("a channel");
                assert_eq!(here.read(false), Ok(false), "nothing has come, and it is not the end");
                assert_eq!(there.write(false), Ok(true));
                assert_eq!((here.read(false), here.bytes.len()), (Ok(false), len));
                drop(there);
                assert_eq!((here.read(false), here.bytes), (Ok(true), some(len)));
            }
            // As Cloud Hypervisor does it: each side starts at the file's current position.
            let file = memfd_create("state", MemfdFlags::CLOEXEC).expect("a file");
            let ours = || rustix::io::dup(&file).expect("dup");
            assert_eq!(begin(ours(), some(len)).expect("a channel").write(false), Ok(true));
            seek(&file, SeekFrom::Start(0)).expect("seek");
            let mut here = begin(ours(), Vec::new()).expect("a channel");
            assert_eq!(here.read(false), Ok(false), "it may grow");
            assert_eq!((here.read(true), here.bytes), (Ok(true), some(len)));
        }
    }

    #[test]
    fn a_full_channel_is_tried_again_and_not_waited_for() {
        for (reader, writer) in [waiting_pipe(), sockets()] {
            let len = 1 << 20;
            let mut there = begin(writer, some(len)).expect("a channel");
            assert_eq!(there.write(false), Ok(false));
            assert_eq!(there.write(false), Ok(false));
            let taken = std::thread::spawn(move || read_all(reader));
            wait_until("the channel takes all bytes", || there.write(false).expect("it goes on"));
            drop(there);
            assert!(taken.join().expect("the reader") == some(len));
        }
    }

    #[test]
    fn who_takes_too_long_or_has_left_is_told_so() {
        let (reader, writer) = waiting_pipe();
        let clock = Clock::moved();
        let mut here = ChannelTransfer::begin(reader, Vec::new(), &clock).expect("a channel");
        clock.advance(LIMIT - Duration::from_nanos(1));
        assert_eq!(here.read(false), Ok(false));
        clock.advance(Duration::from_nanos(1));
        assert!(here.read(false).expect_err("too late").contains("within 5 s"));
        drop(here);
        let mut there = begin(writer, some(10)).expect("a channel");
        assert!(there.write(false).expect_err("nobody reads").contains("its channel failed"));
        for (reader, writer) in [waiting_pipe(), sockets()] {
            let mut here = begin(reader, Vec::new()).expect("a channel");
            // More than the longest state, and no end.
            rustix::io::write(&writer, &some(SavedState::LONGEST + 1)).expect("it fits");
            assert!(here.read(false).expect_err("too long").contains("more than"));
        }
        // The wrong end of a pipe.
        let (reader, writer) = waiting_pipe();
        assert!(begin(reader, some(10)).expect("a channel").write(false).is_err());
        assert!(begin(writer, Vec::new()).expect("a channel").read(false).is_err());
    }

    #[test]
    fn what_can_block_is_refused() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let on_disk = std::fs::File::open("/proc/self/exe").expect("this program");
        for fd in [event, null.into(), on_disk.into()] {
            assert!(begin(fd, Vec::new()).is_err());
        }
    }
}
