//! One side of a trial: a namespace with an end of the veth pair, a switch, and a guest. Switch and
//! guest share a CPU.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::mask;
use super::options::{MTU, Path, Variant};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::measure::{self, JoinedPort, Keys, OurSwitch, SwitchKind, output_of};
use crate::net::Namespace;
use crate::ovs::{OUTER_BRIDGE, OvsThreads, TunnelOvs};
use crate::proc::Proc;
use crate::switch::PortStatus;

/// The interface in each namespace.
pub(super) const INTERFACE: &str = "v0";

/// Its MTU: packets of [`MTU`] with the headers of each tunnel fit.
pub(crate) const UNDERLAY_MTU: u32 = 1600;

/// The longest sleep of [`SwitchKind::OvsSleeping`]. Of 100 and 500 it is the faster one.
const MAX_SLEEP_US: u32 = 100;

/// The two sides of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

impl Side {
    /// Returns the number of the guest.
    fn number(self) -> u8 {
        match self {
            Self::Near => 1,
            Self::Far => 2,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    fn cpu(self) -> Result<u32> {
        let (near, far) = two_cpus()?;
        Ok(if self == Self::Near { near } else { far })
    }

    /// Returns the address of the underlay (RFC 5737, RFC 3849).
    fn address(self, path: Path) -> String {
        match path {
            Path::L2tpv3 => format!("2001:db8::{}", self.number()),
            Path::Plain | Path::Vxlan => format!("192.0.2.{}", self.number()),
        }
    }
}

/// A running switch.
enum RunningSwitch<'lab> {
    /// With the socket of its API, and its program.
    Ours(Proc, PathBuf, PathBuf),
    Ovs(TunnelOvs<'lab>),
}

/// The answer of `straightline ports --json`.
#[derive(Deserialize)]
struct PortsAnswer {
    ports: Vec<PortStatus>,
}

/// A switch and its guest.
pub(super) struct Host<'lab> {
    switch: RunningSwitch<'lab>,
    pub(super) guest: LinuxGuest,
}

impl<'lab> Host<'lab> {
    /// Starts the switch, then the guest. Does not wait until the guest has booted.
    pub(super) fn start(lab: &'lab Lab<'_>, namespace: &Namespace, side: Side, variant: &Variant) -> Result<Self> {
        let (switch, socket) = match &variant.switch.kind {
            SwitchKind::Ours(ours) => {
                let switch = start_ours(lab, namespace, side, ours, variant.path)?;
                (RunningSwitch::Ours(switch, lab.socket("api"), ours.program.clone()), lab.socket("a"))
            }
            SwitchKind::Ovs | SwitchKind::OvsSleeping => {
                let max_sleep_us = if variant.switch.kind == SwitchKind::Ovs { 0 } else { MAX_SLEEP_US };
                let switch = start_ovs(lab, namespace, side, variant.path, max_sleep_us)?;
                let socket = lab.socket("guest");
                mask::start(&socket, &lab.socket("a"))?;
                (RunningSwitch::Ovs(switch), socket)
            }
            _ => bail!("{} has no tunnels", variant.switch.name),
        };
        let mut run = Command::new("taskset");
        run.args(["-c", &side.cpu()?.to_string(), "setarch"]);
        let device = format!("virtio_uml.device={}:1", socket.display());
        let guest = LinuxGuest::start_with_devices(lab, side.number(), run, &[device])?;
        Ok(Self { switch, guest })
    }

    /// Returns the CPU time of the switch, in ticks of 10 ms.
    pub(super) fn cpu_ticks(&self) -> Result<u64> {
        match &self.switch {
            RunningSwitch::Ours(proc, ..) => proc.cpu_ticks(),
            RunningSwitch::Ovs(ovs) => ovs.cpu_ticks(),
        }
    }

    /// Returns the packets that the switch dropped at the guest's port, if it tells.
    pub(super) fn drops(&self) -> Result<Option<f64>> {
        let RunningSwitch::Ours(_, api, program) = &self.switch else { return Ok(None) };
        let text = output_of(Command::new(program).args(["ports", "--json", "--api"]).arg(api))?;
        let answer: PortsAnswer =
            serde_json::from_str(&text).with_context(|| format!("`ports --json` wrote {text}"))?;
        let port = answer.ports.iter().find(|port| port.name == "a").context("`ports` does not list port a")?;
        Ok(Some(f64::from(u32::try_from(port.dropped())?)))
    }

    /// Ends the switch, then the guest.
    pub(super) fn end(self) -> Result<()> {
        match self.switch {
            RunningSwitch::Ours(proc, ..) => measure::end(proc),
            RunningSwitch::Ovs(_) => Ok(()),
        }
    }
}

fn start_ours(lab: &Lab, namespace: &Namespace, side: Side, ours: &OurSwitch, path: Path) -> Result<Proc> {
    let text = ours.joined(lab, "sleep", side.cpu()?, &[joined_port("a", INTERFACE, side, path)])?;
    ours.run(lab, namespace.command(&ours.program), &text)
}

/// Returns our vhost-user port with this name. It is joined with AF_XDP at an interface, or with a
/// tunnel over it.
pub(crate) fn joined_port(name: &'static str, interface: &str, side: Side, path: Path) -> JoinedPort {
    let text = |text: &str| format!("{text:?}");
    let device: Keys =
        vec![("kind", text("af-xdp")), ("interface", text(interface)), ("mtu", UNDERLAY_MTU.to_string())];
    let address = side.address(path);
    let remote = text(&side.other().address(path));
    let tunnel = match path {
        Path::Plain => None,
        Path::L2tpv3 => {
            let cookie = |side: Side| text(&format!("{:016x}", side.number()));
            let keys = [("cookie", cookie(side)), ("peer-cookie", cookie(side.other()))];
            Some((format!("{address}/64"), "l2tpv3", keys.to_vec()))
        }
        Path::Vxlan => Some((format!("{address}/24"), "vxlan", vec![("vni", "5".to_owned())])),
    };
    let tunnel = tunnel.map(|(address, kind, mut keys): (_, _, Keys)| {
        keys.extend([("kind", text(kind)), ("remote", remote), ("mtu", MTU.to_string())]);
        [vec![("address", format!("[{address:?}]"))], keys]
    });
    JoinedPort { name, keys: Vec::new(), device, tunnel }
}

fn start_ovs<'lab>(
    lab: &'lab Lab<'_>,
    namespace: &Namespace,
    side: Side,
    path: Path,
    max_sleep_us: u32,
) -> Result<TunnelOvs<'lab>> {
    // The bridge of the guest.
    const INNER_BRIDGE: &str = "inner";
    let cpu = side.cpu()?;
    let request = format!("mtu_request={UNDERLAY_MTU}");
    let afxdp = ["type=afxdp", request.as_str()];
    let threads = OvsThreads { polling: cpu, others: cpu, max_sleep_us };
    let ovs = TunnelOvs::start_on(lab, namespace, threads, UNDERLAY_MTU, INTERFACE, &afxdp)?;
    let bridge = if path == Path::Plain {
        OUTER_BRIDGE
    } else {
        let address = side.address(path);
        namespace.sh(&format!("ip link set {OUTER_BRIDGE} up; ip addr add {address}/24 dev {OUTER_BRIDGE}"))?;
        let remote = format!("options:remote_ip={}", side.other().address(path));
        ovs.add_bridge(namespace, INNER_BRIDGE, MTU, "far", &["type=vxlan", "options:key=5", &remote])?;
        INNER_BRIDGE
    };
    // A listening port has the name of its socket.
    let socket = lab.socket("a");
    let name = socket.file_name().and_then(|name| name.to_str()).context("a socket has a name")?;
    ovs.add_port(bridge, name, &["type=dpdkvhostuser", &format!("mtu_request={MTU}")])?;
    ovs.wait_socket(&socket)?;
    Ok(ovs)
}
