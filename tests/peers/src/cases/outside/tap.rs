//! Taps: a User Mode Linux guest and the host's own network stack, which has the tap.

use anyhow::{Result, ensure};

use super::{Amount, exchange};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::{Need, two_workers};
use crate::net::{Capture, Namespace};
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Port, Switch};
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Captures, Need::Uml(1)];
    let mut tests: Vec<Test> = [
        ("tap", Variant { mtu: 1500, queues: 1, offloads: true, mib: 64 }),
        ("tap_jumbo_4_queues", Variant { mtu: 9000, queues: 4, offloads: true, mib: 32 }),
        ("tap_without_offloads", Variant { mtu: 1500, queues: 1, offloads: false, mib: 32 }),
    ]
    .map(|(name, variant)| Test::new(name, &needs, move |lab| guest_and_host(lab, variant)))
    .into();
    tests.push(Test::new("tap_of_a_user", &needs, of_a_user));
    beside_others(tests)
}

#[derive(Clone, Copy)]
struct Variant {
    mtu: u32,
    queues: u32,
    /// False to turn them off at both ends. All packets then have finished checksums.
    offloads: bool,
    mib: u32,
}

fn guest_and_host(lab: &Lab, Variant { mtu, queues, offloads, mib }: Variant) -> Result<()> {
    let namespace = Namespace::new("host")?;
    let mut keys = format!("kind = \"tap\"\nname = \"sl0\"\nmtu = {mtu}\nqueues = {queues}");
    if !offloads {
        keys += "\noffloads = []";
    }
    let workers = if queues > 1 { two_workers()? } else { Vec::new() };
    let switch = Switch::start_in(lab, &namespace, &[Port { mtu, ..Port::new("a") }], &[("host", &keys)], &workers)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut host = LinuxGuest::in_namespace(lab, &namespace, 2, "sl0")?;
    guest.configure(mtu)?;
    // The switch has set the tap's MTU.
    host.boot()?;
    host.address(None)?;
    for end in [&mut guest, &mut host] {
        end.add_ip6()?;
    }
    super::has_device(&switch.port("host")?, "sl0", mtu)?;
    if !offloads {
        traffic::turn_off(&mut guest, &["tso", "tx"])?;
        traffic::turn_off(&mut host, &["tso", "tx"])?;
    }
    exchange(&mut guest, &mut host, Amount { mtu, mib })?;
    if !offloads {
        let capture = Capture::start(lab, &namespace, "sl0")?;
        traffic::file(&mut guest, &mut host, 2)?;
        capture.checksums_are_right(1000)?;
    }
    switch.stop()?;
    ensure!(namespace.link("sl0")?.is_none(), "the tap is left after the end of the switch");
    Ok(())
}

/// A user without privileges runs the switch with a tap of his own, but not with somebody else's.
fn of_a_user(lab: &Lab) -> Result<()> {
    let namespace = Namespace::new("host")?;
    namespace.sh(
        "ip tuntap add dev sl1 mode tap user nobody vnet_hdr; ip tuntap add dev sl2 mode tap user daemon vnet_hdr",
    )?;
    namespace.sh("ip link set sl1 up; ip link set sl2 up")?;
    let mut prefix = namespace.prefix();
    prefix.extend(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"].map(str::to_owned));
    lab.give_to("nobody")?;
    let text = |tap: &str| -> Result<String> {
        let ports = [Port::new("a")];
        Switch::configuration(lab, &ports, &[("host", &format!("kind = \"tap\"\nname = \"{tap}\""))], &[])
    };

    let mut switch = Switch::spawn_with(lab, &prefix, &text("sl2")?)?;
    let status = switch.proc().wait_end()?;
    let (_, err) = switch.proc().texts();
    say!("  sl2: {}", err.trim());
    ensure!(status.code() == Some(1), "the switch ended with {status}, not with exit code 1");
    ensure!(err.contains("sl2"), "the message does not name sl2: {err}");
    drop(switch);

    let mut switch = Switch::spawn_with(lab, &prefix, &text("sl1")?)?;
    switch.wait_ready()?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut host = LinuxGuest::in_namespace(lab, &namespace, 2, "sl1")?;
    for end in [&mut guest, &mut host] {
        end.boot()?;
        end.address(None)?;
        end.add_ip6()?;
    }
    exchange(&mut guest, &mut host, Amount { mtu: 1500, mib: 16 })?;
    switch.stop()?;
    ensure!(namespace.link("sl1")?.is_some(), "the switch has removed the user's tap");
    Ok(())
}
