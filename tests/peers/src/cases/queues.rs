//! Guests with two queue pairs: both are used, and the counts of the pairs are right. Guests whose
//! control queue the switch serves.

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::machine::{Need, two_workers};
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Join, Port, PortStatus, RxMode, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("uml_control_queue", &[Need::Uml(2)], control),
        Test::new("qemu_mq", &[Need::Qemu], |lab| qemu(lab, Join::Patch, &[])),
        Test::new("qemu_mq_workers", &[Need::Qemu], |lab| qemu(lab, Join::Patch, &two_workers()?)),
        Test::new("qemu_mq_workers_bridge", &[Need::Qemu], |lab| qemu(lab, Join::Bridge, &two_workers()?)),
    ])
}

fn ports() -> [Port; 2] {
    ["a", "b"].map(|name| Port { queues: 2, ..Port::new(name) })
}

/// Returns the packets received from a port and delivered to it, by queue.
fn counts(port: &PortStatus) -> Vec<[u64; 2]> {
    port.queues.iter().map(|queue| [queue.rx.packets, queue.tx.packets]).collect()
}

/// A frontend that leaves the control queue to the switch: `ports` shows what its driver sets.
fn control(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &ports(), Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    let mac = one.mac();
    let second = two.ip();
    for command in ["true", "ip link set eth0 promisc on", "ip link set eth0 promisc off"] {
        one.sh(command)?;
        let promiscuous = command.ends_with("on");
        // The driver gets its acknowledgement before `ports` shows the change.
        proc::until(&format!("`{command}` is shown"), || {
            let mode = switch.port("a")?.rx_mode;
            let is_so = |mode: &RxMode| mode.promiscuous == promiscuous && mode.mac.as_ref() == Some(&mac);
            // The all-hosts group (RFC 1112, 4).
            let multicast = |mode: &RxMode| mode.multicast.contains(&"01:00:5e:00:00:01".to_owned());
            Ok(mode.filter(is_so).filter(multicast))
        })?;
        traffic::reach(&mut one, &second)?;
        traffic::ping(&mut one, &second, 10, 1000)?;
    }
    traffic::ping(&mut two, &one.ip(), 10, 56)?;
    switch.stop()
}

/// Linux enables the second pair, disables it and enables it again, under traffic of many flows.
fn qemu(lab: &Lab, join: Join, cpus: &[u32]) -> Result<()> {
    let switch = Switch::start_on(lab, &ports(), join, cpus)?;
    let kind = GuestKind::Qemu(Qemu { netdev: ",queues=2", device: ",mq=on", ..Qemu::default() });
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, kind, 1500)?;
    let second = two.ip();
    for guest in [&mut one, &mut two] {
        guest.sh("ethtool -L eth0 combined 2")?;
    }
    traffic::reach(&mut one, &second)?;
    many_flows(&mut one, &mut two)?;
    for name in ["a", "b"] {
        let port = switch.port(name)?;
        say!("  packets by queue [from, to]: {name} {:?}", counts(&port));
        let both = port.queues.len() == 2 && port.queues.iter().all(|q| q.rx.packets > 0 && q.tx.packets > 0);
        ensure!(both, "a queue of port {name} is idle: {port:?}");
    }
    two.sh("ethtool -L eth0 combined 1")?;
    let before = switch.port("b")?;
    many_flows(&mut one, &mut two)?;
    let after = switch.port("b")?;
    ensure!(after.queues[1].tx == before.queues[1].tx, "a disabled queue was used: {before:?}, then {after:?}");
    ensure!(after.queues[0].tx.packets > before.queues[0].tx.packets + 100, "{before:?}, then {after:?}");
    two.sh("ethtool -L eth0 combined 2")?;
    traffic::file(&mut one, &mut two, 8)?;
    many_flows(&mut one, &mut two)?;
    ensure!(
        switch.port("b")?.queues[1].tx.packets > after.queues[1].tx.packets,
        "the second queue of port b is not used after it was enabled again"
    );
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// 32 TCP connections at once.
fn many_flows(from: &mut LinuxGuest, to: &mut LinuxGuest) -> Result<()> {
    to.sh("iperf3 -s -1 </dev/null >/tmp/iperf.log 2>&1 &")?;
    traffic::listening(to, 5201)?;
    from.sh(&format!("iperf3 -c {} -P 32 -t 2 > /dev/null", to.ip()))?;
    Ok(())
}
