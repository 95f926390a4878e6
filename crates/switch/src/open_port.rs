//! The ports of a plan, opened.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use az::SaturatingAs;
use straightline_graph::{Clock, PortControl, Waiters};
use straightline_packet::{Drops, IgnorePoison, MAX_BATCH, PortIndex, Rcu, Settings};
use straightline_port::ClosedApart;
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, Direct, OpenError};
use straightline_port::vhost_user::{self, VhostUser, VhostUserConfig};
use straightline_underlay::{Tunnel, TunnelPort};

use crate::config::{self, Config, Copies, Mode, PortConfig, PortKind};
use crate::default_mac::default_mac;
use crate::plan::PortPlan;
use crate::sandbox;

/// Bytes of bodies that a turn copies. A packet may be copied to all ports of a bridge, so a turn
/// takes only a share of these bytes.
const TURN_BYTES: u32 = 1 << 20;

/// Returns how a worker's turns are run.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        level: config.switch.level(),
        two_copies: config.switch.copies == Copies::Two,
        body_limit: TURN_BYTES,
        prefetch: !config.switch.without_prefetch,
        max_packets: config.switch.turn_packets.map_or(MAX_BATCH, |most| most.min(MAX_BATCH)),
    }
}

/// The things that a port is opened with, beside its configuration.
pub(crate) struct OpenWith<'a> {
    pub(crate) place: &'a PortPlan,
    pub(crate) drops: Arc<Drops>,
    pub(crate) rcu: &'a Rcu,
    pub(crate) waiters: Waiters,
    /// The socket that a client handed over for the port.
    pub(crate) given: Option<Arc<ClosedApart<OwnedFd>>>,
    pub(crate) devices: &'a DevicesOnce,
    /// The tunnel, for a port that is one.
    pub(crate) tunnel: Option<Arc<Tunnel>>,
    pub(crate) clock: &'a Clock,
}

/// Opens a port. The kinds of port differ only here; afterwards each is a [`PortControl`].
pub(crate) fn open(port: &PortConfig, with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    sandbox::allows(port).with_context(|| format!("port \"{}\"", port.name))?;
    let assignment = with.place.assignment.clone();
    let opened = match &port.kind {
        PortKind::VhostUser(kind) => open_vhost_user(port, kind, with),
        PortKind::Tap(_) | PortKind::AfPacket(_) | PortKind::AfXdp(_) => open_device(port, with),
        PortKind::Tunnel(_) => open_tunnel(with),
    };
    let opened = opened.with_context(|| format!("port \"{}\"", port.name))?;
    opened.assign_queues(assignment);
    Ok(opened)
}

/// Opens a vhost-user port.
fn open_vhost_user(
    port: &PortConfig,
    kind: &config::VhostUserConfig,
    with: OpenWith<'_>,
) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = VhostUserConfig {
        name: port.name.clone(),
        socket: kind.socket.clone(),
        mode: match kind.mode {
            Mode::Server => vhost_user::Mode::Server(port.kind.permissions()),
            Mode::Client => vhost_user::Mode::Client,
            Mode::Given => vhost_user::Mode::Given(with.given.context("no client handed a socket over")?),
        },
        mtu: port.mtu,
        mac: port.mac.map(|mac| mac.octets()),
        default_mac: Some(default_mac(&port.name)),
        csum: kind.offloads.csum,
        tso: kind.offloads.tso,
        uso: kind.offloads.uso,
        queues: kind.queues,
        packed: kind.packed,
        waits: with.place.waits,
        call_pauses: kind.call_pauses,
        clock: with.clock.clone(),
    };
    Ok(Arc::new(VhostUser::open(config, PortIndex(with.place.slot), with.drops, with.rcu, with.waiters)?))
}

/// Opens a port whose peer is an interface of this machine.
fn open_device(port: &PortConfig, with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = DevicePortConfig {
        name: port.name.clone(),
        request: port.kind.device(port.mtu, port.mac).context("the kind has no interface")?,
        mtu: port.mtu,
        queues: port.kind.most_queues().saturating_as::<u16>(),
    };
    let devices = with.devices.get(with.clock).context("cannot prepare to open interfaces")?;
    let index = PortIndex(with.place.slot);
    Ok(Arc::new(DevicePort::open(config, index, with.drops, with.rcu, with.waiters, &devices)?))
}

/// Opens a tunnel.
fn open_tunnel(with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    Ok(Arc::new(TunnelPort::new(with.tunnel.context("it has no underlay")?, with.clock.clone())))
}

/// The device ports of a switch, made with its first such port if the caller brought none.
#[derive(Debug, Default)]
pub(crate) struct DevicesOnce(Mutex<Option<Arc<Devices>>>);

impl DevicesOnce {
    pub(crate) fn new(devices: Option<Arc<Devices>>) -> Self {
        DevicesOnce(Mutex::new(devices))
    }

    /// Checks that this interface may be opened with these settings. Nothing is opened.
    pub(crate) fn check(&self, request: &DeviceRequest) -> Result<(), OpenError> {
        let devices = self.0.lock().ignore_poison();
        devices.as_ref().map_or(Ok(()), |devices| devices.opener().check(request))
    }

    fn get(&self, clock: &Clock) -> std::io::Result<Arc<Devices>> {
        let mut devices = self.0.lock().ignore_poison();
        if let Some(devices) = &*devices {
            return Ok(Arc::clone(devices));
        }
        // Opening waits for the kernel, which no test moves.
        let opener = Arc::new(Direct::default());
        Ok(Arc::clone(devices.insert(Devices::by_clock(opener, clock.clone())?)))
    }
}
