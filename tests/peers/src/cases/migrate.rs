//! A QEMU guest that migrates from one port to another while it is pinged and receives a file. The
//! received data dirties its memory during the migration, and all of it has to arrive.

use anyhow::{Context, Result, ensure};

use crate::guest::{GuestKind, LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::machine::Need;
use crate::monitor::{self, Monitor};
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Join, Port, Switch};
use crate::traffic::{self, Transfer};

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Qemu, Need::Uml(1)];
    [("split", ""), ("packed", ",packed=on")]
        .map(|(ring, device)| {
            let body = move |lab: &Lab| migrate(lab, Qemu { device, ..Qemu::default() }, ring);
            Test::new(&format!("qemu_migrate_{ring}"), &needs, body).beside_others()
        })
        .into()
}

fn migrate(lab: &Lab, qemu: Qemu, ring: &str) -> Result<()> {
    let ports = ["a", "b", "c"].map(|name| Port { packed: Some(name != "c"), ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Bridge)?;
    let monitor = lab.socket("monitor");
    let incoming = lab.socket("incoming");
    let mut source = LinuxGuest::start_qemu(lab, qemu, 1, "a", &monitor::listening(&monitor))?;
    let mut peer = LinuxGuest::start(lab, GuestKind::Uml, 3, "c")?;
    peer.configure(1500)?;
    source.configure(1500)?;
    let mac = source.mac();
    let ip = source.ip();
    traffic::reach(&mut peer, &ip)?;
    on_port(&switch, &mac, "a")?;
    let mut target = LinuxGuest::start_qemu(lab, qemu, 1, "b", &monitor::expecting(&incoming))?;
    let mut monitor_a = Monitor::open(&monitor)?;

    let mib = if lab.machine.long { 256 } else { 64 };
    let file = Transfer::begin(&mut peer, &mut source, mib)?;
    // The ping continues beyond the migration; the number of replies is printed below.
    peer.sh(&format!("ping -i 0.05 -q {ip} </dev/null >/tmp/ping.log 2>&1 & echo $! > /tmp/ping.pid"))?;
    monitor_a.migrate(&incoming)?;
    switch.wait_link("b", "up")?;
    // From here on, the console of the other process is the guest's.
    drop(source);
    say!("  the file had {}arrived by then", if file.is_over(&mut target)? { "" } else { "not " });
    file.finish(&mut peer, &mut target)?;
    // On SIGINT, ping prints its summary.
    peer.sh("kill -2 $(cat /tmp/ping.pid)")?;
    traffic::until(&mut peer, "grep -q 'packets transmitted' /tmp/ping.log")?;
    let summary = peer.sh("cat /tmp/ping.log")?;
    let pings = traffic::parse_ping(&summary).with_context(|| format!("ping printed no summary: {summary}"))?;
    say!("  pings during the migration: {} of {} came back", pings.received, pings.sent);
    ensure!(pings.received > 0, "no ping came back");

    on_port(&switch, &mac, "b")?;
    let port = switch.port("b")?;
    ensure!(port.ring.as_deref() == Some(ring), "ring of port b is {:?}, not {ring}", port.ring);
    traffic::ping(&mut peer, &ip, 10, 1472)?;
    let there = peer.ip();
    traffic::ping(&mut target, &there, 10, 56)?;
    traffic::file(&mut target, &mut peer, 8)?;
    traffic::no_errors(&mut target)?;
    traffic::no_errors(&mut peer)?;
    drop(target);
    for socket in [monitor, incoming] {
        // QEMU may or may not have removed the socket.
        let _ = std::fs::remove_file(socket);
    }
    switch.stop()
}

/// Asserts that the bridge has learned `mac` on `port`.
fn on_port(switch: &Switch, mac: &str, port: &str) -> Result<()> {
    let table = switch.fdb()?;
    let entry = table.iter().find(|entry| entry.mac == mac);
    ensure!(entry.is_some_and(|entry| entry.port == port), "{mac} should be on port {port}: {table:?}");
    Ok(())
}
