//! Links, and how both sides of a socket come together.

use std::time::{Duration, UNIX_EPOCH};

use straightline_api::Link;

use super::{Check, program};
use crate::facts::Program;

/// Time in which changes of a link count as flapping.
const FLAP_TIME: Duration = Duration::from_secs(600);

/// Number of times that a link must have gone down in that time.
const FLAPS: usize = 3;

/// Causes of a link that is down though nothing is broken: something is still to be started.
const WAITS: &[&str] = &[
    "no-frontend",
    "connecting",
    "handed-over",
    "frontend-left",
    "ring-not-started",
    "ring-disabled",
    "no-features",
    "set-down",
    "stopped",
];

pub(super) const LINKS: Check = Check {
    name: "links",
    passes: "the link of each port is up",
    absent: "the switch has no port",
    run: |facts, outcome| {
        for facts in facts.running_ports(outcome) {
            let port = &facts.port;
            if port.link == Link::Up {
                outcome.pass();
                continue;
            }
            let symptom = format!("{} is down", facts.subject());
            let mut detail = port.reason.clone().unwrap_or_default();
            if let Some(first) = facts.interface_holders.first() {
                detail = format!("{detail}; {} (process {}) has it", first.name, first.pid);
            }
            let fix = facts.remedy().unwrap_or_else(|| "straightline ports".to_owned());
            if port.cause.as_deref().is_some_and(|cause| WAITS.contains(&cause)) {
                outcome.warn(symptom, detail, fix)
            } else {
                outcome.fail(symptom, detail, fix)
            }
        }
    },
};

pub(super) const SIDES: Check = Check {
    name: "socket-sides",
    passes: "of each socket, one side listens and the other connects",
    absent: "no VM is known that uses a socket of a port",
    run: |facts, outcome| {
        for port in facts.ports.iter().filter(|port| port.port.has_frontend()) {
            let we_listen = match port.port.mode.as_deref() {
                Some("server") => true,
                Some("client") => false,
                _ => continue,
            };
            for peer in outcome.known(port.subject(), &port.peers).into_iter().flatten() {
                let name = format!("{} (process {})", peer.program.name(), peer.pid);
                let Some(&listens) = outcome.known(format!("{}: side of {name}", port.subject()), &peer.listens) else {
                    continue;
                };
                let subject = port.subject();
                match (we_listen, listens) {
                    (true, true) => outcome.fail(
                        format!("{subject}: the switch and {name} both listen"),
                        "nobody connects, so the link stays down",
                        format!("set `mode = \"client\"` in [port.{}]", port.port.name),
                    ),
                    (false, false) => outcome.fail(
                        format!("{subject}: the switch and {name} both connect"),
                        "nobody listens, so the link stays down",
                        match peer.program {
                            Program::Qemu => "add `server=on,wait=off` to QEMU's -chardev".to_owned(),
                            Program::CloudHypervisor => "add `vhost_mode=server` to --net".to_owned(),
                            _ => format!("remove `mode = \"client\"` from [port.{}]", port.port.name),
                        },
                    ),
                    _ => outcome.pass(),
                }
            }
        }
    },
};

pub(super) const RECONNECT: Check = Check {
    name: "reconnect",
    passes: "each VM connects again after a restart of the switch",
    absent: "no VM is known that connects to a socket of a port",
    run: |facts, outcome| {
        for port in facts.ports.iter().filter(|port| port.port.has_frontend()) {
            for peer in outcome.known(port.subject(), &port.peers).into_iter().flatten() {
                let subject = format!("{}: {} (process {})", port.subject(), peer.program.name(), peer.pid);
                // The switch connects again by itself.
                if peer.listens == Ok(true) {
                    outcome.pass();
                    continue;
                }
                let Some(&reconnects) = outcome.known(&subject, &peer.reconnects) else { continue };
                if reconnects {
                    outcome.pass();
                    continue;
                }
                outcome.warn(
                    format!("{subject} does not connect again"),
                    "after a restart of the switch the VM has no network",
                    program::connects_again(&peer.program),
                );
            }
        }
    },
};

pub(super) const GIVES_UP: Check = Check {
    name: "cloud-hypervisor",
    passes: "no Cloud Hypervisor gives up on the switch",
    absent: "no VM of Cloud Hypervisor is known",
    run: |facts, outcome| {
        for port in facts.ports.iter().filter(|port| port.port.has_frontend()) {
            let peers = outcome.known(port.subject(), &port.peers).into_iter().flatten();
            for peer in peers.filter(|peer| peer.program == Program::CloudHypervisor) {
                let subject = format!("{}: Cloud Hypervisor (process {})", port.subject(), peer.pid);
                match outcome.known(&subject, &peer.listens) {
                    Some(true) => outcome.pass(),
                    Some(false) => outcome.warn(
                        format!("{subject} gives up after 60 s"),
                        "if the switch is away for longer, the VM has no network until its restart",
                        format!(
                            "use `vhost_mode=server` in --net, and `mode = \"client\"` in [port.{}]",
                            port.port.name
                        ),
                    ),
                    None => {}
                }
            }
        }
    },
};

pub(super) const FLAPPING: Check = Check {
    name: "flapping",
    passes: "no link goes up and down repeatedly",
    absent: "the switch has no port",
    run: |facts, outcome| {
        let now = facts.now.duration_since(UNIX_EPOCH).unwrap_or_default();
        for facts in facts.running_ports(outcome) {
            let since = now.saturating_sub(FLAP_TIME).as_secs_f64();
            let recent: Vec<_> = facts.port.reasons.iter().filter(|down| down.time >= since).collect();
            match recent.last() {
                Some(last) if recent.len() >= FLAPS => outcome.warn(
                    format!("{} went down {} times in 10 minutes", facts.subject(), recent.len()),
                    format!("last because: {}", last.reason),
                    "straightline ports",
                ),
                _ => outcome.pass(),
            }
        }
    },
};
