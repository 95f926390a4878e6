//! A next hop that goes away and returns. `straightline neighbours` and `straightline ports` say
//! so, and the tunnel recovers by itself.

use anyhow::{Context, Result, ensure};

use super::vxlan::Vxlan;
use super::{Carrier, Inner, Outer, Wire};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Neighbour, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("tunnel_next_hop", &[Need::Namespaces, Need::Uml(1)], goes_away)]
}

const TUNNELS: [Vxlan; 2] = [
    Vxlan { far: 11, outer: Outer::V4, vni: 5, options: "" },
    Vxlan { far: 12, outer: Outer::V6, vni: 6, options: "" },
];

fn goes_away(lab: &Lab) -> Result<()> {
    let wire = Wire::new(Carrier::AfPacket, 1500)?;
    let names = TUNNELS.map(|tunnel| format!("t{}", tunnel.far));
    let hops = TUNNELS.map(|tunnel| tunnel.outer.address(tunnel.far));
    let tunnels: Vec<(String, String)> =
        names.iter().cloned().zip(TUNNELS.iter().map(|tunnel| tunnel.keys(wire.mtu))).collect();
    let switch = wire.switch(lab, &tunnels)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    guest.boot()?;
    guest.load_ip6()?;
    let inners = [Inner(1), Inner(2)];
    for inner in inners {
        inner.join(&mut guest, "eth0", 1, wire.mtu)?;
    }

    say!("  nobody has the addresses yet");
    for (name, hop) in names.iter().zip(&hops) {
        let reason = switch.wait_link(name, "down")?.reason.unwrap_or_default();
        say!("  port {name}: {reason}");
        ensure!(reason.contains(hop), "the reason does not name {hop}: {reason:?}");
        let unknown = neighbour(&switch, hop)?;
        ensure!(unknown.mac.is_none(), "nobody has answered, but {unknown:?}");
    }

    let mut places = Vec::new();
    for tunnel in &TUNNELS {
        places.push(tunnel.device(&wire)?);
    }
    let mac = wire.far().link("eth0")?.context("no eth0")?.address;
    let mut fars = Vec::new();
    for (number, (place, inner)) in (2..).zip(places.iter().zip(inners)) {
        fars.push(place.guest(lab, inner, (number, 2), wire.mtu)?);
    }
    for ((name, hop), inner) in names.iter().zip(&hops).zip(inners) {
        switch.wait_link(name, "up")?;
        wait_state(&switch, hop, "reachable")?;
        let found = neighbour(&switch, hop)?;
        ensure!(found.mac.as_deref() == Some(&mac), "{hop} has {mac}, but {found:?}");
        traffic::reach(&mut guest, &inner.v4(2))?;
        traffic::ping(&mut guest, &inner.v4(2), 3, 1472)?;
        // Packets keep the next hop in use.
        let to = inner.v4(2);
        guest.sh(&format!("(while :; do ping -i 0.2 {to}; sleep 0.2; done) </dev/null >/dev/null 2>&1 &"))?;
    }

    say!("  the addresses go away");
    wire.far().sh("ip addr flush dev eth0")?;
    for (name, hop) in names.iter().zip(&hops) {
        let down = switch.wait_link(name, "down")?;
        say!("  port {name}: {:?}", down.reason);
        ensure!(down.reason.is_some_and(|reason| reason.contains(hop)), "the reason does not name {hop}");
        wait_state(&switch, hop, "unanswered")?;
        proc::until("packets are dropped for want of a next hop", || {
            Ok(switch.port(name)?.drops.get("no-neighbour").is_some_and(|count| *count > 0).then_some(()))
        })?;
    }

    say!("  the addresses return");
    for (tunnel, (name, (inner, far))) in TUNNELS.iter().zip(names.iter().zip(inners.iter().zip(&mut fars))) {
        wire.add_far(tunnel.outer, tunnel.far)?;
        switch.wait_link(name, "up")?;
        traffic::reach(&mut guest, &inner.v4(2))?;
        traffic::reach(far, &inner.v4(1))?;
    }
    switch.stop()
}

fn neighbour(switch: &Switch, ip: &str) -> Result<Neighbour> {
    let neighbours = switch.neighbours()?;
    let found = neighbours.iter().find(|neighbour| neighbour.underlay == "wan" && neighbour.ip == ip);
    found.cloned().with_context(|| format!("`neighbours` does not list {ip}: {neighbours:?}"))
}

fn wait_state(switch: &Switch, ip: &str, state: &str) -> Result<()> {
    proc::until(&format!("{ip} is {state}"), || Ok((neighbour(switch, ip)?.state == state).then_some(())))
}
