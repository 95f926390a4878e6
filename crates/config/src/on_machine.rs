//! Checks of a configuration against the interfaces of the machine: what is legal, and cannot work
//! here or does harm.
//!
//! Interfaces come and go, so the checks are separate from those of the file. A fact that is not
//! known is no finding.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use straightline_packet::IgnorePoison;
use straightline_port::device::{DeviceRequest, routes};

use super::privileges::DeviceSite;
use super::{Config, Diagnostic, PortKind};

/// The findings about a configuration on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnMachine {
    /// Settings that do harm.
    pub errors: Vec<Diagnostic>,
    /// Settings that do not work as things are.
    pub warnings: Vec<Diagnostic>,
}

/// The interfaces of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The names; `None` if they are not known.
    names: Option<BTreeSet<String>>,
    /// Those that have a default route.
    default_routes: BTreeSet<String>,
    /// Those that have a route, as each has that has an address.
    routed: BTreeSet<String>,
    taps: BTreeSet<String>,
    bridges: BTreeSet<String>,
    /// The Linux bridge or bond of each that is in one.
    masters: BTreeMap<String, String>,
}

/// The kernel's tables, opened before the sandbox takes the right to open files away.
static TABLES: OnceLock<[Option<Mutex<File>>; 3]> = OnceLock::new();

/// The paths of [`TABLES`]: interfaces, IPv4 routes and IPv6 routes of this network namespace.
const PATHS: [&str; 3] = ["proc/self/net/dev", "proc/self/net/route", "proc/self/net/ipv6_route"];

impl Interfaces {
    /// Returns the interfaces of this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self::of(tables(), Path::new("/"))
    }

    /// Returns the routes of this machine, and nothing else. It works in the sandbox too, if the
    /// process has called [`Self::of_this_machine`] before.
    #[must_use]
    pub fn routes_of_this_machine() -> Self {
        let [_, routes, routes6] = tables();
        Self::of([None, routes, routes6], Path::new("/"))
    }

    /// Returns the interfaces that the files below this root describe.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self::of(PATHS.map(|path| fs::read_to_string(root.join(path)).ok()), root)
    }

    fn of([names, routes, routes6]: [Option<String>; 3], root: &Path) -> Self {
        let names: Option<BTreeSet<String>> = names.map(|table| {
            let lines = table.lines().filter_map(|line| line.split_once(':'));
            lines.map(|(name, _)| name.trim().to_owned()).collect()
        });
        let folder = |name: &String| root.join("sys/class/net").join(name);
        let all = || names.iter().flatten();
        let with = |file: &str| all().filter(|name| folder(name).join(file).exists()).cloned().collect();
        let master = |name: &String| {
            let target = fs::read_link(folder(name).join("master")).ok()?;
            Some((name.clone(), target.file_name()?.to_str()?.to_owned()))
        };
        let (routed, mut default_routes) = routes::of_ipv4(&routes.unwrap_or_default());
        default_routes.extend(routes::default_ipv6(&routes6.unwrap_or_default()));
        Interfaces {
            default_routes,
            routed,
            taps: with("tun_flags"),
            bridges: with("bridge"),
            masters: all().filter_map(master).collect(),
            names,
        }
    }

    /// Returns whether there is surely no such interface.
    fn lacks(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| !names.contains(name))
    }

    fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.contains(name))
    }
}

/// Reads the tables of this machine.
fn tables() -> [Option<String>; 3] {
    let open = |path: &str| File::open(Path::new("/").join(path)).ok().map(Mutex::new);
    TABLES.get_or_init(|| PATHS.map(open)).each_ref().map(|table| {
        let mut file = table.as_ref()?.lock().ignore_poison();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).ok()?;
        Some(text)
    })
}

/// Compares a configuration with the interfaces of a machine, beside the configuration that a switch
/// runs already.
pub(super) fn compare(config: &Config, devices: &[DeviceSite], machine: &Interfaces, running: &Config) -> OnMachine {
    let mut found = OnMachine::default();
    let open: BTreeSet<&str> = running.ports.iter().filter_map(|port| port.kind.interface()).collect();
    for device in devices {
        let port = config.ports.iter().find(|port| port.name == device.port);
        let Some(kind) = port.map(|port| &port.kind) else { continue };
        if let Some(message) = cuts_off(kind, machine).filter(|_| !open.contains(device.request.interface())) {
            found.errors.push(device.site.with_message(format!("port {:?}: {message}", device.port)));
        }
        for message in oddities(&device.request, machine) {
            found.warnings.push(device.site.with_message(format!("port {:?}: {message}", device.port)));
        }
    }
    found.warnings.extend(loops(config, devices, machine));
    found
}

/// Returns why a port cuts this machine off, if it does.
fn cuts_off(kind: &PortKind, machine: &Interfaces) -> Option<String> {
    let interface = kind.takes_from_host()?;
    machine.default_routes.contains(interface).then(|| {
        format!(
            "AF_XDP takes all packets of {interface}, which has this machine's default route: it would cut the machine \
             off; use another interface, `steal = \"address\"` for an underlay, or `take-default-route = true`"
        )
    })
}

/// Returns what does not work with the interface of a port as things are.
fn oddities(request: &DeviceRequest, machine: &Interfaces) -> Vec<String> {
    let mut found = Vec::new();
    let name = request.interface();
    match request {
        DeviceRequest::Tap(tap) => {
            if machine.has(name) && !machine.taps.contains(name) {
                found.push(format!("interface {name} exists, and is no tap; choose another `name`, or another kind"));
            }
            if let Some(bridge) = &tap.bridge {
                if machine.lacks(bridge) {
                    found.push(format!("there is no bridge {bridge}; make it: ip link add {bridge} type bridge"));
                } else if machine.has(bridge) && !machine.bridges.contains(bridge) {
                    found.push(format!("interface {bridge} is no bridge; correct `bridge`"));
                }
            }
        }
        DeviceRequest::AfPacket(_) | DeviceRequest::AfXdp(_) => {
            if machine.lacks(name) {
                found.push(format!(
                    "there is no interface {name}; make it, or correct `interface`: `ip link` shows all"
                ));
            }
        }
    }
    if matches!(request, DeviceRequest::AfPacket(_)) && machine.routed.contains(name) {
        found.push(format!(
            "interface {name} has an address: this machine's own network stack gets the same packets, and answers those \
             for its addresses; give the interface no address, or use another kind"
        ));
    }
    found
}

/// Returns a warning for each port that closes a loop: it is in one of our bridges together with another
/// port, and the interfaces of both are in one Linux bridge.
fn loops(config: &Config, devices: &[DeviceSite], machine: &Interfaces) -> Vec<Diagnostic> {
    let mut first: BTreeMap<(&str, String), &str> = BTreeMap::new();
    let mut found = Vec::new();
    for device in devices {
        let Some(bridge) = config.bridges.iter().find(|bridge| bridge.ports.contains(&device.port)) else { continue };
        let of_tap = match &device.request {
            DeviceRequest::Tap(tap) => tap.bridge.clone(),
            DeviceRequest::AfPacket(_) | DeviceRequest::AfXdp(_) => None,
        };
        let Some(linux) = of_tap.or_else(|| machine.masters.get(device.request.interface()).cloned()) else { continue };
        let message = match first.get(&(bridge.name.as_str(), linux.clone())) {
            None => {
                first.insert((&bridge.name, linux), &device.port);
                continue;
            }
            Some(other) => format!(
                "port {:?}: its interface and that of port {other:?} are both in {linux}, and both ports in bridge {:?}: \
                 packets would go in a circle; take one of them out",
                device.port, bridge.name
            ),
        };
        found.push(device.site.with_message(message));
    }
    found
}

#[cfg(test)]
mod tests;
