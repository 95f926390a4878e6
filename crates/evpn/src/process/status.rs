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
    /// Those of them that GoBGP has not told since it was away.
    #[serde(default)]
    pub stale: usize,
    /// Routes of this host.
    #[serde(default)]
    pub announced: usize,
    /// The received routes of each host: at most 1024 hosts, those with refused routes first.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// How often something was refused, by reason. Reasons that did not occur are missing.
    pub refused: BTreeMap<String, u64>,
}

/// The received routes of a host, by their next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The host.
    pub host: String,
    /// Routes that are kept.
    pub routes: usize,
    /// Routes that were refused because the host has filled its share.
    pub refused: u64,
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
    /// Stations that moved too often, and stay where they are for a time.
    pub duplicate: usize,
    /// Moves of stations to this host.
    #[serde(default)]
    pub moves_here: u64,
    /// Moves of stations from this host to others.
    #[serde(default)]
    pub moves_away: u64,
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
    let Status { asn, router_id, gobgp, switch, networks, received, stale, announced, hosts, refused } = status;
    let mut text = format!("AS {asn}, router id {router_id}, {announced} routes announced, {received} received");
    if *stale > 0 {
        let _ = write!(text, ", {stale} of them stale");
    }
    text.push('\n');
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
    networks.iter().for_each(|network| text += &network_text(network));
    for HostStatus { host, routes, refused } in hosts.iter().filter(|host| host.refused > 0) {
        let _ = writeln!(text, "host {host}: {routes} routes, {refused} refused");
    }
    for refusal in Refusal::ALL {
        if let Some(count) = refused.get(refusal.word()) {
            let _ = writeln!(text, "{}: {count} ({})", refusal.word(), refusal.meaning());
        }
    }
    for Problem { symptom, detail, fix, .. } in problems(status) {
        let _ = writeln!(text, "problem: {symptom}\n  {detail}\n  {fix}");
    }
    text
}

fn network_text(status: &NetworkStatus) -> String {
    let NetworkStatus { network, bridge, vlan, tunnel, vni, tag, rd, targets, .. } = status;
    let mut text = format!("network {network}: bridge {bridge} VLAN {vlan}, tunnel {tunnel} VNI {vni}");
    let _ = writeln!(text, ", tag {tag}, rd {rd}, targets {}", targets.join(" "));
    let NetworkStatus { here, elsewhere, duplicate, moves_here, moves_away, remotes, .. } = status;
    let _ = write!(text, "  stations: {here} here, {elsewhere} elsewhere");
    if *duplicate > 0 {
        let _ = write!(text, ", {duplicate} duplicate");
    }
    let _ = write!(text, "; moves: {moves_here} here, {moves_away} away");
    let hosts = if remotes.is_empty() { "none".to_owned() } else { remotes.join(" ") };
    let _ = writeln!(text, "\n  other hosts: {hosts}");
    text
}

/// Something that is wrong, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part that has the problem.
    pub area: ProblemArea,
    /// The symptom.
    pub symptom: String,
    /// The consequence.
    pub detail: &'static str,
    /// The remedy.
    pub fix: &'static str,
}

/// The parts that may have problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemArea {
    /// The process, between GoBGP and the switch.
    Process,
    /// The sessions of GoBGP.
    Sessions,
    /// The routes.
    Routes,
}

/// Returns what is wrong.
#[must_use]
pub fn problems(status: &Status) -> Vec<Problem> {
    let mut problems = process_problems(status);
    problems.extend(session_problems(status));
    problems.extend(route_problems(status));
    problems
}

fn process_problems(Status { gobgp, switch, .. }: &Status) -> Vec<Problem> {
    let problem = |symptom, detail, fix| Problem { area: ProblemArea::Process, symptom, detail, fix };
    let mut problems = Vec::new();
    if !gobgp.up {
        problems.push(problem(
            format!("GoBGP does not answer at {}", gobgp.address),
            "routes are neither sent nor received; those that are known end after `stale`",
            "start gobgpd, or correct `gobgp`",
        ));
    }
    if !switch.up {
        problems.push(problem(
            format!("the switch does not answer at {}", switch.api),
            "stations are not announced, and it does not learn those of other hosts",
            "start the switch, or correct `api`",
        ));
    }
    if switch.refused > 0 {
        problems.push(problem(
            format!("the switch has refused {} remotes and stations", switch.refused),
            "frames for these stations are flooded, or do not reach their host",
            "`straightline evpn status` has the last reason; a table that is full needs a larger `api-stations` of \
             the bridge",
        ));
    }
    problems
}

fn session_problems(Status { gobgp, .. }: &Status) -> Vec<Problem> {
    let problem = |symptom, detail, fix| Problem { area: ProblemArea::Sessions, symptom, detail, fix };
    if gobgp.up && gobgp.neighbours.is_empty() {
        return vec![problem(
            "GoBGP has no neighbour".to_owned(),
            "no other host is found",
            "add [[neighbor]], write gobgpd's configuration again, and restart it",
        )];
    }
    let down = gobgp.neighbours.iter().filter(|neighbour| !neighbour.up);
    down.map(|neighbour| {
        problem(
            format!("no session with {}", neighbour.address),
            "stations behind it are not found, unless another neighbour tells their routes",
            "compare addresses, AS numbers and keys on both sides; TCP port 179 must be open between them. After \
             more than `max-routes` routes the session stays down: gobgp neighbor ADDRESS enable",
        )
    })
    .collect()
}

fn route_problems(status: &Status) -> Vec<Problem> {
    let Status { networks, refused, hosts, .. } = status;
    let problem = |symptom, detail, fix| Problem { area: ProblemArea::Routes, symptom, detail, fix };
    let count = |refusal: Refusal| refused.get(refusal.word()).copied().unwrap_or_default();
    let mut problems = Vec::new();
    let lonely = networks.iter().find(|network| network.remotes.is_empty());
    if let Some(lonely) = lonely.filter(|_| count(Refusal::NoTarget) > 0) {
        problems.push(problem(
            format!("network {} has no other host, and received routes have no target of it", lonely.network),
            "the hosts have no common route target",
            "compare `route-targets` of all hosts",
        ));
    }
    if count(Refusal::OtherVni) > 0 {
        problems.push(problem(
            "a host uses another VNI".to_owned(),
            "its routes have a target of a network here, and a VNI that the network does not have: they are refused",
            "use one `vni` for a network",
        ));
    }
    if count(Refusal::OwnDistinguisher) > 0 {
        problems.push(problem(
            "another host has our route distinguisher".to_owned(),
            "its routes are refused: they would replace ours",
            "give each host a `router-id` of its own",
        ));
    }
    for HostStatus { host, routes, .. } in hosts.iter().filter(|host| host.refused > 0) {
        problems.push(problem(
            format!("host {host} has filled its share of {routes} routes"),
            "further stations of it are not known here",
            "look for a VM there that invents addresses, or raise `host-routes` in [limits]",
        ));
    }
    let duplicates: usize = networks.iter().map(|network| network.duplicate).sum();
    if duplicates > 0 {
        problems.push(problem(
            format!("stations that move too often: {duplicates}"),
            "they stay at one host for `duplicate-retry`",
            "look for two machines with the same MAC address; the log names it",
        ));
    }
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
            status.hosts = vec![HostStatus { host: "192.0.2.2".to_owned(), routes: 20_000, refused: 1 }];
        });
        wrong(&|status| {
            status.networks[0].remotes.clear();
            refuse(status, Refusal::NoTarget);
        });
    }
}
