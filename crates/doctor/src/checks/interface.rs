//! Ports on interfaces of this machine: tap, AF_PACKET and AF_XDP.

use std::collections::BTreeSet;

use straightline_api::{Port, Privileges};

use super::Check;
use crate::facts::Facts;

/// Returns the capabilities that the ports' interfaces take.
fn capabilities(facts: &Facts) -> BTreeSet<&str> {
    facts.ports.iter().flat_map(|port| &port.port.capabilities_needed).map(String::as_str).collect()
}

pub(super) const PRIVILEGES: Check = Check {
    name: "privileges",
    passes: "the switch has the capabilities that its interfaces take",
    absent: "no port has an interface of this machine",
    run: |facts, outcome| {
        if let Some(missing) = facts.configured.as_ref().and_then(|file| file.missing_privileges.clone()) {
            // Another user may run the switch.
            if facts.switch.is_err() {
                return outcome.warn("this user cannot open the interfaces", missing, "straightline check CONFIG");
            }
        }
        let has_any = facts.ports.iter().any(|port| port.port.interface.is_some());
        if facts.configured.is_some() && !has_any {
            return;
        }
        let Some(switch) = outcome.known("the privileges of the switch", &facts.switch) else { return };
        if !has_any {
            return;
        }
        let needed = capabilities(facts);
        let processes = &switch.status.privileges;
        let opener = processes.iter().find(|process| process.process == Privileges::OPENER);
        match opener.or(processes.first()) {
            Some(process) if !process.running => outcome.fail(
                "the opener process has ended",
                "open interfaces stay open; others cannot be opened any more",
                "restart the switch",
            ),
            Some(process) => {
                let lacks: Vec<_> =
                    needed.iter().filter(|one| !process.capabilities.iter().any(|own| own == *one)).collect();
                if lacks.is_empty() {
                    outcome.pass()
                } else {
                    let names: Vec<_> = lacks.iter().map(|one| one.to_lowercase()).collect();
                    outcome.warn(
                        format!("process {} lacks {}", process.pid, names.join(", ")),
                        "an interface that exists and belongs to the switch's user opens without them",
                        format!("add `AmbientCapabilities={}` to the systemd unit", names.join(" ").to_uppercase()),
                    );
                }
            }
            None => outcome.unknown(
                "the privileges of the switch",
                &crate::facts::Unknown::new("the switch does not tell them: it has another version"),
            ),
        }
    },
};

/// Returns whether a port takes the network from this machine, and neither its configuration allows
/// that nor the check of the file tells it.
fn cuts_off(port: &Port, facts: &Facts) -> bool {
    let Some(interface) = &port.interface else { return false };
    let has_route = facts.machine.default_routes.as_ref().is_ok_and(|routes| routes.contains(interface));
    let takes_all = port.steal.as_deref() == Some("all") && !port.take_default_route;
    let told = format!("AF_XDP takes all packets of {interface},");
    let is_told = facts.configured.iter().flat_map(|file| &file.errors).any(|error| error.contains(&told));
    takes_all && has_route && !is_told
}

pub(super) const MODE: Check = Check {
    name: "interfaces",
    passes: "interfaces work in their fastest mode, and the kernel drops nothing",
    absent: "no interface of this machine is open",
    run: |facts, outcome| {
        let all = facts;
        for facts in facts.running_ports(outcome) {
            let subject = facts.subject();
            let port = &facts.port;
            let Some(device) = &port.device else { continue };
            let name = &device.interface;
            outcome.pass();
            if cuts_off(port, all) {
                outcome.fail(
                    format!("{subject}: AF_XDP takes all packets of {name}"),
                    "the interface has this machine's default route: the machine is cut off from its network",
                    format!(
                        "use another interface, or `steal = \"address\"` for an underlay; if it is meant, set \
                         `take-default-route = true` in [port.{}]",
                        port.name
                    ),
                );
            }
            for warning in &device.warnings {
                outcome.warn(
                    format!("{subject}: interface {name}"),
                    warning.clone(),
                    format!("ip -details link show {name}"),
                );
            }
            if device.is_generic() {
                outcome.warn(
                    format!("{subject}: AF_XDP works in generic mode"),
                    format!("the driver {} of {name} has no XDP, or other settings forbid it", device.driver),
                    "use `kind = \"af-packet\"`, which is as fast without XDP in the driver",
                );
            } else if device.uses_xdp() && !device.zero_copy {
                outcome.warn(
                    format!("{subject}: AF_XDP copies packets"),
                    format!("the driver {} of {name} has no zero-copy mode", device.driver),
                    "use a NIC whose driver has zero-copy AF_XDP",
                );
            }
            let dropped: Vec<_> =
                device.kernel_drops.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
            if !dropped.is_empty() {
                outcome.warn(
                    format!("{subject}: the kernel has dropped packets of {name}"),
                    dropped.join(", "),
                    "set `queues` higher, or give the switch more workers",
                );
            }
        }
    },
};
