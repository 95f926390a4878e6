//! Bridges that prune multicast: somebody must ask who listens.

use std::collections::{BTreeMap, BTreeSet};

use straightline_api::Row;

use super::{Check, CheckOutcome};
use crate::facts::SnoopedBridge;

pub(super) const QUERIER: Check = Check {
    name: "querier",
    passes: "a querier asks for the listeners of each bridge that prunes multicast",
    absent: "no bridge has `snooping`",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the multicast groups", &facts.switch) else { return };
        for bridge in &switch.snooping {
            let asked = asked(bridge);
            let unasked = unasked(bridge, &asked);
            if asked.is_empty() {
                report(bridge, "no querier", outcome);
            } else if unasked.is_empty() {
                outcome.pass();
            }
            for (protocol, vlans) in unasked.into_iter().filter(|_| !asked.is_empty()) {
                let noun = if vlans.len() == 1 { "VLAN" } else { "VLANs" };
                let list: Vec<_> = vlans.iter().map(u16::to_string).collect();
                report(bridge, &format!("no querier of {protocol} in {noun} {}", list.join(", ")), outcome);
            }
        }
    },
};

/// Returns the VLANs with a querier, each with its protocol.
fn asked(bridge: &SnoopedBridge) -> BTreeSet<(u16, &str)> {
    let routers = bridge.rows.iter().filter_map(|row| match row {
        Row::MulticastRouter(router) => Some(router),
        _ => None,
    });
    routers.map(|router| (router.vlan, router.protocol.as_str())).collect()
}

/// Returns the VLANs in which guests listen to groups and nobody asks, by protocol.
fn unasked(bridge: &SnoopedBridge, asked: &BTreeSet<(u16, &str)>) -> BTreeMap<&'static str, BTreeSet<u16>> {
    let mut unasked: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for row in &bridge.rows {
        let Row::GroupMember(member) = row else { continue };
        let Some(vlan) = member.vlan else { continue };
        let protocol = if member.group.contains(':') { "MLD" } else { "IGMP" };
        if !asked.contains(&(vlan, protocol)) {
            unasked.entry(protocol).or_default().insert(vlan);
        }
    }
    unasked
}

fn report(bridge: &SnoopedBridge, lack: &str, outcome: &mut CheckOutcome) {
    let name = &bridge.bridge;
    outcome.warn(
        format!("bridge {name} has {lack}"),
        "the bridge itself asks nobody, so packets to multicast groups go to all ports there",
        format!(
            "turn on the querier of a router or switch behind the bridge (a Linux bridge: ip link set BRIDGE type \
             bridge mcast_querier 1), or remove `snooping` of [bridge.{name}]"
        ),
    );
}
