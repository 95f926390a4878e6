//! Trials with a Linux guest, which exchanges data with a namespace by iperf3. The namespace has the
//! tap, or the other end of the veth pair.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use straightline_lab::rounds::Measured;

use super::options::{DeviceCell, Guest, Interface};
use crate::guest::{GuestKind, LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::linux::rte;
use crate::measure::{self, Candidate, SwitchKind, SwitchPort};
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::traffic::{self, Iperf};

/// The interface of the switch or guest.
const DEVICE: &str = "d0";

/// The other end of the veth pair.
const FAR: &str = "f0";

/// The namespace's address.
const ADDRESS: &str = "10.77.0.9";

/// The number of the guest, and so the last part of its address.
const GUEST: u8 = 1;

/// Runs a trial: iperf3 out of the guest and into it, for `secs` each.
pub(super) fn trial(
    lab: &Lab,
    rte: Option<&Path>,
    secs: u32,
    switch: &Candidate,
    cell: &DeviceCell,
    kind: Guest,
) -> Result<Measured> {
    let namespace = Namespace::silent("devices")?;
    let tap = cell.interface == Interface::Tap;
    if !tap {
        net::veth([(&namespace, DEVICE), (&namespace, FAR)], 1, 1500)?;
    }
    let kind = match kind {
        Guest::Uml => GuestKind::Uml,
        Guest::Qemu => GuestKind::Qemu(Qemu::default()),
    };
    let mut running = start(lab, &namespace, rte, switch, cell)?;
    if tap {
        let exists = || Ok(namespace.sh(&format!("ip link set {DEVICE} up")).ok());
        proc::until("the tap exists", exists)?;
    }
    let end = if tap { DEVICE } else { FAR };
    namespace.sh(&format!("ip addr add {ADDRESS}/24 dev {end}"))?;
    let mut server = namespace.command("iperf3");
    server.arg("-s");
    let _server = Proc::start("iperf3", server, &lab.log("iperf3"))?;
    let mut guest = if running.is_some() {
        LinuxGuest::start(lab, kind, GUEST, "a")?
    } else {
        LinuxGuest::start_on_tap(lab, kind, GUEST, |program| namespace.command(program), DEVICE)?
    };
    guest.configure(1500)?;
    traffic::reach(&mut guest, ADDRESS)?;
    let (out, out_cpu) = transfer(&mut guest, running.as_ref(), secs, false)?;
    let (into, into_cpu) = transfer(&mut guest, running.as_ref(), secs, true)?;
    traffic::no_errors(&mut guest)?;
    if let Some(switch) = running.take() {
        measure::end(switch)?;
    }
    let metrics = [
        ("out_gbit_per_s", Some(out.gbit_per_s)),
        ("in_gbit_per_s", Some(into.gbit_per_s)),
        ("out_retransmits", Some(out.retransmits)),
        ("in_retransmits", Some(into.retransmits)),
        ("out_cpu_s_per_gb", out_cpu),
        ("in_cpu_s_per_gb", into_cpu),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let summary = format!("{:.2} Gbit/s out, {:.2} Gbit/s in", out.gbit_per_s, into.gbit_per_s);
    Ok(Measured { metrics, summary, ..Measured::default() })
}

/// Starts a switch with the socket `a` and the interface, or none.
fn start(
    lab: &Lab,
    namespace: &Namespace,
    rte: Option<&Path>,
    switch: &Candidate,
    cell: &DeviceCell,
) -> Result<Option<Proc>> {
    match &switch.kind {
        SwitchKind::OwnDevice => {
            namespace.sh(&format!("ip tuntap add dev {DEVICE} mode tap vnet_hdr"))?;
            Ok(None)
        }
        SwitchKind::RteVhost => {
            // Its driver passes checksums on as they are, so the sender has to finish them.
            namespace.sh(&format!("ethtool -K {FAR} tx off"))?;
            let program = rte.context("rte_patch is not compiled")?;
            Ok(Some(rte::start_at_interface(namespace.command(program), lab, DEVICE)?))
        }
        SwitchKind::Ours(ours) => {
            let pair = [SwitchPort::Socket("a"), cell.interface.port(DEVICE)];
            let command = namespace.command(&ours.program);
            Ok(Some(ours.start_between(lab, command, "sleep", &[pair])?))
        }
        _ => bail!("{} cannot be compared with Linux guests at devices", switch.name),
    }
}

/// Runs iperf3, and returns what it measured, and the switch's CPU seconds for a gigabyte.
fn transfer(
    guest: &mut LinuxGuest,
    switch: Option<&Proc>,
    secs: u32,
    into_guest: bool,
) -> Result<(Iperf, Option<f64>)> {
    let ticks = || switch.map(Proc::cpu_ticks).transpose();
    let before = ticks()?;
    let began = Instant::now();
    let moved = traffic::iperf3_client(guest, ADDRESS, secs, into_guest)?;
    let after = ticks()?;
    // A shorter time means that the guest's clock is wrong.
    if began.elapsed() < Duration::from_secs(secs.into()) {
        bail!("iperf3 ended before its time: the guest's clock is fast");
    }
    let cpu = before.zip(after).map(|(before, after)| u32::try_from(after - before)).transpose()?;
    Ok((moved, cpu.map(|ticks| f64::from(ticks) / 100.0 / (moved.bytes / 1e9))))
}
