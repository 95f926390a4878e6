//! Answers to questions about the process, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::machine::Refusal;

/// The state of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The AS of this host.
    pub asn: u32,
    /// The router id of this host.
    pub router_id: String,
    /// The side of GoBGP.
    pub gobgp: GoBgpStatus,
    /// The side of the switch.
    pub switch: SwitchStatus,
    /// The networks: one row for each VLAN.
    pub networks: Vec<NetworkStatus>,
    /// Received routes that are kept.
    pub received: usize,
    /// How often something was refused, by reason. Reasons that did not occur are missing.
    pub refused: BTreeMap<String, u64>,
}

/// The side of GoBGP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoBgpStatus {
    /// The address of its interface.
    pub address: String,
    /// It answers, and its table has been read.
    pub up: bool,
    /// Its version: 3 or 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The reason why it is not up, or why paths are not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its neighbours.
    pub neighbours: Vec<NeighbourStatus>,
    /// Own paths that wait to be sent.
    pub waiting: usize,
}

/// A BGP neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourStatus {
    /// The address.
    pub address: String,
    /// The AS.
    pub asn: u32,
    /// The session is established.
    pub up: bool,
}

/// The side of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// The socket of its API.
    pub api: String,
    /// It answers, and its stations have been read.
    pub up: bool,
    /// The reason why it is not up, or why it has refused something last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Remotes and stations that it has refused.
    pub refused: u64,
}

/// A broadcast domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// The network.
    pub network: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN of the bridge.
    pub vlan: u16,
    /// The tunnel port.
    pub tunnel: String,
    /// The VNI.
    pub vni: u32,
    /// The Ethernet tag.
    pub tag: u32,
    /// The route distinguisher.
    pub rd: String,
    /// The targets of sent routes.
    pub targets: Vec<String>,
    /// Stations of this host that are announced.
    pub here: usize,
    /// Stations of other hosts that the switch has.
    pub elsewhere: usize,
    /// Stations that moved too often, and are left alone.
    pub duplicate: usize,
    /// The other hosts of the tunnel.
    pub remotes: Vec<String>,
}

/// The routes that are sent and received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// The routes.
    pub routes: Vec<RouteStatus>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// The network.
    pub network: String,
    /// The VNI.
    pub vni: u32,
    /// The type: 2 for a station, 3 for a host that wants floods.
    pub r#type: u8,
    /// The host.
    pub next_hop: String,
    /// This host sends the route. Otherwise it has received it.
    pub sent: bool,
    /// The station.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The station's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The sequence number.
    #[serde(default)]
    pub sequence: u32,
    /// The station may not move.
    #[serde(default)]
    pub sticky: bool,
    /// The route distinguisher.
    pub rd: String,
}

/// Renders a status for people.
#[must_use]
pub fn status_text(status: &Status) -> String {
    let Status { asn, router_id, gobgp, switch, networks, received, refused } = status;
    let mut text = format!("AS {asn}, router id {router_id}, {received} routes received\n");
    let why = |error: &Option<String>| error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let version = gobgp.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let _ = writeln!(text, "GoBGP at {}: {}{version}{}", gobgp.address, up(gobgp.up), why(&gobgp.error));
    for NeighbourStatus { address, asn, up: is_up } in &gobgp.neighbours {
        let _ = writeln!(text, "  neighbour {address} AS {asn}: {}", up(*is_up));
    }
    if gobgp.waiting > 0 {
        let _ = writeln!(text, "  {} paths wait to be sent", gobgp.waiting);
    }
    let _ = writeln!(text, "switch at {}: {}{}", switch.api, up(switch.up), why(&switch.error));
    if switch.refused > 0 {
        let _ = writeln!(text, "  {} remotes and stations refused", switch.refused);
    }
    for network in networks {
        let NetworkStatus { network, bridge, vlan, tunnel, vni, tag, rd, targets, here, elsewhere, duplicate, remotes } =
            network;
        let _ = write!(text, "network {network}: bridge {bridge} VLAN {vlan}, tunnel {tunnel} VNI {vni}");
        let _ = writeln!(text, ", tag {tag}, rd {rd}, targets {}", targets.join(" "));
        let _ = write!(text, "  stations: {here} here, {elsewhere} elsewhere");
        if *duplicate > 0 {
            let _ = write!(text, ", {duplicate} duplicate");
        }
        let hosts = if remotes.is_empty() { "none".to_owned() } else { remotes.join(" ") };
        let _ = writeln!(text, "\n  other hosts: {hosts}");
    }
    for refusal in Refusal::ALL {
        if let Some(count) = refused.get(refusal.word()) {
            let _ = writeln!(text, "{}: {count} ({})", refusal.word(), refusal.meaning());
        }
    }
    for Problem { symptom, fix } in problems(status) {
        let _ = writeln!(text, "problem: {symptom}\n  {fix}");
    }
    text
}

/// Something that is wrong, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The symptom.
    pub symptom: String,
    /// The remedy.
    pub fix: &'static str,
}

/// Returns what is wrong.
#[must_use]
pub fn problems(status: &Status) -> Vec<Problem> {
    let Status { gobgp, switch, networks, refused, .. } = status;
    let count = |refusal: Refusal| refused.get(refusal.word()).copied().unwrap_or_default();
    let mut problems = Vec::new();
    let mut add = |is_wrong: bool, symptom: String, fix: &'static str| {
        if is_wrong {
            problems.push(Problem { symptom, fix });
        }
    };
    add(!gobgp.up, format!("GoBGP does not answer at {}", gobgp.address), "start gobgpd, or correct `gobgp`");
    add(
        gobgp.up && gobgp.neighbours.is_empty(),
        "GoBGP has no neighbour".to_owned(),
        "add [[neighbor]], write gobgpd's configuration again, and restart it",
    );
    for neighbour in gobgp.neighbours.iter().filter(|neighbour| !neighbour.up) {
        let fix = "compare addresses, AS numbers and keys on both sides; TCP port 179 must be open between them";
        add(true, format!("no session with {}", neighbour.address), fix);
    }
    add(!switch.up, format!("the switch does not answer at {}", switch.api), "start the switch, or correct `api`");
    add(
        switch.refused > 0,
        format!("the switch has refused {} remotes and stations", switch.refused),
        "the last reason is above; a table that is full needs a larger `api-stations` of the bridge",
    );
    let knows_nobody = networks.iter().any(|network| network.remotes.is_empty());
    add(
        knows_nobody && count(Refusal::NoTarget) > 0,
        "a network has no other host, and routes have no target of it".to_owned(),
        "compare `route-targets` of all hosts",
    );
    add(count(Refusal::OtherVni) > 0, "a host uses another VNI".to_owned(), "use one `vni` for a network");
    add(
        count(Refusal::OwnDistinguisher) > 0,
        "another host has our route distinguisher".to_owned(),
        "give each host a `router-id` of its own",
    );
    let duplicates: usize = networks.iter().map(|network| network.duplicate).sum();
    add(
        duplicates > 0,
        format!("{duplicates} stations move too often"),
        "look for two machines with the same MAC address; the log names it",
    );
    problems
}

fn up(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

/// Renders routes for people: one line each.
#[must_use]
pub fn routes_text(routes: &Routes) -> String {
    let mut text = String::new();
    for route in &routes.routes {
        let RouteStatus { network, vni, r#type, next_hop, sent, mac, ip, sequence, sticky, rd } = route;
        let direction = if *sent { "sent" } else { "received" };
        let _ = write!(text, "{direction} {network} VNI {vni} type {type} host {next_hop}");
        for (word, value) in [("mac", mac), ("ip", ip)] {
            if let Some(value) = value {
                let _ = write!(text, " {word} {value}");
            }
        }
        if mac.is_some() {
            let _ = write!(text, " sequence {sequence}{}", if *sticky { " sticky" } else { "" });
        }
        let _ = writeln!(text, " rd {rd}");
    }
    if text.is_empty() { "no routes\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_found() {
        let neighbour = |up| NeighbourStatus { address: "192.0.2.2".to_owned(), asn: 1, up };
        let network = NetworkStatus { remotes: vec!["192.0.2.2".to_owned()], ..NetworkStatus::default() };
        let gobgp = GoBgpStatus { up: true, neighbours: vec![neighbour(true)], ..GoBgpStatus::default() };
        let switch = SwitchStatus { up: true, ..SwitchStatus::default() };
        let right = Status { gobgp, switch, networks: vec![network], ..Status::default() };
        assert_eq!(problems(&right), []);
        assert!(!status_text(&right).contains("problem"));
        let wrong = |change: &dyn Fn(&mut Status)| {
            let mut status = right.clone();
            change(&mut status);
            let problems = problems(&status);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(status_text(&status).contains(&format!("problem: {}", problems[0].symptom)));
        };
        let refuse = |status: &mut Status, refusal: Refusal| {
            status.refused.insert(refusal.word().to_owned(), 1);
        };
        wrong(&|status| status.gobgp.up = false);
        wrong(&|status| status.gobgp.neighbours.clear());
        wrong(&|status| status.gobgp.neighbours.push(neighbour(false)));
        wrong(&|status| status.switch.up = false);
        wrong(&|status| status.switch.refused = 3);
        wrong(&|status| refuse(status, Refusal::OtherVni));
        wrong(&|status| refuse(status, Refusal::OwnDistinguisher));
        wrong(&|status| status.networks[0].duplicate = 1);
        wrong(&|status| {
            status.networks[0].remotes.clear();
            refuse(status, Refusal::NoTarget);
        });
    }
}
