//! Checks that this process has the privileges to open the interfaces of a configuration.
//!
//! The check asks the kernel about this process, so it is separate from the checks of the file. The
//! user who checks a file need not be the user who runs the switch.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use straightline_port::device::DeviceRequest;

use super::Diagnostic;

/// A port's interface, with the port's place in the file.
#[derive(Clone, Debug)]
pub(super) struct DeviceSite {
    pub(super) port: String,
    pub(super) request: DeviceRequest,
    pub(super) site: Diagnostic,
}

/// Returns the capabilities that opening this interface takes.
#[must_use]
pub fn capabilities_needed(request: &DeviceRequest) -> &'static [Capability] {
    use Capability::{CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW};
    match request {
        DeviceRequest::Tap(_) => &[CAP_NET_ADMIN],
        DeviceRequest::AfPacket(_) => &[CAP_NET_RAW],
        // The last one lifts the limit of lockable memory.
        DeviceRequest::AfXdp(_) => &[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK],
    }
}

/// The privileges of a process.
#[derive(Debug)]
struct Process {
    permitted: CapsHashSet,
    /// The capabilities that a program can get by its file.
    bounding: CapsHashSet,
    /// True if programs get no capabilities by their files (`no_new_privs`).
    gains_none: bool,
    /// Bytes of memory that it may lock. `None`: no limit.
    lockable: Option<u64>,
    program: PathBuf,
}

impl Process {
    /// Returns the privileges of this process.
    fn this() -> Self {
        // A kernel without capabilities grants none.
        let read = |set| caps::read(None, set).unwrap_or_default();
        Process {
            permitted: read(CapSet::Permitted),
            bounding: read(CapSet::Bounding),
            gains_none: rustix::thread::no_new_privs().unwrap_or(false),
            lockable: getrlimit(Resource::Memlock).current,
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("straightline")),
        }
    }
}

/// Returns a finding if this process lacks privileges to open these interfaces. It names the
/// remedy.
pub(super) fn missing(devices: &[DeviceSite]) -> Option<Diagnostic> {
    missing_of(devices, &Process::this(), may_attach)
}

fn missing_of(
    devices: &[DeviceSite],
    process: &Process,
    may_attach: impl Fn(&DeviceRequest) -> bool,
) -> Option<Diagnostic> {
    let locked: u64 = devices.iter().map(|device| device.request.locked_memory()).sum();
    let fits = process.lockable.is_none_or(|limit| locked <= limit);
    let is_missing = |device: &DeviceSite, capability: Capability| {
        let spared = match capability {
            Capability::CAP_IPC_LOCK => fits,
            _ => may_attach(&device.request),
        };
        !spared && !process.permitted.contains(&capability)
    };
    let concerned =
        devices.iter().filter(|device| capabilities_needed(&device.request).iter().any(|&one| is_missing(device, one)));
    let concerned: Vec<_> = concerned.collect();
    let first = concerned.first()?;
    let lacks = |device: &&DeviceSite| -> Vec<Capability> {
        capabilities_needed(&device.request).iter().copied().filter(|&one| is_missing(device, one)).collect()
    };
    let missing = names(concerned.iter().flat_map(lacks));
    let all = names(devices.iter().flat_map(|device| capabilities_needed(&device.request).iter().copied()));

    let ports: Vec<_> = concerned.iter().map(|device| format!("\"{}\"", device.port)).collect();
    let (ports, interfaces) = match ports.as_slice() {
        [port] => (format!("port {port}"), format!("interface {}", first.request.interface())),
        ports => (format!("ports {}", ports.join(", ")), "their interfaces".to_owned()),
    };
    let message = format!(
        "{ports}: opening {interfaces} takes {}, which this process does not have; {}",
        missing.join(", "),
        remedy(&missing, &all, process)
    );
    let memory = match process.lockable {
        Some(limit) if missing.contains("CAP_IPC_LOCK") => format!(
            "; without CAP_IPC_LOCK, raise the limit of lockable memory from {} KiB to {} KiB (`ulimit -l`, \
             `LimitMEMLOCK=`)",
            limit / 1024,
            locked.div_ceil(1024)
        ),
        _ => String::new(),
    };
    Some(first.site.with_message(message + &memory))
}

/// Returns how the process gets the missing capabilities, with all that the configuration takes.
fn remedy(missing: &Names, all: &Names, process: &Process) -> String {
    let bounding: Names = names(process.bounding.iter().copied());
    let withheld: Vec<_> = missing.difference(&bounding).map(String::as_str).collect();
    if !withheld.is_empty() {
        let short: Vec<_> = withheld.iter().map(|name| name.trim_start_matches("CAP_")).collect();
        return format!(
            "a container or service withholds {} from all its programs: add `--cap-add {}` to the container's \
             command, or `CapabilityBoundingSet={2}` and `AmbientCapabilities={2}` to the systemd unit",
            withheld.join(", "),
            short.join(" --cap-add "),
            all.join(" ")
        );
    }
    if process.gains_none {
        return format!(
            "capabilities of the program's file have no effect here (no_new_privs): add `AmbientCapabilities={}` to the \
             systemd unit",
            all.join(" ")
        );
    }
    // A program with capabilities gives them to every user who may execute it. A change of its group
    // takes them away, so they come last.
    let program = process.program.display();
    format!(
        "add `AmbientCapabilities={}` to the systemd unit, or give them to the users of a group only: `sudo chgrp \
         straightline {program} && sudo chmod 0750 {program} && sudo setcap {}+ep {program}`",
        all.join(" "),
        all.join(",").to_lowercase()
    )
}

/// Names of capabilities in alphabetical order.
type Names = BTreeSet<String>;

fn names(capabilities: impl Iterator<Item = Capability>) -> Names {
    capabilities.map(|capability| capability.to_string()).collect()
}

trait Join {
    fn join(&self, separator: &str) -> String;
}

impl Join for Names {
    fn join(&self, separator: &str) -> String {
        self.iter().map(String::as_str).collect::<Vec<_>>().join(separator)
    }
}

/// Returns whether this is a tap that exists already and that this user may open without
/// privileges.
fn may_attach(request: &DeviceRequest) -> bool {
    let DeviceRequest::Tap(tap) = request else { return false };
    let folder = Path::new("/sys/class/net").join(&tap.name);
    // -1 stands for none (tun.c, `owner_show`).
    let id = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<i64>().ok();
    let (Some(owner), Some(group)) = (id("owner"), id("group")) else { return false };
    let is_owner = owner == -1 || owner == i64::from(geteuid().as_raw());
    let groups = getgroups().unwrap_or_default().into_iter().chain([getegid()]);
    let is_member = group == -1 || groups.map(|group| i64::from(group.as_raw())).any(|ours| ours == group);
    is_owner && is_member
}

#[cfg(test)]
mod tests {
    use straightline_port::device::{AfPacketRequest, AfXdpRequest, Steal, TapOffloads, TapRequest, ZeroCopy};

    use super::*;

    fn tap() -> DeviceRequest {
        DeviceRequest::Tap(TapRequest {
            name: "sl0".to_owned(),
            queues: 1,
            mtu: 1500,
            mac: None,
            offloads: TapOffloads { csum: true, tso: true, uso: true },
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        })
    }

    fn packet() -> DeviceRequest {
        DeviceRequest::AfPacket(AfPacketRequest { interface: "eth0".to_owned(), queues: 1 })
    }

    fn xdp(queues: u16) -> DeviceRequest {
        let steal = Steal::default();
        let zero_copy = ZeroCopy::default();
        let queues = Some(queues);
        DeviceRequest::AfXdp(AfXdpRequest { interface: "eth1".to_owned(), queues, steal, zero_copy, mtu: 1500 })
    }

    fn found(requests: &[DeviceRequest], process: &Process) -> String {
        let device = |(at, request): (usize, &DeviceRequest)| DeviceSite {
            port: format!("p{at}"),
            request: request.clone(),
            site: Diagnostic::of_file("f", String::new()),
        };
        let devices: Vec<_> = requests.iter().enumerate().map(device).collect();
        missing_of(&devices, process, |_| false).map_or_else(String::new, |found| found.message)
    }

    fn process(permitted: &[Capability]) -> Process {
        Process {
            permitted: permitted.iter().copied().collect(),
            bounding: caps::all(),
            gains_none: false,
            lockable: Some(8 << 20),
            program: PathBuf::from("/usr/bin/straightline"),
        }
    }

    #[test]
    fn each_kind_takes_its_own() {
        use Capability::{CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW};
        assert_eq!(found(&[], &process(&[])), "");
        assert_eq!(found(&[tap()], &process(&[CAP_NET_ADMIN])), "");
        assert_eq!(found(&[packet()], &process(&[CAP_NET_RAW])), "");
        assert_eq!(found(&[xdp(8)], &process(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK])), "");
        assert_eq!(
            found(&[tap()], &process(&[CAP_NET_RAW])),
            "port \"p0\": opening interface sl0 takes CAP_NET_ADMIN, which this process does not have; add \
             `AmbientCapabilities=CAP_NET_ADMIN` to the systemd unit, or give them to the users of a group only: `sudo \
             chgrp straightline /usr/bin/straightline && sudo chmod 0750 /usr/bin/straightline && sudo setcap \
             cap_net_admin+ep /usr/bin/straightline`"
        );
        // The command gives all capabilities: it replaces those that the file has.
        assert_eq!(
            found(&[tap(), packet(), packet()], &process(&[CAP_NET_ADMIN])),
            "ports \"p1\", \"p2\": opening their interfaces takes CAP_NET_RAW, which this process does not have; add \
             `AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW` to the systemd unit, or give them to the users of a group \
             only: `sudo chgrp straightline /usr/bin/straightline && sudo chmod 0750 /usr/bin/straightline && sudo \
             setcap cap_net_admin,cap_net_raw+ep /usr/bin/straightline`"
        );
    }

    #[test]
    fn lockable_memory_that_suffices_needs_no_capability() {
        use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW};
        let few = process(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF]);
        let one = xdp(1).locked_memory();
        assert_eq!(
            found(&[xdp(1)], &Process { lockable: Some(one), ..process(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF]) }),
            ""
        );
        assert_eq!(
            found(&[xdp(100)], &Process { lockable: None, ..process(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF]) }),
            ""
        );
        let message = found(&[xdp(2), xdp(2)], &few);
        assert!(message.contains("takes CAP_IPC_LOCK, which"), "{message}");
        let limits = format!("lockable memory from 8192 KiB to {} KiB (`ulimit -l`, `LimitMEMLOCK=`)", 4 * one / 1024);
        assert!(message.ends_with(&limits), "{message}");
    }

    #[test]
    fn a_container_that_withholds_capabilities_is_named() {
        let message = found(&[packet()], &Process { bounding: CapsHashSet::new(), ..process(&[]) });
        assert!(message.contains("withholds CAP_NET_RAW") && message.contains("`--cap-add NET_RAW`"), "{message}");
        assert!(message.contains("`CapabilityBoundingSet=CAP_NET_RAW`"), "{message}");
    }

    #[test]
    fn a_command_without_effect_is_not_named() {
        let message = found(&[packet()], &Process { gains_none: true, ..process(&[]) });
        assert!(!message.contains("setcap") && message.contains("`AmbientCapabilities=CAP_NET_RAW`"), "{message}");
    }

    #[test]
    fn a_tap_that_is_ours_needs_none() {
        let devices =
            [DeviceSite { port: "p".to_owned(), request: tap(), site: Diagnostic::of_file("f", String::new()) }];
        assert!(missing_of(&devices, &process(&[]), |_| true).is_none());
        // No interface has this name.
        assert!(!may_attach(&packet()) && !may_attach(&tap()));
    }
}
