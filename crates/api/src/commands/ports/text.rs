//! The answer to `ports` as text.

use std::collections::BTreeMap;

use super::super::firewall::ConnectionUse;
use super::{
    Addresses, Device, Link, Packets, Port, PortGroups, PortNodes, PortVlans, Ports, Queue, RingKind, Tunnel, VlanRole,
};
use crate::layout::{Grid, INDENT, TABLE_WIDTH, WIDTH, count, duration, wrap};

/// Renders the answer to `ports`: a block for each port.
#[must_use]
pub fn text(ports: &Ports) -> String {
    if ports.ports.is_empty() {
        return "no ports\n".to_owned();
    }
    let blocks: Vec<_> = ports.ports.iter().map(port).collect();
    blocks.join("\n")
}

/// Renders the answer to `ports` as a table with a line for each port. The last column says why a
/// link is down, or else why most packets were dropped.
#[must_use]
pub fn one_line_each(ports: &Ports) -> String {
    if ports.ports.is_empty() {
        return "no ports\n".to_owned();
    }
    let mut grid = Grid::new(&["<port", "<kind", "<link", ">rx packets", ">tx packets", ">drops", "<reason"]);
    for port in &ports.ports {
        let packets = |of: fn(&Queue) -> Packets| {
            count(port.queues.iter().fold(0_u64, |sum, queue| sum.saturating_add(of(queue).packets)))
        };
        let link = if port.link == Link::Up { "up" } else { "down" };
        let drops = port.drops.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let rx = packets(|queue| queue.rx);
        let tx = packets(|queue| queue.tx);
        grid.row([port.name.clone(), port.kind.clone(), link.to_owned(), rx, tx, count(drops), short_reason(port)]);
    }
    grid.render_within(TABLE_WIDTH)
}

/// Describes the VLANs of a port.
fn vlans(vlans: &PortVlans) -> String {
    let PortVlans { role, vlans, untagged, native_tagged, tag, priority } = vlans;
    let priority = if *priority > 0 { format!(", priority {priority}") } else { String::new() };
    match role {
        VlanRole::Access => format!("access {vlans}{priority}"),
        VlanRole::Customer => format!("customer in VLAN {vlans}{priority}"),
        VlanRole::Networks => format!("{vlans} by network identifier{priority}"),
        VlanRole::Trunk => {
            let tag = tag.as_ref().map_or_else(String::new, |tag| format!(" ({tag})"));
            let sent = if *native_tagged { "sent tagged" } else { "untagged" };
            let native = untagged.map_or_else(String::new, |id| format!(", native {id} {sent}{priority}"));
            format!("trunk {vlans}{tag}{native}")
        }
    }
}

/// Returns why a port's link is down, or else why most of its packets were dropped: as a code where
/// there is one, since the sentence is too long for a table.
fn short_reason(port: &Port) -> String {
    let worst = || port.drops.iter().filter(|(_, n)| **n > 0).max_by_key(|(_, n)| **n).map(|(reason, _)| reason);
    match port.link {
        Link::Down => port.cause.as_ref().or(port.reason.as_ref()).cloned().unwrap_or_default(),
        Link::Up => worst().cloned().unwrap_or_default(),
    }
}

fn port(port: &Port) -> String {
    let link = match (port.link, &port.reason) {
        (Link::Up, _) => "up".to_owned(),
        (Link::Down, Some(reason)) => format!("down: {reason}"),
        (Link::Down, None) => "down".to_owned(),
    };
    let mut text = wrap(&format!("{}  {}  ", port.name, port.kind), &link, WIDTH);

    let mut facts = Vec::new();
    if port.ring_size > 0 {
        let ring = match port.ring {
            Some(RingKind::Split) => "split ring",
            Some(RingKind::Packed) => "packed ring",
            None => "ring",
        };
        facts.push(format!("{ring} of {}", port.ring_size));
    }
    if port.regions > 0 {
        facts.push(format!("{} memory region{}", port.regions, if port.regions == 1 { "" } else { "s" }));
    }
    facts.push(format!("mtu {}", port.mtu));
    facts.extend(port.mac.iter().map(|mac| format!("offered mac {mac}")));
    let mut field = |name: &str, value: &str| text.push_str(&wrap(&format!("{INDENT}{name:<10}"), value, WIDTH));
    if let Some(remedy) = &port.remedy {
        field("remedy", remedy);
    }
    if port.link_changes > 0 {
        let times =
            if port.link_changes == 1 { "once".to_owned() } else { format!("{} times", count(port.link_changes)) };
        field("link", &format!("changed {times}, last {} ago", duration(port.link_since_s)));
        // While the link is down, the reason is in the line above.
        let last = port.reasons.last().filter(|_| port.link == Link::Up);
        last.into_iter().for_each(|last| field("was down", &last.reason));
    }
    match (port.pid, &port.user) {
        (Some(pid), Some(user)) => field("frontend", &format!("process {pid} of user {user}")),
        (None, Some(user)) => field("frontend", &format!("a process in another PID namespace, of user {user}")),
        (_, None) => {}
    }
    field("device", &facts.join(", "));
    if let Some(places) = &port.nodes {
        field("nodes", &nodes(places));
    }
    if let Some(device) = &port.device {
        field("interface", &interface(device));
        let drops = counts(&device.kernel_drops);
        if !drops.is_empty() {
            field("kernel", &format!("dropped: {drops}"));
        }
        device.warnings.iter().for_each(|warning| field("warning", warning));
    }
    if let Some(ends) = &port.tunnel {
        field("tunnel", &tunnel(ends));
        for (remote, addresses) in ends.remote.iter().zip(&ends.addresses) {
            field("remote", &format!("{remote}, {}", learned(*addresses)));
        }
    }
    if let Some(socket) = &port.socket {
        field("socket", socket);
    }
    if !port.features.is_empty() {
        field("features", &port.features.join(" "));
    }

    if let Some(vlans) = &port.vlans {
        field("vlans", &self::vlans(vlans));
    }
    if port.isolated {
        field("isolated", "from other isolated ports");
    }
    if let Some(dscp) = &port.dscp {
        field("dscp", &format!("{dscp} for all IP packets from it"));
    }
    if !port.expedited.is_empty() {
        field("expedited", &format!("{} pass before other packets", port.expedited.join(" ")));
    }
    if let Some(PortGroups { names, used }) = &port.groups {
        let ConnectionUse { connections, most, refused, .. } = used;
        let refused = if *refused > 0 { format!(", {} refused", count(*refused)) } else { String::new() };
        field(
            "groups",
            &format!("{}; {} of {} connections{refused}", names.join(" "), count(*connections), count(*most)),
        );
    }
    if port.trusted {
        field("trusted", "router advertisements and answers of DHCP pass from it to ports with groups");
    }
    for (name, limit) in [("rate in", &port.rate_in), ("rate out", &port.rate_out)] {
        if let Some(limit) = limit {
            field(name, &limit.describe());
        }
    }
    if let Some(addresses) = port.addresses {
        field("addresses", &learned(addresses));
    }

    // A single worker needs no mention.
    let served = |of: fn(&Queue) -> Option<usize>| {
        let workers: Vec<_> = port.queues.iter().filter_map(of).map(|worker| worker.to_string()).collect();
        workers.join(" ")
    };
    let rx = served(|queue| queue.rx_worker);
    let tx = served(|queue| queue.tx_worker);
    let mut all = rx.split(' ').chain(tx.split(' '));
    if !rx.is_empty() && all.next().is_some_and(|first| all.any(|other| other != first)) {
        field("workers", &format!("by queue, rx {rx}, tx {tx}"));
    }
    if port.slow_calls {
        field("calls", "take longer than 50 µs each: a helper thread sends them");
    }
    if port.queues.iter().any(|queue| queue.calls_repeated > 0) {
        let repeated: Vec<_> = port.queues.iter().map(|queue| count(queue.calls_repeated)).collect();
        field("calls", &format!("repeated, by queue: {}", repeated.join(" ")));
    }
    if !port.queues.is_empty() {
        text.push_str(&queues(port));
    }
    let drops = counts(&port.drops);
    if !drops.is_empty() {
        text.push_str(&wrap(&format!("{INDENT}{:<10}", "drops"), &drops, WIDTH));
    }
    text
}

/// Renders where a port's parts are: `workers 0, memory 1: packets cross between NUMA nodes`.
fn nodes(nodes: &PortNodes) -> String {
    let list = |nodes: &[usize]| nodes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    let interface: Vec<usize> = nodes.interface.into_iter().collect();
    let all = [("workers", &nodes.workers), ("memory", &nodes.memory), ("interface", &interface)];
    let known = all.into_iter().filter(|(_, nodes)| !nodes.is_empty());
    let known: Vec<_> = known.map(|(what, nodes)| format!("{what} {}", list(nodes))).collect();
    let crossing = if nodes.apart().next().is_some() { ": packets cross between NUMA nodes" } else { "" };
    format!("{}{crossing}", known.join(", "))
}

/// Renders the number of learned addresses.
fn learned(Addresses { learned, refused }: Addresses) -> String {
    let full = if refused > 0 { format!(", {} refused: its share is full", count(refused)) } else { String::new() };
    format!("{} learned{full}", count(learned.into()))
}

/// The most network identifiers of a tunnel in a text.
const MOST_VNIS: usize = 8;

/// Renders the ends of a tunnel: `192.0.2.1 to 192.0.2.2 over wan, next hop 192.0.2.2 reachable,`
/// and so on.
fn tunnel(tunnel: &Tunnel) -> String {
    let Tunnel {
        underlay,
        local,
        remote,
        vnis,
        next_hop,
        state,
        conflict,
        overhead,
        mtu_inside,
        addresses: _,
        path_mtus,
        errors_refused,
    } = tunnel;
    let mut facts = vec![format!("{local} to {} over {underlay}", remote.join(" "))];
    facts.extend(vnis.iter().take(MOST_VNIS).map(|(vlan, vni)| format!("VLAN {vlan} is vni {vni}")));
    if vnis.len() > MOST_VNIS {
        facts.push(format!("{} more networks", vnis.len() - MOST_VNIS));
    }
    if let Some(next_hop) = next_hop {
        let state = state.map_or_else(String::new, |state| format!(" {}", state.as_str()));
        facts.push(format!("next hop {next_hop}{state}"));
    }
    facts.extend(conflict.as_ref().map(|mac| format!("another station, {mac}, has {local} too")));
    facts.push(format!("{overhead} bytes of headers"));
    facts.push(format!("mtu {mtu_inside} inside"));
    facts.extend(path_mtus.iter().map(|path| format!("a router says mtu {} to {}", path.mtu, path.remote)));
    if *errors_refused > 0 {
        facts.push(format!("{} ICMP errors refused", count(*errors_refused)));
    }
    facts.join(", ")
}

/// Renders the facts about an open interface.
fn interface(device: &Device) -> String {
    let Device { interface, driver, mode, zero_copy, queues, mtu, mac, .. } = device;
    let copies = match zero_copy {
        true => "zero-copy",
        // Only XDP could do without copies.
        false if device.uses_xdp() => "copy",
        false => "",
    };
    let modes: Vec<_> = [mode.as_str(), copies].into_iter().filter(|word| !word.is_empty()).collect();
    let mut facts = vec![interface.clone()];
    facts.extend((!driver.is_empty()).then(|| format!("driver {driver}")));
    facts.extend((!modes.is_empty()).then(|| format!("{} mode", modes.join(" "))));
    facts.push(format!("{queues} queue{}", if *queues == 1 { "" } else { "s" }));
    facts.push(format!("mtu {mtu}"));
    facts.push(format!("mac {mac}"));
    facts.join(", ")
}

/// Renders counters that are not 0.
fn counts(counters: &BTreeMap<String, u64>) -> String {
    let counters = counters.iter().filter(|(_, n)| **n > 0);
    let counters: Vec<_> = counters.map(|(name, n)| format!("{name} {}", count(*n))).collect();
    counters.join(", ")
}

/// Renders two rows for each queue pair, so that the largest counters fit.
fn queues(port: &Port) -> String {
    let mut grid = Grid::new(&["<queue", "<", ">packets", ">bytes", ">calls sent", ">suppressed"]);
    for queue in &port.queues {
        let [sent, suppressed] = [queue.calls_sent, queue.calls_suppressed].map(count);
        let row =
            |direction: &str, packets: Packets| [direction.to_owned(), count(packets.packets), count(packets.bytes)];
        let [rx, rx_packets, rx_bytes] = row("rx", queue.rx);
        let [tx, tx_packets, tx_bytes] = row("tx", queue.tx);
        grid.row([queue.index.to_string(), rx, rx_packets, rx_bytes, sent, suppressed]);
        grid.row([String::new(), tx, tx_packets, tx_bytes, String::new(), String::new()]);
    }
    grid.render(INDENT)
}
