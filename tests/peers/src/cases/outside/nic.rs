//! AF_XDP and AF_PACKET: a User Mode Linux guest, and a namespace at the other end of a veth pair.

use anyhow::Result;

use super::{Amount, DeviceKind, exchange};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::{Need, two_workers};
use crate::net::{self, Capture, Namespace};
use crate::runner::Test;
use crate::switch::{Port, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Captures, Need::Uml(1)];
    let mut tests = Vec::new();
    for kind in [DeviceKind::AfXdp, DeviceKind::AfPacket] {
        for (suffix, variant) in [
            ("", Variant { mtu: 1500, queues: 1, offloads: true, mib: 64 }),
            ("_jumbo_4_queues", Variant { mtu: 9000, queues: 4, offloads: true, mib: 32 }),
            ("_without_offloads", Variant { mtu: 1500, queues: 1, offloads: false, mib: 32 }),
        ] {
            let name = format!("{}{suffix}", kind.name().replace('-', "_"));
            tests.push(Test::new(&name, &needs, move |lab| over_veth(lab, kind, variant)).beside_others());
        }
    }
    tests
}

#[derive(Clone, Copy)]
struct Variant {
    mtu: u32,
    queues: u32,
    /// False to turn them off in the guest and at both ends of the pair.
    offloads: bool,
    mib: u32,
}

fn over_veth(lab: &Lab, kind: DeviceKind, Variant { mtu, queues, offloads, mib }: Variant) -> Result<()> {
    let [host, far] = [Namespace::new("host")?, Namespace::new("far")?];
    net::veth([(&host, "v1"), (&far, "eth0")], queues, mtu)?;
    if !offloads {
        host.sh("ethtool -K v1 tx off tso off")?;
    }
    let workers = if queues > 1 { two_workers()? } else { Vec::new() };
    let keys = format!("{}\nmtu = {mtu}\nqueues = {queues}", kind.keys("v1"));
    let switch = Switch::start_in(lab, &host, &[Port { mtu, ..Port::new("a") }], &[("nic0", &keys)], &workers)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut peer = LinuxGuest::in_namespace(lab, &far, 2, "eth0")?;
    for end in [&mut guest, &mut peer] {
        end.configure(mtu)?;
        end.add_ip6()?;
    }
    super::has_device(&switch.port("nic0")?, "v1", mtu)?;
    if !offloads {
        traffic::turn_off(&mut guest, &["tso", "tx"])?;
        traffic::turn_off(&mut peer, &["tso", "tx"])?;
    }
    exchange(&mut guest, &mut peer, Amount { mtu, mib })?;
    // AF_PACKET leaves checksums to the interface if that has offloads.
    if kind == DeviceKind::AfXdp || !offloads {
        let capture = Capture::start(lab, &far, "eth0")?;
        traffic::file(&mut guest, &mut peer, 2)?;
        capture.checksums_are_right(200)?;
    }
    switch.stop()?;
    host.has_no_program()
}
