//! Sockets that VMs make: the folder, and whether the switch may connect.

use super::{Check, CheckOutcome};
use crate::facts::{Access, PortFacts, SocketFacts, SocketFile, Unknown, User};

/// The right to enter a folder, the right to connect to a socket, and those to make one in a folder,
/// as bits for others.
const ENTER: u32 = 0o1;
const CONNECT: u32 = 0o2;
const MAKE: u32 = 0o3;

/// The set-group bit: files of a folder have its group.
const SET_GROUP: u32 = 0o2000;

/// The user who runs VMs of libvirt on Debian.
const LIBVIRT: &str = "libvirt-qemu";

pub(super) const CLIENT: Check = Check {
    name: "client-folder",
    passes: "each VM that listens can make its socket, and the switch may connect to it",
    absent: "no port has `mode = \"client\"`",
    run: |facts, outcome| {
        for port in facts.ports.iter().filter(|port| port.port.mode.as_deref() == Some("client")) {
            let Some(socket) = &port.socket else { continue };
            let subject = format!("{}: {}", port.subject(), socket.path.display());
            if let Some(user) = outcome.known(subject, &socket.user)
                && is_reachable(port, socket, user, outcome)
            {
                outcome.pass();
            }
        }
    },
};

/// Reports the first obstacle between the switch, whose user this is, and the VM's socket.
fn is_reachable(port: &PortFacts, socket: &SocketFacts, user: &User, outcome: &mut CheckOutcome) -> bool {
    let subject = port.subject();
    let vm = port.peers.iter().flatten().find(|peer| peer.listens != Ok(false));
    let vm = vm.and_then(|peer| peer.user.as_ref().ok());
    let owner = vm.map_or(LIBVIRT, |vm| vm.name.as_str());
    let Some((last, _)) = socket.folders.last() else { return true };
    let make = format!("install -d -o {owner} -g {} -m 2750 {}", user.name, last.display());
    for (folder, access) in &socket.folders {
        let path = folder.display();
        if access.is_err() && socket.state == Ok(SocketFile::Missing) {
            let detail = "the VM that listens cannot make its socket without it";
            outcome.warn(format!("{subject}: folder {path} is missing"), detail, make);
            return false;
        }
        let Some(access) = outcome.known(format!("{subject}: folder {path}"), access) else { return false };
        // Who may make a socket in a folder is the matter of the last one.
        let vm = vm.filter(|_| folder == last).filter(|vm| !vm.has(access, MAKE));
        let symptom = match vm {
            _ if !user.has(access, ENTER) => format!("{subject}: the switch's user {} cannot enter {path}", user.name),
            Some(vm) => format!("{subject}: user {} cannot make a socket in {path}", vm.name),
            None => continue,
        };
        let fix = if folder == last { make } else { format!("chmod a+x {path}") };
        return report(symptom, access, fix, outcome);
    }
    let path = socket.path.display();
    match outcome.known(format!("{subject}: socket {path}"), &socket.file) {
        // The VM starts later.
        Some(None) => true,
        Some(Some(access)) if user.has(access, CONNECT) => true,
        Some(Some(access)) => {
            let folder = socket.folders.last().and_then(|(_, access)| access.as_ref().ok());
            let is_made = folder.is_some_and(|folder| {
                folder.mode & SET_GROUP != 0 && folder.gid == access.gid && user.groups.contains(&folder.gid)
            });
            let again = "start the VM again under `umask 0002`";
            let fix = if is_made { again.to_owned() } else { format!("{make}, then {again}") };
            let symptom = format!("{subject}: the switch's user {} may not connect to {path}", user.name);
            report(symptom, access, fix, outcome)
        }
        None => false,
    }
}

fn report(symptom: String, access: &Access, fix: String, outcome: &mut CheckOutcome) -> bool {
    let detail = format!("mode {:04o} of uid {}, gid {}", access.mode, access.uid, access.gid);
    if access.has_list {
        outcome.unknown(symptom, &Unknown::new(format!("{detail}, with an access control list: run `getfacl`")));
    } else {
        outcome.fail(symptom, detail, fix);
    }
    false
}
