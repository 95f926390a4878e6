//! The questions that the switch asks the keys of a port, whatever its kind.

use std::path::Path;

use straightline_api::Port;
use straightline_graph::Permissions;
use straightline_port::device::{self, DeviceRequest};

use crate::{Mac, Needs, UnderlayConfig};

/// A resource that only one port can have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusive<'a> {
    /// The path of a socket.
    Path(&'a Path),
    /// A network interface.
    Interface(&'a str),
}

/// The keys of a port of one kind, as the plan, the sandbox, reloads and the API ask them.
///
/// A kind has only the methods whose defaults are wrong for it. The defaults are those of a port
/// with one queue pair, without a socket, and of an interface where there is one.
pub trait KindSettings {
    /// Returns the word for the kind in the file and in the API.
    fn word(&self) -> &'static str;

    /// Returns the differences for which a port must be closed and opened again, in words. Empty if
    /// there are none.
    fn differs(&self, new: &Self) -> Vec<String>
    where
        Self: Sized;

    /// Returns the number of queue pairs that the port is planned for: at least 1, or none for a
    /// tunnel, whose packets use the queues of its underlay.
    fn queues(&self) -> usize {
        1
    }

    /// Returns the most queue pairs that can ever be started. Each has its worker, even if the port
    /// is planned for fewer.
    fn most_queues(&self) -> usize {
        self.queues()
    }

    /// Returns the descriptors that are reserved for the port.
    fn reserved_descriptors(&self) -> u64 {
        self.interface().map_or(0, |_| device::descriptors(self.most_queues()))
    }

    /// Returns the most descriptors that the peer of the port can have the switch keep.
    fn most_descriptors(&self) -> u64 {
        self.reserved_descriptors()
    }

    /// Returns the name of the port's interface, or `None` if the port has none.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Returns the interface to open, for a port of this MTU and address, or `None` if the port has
    /// no interface of this machine.
    fn device(&self, _mtu: u16, _mac: Option<Mac>) -> Option<DeviceRequest> {
        None
    }

    /// Returns the interface of which the port takes all packets from the host, unless the file
    /// allows that even for an interface with a default route.
    fn takes_from_host(&self) -> Option<&str> {
        None
    }

    /// Returns the path of the port's socket as operators see it, or `None` if the port has no
    /// socket.
    fn socket(&self) -> Option<&Path> {
        None
    }

    /// Returns the path of the socket that this process makes, or `None` if it makes none.
    fn made_socket(&self) -> Option<&Path> {
        None
    }

    /// Returns who may connect. A reload can change that while the port stays open.
    fn permissions(&self) -> Permissions {
        Permissions::default()
    }

    /// Returns the resource that only one port can have at a time.
    fn exclusive(&self) -> Option<Exclusive<'_>> {
        self.interface().map(Exclusive::Interface)
    }

    /// Returns the rights that the port takes beyond those that every port has.
    fn needs(&self) -> Needs {
        Needs { has_device: self.interface().is_some(), ..Needs::default() }
    }

    /// Returns whether packets can wait in the port's rings until another port has free buffers.
    fn can_wait(&self) -> bool {
        false
    }

    /// Returns whether the port's MAC address is that of its other end, as a guest's is. Then an
    /// underlay on the port needs an address of its own.
    fn has_mac_of_peer(&self) -> bool {
        false
    }

    /// Adapts the keys of a port that carries this underlay.
    fn carry(&mut self, _underlay: &UnderlayConfig) {}

    /// Fills in what only this kind tells in the API's answer about a port.
    fn describe(&self, _answer: &mut Port) {}
}
