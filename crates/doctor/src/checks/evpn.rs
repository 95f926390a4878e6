//! `straightline evpn`: what it says itself, and what only the switch knows of its networks.

use straightline_api::{JoinedKind, NeighbourState, Tunnel};
use straightline_evpn::process::{NetworkStatus, ProblemArea, Status, problems};

use super::{Check, CheckOutcome};
use crate::facts::{EvpnFacts, Facts, PortFacts};

const ABSENT: &str = "`straightline evpn` does not run";

pub(super) const PROCESS: Check = Check {
    name: "evpn",
    passes: "`straightline evpn` works with GoBGP and the switch",
    absent: ABSENT,
    run: |facts, outcome| {
        if let Ok(EvpnFacts::Ended(path)) = &facts.evpn {
            outcome.fail(
                format!("`straightline evpn` has ended: nobody listens at {}", path.display()),
                "routes are neither sent nor received; the switch forgets other hosts after `stale`",
                "systemctl restart straightline-evpn; its log says why it ended",
            );
        }
        report(facts, ProblemArea::Process, outcome);
    },
};

pub(super) const SESSIONS: Check = Check {
    name: "evpn-sessions",
    passes: "GoBGP has a session with each neighbour",
    absent: ABSENT,
    run: |facts, outcome| report(facts, ProblemArea::Sessions, outcome),
};

pub(super) const ROUTES: Check = Check {
    name: "evpn-routes",
    passes: "the hosts agree on targets, VNIs and stations",
    absent: ABSENT,
    run: |facts, outcome| report(facts, ProblemArea::Routes, outcome),
};

/// Reports the problems of a part that the process knows itself.
fn report(facts: &Facts, area: ProblemArea, outcome: &mut CheckOutcome) {
    let Some(status) = status(facts, outcome) else { return };
    let mut problems = problems(status);
    problems.retain(|problem| problem.area == area);
    if problems.is_empty() {
        outcome.pass();
    }
    for problem in problems {
        match area {
            ProblemArea::Routes => outcome.warn(problem.symptom, problem.detail, problem.fix),
            ProblemArea::Process | ProblemArea::Sessions => outcome.fail(problem.symptom, problem.detail, problem.fix),
        }
    }
}

fn status<'f>(facts: &'f Facts, outcome: &mut CheckOutcome) -> Option<&'f Status> {
    match outcome.known("`straightline evpn`", &facts.evpn)? {
        EvpnFacts::Runs(status) => Some(status),
        EvpnFacts::Absent | EvpnFacts::Ended(_) => None,
    }
}

/// Calls `look` with each network, and the port of its tunnel.
fn each_tunnel(
    facts: &Facts,
    outcome: &mut CheckOutcome,
    look: fn(&Facts, &NetworkStatus, &Tunnel, &mut CheckOutcome),
) {
    let Some(status) = status(facts, outcome) else { return };
    if outcome.known("the tunnels", &facts.switch).is_none() {
        return;
    }
    for network in &status.networks {
        let port = facts.ports.iter().find(|facts| facts.port.name == network.tunnel);
        match port.and_then(|facts| facts.port.tunnel.as_ref()) {
            Some(tunnel) => look(facts, network, tunnel, outcome),
            None => outcome.fail(
                format!("network {}: the switch has no tunnel {}", network.network, network.tunnel),
                "no frame of the network reaches another host",
                format!("correct `tunnel` in [network.{}], or add the port to the switch", network.network),
            ),
        }
    }
}

pub(super) const MTU: Check = Check {
    name: "evpn-mtu",
    passes: "packets of each port fit the way to the other hosts",
    absent: ABSENT,
    run: |facts, outcome| {
        each_tunnel(facts, outcome, |facts, network, tunnel, outcome| {
            let is_member = |facts: &&PortFacts| {
                let bridge = facts.port.joined.as_ref().filter(|joined| joined.kind == JoinedKind::Bridge);
                facts.port.tunnel.is_none() && bridge.is_some_and(|bridge| bridge.name == network.bridge)
            };
            let fits = tunnel.mtu_inside;
            let widest = facts.ports.iter().filter(is_member).max_by_key(|facts| facts.port.mtu);
            match widest.filter(|facts| facts.port.mtu > fits) {
                None => outcome.pass(),
                Some(PortFacts { port, .. }) => outcome.warn(
                    format!("network {}: port {} has an MTU of {}", network.network, port.name, port.mtu),
                    format!("packets of at most {fits} bytes fit the way to the other hosts; longer ones are dropped"),
                    format!(
                        "set `mtu = {fits}` in [port.{}] and in its guest, or an MTU of the underlay of {} on all hosts",
                        port.name,
                        u32::from(port.mtu) + u32::from(tunnel.overhead)
                    ),
                ),
            }
        });
    },
};

pub(super) const NEXT_HOPS: Check = Check {
    name: "evpn-next-hops",
    passes: "the switch has a way to each other host",
    absent: ABSENT,
    run: |facts, outcome| {
        each_tunnel(facts, outcome, |facts, network, tunnel, outcome| {
            let Ok(switch) = &facts.switch else { return };
            for host in &network.remotes {
                let hop = switch.neighbours.neighbours.iter();
                let hop = hop.filter(|hop| hop.underlay == tunnel.underlay).find(|hop| hop.ip == *host);
                let is_silent = hop.is_some_and(|hop| hop.state == NeighbourState::Unanswered);
                let why = match (tunnel.remote.contains(host), is_silent) {
                    (false, _) => "no network of the underlay has it, and no gateway leads there",
                    (true, true) => "it does not answer",
                    (true, false) => {
                        outcome.pass();
                        continue;
                    }
                };
                let underlay = &tunnel.underlay;
                outcome.fail(
                    format!("network {}: there is no way to host {host}: {why}", network.network),
                    "stations behind it cannot be reached",
                    format!(
                        "straightline ping {underlay} {host}; then correct `address` or `gateway` in \
                         [underlay.{underlay}], or `address` of that host"
                    ),
                );
            }
        });
    },
};
