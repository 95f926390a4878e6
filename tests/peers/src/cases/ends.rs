//! The other ends of a switch's ports, with the bytes of each frame as the switch sent them.
//! Several tests share them.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use straightline_guest::endpoints::{Interface, InterfaceKind, InterfacePort, Received, TestPort};
use straightline_guest::{Guest, GuestOptions};
use straightline_virtio::net_header::NetHeader;

/// MTU of an interface, and the length of the longest frame with it.
const MTU: u32 = 1500;
const LONGEST: u32 = MTU + 14;

/// The other end of a port.
pub(crate) trait End {
    /// Sends a frame to the port.
    fn send(&mut self, frame: &[u8]) -> Result<()>;

    /// Returns the frames that have arrived from the port. Does not wait.
    fn receive(&mut self) -> Result<Vec<Vec<u8>>>;
}

/// A stream socket: each frame follows its length, in two bytes.
pub(crate) struct Stream {
    socket: UnixStream,
    /// Received bytes of a frame that is not complete.
    rest: Vec<u8>,
}

impl Stream {
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
        Ok(Self { socket, rest: Vec::new() })
    }
}

impl End for Stream {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let len = u16::try_from(frame.len())?.to_be_bytes();
        self.socket.set_nonblocking(false)?;
        Ok(self.socket.write_all(&[&len, frame].concat())?)
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>> {
        self.socket.set_nonblocking(true)?;
        if let Err(error) = self.socket.read_to_end(&mut self.rest) {
            ensure!(error.kind() == std::io::ErrorKind::WouldBlock, "the switch has closed a port: {error}");
        }
        let mut frames = Vec::new();
        while let Some((len, behind)) = self.rest.split_first_chunk() {
            let Some((frame, rest)) = behind.split_at_checked(usize::from(u16::from_be_bytes(*len))) else { break };
            frames.push(frame.to_vec());
            self.rest = rest.to_vec();
        }
        Ok(frames)
    }
}

/// A socket that keeps the boundaries of packets: each is a frame.
pub(crate) struct Packets(OwnedFd);

/// A listening socket for [`Packets`].
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 1)?;
        Ok(Self(socket))
    }

    /// Returns the connection that has been made.
    pub(crate) fn accept(&self) -> Result<Packets> {
        Ok(Packets(rustix::net::accept(&self.0).context("nothing is connected to a port's socket")?))
    }
}

impl End for Packets {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        ensure!(rustix::net::send(&self.0, frame, SendFlags::empty())? == frame.len(), "a frame was sent in part");
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match rustix::net::recv(&self.0, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => anyhow::bail!("the switch has closed a port"),
                Ok((len, _)) => frames.push(bytes[..len].to_vec()),
                Err(Errno::AGAIN) => return Ok(frames),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// An embedded guest on a vhost-user socket.
pub(crate) struct Embedded(Guest);

impl Embedded {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        Ok(Self(Guest::connect(socket, &GuestOptions { ring_size: 512, ..GuestOptions::default() })?))
    }
}

impl End for Embedded {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        ensure!(self.0.send(&NetHeader::default(), frame), "the guest has no free buffer");
        self.0.flush();
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>> {
        let level = self.0.level();
        let mut frames = Vec::new();
        self.0.receive(usize::MAX, |_, buffers| {
            let mut frame = Vec::new();
            for buffer in buffers {
                let from = frame.len();
                frame.resize(from + buffer.len() as usize, 0);
                buffer.read(level, &mut frame[from..]);
            }
            frames.push(frame);
        });
        Ok(frames)
    }
}

/// The other end of an interface: a packet socket, or the program's side of a tap.
pub(crate) struct Device {
    port: InterfacePort,
    sent: usize,
}

impl Device {
    /// Opens an interface of this thread's network namespace.
    pub(crate) fn open(kind: InterfaceKind, interface: &str) -> Result<Self> {
        let interface = Interface { kind, name: interface.to_owned() };
        Ok(Self { port: InterfacePort::open(&interface, LONGEST, MTU)?, sent: 0 })
    }
}

impl End for Device {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.sent += 1;
        ensure!(self.port.send(self.sent, &NetHeader::default(), frame, &[]), "the interface takes no frame");
        self.port.flush()
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut keep = |frame: &dyn Received| {
            let mut bytes = vec![0; frame.len()];
            frame.read(0, &mut bytes);
            frames.push(bytes);
        };
        self.port.receive(usize::MAX, &mut keep)?;
        Ok(frames)
    }
}
