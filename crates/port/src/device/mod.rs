//! Device ports: ports whose peer is a network interface of this machine.
//!
//! Opening an interface takes privileges, and using it takes none. So an [`Opener`] opens it, in
//! this process or in a helper process, and the port works with the descriptors.
//!
//! | module | holds |
//! |---|---|
//! | `request` | the requests to an opener, and its answers |
//! | `direct` | the opener that works in this process |
//! | `helper` | the opener that asks a helper process, and the loop of that process |
//! | `link` | the trait of an open device, as workers use it |
//! | `port` | the control side of ports of all device kinds |
//! | `worker_port` | the port as one worker serves it |
//! | `interface`, `tun` | ioctls of interfaces and of taps |
//! | `ethtool`, `bpf` | facts and settings of an interface; programs for it |
//! | `devices` | the thread that follows the interfaces of all ports |
//! | `openings` | the threads that open devices again |
//! | `netlink` | the interfaces of this machine, as the kernel reports them |
//! | `numa` | the NUMA node of an interface, and memory on that node |
//! | `pool`, `vectored`, `vnet`, `frames` | memory that the kernel reads packets into; system calls on segments; packets with a virtio-net header; delivery into frames |
//! | `backoff` | the time until an interface is tried again |
//!
//! The kinds are in `tap`, `af_packet` and `af_xdp`. Each has a function that opens it with
//! privileges, and a type with `DeviceLink` for all other work.

pub(crate) mod af_packet;
pub(crate) mod af_xdp;
pub(crate) mod backoff;
pub(crate) mod bpf;
mod devices;
mod direct;
pub(crate) mod ethtool;
pub(crate) mod frames;
mod helper;
pub(crate) mod interface;
pub(crate) mod link;
mod netlink;
mod numa;
mod openings;
pub(crate) mod pool;
mod port;
mod request;
pub mod routes;
pub(crate) mod tap;
#[cfg(test)]
pub(crate) mod test_namespace;
pub(crate) mod tun;
pub(crate) mod vectored;
pub(crate) mod vnet;
mod worker_port;

use std::fmt;

pub use devices::Devices;
pub use direct::{Direct, check_interface_name};
pub use helper::{Helper, HelperServer};
pub use numa::interface_node;
pub use port::{DevicePort, DevicePortConfig};
pub use request::{
    AfPacketRequest, AfXdpRequest, DeviceRequest, OpenCause, OpenError, OpenedDevice, Steal, TapOffloads, TapRequest,
    ZeroCopy,
};

/// Returns the descriptors of an interface with this many queues: one for each, and for AF_XDP the
/// program and the memory of frames.
#[must_use]
pub fn descriptors(queues: usize) -> u64 {
    queues as u64 + 4
}

/// Opens interfaces, with the privileges that this takes.
pub trait Opener: Send + Sync + fmt::Debug {
    /// Opens an interface. The caller uses the descriptors without privileges.
    ///
    /// # Errors
    /// The reason, in a sentence for operators, with the remedy.
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError>;

    /// Checks that [`Self::open`] may open this interface with these settings at all. Nothing is
    /// opened.
    ///
    /// # Errors
    /// The reason, with the remedy.
    fn check(&self, _request: &DeviceRequest) -> Result<(), OpenError> {
        Ok(())
    }

    /// Restores settings of the interface that [`Self::open`] has changed. The caller has closed
    /// the descriptors.
    fn close(&self, request: &DeviceRequest);

    /// Returns the client of the helper process, if one opens the interfaces.
    fn helper(&self) -> Option<&Helper> {
        None
    }
}
