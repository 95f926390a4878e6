//! Opening a tap: it is made if it does not exist, and set up as its port wants it.
//!
//! Settings that are right already are not written. So a tap that an administrator has prepared
//! for our user needs no privileges.

use std::path::Path;

use rustix::io::Errno;
use straightline_graph::DeviceFacts;
use straightline_virtio::features as f;

use crate::device::interface::Interfaces;
use crate::device::tun::{self, AttachError, Offload, Queue};
use crate::device::{OpenCause, OpenError, OpenedDevice, TapOffloads, TapRequest};

/// The driver's name, as `ethtool -i` shows it.
const DRIVER: &str = "tun";

/// Opens a tap. Its descriptors are those of its queues, in their order.
pub(crate) fn open(request: &TapRequest) -> Result<OpenedDevice, OpenError> {
    let interfaces = Interfaces::new().map_err(|error| failed(request, "cannot ask the kernel about it", error))?;
    let queues = attach(request, &interfaces)?;
    let Some(first) = queues.first() else {
        return Err(OpenError::new(OpenCause::Unsupported, format!("tap {}: it needs a queue", request.name)));
    };
    first.set_header().map_err(|error| failed(request, "cannot set the length of the virtio-net header", error))?;
    let offload = set_offload(request, first)?;
    if let Some(user) = request.owner {
        first.set_owner(user).map_err(|error| failed(request, "cannot set its owner", error))?;
    }
    if let Some(group) = request.group {
        first.set_group(group).map_err(|error| failed(request, "cannot set its group", error))?;
    }
    let mut warnings = Vec::new();
    let facts = set_up(request, first, &interfaces, &mut warnings)?;
    // This comes last: a tap that could not be set up does not stay.
    if request.persist {
        first.persist().map_err(|error| failed(request, "cannot make it persistent", error))?;
    }
    Ok(OpenedDevice {
        facts: DeviceFacts {
            driver: DRIVER.to_owned(),
            mode: "tap".to_owned(),
            queues: request.queues,
            features: features(offload),
            warnings,
            ..facts
        },
        fds: queues.into_iter().map(Queue::into_fd).collect(),
    })
}

/// Attaches to all queues.
fn attach(request: &TapRequest, interfaces: &Interfaces) -> Result<Vec<Queue>, OpenError> {
    let name = &request.name;
    let attach = |several| Queue::open(Path::new(tun::DEVICE), name, several);
    let several = request.queues > 1;
    let exists = interfaces.index(name).is_ok_and(|index| index.is_some());
    let first = match attach(several) {
        // A tap of several queues is as good for one.
        Err(AttachError::Attach(Errno::INVAL)) if exists && !several => attach(true),
        attached => attached,
    };
    let first = first.map_err(|error| attach_error(request, interfaces, exists, error))?;
    let mut queues = vec![first];
    while queues.len() < usize::from(request.queues) {
        queues.push(attach(several).map_err(|error| match error {
            AttachError::Attach(Errno::TOOBIG) => OpenError::new(
                OpenCause::Unsupported,
                format!("tap {name}: it takes {} queues, not {}; set `queues`", queues.len(), request.queues),
            ),
            error => attach_error(request, interfaces, exists, error),
        })?);
    }
    Ok(queues)
}

/// Returns the reason why a queue cannot be attached, with the remedy.
fn attach_error(request: &TapRequest, interfaces: &Interfaces, exists: bool, error: AttachError) -> OpenError {
    let name = &request.name;
    let errno = match error {
        AttachError::Device(Errno::NOENT | Errno::NXIO | Errno::NODEV) => {
            let message = format!("tap {name}: {} does not work; load its module by `modprobe tun`", tun::DEVICE);
            return OpenError::new(OpenCause::Unsupported, message);
        }
        AttachError::Device(error) => {
            let message = format!("tap {name}: cannot open {}: {error}; let our user read and write it", tun::DEVICE);
            return OpenError::new(OpenCause::Denied, message);
        }
        AttachError::Attach(errno) => errno,
    };
    let driver = if exists { interfaces.driver(name) } else { None };
    let is_tap = driver.as_ref().is_some_and(|driver| driver.name == DRIVER && driver.bus != "tun");
    match errno {
        Errno::PERM if exists => OpenError::new(
            OpenCause::Denied,
            format!(
                "tap {name}: it belongs to another user; make it for ours by `{}`, or give straightline CAP_NET_ADMIN",
                make_command(request)
            ),
        ),
        Errno::PERM => OpenError::new(
            OpenCause::Denied,
            format!(
                "tap {name}: making it takes CAP_NET_ADMIN; give straightline this capability, or make the tap before \
                 by `{}`",
                make_command(request)
            ),
        ),
        Errno::INVAL if exists && !is_tap => OpenError::new(
            OpenCause::Unsupported,
            format!("{name} is an interface already, but not a tap; use another `name`"),
        ),
        Errno::INVAL if exists => OpenError::new(
            OpenCause::Unsupported,
            format!(
                "tap {name}: it has one queue, not {}; set `queues = 1`, or make it again by `ip link del {name}` and \
                 `{}`",
                request.queues,
                make_command(request)
            ),
        ),
        Errno::BUSY => OpenError::new(
            OpenCause::Busy,
            format!("tap {name}: another program uses it; stop that program, or use another `name`"),
        ),
        error => failed(request, "cannot attach to it", error),
    }
}

/// Returns the command that makes the tap for our user.
fn make_command(request: &TapRequest) -> String {
    let several = if request.queues > 1 { " multi_queue" } else { "" };
    let user = request.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    format!("ip tuntap add dev {} mode tap user {user} vnet_hdr{several}", request.name)
}

/// Offers the kernel to leave work to us, from most to least. Returns what it accepted.
fn set_offload(request: &TapRequest, queue: &Queue) -> Result<Offload, OpenError> {
    let TapOffloads { csum, tso, uso } = request.offloads;
    let offload_if = |wanted: bool, offload| if wanted && csum { offload } else { Offload::NONE };
    let plain = offload_if(csum, Offload::CSUM).and(offload_if(tso, Offload::TSO));
    match queue.set_offload(plain.and(offload_if(uso, Offload::USO))) {
        Ok(()) => return Ok(plain.and(offload_if(uso, Offload::USO))),
        Err(Errno::INVAL) => {}
        Err(error) => return Err(failed(request, "cannot set its offloads", error)),
    }
    queue.set_offload(plain).map_err(|error| failed(request, "cannot set its offloads", error))?;
    Ok(plain)
}

/// Returns the virtio features that stand for this work, in both directions. The kernel takes from
/// us what it may leave to us.
fn features(offload: Offload) -> u64 {
    let tso = f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_ECN;
    let guest_tso = f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6 | f::VIRTIO_NET_F_GUEST_ECN;
    let uso = f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;
    [
        (Offload::CSUM, f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM),
        (Offload::TSO, tso | guest_tso),
        (Offload::USO, uso),
    ]
    .into_iter()
    .filter(|(work, _)| offload.has(*work))
    .fold(0, |all, (_, features)| all | features)
}

/// Sets address, MTU, bridge and state where they differ from the port's. Returns the facts.
///
/// The ioctls take names. The tap is called by the name that its descriptor tells, because another
/// interface may have the name of the request by now.
fn set_up(
    request: &TapRequest,
    queue: &Queue,
    interfaces: &Interfaces,
    warnings: &mut Vec<String>,
) -> Result<DeviceFacts, OpenError> {
    let ask = |error| failed(request, "cannot ask the kernel about it", error);
    let name = &queue.name().map_err(ask)?;
    let ifindex = interfaces.index(name).map_err(ask)?.ok_or(Errno::NODEV).map_err(ask)?;
    let is_ours = || -> Result<(), OpenError> {
        // A tap that is renamed meanwhile is opened again.
        let is_same = queue.name().map_err(ask)? == *name && interfaces.index(name).map_err(ask)? == Some(ifindex);
        if is_same { Ok(()) } else { Err(failed(request, "it was renamed while it was set up", Errno::AGAIN)) }
    };
    let mut mac = interfaces.mac(name).map_err(ask)?.ok_or(Errno::INVAL).map_err(ask)?;
    if let Some(wanted) = request.mac.filter(|wanted| *wanted != mac) {
        is_ours()?;
        let command = format!("ip link set dev {name} address {}", mac_text(wanted));
        if is_set(request, interfaces.set_mac(name, wanted), "address", &command, warnings)? {
            mac = wanted;
        }
    }
    let mut mtu = interfaces.mtu(name).map_err(ask)?;
    if mtu != u32::from(request.mtu) {
        is_ours()?;
        let command = format!("ip link set dev {name} mtu {}", request.mtu);
        if is_set(request, interfaces.set_mtu(name, request.mtu), "MTU", &command, warnings)? {
            mtu = request.mtu.into();
        }
    }
    if let Some(bridge) = &request.bridge {
        join(request, interfaces, bridge, ifindex)?;
    }
    if !interfaces.is_up(name).map_err(ask)? {
        is_ours()?;
        is_set(request, interfaces.set_up(name), "state", &format!("ip link set dev {name} up"), warnings)?;
    }
    Ok(DeviceFacts { interface: name.clone(), ifindex, mtu, mac, ..DeviceFacts::default() })
}

/// Returns whether a setting was written. If only the privilege is missing, the port works with
/// the interface as it is, and a warning names the remedy.
fn is_set(
    request: &TapRequest,
    result: Result<(), Errno>,
    what: &str,
    command: &str,
    warnings: &mut Vec<String>,
) -> Result<bool, OpenError> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => {
            let name = &request.name;
            warnings.push(format!("tap {name}: setting its {what} takes CAP_NET_ADMIN; set it by `{command}`"));
            Ok(false)
        }
        Err(error) => Err(failed(request, &format!("cannot set its {what}"), error)),
    }
}

/// Makes the tap a port of a Linux bridge, unless it is one already.
fn join(request: &TapRequest, interfaces: &Interfaces, bridge: &str, index: u32) -> Result<(), OpenError> {
    let name = &request.name;
    let error = |cause, message: String| Err(OpenError::new(cause, format!("tap {name}: {message}")));
    match interfaces.is_bridge_port(bridge, index) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(Errno::NODEV) => {
            return error(
                OpenCause::Missing,
                format!("bridge {bridge} does not exist; make it by `ip link add {bridge} type bridge`"),
            );
        }
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => {
            return error(OpenCause::Unsupported, format!("{bridge} is not a Linux bridge; set `bridge` to one"));
        }
        Err(errno) => return Err(failed(request, &format!("cannot ask about bridge {bridge}"), errno)),
    }
    match interfaces.add_to_bridge(bridge, index) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => error(
            OpenCause::Denied,
            format!("joining bridge {bridge} takes CAP_NET_ADMIN; do it by `ip link set dev {name} master {bridge}`"),
        ),
        Err(Errno::BUSY) => error(
            OpenCause::Busy,
            format!("it is a port of another bridge than {bridge}; free it by `ip link set dev {name} nomaster`"),
        ),
        Err(errno) => Err(failed(request, &format!("cannot join bridge {bridge}"), errno)),
    }
}

fn failed(request: &TapRequest, what: &str, error: Errno) -> OpenError {
    let cause = match error {
        Errno::PERM | Errno::ACCESS => OpenCause::Denied,
        Errno::NODEV | Errno::NXIO => OpenCause::Missing,
        Errno::BUSY => OpenCause::Busy,
        _ => OpenCause::Failed,
    };
    OpenError::new(cause, format!("tap {}: {what}: {error}", request.name))
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests;
