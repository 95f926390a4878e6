//! The opener that works in this process: for programs that keep their privileges, and inside the
//! helper process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use super::numa::{PreferredNode, interface_node};
use super::{DeviceRequest, OpenCause, OpenError, OpenedDevice, Opener};
use crate::device::{af_packet, af_xdp, tap};

/// Opens interfaces in this process, with its privileges.
#[derive(Debug, Default)]
pub struct Direct {
    /// The changes at interfaces that are undone when a device is closed, by the interface's name.
    changes: Mutex<HashMap<String, af_xdp::open::Changes>>,
    /// NUMA nodes that were read before the process entered its sandbox, by the interface's name.
    nodes: HashMap<String, usize>,
    /// The clock of waits for the kernel.
    clock: Clock,
}

impl Direct {
    /// Makes an opener that knows the NUMA nodes of the interfaces of these requests. Others are
    /// looked up when they are opened, if the process may still read files then.
    #[must_use]
    pub fn knowing(requests: &[DeviceRequest]) -> Self {
        let names = requests.iter().map(DeviceRequest::interface);
        let nodes = names.filter_map(|name| Some((name.to_owned(), interface_node(Path::new("/"), name)?)));
        Direct { nodes: nodes.collect(), ..Direct::default() }
    }

    fn changes(&self) -> MutexGuard<'_, HashMap<String, af_xdp::open::Changes>> {
        self.changes.lock().ignore_poison()
    }
}

impl Opener for Direct {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        if let Err(why) = check_interface_name(request.interface()) {
            return Err(OpenError::new(OpenCause::Unsupported, format!("{:?}: {why}", request.interface())));
        }
        // Frames and rings of AF_XDP are near the interface.
        let known = self.nodes.get(request.interface()).copied();
        let node = known.or_else(|| interface_node(Path::new("/"), request.interface()));
        let _near = node.and_then(PreferredNode::new);
        match request {
            DeviceRequest::Tap(request) => tap::open(request),
            DeviceRequest::AfPacket(request) => af_packet::open(request),
            DeviceRequest::AfXdp(request) => {
                // What an earlier device has changed is undone before the new one changes it.
                self.changes().remove(&request.interface);
                let (opened, changes) = af_xdp::open::open(request, &self.clock)?;
                self.changes().insert(request.interface.clone(), changes);
                Ok(opened)
            }
        }
    }

    fn close(&self, request: &DeviceRequest) {
        self.changes().remove(request.interface());
    }
}

/// Bytes of the longest interface name (IFNAMSIZ counts the closing zero).
const MOST_NAME: usize = 15;

/// Checks that the kernel accepts the name for an interface (`dev_valid_name`).
///
/// # Errors
/// The reason why it does not, in words.
pub fn check_interface_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_ascii_whitespace();
    match name {
        "" | "." | ".." => Err("no interface can have this name".to_owned()),
        _ if name.len() > MOST_NAME => Err(format!("the name has {} bytes; the kernel allows {MOST_NAME}", name.len())),
        _ if name.contains(bad) => Err("an interface name has no slash, colon or white space".to_owned()),
        _ => Ok(()),
    }
}
