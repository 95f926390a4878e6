//! Addresses that move between the ports of a bridge: a loop, or two guests with one address.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use straightline_api::{EventKind, JoinedKind};

use super::{Check, CheckOutcome};
use crate::facts::{Facts, SwitchFacts};

/// Time in which moves of one address count.
const TIME: Duration = Duration::from_secs(600);

/// The number of moves of one address in that time which is no migration any more.
const MANY: usize = 3;

/// Addresses that a finding names.
const NAMED: usize = 3;

pub(super) const MOVES: Check = Check {
    name: "moves",
    passes: "no address moves to and fro between ports",
    absent: "the switch has no bridge",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the bridges", &facts.switch) else { return };
        for moves in &switch.status.moves {
            let found = restless(facts, switch, &moves.bridge);
            if found.addresses.is_empty() {
                outcome.pass()
            } else {
                report(facts, switch, &moves.bridge, &found, outcome)
            }
        }
        same_addresses(facts, outcome);
    },
};

/// Addresses of a bridge that move to and fro, and the ports between which they move.
#[derive(Default)]
struct Restless<'f> {
    addresses: BTreeSet<&'f str>,
    ports: BTreeSet<&'f str>,
}

fn restless<'f>(facts: &Facts, switch: &'f SwitchFacts, bridge: &str) -> Restless<'f> {
    let since = facts.now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(TIME).as_secs_f64();
    let mut moves: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for event in switch.events.iter().filter(|event| event.time >= since) {
        let EventKind::Moved { bridge: of, mac, from, to } = &event.kind else { continue };
        if of == bridge {
            let (count, ports) = moves.entry(mac).or_default();
            *count += 1;
            ports.extend([from.as_str(), to.as_str()].iter().filter(|port| !port.is_empty()));
        }
    }
    let mut found = Restless::default();
    for (mac, (count, ports)) in moves {
        if count >= MANY {
            found.addresses.insert(mac);
            found.ports.extend(ports);
        }
    }
    found
}

fn report(facts: &Facts, switch: &SwitchFacts, bridge: &str, found: &Restless<'_>, outcome: &mut CheckOutcome) {
    let count = |all: &[straightline_api::BridgeMoves]| {
        all.iter().find(|moves| moves.bridge == bridge).map_or(0, |moves| moves.count)
    };
    let all = count(&switch.status.moves);
    let now = all.saturating_sub(count(&switch.moves_before));
    let named: Vec<_> = found.addresses.iter().take(NAMED).copied().collect();
    let more = found.addresses.len() - named.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let verb = if found.addresses.len() == 1 { "moves" } else { "move" };
    let ports: Vec<_> = found.ports.iter().copied().collect();
    let symptom =
        format!("bridge {bridge}: {}{more} {verb} to and fro between ports {}", named.join(", "), ports.join(", "));
    let numbers = format!("{all} moves since the start, {now} in the time of this look");
    let mut concerned = facts.ports.iter().filter(|port| found.ports.contains(port.port.name.as_str()));
    let is_of_vms = concerned.all(|facts| facts.port.has_frontend());
    let (detail, fix) = if is_of_vms && found.addresses.len() == 1 {
        (
            format!("two guests use one MAC address, or one of them sends packets back (a loop); {numbers}"),
            "give each VM a MAC address of its own; if each has one, look for a bridge inside of a guest".to_owned(),
        )
    } else {
        (
            format!("packets come back by another port (a loop), or two stations use one address; {numbers}"),
            format!(
                "leave one path between the ports: `bridge link` shows interfaces in one Linux bridge. Take one of the \
                 ports out of [bridge.{bridge}], or set it down: straightline link {} down",
                ports.last().unwrap_or(&"PORT")
            ),
        )
    };
    if now > 0 { outcome.fail(symptom, detail, fix) } else { outcome.warn(symptom, detail, fix) }
}

/// Reports ports of one bridge whose guests have the same address, before it moves.
fn same_addresses(facts: &Facts, outcome: &mut CheckOutcome) {
    let mut ports: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for facts in &facts.ports {
        let port = &facts.port;
        if let (Some(joined), Some(mac)) = (&port.joined, &port.mac)
            && joined.kind == JoinedKind::Bridge
            && facts.port.has_frontend()
        {
            ports.entry((&joined.name, mac)).or_default().push(&port.name);
        }
    }
    for ((bridge, mac), ports) in ports.into_iter().filter(|(_, ports)| ports.len() > 1) {
        outcome.warn(
            format!("bridge {bridge}: ports {} have the same MAC address {mac}", ports.join(", ")),
            "packets to one guest go to the other",
            "give each VM a MAC address of its own: `mac` in the port's section, or of the VM's device",
        );
    }
}
