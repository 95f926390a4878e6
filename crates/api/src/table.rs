//! Renders answers as text for terminals: tables for 100 columns, text for 80.

mod grid;
mod trace;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::{
    Addresses, Changes, Device, Done, Drops, Event, EventKind, Events, Fdb, Link, Neighbours, Port, Ports, Privileges,
    Queue, RingKind, Runtime, Stalls, Status, Tunnel, Worker,
};
use grid::{Grid, count, printable, wrap};
pub use trace::traced_packet;

/// The width of a terminal that tables fit.
const TABLE_WIDTH: usize = 100;

/// The column at which text is wrapped.
const WIDTH: usize = 80;

/// The indent of each line of a port's block but the first.
const INDENT: &str = "    ";

/// Renders the answer to `ports`: a block for each port.
#[must_use]
pub fn ports(ports: &Ports) -> String {
    if ports.ports.is_empty() {
        return "no ports\n".to_owned();
    }
    let blocks: Vec<_> = ports.ports.iter().map(port).collect();
    blocks.join("\n")
}

/// Renders the answer to `ports` as a table with a line for each port. The last column says why a
/// link is down, or else why most packets were dropped.
#[must_use]
pub fn ports_short(ports: &Ports) -> String {
    if ports.ports.is_empty() {
        return "no ports\n".to_owned();
    }
    let mut grid = Grid::new(&["<port", "<kind", "<link", ">rx packets", ">tx packets", ">drops", "<reason"]);
    for port in &ports.ports {
        let packets = |of: fn(&Queue) -> super::Packets| {
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
    if let Some(device) = &port.device {
        field("interface", &interface(&port.kind, device));
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

    if let Some(addresses) = port.addresses {
        field("addresses", &learned(addresses));
    }

    // A single worker needs no mention.
    let served = |of: fn(&Queue) -> Option<usize>| {
        let workers: Vec<_> = port.queues.iter().filter_map(of).map(|worker| worker.to_string()).collect();
        workers.join(" ")
    };
    let (rx, tx) = (served(|queue| queue.rx_worker), served(|queue| queue.tx_worker));
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

/// Renders the number of learned addresses.
fn learned(Addresses { learned, refused }: Addresses) -> String {
    let full = if refused > 0 { format!(", {} refused: its share is full", count(refused)) } else { String::new() };
    format!("{} learned{full}", count(learned.into()))
}

/// Renders the ends of a tunnel: `192.0.2.1 to 192.0.2.2 over wan, next hop 192.0.2.2 reachable,`
/// and so on.
fn tunnel(tunnel: &Tunnel) -> String {
    let Tunnel {
        underlay,
        local,
        remote,
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

/// Renders the facts about the interface of a port of this kind.
fn interface(kind: &str, device: &Device) -> String {
    let Device { interface, driver, mode, zero_copy, queues, mtu, mac, .. } = device;
    let copies = match zero_copy {
        true => "zero-copy",
        // Other kinds have no such mode.
        false if kind == "af-xdp" => "copy",
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
        let row = |direction: &str, packets: super::Packets| {
            [direction.to_owned(), count(packets.packets), count(packets.bytes)]
        };
        let [rx, rx_packets, rx_bytes] = row("rx", queue.rx);
        let [tx, tx_packets, tx_bytes] = row("tx", queue.tx);
        grid.row([queue.index.to_string(), rx, rx_packets, rx_bytes, sent, suppressed]);
        grid.row([String::new(), tx, tx_packets, tx_bytes, String::new(), String::new()]);
    }
    grid.render(INDENT)
}

/// Renders the answer to `runtime`: the workers' time, then the nodes.
#[must_use]
pub fn runtime(runtime: &Runtime) -> String {
    let mut workers =
        Grid::new(&["<worker", ">busy", ">", ">empty poll", ">", ">idle", ">", ">unexplained", ">", ">turns"]);
    for worker in &runtime.workers {
        let total = worker.busy_s + worker.empty_poll_s + worker.idle_s + worker.unexplained_s;
        let time = |seconds: f64| {
            let percent = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
            [format!("{seconds:.2} s"), format!("{percent:.1} %")]
        };
        let name = worker.cpu.map_or_else(|| "unpinned".to_owned(), |cpu| format!("CPU {cpu}"));
        let [busy, busy_percent] = time(worker.busy_s);
        let [empty, empty_percent] = time(worker.empty_poll_s);
        let [idle, idle_percent] = time(worker.idle_s);
        let [lost, lost_percent] = time(worker.unexplained_s);
        let turns = count(worker.turns);
        workers.row([name, busy, busy_percent, empty, empty_percent, idle, idle_percent, lost, lost_percent, turns]);
    }
    let mut nodes = Grid::new(&["<node", ">calls", ">packets", ">packets/call", ">cycles/packet"]);
    for node in &runtime.nodes {
        let (vector, cycles) = (format!("{:.2}", node.packets_per_call), format!("{:.1}", node.cycles_per_packet));
        // There are several workers only where each has a CPU.
        let cpu = node.worker.and_then(|worker| runtime.workers.get(worker)?.cpu).filter(|_| runtime.workers.len() > 1);
        let name = cpu.map_or_else(|| node.name.clone(), |cpu| format!("{} on CPU {cpu}", node.name));
        nodes.row([name, count(node.calls), count(node.packets), vector, cycles]);
    }
    let end = if runtime.nodes.iter().any(|node| node.name == "turn-end") { TURN_END } else { "" };
    format!("{}{}\n{}{end}", workers.render(""), bodies(&runtime.workers), nodes.render(""))
}

/// The meaning of the last node.
const TURN_END: &str = "
turn-end is the work at the end of each turn: buffers go back to the rings they came from, and
guests are notified. Its packets are those of the turn.
";

/// Renders the number of times that a body is copied before it is delivered. The switch promises
/// one copy.
fn bodies(workers: &[Worker]) -> String {
    let sum = |bytes: fn(&Worker) -> u64| workers.iter().map(bytes).fold(0_u64, u64::saturating_add);
    let copied = sum(|worker| worker.bodies_copied_bytes);
    let delivered = sum(|worker| worker.bodies_delivered_bytes);
    if delivered == 0 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let times = copied as f64 / delivered as f64;
    format!("bodies: {} bytes delivered, {} copied ({times:.2} copies each)\n", count(delivered), count(copied))
}

/// Renders the answer to `drops`: a row for each port and reason, then the meaning and remedy of
/// each reason, once.
#[must_use]
pub fn drops(drops: &Drops) -> String {
    if drops.drops.is_empty() {
        return "no drops\n".to_owned();
    }
    let mut grid = Grid::new(&["<port", "<reason", ">packets"]);
    for drop in &drops.drops {
        grid.row([drop.port.clone(), drop.reason.clone(), count(drop.count)]);
    }
    let mut text = grid.render("");
    // A switch of an older version sends no meanings.
    let reasons: BTreeMap<_, _> = drops.drops.iter().map(|drop| (drop.reason.as_str(), drop)).collect();
    for (reason, drop) in reasons.into_iter().filter(|(_, drop)| !drop.meaning.is_empty()) {
        text.push_str(&format!("\n{}", wrap(&format!("{reason}: "), &drop.meaning, WIDTH)));
        text.push_str(&wrap(INDENT, &drop.remedy, WIDTH));
    }
    text
}

/// Renders the answer to `fdb`: a row for each address that bridges know, then for each that tunnels
/// know.
#[must_use]
pub fn fdb(fdb: &Fdb) -> String {
    let age = |is_static, age_s| if is_static { "static".to_owned() } else { format!("{age_s:.0} s") };
    let mut bridges = Grid::new(&["<bridge", "<address", "<port", ">age"]);
    for entry in &fdb.entries {
        let age = age(entry.is_static, entry.age_s);
        bridges.row([entry.bridge.clone(), entry.mac.clone(), entry.port.clone(), age]);
    }
    let mut tunnels = Grid::new(&["<tunnel", "<address", "<remote", ">age"]);
    for entry in &fdb.remotes {
        let age = age(entry.is_static, entry.age_s);
        tunnels.row([entry.port.clone(), entry.mac.clone(), entry.remote.clone(), age]);
    }
    match (fdb.entries.is_empty(), fdb.remotes.is_empty()) {
        (true, true) => "no addresses\n".to_owned(),
        (false, true) => bridges.render(""),
        (true, false) => tunnels.render(""),
        (false, false) => format!("{}\n{}", bridges.render(""), tunnels.render("")),
    }
}

/// Renders the answer to `neighbours`: a row for each next hop, then one for each address of the
/// switch that another station has.
#[must_use]
pub fn neighbours(neighbours: &Neighbours) -> String {
    let mut conflicts = Grid::new(&["<underlay", "<own address", "<another station", ">age"]);
    let mut has_conflicts = false;
    for own in &neighbours.addresses {
        let Some(mac) = &own.conflict else { continue };
        let age = own.age_s.map_or_else(String::new, |age| format!("{age} s"));
        conflicts.row([own.underlay.clone(), own.ip.clone(), mac.clone(), age]);
        has_conflicts = true;
    }
    let next_hops = next_hops(neighbours);
    if has_conflicts { format!("{next_hops}\n{}", conflicts.render("")) } else { next_hops }
}

fn next_hops(neighbours: &Neighbours) -> String {
    if neighbours.neighbours.is_empty() {
        return "no neighbours\n".to_owned();
    }
    let mut grid = Grid::new(&["<underlay", "<address", "<mac", "<state", ">age"]);
    for next_hop in &neighbours.neighbours {
        let mac = next_hop.mac.clone().unwrap_or_default();
        let age = next_hop.age_s.map_or_else(String::new, |age| format!("{age} s"));
        grid.row([next_hop.underlay.clone(), next_hop.ip.clone(), mac, next_hop.state.as_str().to_owned(), age]);
    }
    grid.render("")
}

/// Renders the answer to `status`: a line for each fact.
#[must_use]
pub fn status(status: &Status) -> String {
    let mut grid = Grid::new(&["<", "<"]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    fact("version", status.version.clone());
    fact("uptime", duration(status.uptime_s));
    if let Some(file) = &status.configuration {
        let edited = if file.changed == Some(true) { ", edited since it was read" } else { "" };
        fact("configuration", format!("{}{edited}", file.path));
    }
    fact("simd", status.simd.clone());
    fact("workers", status.workers.to_string());
    fact("ports", format!("{} of {} up", status.ports_up, status.ports));
    fact("sandbox", if status.sandbox.is_empty() { "off".to_owned() } else { status.sandbox.join(", ") });
    for process in &status.privileges {
        fact(&process.process, privileges(process));
    }
    if !status.notifications.is_empty() {
        fact("notifications", status.notifications.clone());
    }
    if let Some(free) = status.fds_free {
        fact("descriptors", format!("{} free", count(free)));
    }
    if status.refused_calls > 0 {
        fact("refused", format!("{} system calls", count(status.refused_calls)));
    }
    if status.api_refused_clients > 0 {
        fact("API refused", format!("{} clients: too many of their user", count(status.api_refused_clients)));
    }
    if status.api_held_threads > 0 {
        let held = status.api_held_threads as u64;
        fact("API held", format!("{} threads: descriptors of clients do not close", count(held)));
    }
    for Stalls { worker, port, count: times } in &status.stalls {
        let place = if port.is_empty() { String::new() } else { format!(" at {port}") };
        fact("stalls", format!("worker {worker}{place}: {}", count(*times)));
    }
    grid.render("")
}

/// Renders what a process may do: `pid 12, CAP_NET_RAW; seccomp, landlock`.
fn privileges(process: &Privileges) -> String {
    if !process.running {
        let (what, verb) = match process.process.as_str() {
            Privileges::SOCKETS => ("sockets", "make"),
            _ => ("interfaces", "open"),
        };
        return format!("pid {} has ended; its {what} stay open, restart the switch to {verb} others", process.pid);
    }
    let capabilities = match process.capabilities.len() {
        0 => "no capabilities".to_owned(),
        // Root without a sandbox has all, and no reader wants them one by one.
        count @ 9.. => format!("{count} capabilities"),
        _ => process.capabilities.join(" "),
    };
    let confined = [("seccomp", process.seccomp), ("landlock", process.landlock)];
    let confined: Vec<_> = confined.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let by = if confined.is_empty() { "not confined".to_owned() } else { confined.join(", ") };
    format!("pid {}, {capabilities}; {by}", process.pid)
}

/// Renders the answer to `reload`: a line for each change.
#[must_use]
pub fn changes(changes: &Changes) -> String {
    if changes.changes.is_empty() {
        return "nothing changed\n".to_owned();
    }
    changes.changes.iter().map(|change| format!("{change}\n")).collect()
}

/// Renders the answer to a change: nothing is to be said about it.
#[must_use]
pub fn done(_: &Done) -> String {
    String::new()
}

/// Renders the answer to `events`.
#[must_use]
pub fn events(events: &Events) -> String {
    if events.events.is_empty() {
        return "no events\n".to_owned();
    }
    events.events.iter().map(event).collect()
}

/// Renders an event as a line in the style of the log, and further lines if it has details.
#[must_use]
pub fn event(event: &Event) -> String {
    let time = Duration::try_from_secs_f64(event.time).ok().and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
    // The formatter takes times until the year 9999 only.
    let time = time.filter(|_| event.time < 2.5e11).unwrap_or(SystemTime::UNIX_EPOCH);
    let time = humantime::format_rfc3339_millis(time);
    let severity = if event.is_warning() { "WARN" } else { "INFO" };
    let skipped = if event.skipped == 0 {
        String::new()
    } else {
        format!(" ({} before this one came too often to be told)", count(event.skipped))
    };
    let mut text = format!("{time} {severity} {} {}{skipped}\n", event.seq, printable(&event.message));
    let details: Vec<String> = match &event.kind {
        EventKind::Reload { changes, more } if changes.len() > 1 => {
            let more = (*more > 0).then(|| format!("and {} more", count(*more)));
            changes.iter().map(ToString::to_string).chain(more).collect()
        }
        EventKind::ReloadFailed { error } => error.lines().skip(1).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    details.iter().for_each(|detail| text += &format!("{INDENT}{}\n", printable(detail)));
    text
}

/// Formats seconds as days, hours, minutes and seconds, from the first that is not 0.
fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).map_or(0, |time| time.as_secs());
    let (days, hours, minutes, rest) = (whole / 86400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min {rest} s"),
        _ => format!("{days} d {hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests;
