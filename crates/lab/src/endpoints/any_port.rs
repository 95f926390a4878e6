//! A generator's port, on a socket or on an interface.

use std::fmt;
use std::path::PathBuf;

use straightline_virtio::net_header::NetHeader;

use super::interface::{Interface, InterfacePort};
use super::port::{Received, TestPort};
use super::vhost::{PortOptions, VhostPort};

/// The place at which a port of the generator is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A socket on which a vhost-user backend listens.
    Socket(PathBuf),
    /// An interface of this machine.
    Interface(Interface),
}

impl Attachment {
    /// Returns the places of these sockets, and then those of these interfaces.
    #[must_use]
    pub fn all(sockets: &[PathBuf], interfaces: &[Interface]) -> Vec<Attachment> {
        let sockets = sockets.iter().cloned().map(Attachment::Socket);
        sockets.chain(interfaces.iter().cloned().map(Attachment::Interface)).collect()
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Socket(socket) => socket.display().fmt(to),
            Attachment::Interface(interface) => interface.fmt(to),
        }
    }
}

/// A port of the generator.
#[derive(Debug)]
pub enum AnyPort {
    /// A queue pair of a vhost-user backend.
    Socket(Box<VhostPort>),
    /// An interface of this machine.
    Interface(Box<InterfacePort>),
}

impl AnyPort {
    /// Connects a port to each of these places. Ports on sockets share their memory. An interface
    /// needs this MTU for the frames that are sent.
    ///
    /// # Errors
    /// Memory is not available, a backend refused something, or an interface cannot be opened.
    pub fn connect_all(places: &[Attachment], options: &PortOptions, mtu: u32) -> anyhow::Result<Vec<AnyPort>> {
        let socket = |place: &Attachment| match place {
            Attachment::Socket(socket) => Some(socket.clone()),
            Attachment::Interface(_) => None,
        };
        // Interfaces come first: opening one costs nothing that a backend would notice.
        let mut interfaces = Vec::new();
        for place in places {
            if let Attachment::Interface(interface) = place {
                interfaces.push(InterfacePort::open(interface, options.longest, mtu)?);
            }
        }
        let sockets: Vec<PathBuf> = places.iter().filter_map(socket).collect();
        let connected = if sockets.is_empty() { Vec::new() } else { VhostPort::connect_all(&sockets, options)? };
        let (mut interfaces, mut connected) = (interfaces.into_iter(), connected.into_iter());
        let port = |place: &Attachment| match place {
            Attachment::Socket(_) => connected.next().map(|port| AnyPort::Socket(Box::new(port))),
            Attachment::Interface(_) => interfaces.next().map(|port| AnyPort::Interface(Box::new(port))),
        };
        Ok(places.iter().filter_map(port).collect())
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
    fn flush(&mut self) -> anyhow::Result<()> {
        either!(self, port => port.flush())
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        either!(self, port => port.is_sending())
    }

    #[inline]
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&dyn Received)) -> anyhow::Result<usize> {
        either!(self, port => port.receive(most, each))
    }

    fn wake(&mut self) {
        either!(self, port => port.wake());
    }

    fn check(&mut self) -> anyhow::Result<()> {
        either!(self, port => port.check())
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        either!(self, port => port.drops())
    }
}
