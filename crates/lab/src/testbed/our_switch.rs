//! Our switch in this process, as the device under test.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use straightline_config::{AfPacketConfig, AfXdpConfig, Offloads, PortConfig, PortKind, TapConfig};
use straightline_guest::endpoints::{Interface, InterfaceKind, wait_for_links};
use straightline_port::device::{Steal, ZeroCopy};
use straightline_switch::Switch;
use straightline_switch::api::{Link, Runtime};
use tempfile::TempDir;

use super::endpoints::needed_mtu;
use super::options::TestbedOptions;
use super::patched::{MTU, patched_ports};
use crate::traffic::Sizes;

/// A switch in this process, and the folder of its sockets.
pub(super) struct OurSwitch {
    switch: Switch,
    _folder: TempDir,
}

impl OurSwitch {
    /// Starts the switch with one worker on this CPU. Returns it with the sockets of its ports, in
    /// the order of the packets' path. In PVP with interfaces, the first and the last port of the
    /// switch are interfaces.
    ///
    /// # Errors
    /// The switch cannot start, or cannot open an interface.
    pub(super) fn start(
        options: &TestbedOptions,
        cpu: usize,
        sizes: &Sizes,
    ) -> anyhow::Result<(OurSwitch, Vec<PathBuf>)> {
        let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
        let interfaces = options.switch_ends()?;
        let count = options.scenario.ports() - interfaces.len();
        let sockets: Vec<_> = (0..count).map(|at| folder.path().join(format!("{at}"))).collect();
        let mut ports: Vec<_> =
            sockets.iter().map(|socket| PortConfig { mtu: MTU, ..PortConfig::vhost_user("", socket) }).collect();
        if let [first, last] = &interfaces[..] {
            let mtu = u16::try_from(needed_mtu(sizes))?.max(PortConfig::DEFAULT_MTU);
            ports.insert(0, port(first, mtu));
            ports.push(port(last, mtu));
        }
        for (at, port) in ports.iter_mut().enumerate() {
            port.name = format!("p{at}");
        }
        let ours = OurSwitch { switch: Switch::start(&patched_ports(cpu, ports))?, _folder: folder };
        ours.check_interfaces()?;
        Ok((ours, sockets))
    }

    /// Checks that the switch has opened its interfaces, and that they are up.
    fn check_interfaces(&self) -> anyhow::Result<()> {
        wait_for_links(|| {
            let ports = self.switch.source().ports().ports;
            ports.iter().all(|port| port.link == Link::Up || port.device.is_none())
        });
        let ports = self.switch.source().ports().ports;
        for port in ports.iter().filter(|port| port.socket.is_none()) {
            let why = port.reason.as_deref().unwrap_or_default();
            ensure!(port.link == Link::Up, "our switch cannot use its interface for port {}: {why}", port.name);
        }
        Ok(())
    }

    /// Returns descriptions of the interfaces that the switch has opened.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let ports = self.switch.source().ports().ports;
        let devices = ports.iter().filter_map(|port| Some((port, port.device.as_ref()?)));
        let describe = |(port, device): (&straightline_switch::api::Port, &straightline_switch::api::Device)| {
            format!("our switch at {}:{}", port.kind, device.interface)
        };
        devices.map(describe).collect()
    }

    /// Returns the counters of the switch's nodes.
    pub(super) fn runtime(&self) -> Runtime {
        self.switch.source().runtime()
    }

    /// Returns the packets that the switch and the kernel, for its ports, have dropped so far, by
    /// reason.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for port in self.switch.source().ports().ports {
            let kernel = port.device.map(|device| device.kernel_drops).unwrap_or_default();
            for (reason, count) in port.drops.into_iter().chain(kernel) {
                *drops.entry(reason).or_default() += count;
            }
        }
        drops
    }

    pub(super) fn stop(self) {
        self.switch.stop();
    }
}

/// Returns a port on an interface. Its name is still to be filled in.
fn port(interface: &Interface, mtu: u16) -> PortConfig {
    let name = interface.name.clone();
    let kind = match interface.kind {
        InterfaceKind::Tap => PortKind::Tap(TapConfig {
            name,
            queues: 1,
            offloads: Offloads::default(),
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        }),
        InterfaceKind::AfPacket => PortKind::AfPacket(AfPacketConfig { interface: name, queues: 1 }),
        InterfaceKind::AfXdp => PortKind::AfXdp(AfXdpConfig {
            interface: name,
            queues: None,
            steal: Steal::All,
            zero_copy: ZeroCopy::Allow,
            take_default_route: false,
        }),
    };
    PortConfig { kind, mtu, ..PortConfig::vhost_user("", "") }
}
