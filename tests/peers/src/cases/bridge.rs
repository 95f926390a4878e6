//! Three User Mode Linux guests on a learning bridge. One of them leaves and comes back.

use anyhow::{Context, Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Join, Port, Switch};
use crate::traffic;

const PORTS: [&str; 3] = ["a", "b", "c"];

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Uml(3)];
    beside_others(vec![
        Test::new("uml_bridge_traffic", &needs, all_pairs),
        Test::new("uml_bridge_broadcast", &needs, broadcast),
        Test::new("uml_bridge_leave_and_return", &needs, leave_and_return),
    ])
}

fn start<'lab>(lab: &'lab Lab<'_>) -> Result<(Switch<'lab>, Vec<LinuxGuest>)> {
    let switch = Switch::start(lab, &PORTS.map(Port::new), Join::Bridge)?;
    let guests = LinuxGuest::boot_all(lab, GuestKind::Uml, 1500, &PORTS)?;
    Ok((switch, guests))
}

fn all_pairs(lab: &Lab) -> Result<()> {
    let (switch, mut guests) = start(lab)?;
    ping_all(&mut guests)?;
    learned(&switch, &guests)?;
    let [one, two, three] = guests.as_mut_slice() else { unreachable!("three ports, three guests") };
    traffic::file(one, three, 16)?;
    traffic::file(three, two, 16)?;
    // The third guest still gets answers while the other two fill the bridge.
    traffic::iperf3_server(two)?;
    one.sh("iperf3 -c 10.77.0.2 -t 3 </dev/null >/tmp/iperf.log 2>&1 &")?;
    traffic::ping(three, "10.77.0.1", 20, 56)?;
    traffic::ping(three, "10.77.0.2", 20, 1472)?;
    traffic::until(one, "grep -q 'iperf Done' /tmp/iperf.log")?;
    traffic::iperf3(two, three, 1, false)?;
    traffic::iperf3(two, three, 1, true)?;
    for guest in &mut guests {
        traffic::no_errors(guest)?;
    }
    switch.stop()
}

fn broadcast(lab: &Lab) -> Result<()> {
    let (switch, mut guests) = start(lab)?;
    for guest in &mut guests {
        guest.sh("sysctl -w net.ipv4.icmp_echo_ignore_broadcasts=0")?;
    }
    let [one, _, _] = guests.as_mut_slice() else { unreachable!("three ports, three guests") };
    traffic::reach(one, "10.77.0.2")?;
    traffic::reach(one, "10.77.0.3")?;
    let (_, text) = one.run("ping -c 5 -w 60 10.77.0.255")?;
    for sender in ["10.77.0.2", "10.77.0.3"] {
        let answers = text.lines().filter(|line| line.contains(&format!("bytes from {sender}"))).count();
        say!("  broadcast: {answers} answers from {sender}");
        ensure!(answers >= 1, "{sender} answered {answers} of 5 broadcasts: {text}");
    }
    // No guest has this address. The request still goes to both other guests, and gets no answer.
    let (status, text) = one.run("arping -c 2 -w 3 -I eth0 10.77.0.99")?;
    ensure!(status != 0, "arping got an answer for an address that no guest has: {text}");
    for name in ["b", "c"] {
        let port = switch.port(name)?;
        ensure!(port.tx().packets >= 7, "port {name} sent fewer than 7 packets, so broadcasts are missing: {port:?}");
    }
    switch.stop()
}

fn leave_and_return(lab: &Lab) -> Result<()> {
    let (switch, mut guests) = start(lab)?;
    ping_all(&mut guests)?;
    drop(guests.pop().context("three guests")?);
    let down = switch.wait_link("c", "down")?;
    let reason = down.reason.unwrap_or_default();
    say!("  link of port c down: {reason}");
    ensure!(!reason.is_empty(), "port c is down, and `ports` gives no reason");
    let [one, two] = guests.as_mut_slice() else { unreachable!("two guests are left") };
    traffic::ping(one, &two.ip(), 10, 56)?;
    let mut three = LinuxGuest::start(lab, GuestKind::Uml, 3, "c")?;
    three.configure(1500)?;
    switch.wait_link("c", "up")?;
    traffic::reach(&mut three, "10.77.0.1")?;
    traffic::file(one, &mut three, 16)?;
    traffic::file(&mut three, two, 16)?;
    guests.push(three);
    ping_all(&mut guests)?;
    learned(&switch, &guests)?;
    switch.stop()
}

fn ping_all(guests: &mut [LinuxGuest]) -> Result<()> {
    let addresses: Vec<String> = guests.iter().map(LinuxGuest::ip).collect();
    for guest in guests {
        for address in &addresses {
            if *address != guest.ip() {
                traffic::reach(guest, address)?;
                traffic::ping(guest, address, 5, 56)?;
            }
        }
    }
    Ok(())
}

/// Asserts that the bridge's table has each guest's address with its port.
fn learned(switch: &Switch, guests: &[LinuxGuest]) -> Result<()> {
    let table = switch.fdb()?;
    for (guest, port) in guests.iter().zip(PORTS) {
        let mac = guest.mac();
        let entry = table.iter().find(|entry| entry.mac == mac);
        let entry = entry.with_context(|| format!("{mac} is not in the bridge's table: {table:?}"))?;
        ensure!(entry.port == port && entry.bridge == "lan", "{mac} should be on port {port}: {entry:?}");
    }
    Ok(())
}
