//! Opening packet sockets on an interface.

use rustix::io::Errno;
use straightline_graph::DeviceFacts;
use straightline_virtio::features as f;

use super::socket::PacketSocket;
use crate::device::interface::Interfaces;
use crate::device::{AfPacketRequest, OpenCause, OpenError, OpenedDevice};

/// Opens packet sockets on an interface. The descriptors are those of the sockets.
pub(crate) fn open(request: &AfPacketRequest) -> Result<OpenedDevice, OpenError> {
    let mut facts = look(request)?;
    let mut sockets = Vec::new();
    let mut group = None;
    for _ in 0..request.queues {
        let socket = PacketSocket::new().map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => OpenError::new(
                OpenCause::Denied,
                format!(
                    "interface {}: a packet socket takes CAP_NET_RAW; give straightline this capability",
                    request.interface
                ),
            ),
            error => failed(request, "cannot make a packet socket", error),
        })?;
        socket.set_options().map_err(|error| failed(request, "cannot set the options of its socket", error))?;
        socket.bind(facts.ifindex).map_err(|error| failed(request, "cannot bind a socket to it", error))?;
        socket.promiscuous(facts.ifindex).map_err(|error| failed(request, "cannot make it promiscuous", error))?;
        if request.queues > 1 {
            let joined = match group {
                None => socket.begin_fanout().map(|first| group = Some(first)),
                Some(group) => socket.join_fanout(group),
            };
            joined.map_err(|error| failed(request, "cannot distribute its flows to several sockets", error))?;
        }
        facts.features = features(socket.knows_uso());
        sockets.push(socket.into_fd());
    }
    Ok(OpenedDevice { facts, fds: sockets })
}

/// Checks that the interface can be used, and returns its facts.
fn look(request: &AfPacketRequest) -> Result<DeviceFacts, OpenError> {
    let name = &request.interface;
    let ask = |error| failed(request, "cannot ask the kernel about it", error);
    let interfaces = Interfaces::new().map_err(ask)?;
    let Some(ifindex) = interfaces.index(name).map_err(ask)? else {
        return Err(OpenError::missing(name));
    };
    let Some(mac) = interfaces.mac(name).map_err(ask)? else {
        let message = format!("interface {name} is not Ethernet; name one that is");
        return Err(OpenError::new(OpenCause::Unsupported, message));
    };
    if !interfaces.is_up(name).map_err(ask)? {
        return Err(OpenError::set_down(name));
    }
    Ok(DeviceFacts {
        interface: name.clone(),
        ifindex,
        driver: interfaces.driver(name).map(|driver| driver.name).unwrap_or_default(),
        mode: "packet".to_owned(),
        queues: request.queues,
        mtu: interfaces.mtu(name).map_err(ask)?,
        mac,
        ..DeviceFacts::default()
    })
}

/// Returns the offloads that packet sockets pass in both directions, as virtio features. The kernel
/// segments what the interface itself does not.
fn features(has_uso: bool) -> u64 {
    let tso = f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_ECN;
    let guest_tso = f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6 | f::VIRTIO_NET_F_GUEST_ECN;
    let uso = f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;
    f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM | tso | guest_tso | if has_uso { uso } else { 0 }
}

fn failed(request: &AfPacketRequest, what: &str, error: Errno) -> OpenError {
    let cause = match error {
        Errno::PERM | Errno::ACCESS => OpenCause::Denied,
        Errno::NODEV | Errno::NXIO => OpenCause::Missing,
        _ => OpenCause::Failed,
    };
    OpenError::new(cause, format!("interface {}: {what}: {error}", request.interface))
}

#[cfg(test)]
mod tests;
