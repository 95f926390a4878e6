//! The API, the configuration, and who can reach the sockets.

use super::{Check, CheckOutcome};
use crate::facts::{Access, ApiFailure, Facts, Holder, PortFacts, SocketFacts, SocketFile, SwitchProcess, User};

pub(super) const API: Check = Check {
    name: "api",
    passes: "the API answers",
    absent: "",
    run: |facts, outcome| {
        let path = facts.api.socket.path.display();
        let without_key = facts.configured.as_ref().filter(|file| file.errors.is_empty() && file.api.is_none());
        if let Some(file) = without_key.filter(|_| facts.api.failure.is_some()) {
            return outcome.fail(
                "the configuration has no API",
                "without `api` in `[switch]`, no command can ask the switch",
                format!("add `api = \"{path}\"` to [switch] in {}", file.path.display()),
            );
        }
        match &facts.api.failure {
            None => outcome.pass(),
            Some(ApiFailure::NotListening) if meant(facts).is_some() => {
                if let Some(process) = meant(facts) {
                    lost(facts, process, outcome);
                }
            }
            Some(ApiFailure::NotListening) => {
                let detail = match facts.api.socket.state {
                    Ok(SocketFile::Stale) => "its socket is stale: the switch has ended without removing it",
                    Ok(SocketFile::NotASocket) => "a file that is not a socket has this path",
                    _ => "no switch runs, or its `api` has another path (`--api SOCKET`)",
                };
                outcome.fail(format!("no switch listens on {path}"), detail, run_command(facts));
            }
            Some(ApiFailure::Denied) => outcome.fail(
                format!("this user may not connect to {path}"),
                "the socket or a folder above it belongs to another user",
                "sudo straightline doctor, or let a group of this user use the API: `api-group` in [switch]",
            ),
            Some(ApiFailure::Timeout) => outcome.fail(
                format!("the switch on {path} does not answer"),
                "its API thread is stuck, or the process is stopped",
                "look at the switch's log, then restart the switch",
            ),
            Some(ApiFailure::Other(why)) => {
                outcome.fail(format!("{path} gives no valid answer"), why.clone(), "name the switch's socket by --api");
            }
        }
    },
};

/// Returns the process of the switch that is meant, though nobody listens at the API's socket.
fn meant(facts: &Facts) -> Option<&SwitchProcess> {
    facts.switches.iter().flatten().find(|process| process.is_meant)
}

/// Reports a switch that runs, and whose API does not listen where it was looked for.
fn lost(facts: &Facts, process: &SwitchProcess, outcome: &mut CheckOutcome) {
    let path = facts.api.socket.path.display();
    let file = process.file.display();
    let symptom = format!("no switch listens on {path}, but process {} is one", process.pid);
    match &facts.configured {
        Some(named) if named.errors.is_empty() => outcome.fail(
            symptom,
            "something has removed its socket, or the file had another `api` when it was started",
            format!("name its socket by --api; if it is removed, restart the switch (process {})", process.pid),
        ),
        Some(_) => outcome.fail(
            symptom,
            "the file has errors, so its `api` may be another one than the switch's",
            "correct the file, or name the switch's socket by --api",
        ),
        None => outcome.fail(
            symptom,
            format!("it was started from {file}, and its `api` may have another path"),
            format!("straightline doctor {file}"),
        ),
    }
}

pub(super) const CONFIGURATION: Check = Check {
    name: "configuration",
    passes: "the configuration file has no errors and no warnings",
    absent: "no configuration file was named: straightline doctor CONFIG",
    run: |facts, outcome| {
        let Some(file) = &facts.configured else { return };
        let check = format!("straightline check {}", file.path.display());
        for error in &file.errors {
            outcome.fail("the configuration has an error", error.clone(), check.clone());
        }
        for warning in &file.warnings {
            outcome.warn("the configuration has a warning", warning.clone(), check.clone());
        }
        outcome.pass();
    },
};

pub(super) const SOCKETS: Check = Check {
    name: "sockets",
    passes: "each socket is live, and the right process has it",
    absent: "there is no socket",
    run: |facts, outcome| {
        let own = facts.process.as_ref().ok().map(|process| process.pid).or_else(|| silent_switch(facts));
        if facts.switch.is_ok() && outcome.known("the process of the switch", &facts.process).is_none() {
            return;
        }
        for port in &facts.ports {
            let Some(socket) = &port.socket else { continue };
            // The path of a socket that was handed over is only its name.
            match port.port.mode.as_deref() {
                Some("server") => ours(&Ours::of_port(port), socket, own, facts, outcome),
                Some("client") => theirs(&port.subject(), socket, outcome),
                _ => {}
            }
        }
        let api = Ours { subject: "the API".to_owned(), vms: Vec::new(), section: String::new() };
        ours(&api, &facts.api.socket, own, facts, outcome);
        if let Err(unknown) = &facts.switch
            && own.is_none()
            && outcome.findings.is_empty()
        {
            outcome.unknown("the sockets", unknown);
        }
    },
};

/// Returns the process of a switch that listens and does not answer this user.
fn silent_switch(facts: &Facts) -> Option<u32> {
    let listens = matches!(facts.api.failure, Some(ApiFailure::Denied | ApiFailure::Timeout));
    match facts.api.socket.holders.as_deref() {
        Ok([one]) if listens => Some(one.pid),
        _ => None,
    }
}

/// The owner of a socket at which the switch listens.
struct Ours {
    subject: String,
    /// The processes of VMs that use it.
    vms: Vec<u32>,
    /// The section of the port.
    section: String,
}

impl Ours {
    fn of_port(port: &PortFacts) -> Self {
        let vms = port.peers.iter().flatten().map(|peer| peer.pid).collect();
        Ours { subject: port.subject(), vms, section: format!("[port.{}]", port.port.name) }
    }

    /// Returns the fix where another process listens. It harms nobody's VM.
    fn make_way(&self, other: &Holder) -> String {
        if self.vms.contains(&other.pid) {
            format!("the VM listens: set `mode = \"client\"` in {}, then: straightline reload", self.section)
        } else {
            format!("choose another path, or end {} (process {}) if it is not needed", other.name, other.pid)
        }
    }
}

/// Checks a socket at which the switch listens.
/// Returns the command that starts the switch.
fn run_command(facts: &Facts) -> String {
    let file = facts.configured.as_ref().map_or("switch.toml".to_owned(), |file| file.path.display().to_string());
    format!("straightline run {file}")
}

fn ours(owner: &Ours, socket: &SocketFacts, own: Option<u32>, facts: &Facts, outcome: &mut CheckOutcome) {
    let path = socket.path.display();
    let subject = &owner.subject;
    let runs = facts.switch.is_ok();
    let Some(state) = outcome.known(format!("{subject}: socket {path}"), &socket.state) else { return };
    match state {
        SocketFile::Missing if runs => outcome.fail(
            format!("{subject}: socket {path} is missing"),
            "something has removed it; no new frontend can connect",
            "restart the switch",
        ),
        // Nothing is wrong before the start, and nothing is right.
        SocketFile::Missing => {}
        SocketFile::Stale if runs => outcome.fail(
            format!("{subject}: socket {path} is stale"),
            "another process has replaced the switch's socket, and has ended",
            "restart the switch",
        ),
        SocketFile::Stale => outcome.warn(
            format!("{subject}: socket {path} is stale"),
            "a switch left it when it ended; the next start replaces it",
            run_command(facts),
        ),
        SocketFile::NotASocket => outcome.fail(
            format!("{subject}: {path} is not a socket"),
            "the switch does not remove a file of another kind",
            format!("rm {path}"),
        ),
        SocketFile::Live => {
            let Some(holders) =
                outcome.known(format!("{subject}: the process that listens on {path}"), &socket.holders)
            else {
                return;
            };
            // Whoever binds a path that is bound already has replaced the file.
            let others: Vec<_> = holders.iter().filter(|holder| Some(holder.pid) != own).cloned().collect();
            match others.first() {
                None if runs || own.is_some() => outcome.pass(),
                Some(other) => outcome.fail(
                    format!("{subject}: another process has socket {path}"),
                    held_by(&others),
                    owner.make_way(other),
                ),
                None => outcome.fail(
                    format!("{subject}: another process has socket {path}"),
                    "it listens in another network or PID namespace",
                    "end that process, or choose another path",
                ),
            }
        }
    }
}

/// Checks a socket to which the switch connects.
fn theirs(subject: &str, socket: &SocketFacts, outcome: &mut CheckOutcome) {
    let path = socket.path.display();
    let Some(state) = outcome.known(format!("{subject}: socket {path}"), &socket.state) else { return };
    let start = format!("start the VM that listens on {path}");
    match state {
        SocketFile::Live => outcome.pass(),
        SocketFile::Missing => outcome.warn(
            format!("{subject}: socket {path} is missing"),
            "the port has `mode = \"client\"`, and no VM listens yet",
            start,
        ),
        SocketFile::Stale => {
            outcome.warn(format!("{subject}: socket {path} is stale"), "the VM that listened there has ended", start)
        }
        SocketFile::NotASocket => outcome.fail(
            format!("{subject}: {path} is not a socket"),
            "the port connects to a socket of a VM",
            "correct `socket` in the port's section",
        ),
    }
}

fn held_by(holders: &[Holder]) -> String {
    let names: Vec<_> = holders.iter().map(|holder| format!("{} (process {})", holder.name, holder.pid)).collect();
    format!("held by {}", names.join(", "))
}

pub(super) const ACCESS: Check = Check {
    name: "socket-access",
    passes: "the user of each VM can reach its socket",
    absent: "no port has a socket at which the switch listens",
    run: |facts, outcome| {
        for port in server_ports(facts) {
            let Some(socket) = &port.socket else { continue };
            let subject = format!("{}: {}", port.subject(), socket.path.display());
            if let Some(user) = outcome.known(&subject, &socket.user) {
                reach(&port.subject(), socket, user, outcome);
            }
        }
    },
};

/// Reports the first folder that stops a user, or a socket that the user may not write.
fn reach(subject: &str, socket: &SocketFacts, user: &User, outcome: &mut CheckOutcome) {
    for (folder, access) in &socket.folders {
        let path = folder.display();
        let Some(access) = outcome.known(format!("{subject}: folder {path}"), access) else { return };
        if user.has(access, 0o1) {
            continue;
        }
        let symptom = format!("{subject}: user {} cannot enter {path}", user.name);
        let detail = format!("mode {:04o} of uid {}, gid {}", access.mode, access.uid, access.gid);
        if access.has_list {
            let why = format!("{detail}, with an access control list: run `getfacl {path}`");
            return outcome.unknown(symptom, &crate::facts::Unknown::new(why));
        }
        return outcome.fail(symptom, detail, format!("chmod a+x {path}"));
    }
    let path = socket.path.display();
    match outcome.known(format!("{subject}: socket {path}"), &socket.file) {
        // The port listens later; the folders are all that can be checked.
        Some(None) => outcome.pass(),
        Some(Some(access)) if user.has(access, 0o2) => outcome.pass(),
        Some(Some(access)) => outcome.fail(
            format!("{subject}: user {} may not connect to {path}", user.name),
            format!(
                "mode {:04o} of uid {}, gid {}; connecting takes the right to write",
                access.mode, access.uid, access.gid
            ),
            format!(
                "add `owner = \"{}\"` to [port.{}], then: straightline reload",
                user.name,
                subject.trim_start_matches("port ")
            ),
        ),
        None => {}
    }
}

impl User {
    /// Returns whether the user has these rights, given as bits for others.
    pub(super) fn has(&self, access: &Access, rights: u32) -> bool {
        let shift = match access {
            _ if self.uid == 0 => return true,
            access if access.uid == self.uid => 6,
            access if self.groups.contains(&access.gid) => 3,
            _ => 0,
        };
        access.mode >> shift & rights == rights
    }
}

pub(super) const OWNER: Check = Check {
    name: "socket-owner",
    passes: "owner, group and mode of each socket are those of the configuration",
    absent: "there is no socket to compare, or no configuration file was named: straightline doctor CONFIG",
    run: |facts, outcome| {
        for port in server_ports(facts) {
            let (Some(socket), Some(configured)) = (&port.socket, &port.configured) else { continue };
            let path = socket.path.display();
            let Some(Some(access)) = outcome.known(format!("{}: socket {path}", port.subject()), &socket.file) else {
                continue;
            };
            let mut differences = Vec::new();
            if let Some(owner) = configured.owner.filter(|&owner| owner != access.uid) {
                differences.push(format!("its owner is {}, not {owner}", access.uid));
            }
            if let Some(group) = configured.group.filter(|&group| group != access.gid) {
                differences.push(format!("its group is {}, not {group}", access.gid));
            }
            if configured.perms != access.mode & 0o777 {
                differences.push(format!("its mode is {:04o}, not {:04o}", access.mode & 0o777, configured.perms));
            }
            if differences.is_empty() {
                outcome.pass()
            } else {
                outcome.fail(
                    format!("{}: socket {path} differs from the configuration", port.subject()),
                    differences.join(", "),
                    "straightline reload",
                )
            }
        }
    },
};

fn server_ports(facts: &Facts) -> impl Iterator<Item = &PortFacts> {
    facts.ports.iter().filter(|port| port.port.mode.as_deref() == Some("server"))
}

pub(super) const DENIALS: Check = Check {
    name: "denials",
    passes: "AppArmor and SELinux have denied nothing to a VM or the switch",
    absent: "neither AppArmor nor SELinux is active",
    run: |facts, outcome| {
        let Some(Some(lines)) = outcome.known("the denials of AppArmor and SELinux", &facts.machine.denials) else {
            return;
        };
        outcome.pass();
        // The last line says enough; a denial repeats.
        if let Some(line) = lines.last() {
            let fix = if line.contains("apparmor=") {
                "add `/run/straightline/*.sock rw,` to /etc/apparmor.d/local/abstractions/libvirt-qemu"
            } else {
                "ausearch -m avc -ts recent | audit2allow -M straightline && semodule -i straightline.pp"
            };
            outcome.fail(format!("{} denials in the log", lines.len()), line.clone(), fix);
        }
    },
};
