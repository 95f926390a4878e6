//! Two QEMU guests on a patch, under software emulation. They are slow, but users have the same
//! QEMU.

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::switch::{Join, Port, Switch};
use crate::traffic::{self, Transfer};

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Qemu];
    let mut tests = vec![Test::new("qemu_patch", &needs, patch), Test::new("qemu_host_mtu", &needs, host_mtu)];
    for (ring, device) in [("split", ""), ("packed", ",packed=on")] {
        for (who, chardev, client) in
            [("we_listen", ",reconnect=1", false), ("qemu_listens", ",server=on,wait=off", true)]
        {
            let body = move |lab: &Lab| kill(lab, Qemu { chardev, device, ..Qemu::default() }, client, ring);
            tests.push(Test::new(&format!("qemu_kill_{ring}_{who}"), &needs, body));
        }
    }
    beside_others(tests)
}

fn patch(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &[Port::new("a"), Port::new("b")], Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Qemu(Qemu::default()), 1500)?;
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    traffic::ping(&mut one, &second, 10, 56)?;
    traffic::ping(&mut one, &second, 10, 1472)?;
    for name in ["a", "b"] {
        let port = switch.port(name)?;
        ensure!(port.ring.as_deref() == Some("split"), "ring of port {name} is {:?}, not split", port.ring);
    }
    let mib = if lab.machine.long { 256 } else { 32 };
    traffic::file(&mut one, &mut two, mib)?;
    traffic::file(&mut two, &mut one, 8)?;
    traffic::iperf3(&mut one, &mut two, 3, false)?;
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// The guest's interface starts with the MTU that the port announces.
fn host_mtu(lab: &Lab) -> Result<()> {
    let ports = ["a", "b"].map(|name| Port { mtu: 9000, ..Port::new(name) });
    let switch = Switch::start(lab, &ports, Join::Patch)?;
    let told = GuestKind::Qemu(Qemu { device: ",host_mtu=9000", ..Qemu::default() });
    let mut guests = [LinuxGuest::start(lab, told, 1, "a")?, LinuxGuest::start(lab, told, 2, "b")?];
    for guest in &mut guests {
        guest.boot()?;
        let mtu = guest.sh("cat /sys/class/net/eth0/mtu")?;
        ensure!(mtu == "9000", "guest {}: its MTU is {mtu}, not 9000", guest.number);
        guest.address(None)?;
    }
    let [one, two] = &mut guests;
    let second = two.ip();
    traffic::reach(one, &second)?;
    // 28 bytes are the IP and ICMP headers.
    traffic::ping(one, &second, 10, 9000 - 28)?;
    traffic::no_errors(one)?;
    traffic::no_errors(two)?;
    switch.stop()
}

/// The switch is killed during the transfer of a file and started again. The file still arrives.
fn kill(lab: &Lab, qemu: Qemu, client: bool, ring: &str) -> Result<()> {
    let ports = ["a", "b"].map(|name| Port { client, packed: Some(true), ..Port::new(name) });
    let mut switch = Switch::start(lab, &ports, Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Qemu(qemu), 1500)?;
    let first = one.ip();
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    let times = if lab.machine.long { 20 } else { 1 };
    let mib = 96;
    let mut kills = 0;
    while kills < times {
        let before = switch.port("a")?.rx().bytes;
        let file = Transfer::begin(&mut one, &mut two, mib)?;
        // A quarter of the file.
        let part = u64::from(mib) << 18;
        proc::until("a part of the file has passed", || {
            Ok((switch.port("a")?.rx().bytes > before + part).then_some(()))
        })?;
        switch.kill()?;
        // If the file has arrived before, because the test did not run, another one is sent.
        kills += u32::from(!file.is_over(&mut two)?);
        switch.start_again()?;
        for name in ["a", "b"] {
            let port = switch.wait_link(name, "up")?;
            ensure!(port.ring.as_deref() == Some(ring), "ring of port {name} is {:?}, not {ring}", port.ring);
        }
        file.finish(&mut one, &mut two)?;
        traffic::ping(&mut one, &second, 10, 1472)?;
        traffic::ping(&mut two, &first, 10, 56)?;
    }
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}
