//! Two QEMU guests under software emulation on a patch: slow, but it is the QEMU that users have.

use anyhow::{Result, ensure};

use crate::guest::{Guest, Kind};
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::switch::{Join, Port, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("qemu_patch", &[Need::Qemu], patch)]
}

fn patch(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &[Port::new("a"), Port::new("b")], Join::Patch)?;
    let [mut one, mut two] = Guest::boot_pair(lab, Kind::Qemu, 1500)?;
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
