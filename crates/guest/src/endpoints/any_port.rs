//! A generator's port, on a socket or on an interface.

use std::ops::Range;
use std::path::PathBuf;

use straightline_virtio::net_header::NetHeader;

use super::interface::{Interface, InterfacePort};
use super::port::{Receiver, TestPort};
use super::vhost::{PortOptions, VhostPort};

/// A port of the generator.
#[derive(Debug)]
pub enum AnyPort {
    /// A queue pair of a vhost-user backend.
    Socket(Box<VhostPort>),
    /// An interface of this machine.
    Interface(Box<InterfacePort>),
}

impl AnyPort {
    /// Connects ports to these sockets. The ports share their memory.
    ///
    /// # Errors
    /// Memory is not available, or a backend refused something.
    pub fn connect_all(sockets: &[PathBuf], options: &PortOptions) -> anyhow::Result<Vec<AnyPort>> {
        if sockets.is_empty() {
            return Ok(Vec::new());
        }
        let ports = VhostPort::connect_all(sockets, options)?;
        Ok(ports.into_iter().map(|port| AnyPort::Socket(Box::new(port))).collect())
    }

    /// Opens these interfaces for frames of at most `longest` bytes. `mtu` is the MTU that such
    /// frames need.
    ///
    /// # Errors
    /// An interface cannot be opened, is down, or has a smaller MTU. The error says what to do.
    pub fn open_all(interfaces: &[Interface], longest: u32, mtu: u32) -> anyhow::Result<Vec<AnyPort>> {
        let open = |interface| Ok(AnyPort::Interface(Box::new(InterfacePort::open(interface, longest, mtu)?)));
        interfaces.iter().map(open).collect()
    }

    /// Returns the negotiated features of a socket's backend.
    #[must_use]
    pub fn features(&self) -> Option<u64> {
        match self {
            AnyPort::Socket(port) => Some(port.features()),
            AnyPort::Interface(_) => None,
        }
    }

    /// Returns the port's description if it is on an interface: driver, mode, MTU and queues.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        match self {
            AnyPort::Socket(_) => None,
            AnyPort::Interface(port) => Some(port.description()),
        }
    }

    /// Disconnects. A backend that is gone need not be told.
    pub fn stop(self) {
        match self {
            AnyPort::Socket(port) => port.stop(),
            AnyPort::Interface(port) => drop(port),
        }
    }
}

/// Calls a method of the port, of either type.
macro_rules! either {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            AnyPort::Socket($port) => $call,
            AnyPort::Interface($port) => $call,
        }
    };
}

impl TestPort for AnyPort {
    #[inline]
    fn free_buffers(&mut self) -> usize {
        either!(self, port => port.free_buffers())
    }

    #[inline]
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        either!(self, port => port.send(template, header, frame, patches))
    }

    #[inline]
    fn will_read(&mut self, bytes: Range<usize>) {
        either!(self, port => port.will_read(bytes));
    }

    #[inline]
    fn flush(&mut self) -> anyhow::Result<()> {
        either!(self, port => port.flush())
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        either!(self, port => port.is_sending())
    }

    #[inline]
    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        either!(self, port => port.receive(most, each))
    }

    fn wake(&mut self) {
        either!(self, port => port.wake());
    }

    fn check(&mut self) -> anyhow::Result<()> {
        either!(self, port => port.check())
    }

    fn backend(&self) -> Option<u32> {
        either!(self, port => port.backend())
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        either!(self, port => port.drops())
    }
}
