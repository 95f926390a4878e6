//! The underlays and tunnels of a switch. They live across reloads while their settings stay the
//! same, with the next hops and stations that they have learned.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use straightline_packet::{Drops, PortIndex};
use straightline_underlay::{Tunnel, Underlay, UnderlayConfig};
use straightline_wire::MacAddr;

use crate::config::{self, Config, Mac, PortKind};
use crate::default_mac::default_mac;
use crate::plan::{Before, Plan};

/// The underlays and tunnels of a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Underlays {
    /// The underlays, in the configuration's order.
    pub(crate) underlays: Vec<Arc<Underlay>>,
    /// The tunnel of each port, in the configuration's order. `None` for a port of another kind.
    pub(crate) tunnels: Vec<Option<Arc<Tunnel>>>,
}

impl Underlays {
    /// Returns those of a configuration. Those of `before` that stay the same live on. `drops` are
    /// the drop counters of the ports of `before`: a tunnel of the same name keeps its counters.
    ///
    /// # Errors
    /// A name in the configuration has no section.
    pub(crate) fn after(
        &self,
        before: Before<'_>,
        drops: &[Arc<Drops>],
        config: &Config,
        plan: &Plan,
    ) -> anyhow::Result<Self> {
        let mut underlays = Vec::new();
        for (at, underlay) in config.underlays.iter().enumerate() {
            if let Some(same) = before.same_underlay(config, at) {
                underlays.push(Arc::clone(&self.underlays[same]));
                continue;
            }
            let port = config.port_index(&underlay.port);
            let port = port.with_context(|| format!("underlay {:?}: no port {:?}", underlay.name, underlay.port))?;
            let settings = settings(underlay, &config.ports[port].kind);
            underlays.push(Underlay::new(settings, PortIndex(plan.ports[port].slot)));
        }
        let mut tunnels = Vec::new();
        for (at, port) in config.ports.iter().enumerate() {
            let Some(settings) = port.kind.as_tunnel() else {
                tunnels.push(None);
                continue;
            };
            if let Some(same) = before.same_port(config, at) {
                tunnels.push(self.tunnels[same].clone());
                continue;
            }
            let underlay = config.underlay_index(&settings.underlay);
            let underlay =
                underlay.with_context(|| format!("port {:?}: no underlay {:?}", port.name, settings.underlay))?;
            let old = before.config.port_index(&port.name);
            let drops = old.map_or_else(Arc::default, |old| Arc::clone(&drops[old]));
            let index = PortIndex(plan.ports[at].slot);
            let settings = settings.config(port, MacAddr(default_mac(&port.name)));
            tunnels.push(Some(Tunnel::new(settings, Arc::clone(&underlays[underlay]), index, drops)));
        }
        Ok(Underlays { underlays, tunnels })
    }

    /// Returns the underlays by name.
    pub(crate) fn by_name(&self) -> HashMap<&str, &Arc<Underlay>> {
        self.underlays.iter().map(|underlay| (underlay.config().name.as_str(), underlay)).collect()
    }

    /// Returns the tunnels by the index of their port.
    pub(crate) fn by_index(&self, plan: &Plan) -> HashMap<PortIndex, &Arc<Tunnel>> {
        let tunnels = self.tunnels.iter().zip(&plan.ports);
        tunnels.filter_map(|(tunnel, place)| Some((PortIndex(place.slot), tunnel.as_ref()?))).collect()
    }
}

/// Returns the settings of an underlay on a port of this kind.
fn settings(underlay: &config::UnderlayConfig, port: &PortKind) -> UnderlayConfig {
    let wire = |mac: Mac| MacAddr(mac.octets());
    let own = match port {
        // The other end of the port has the address that belongs to the port. The network of the
        // underlay may have other switches of this machine, so our address in it makes ours unique.
        PortKind::VhostUser(_) | PortKind::Tap(_) => {
            let ip = underlay.addresses.first().map_or_else(String::new, |address| address.ip.to_string());
            Some(MacAddr(default_mac(&format!("underlay {} {ip}", underlay.name))))
        }
        PortKind::AfPacket(_) | PortKind::AfXdp(_) | PortKind::Tunnel(_) => None,
    };
    UnderlayConfig {
        name: underlay.name.clone(),
        addresses: underlay.addresses.clone(),
        gateways: underlay.gateways.clone(),
        vlan: underlay.vlan,
        mtu: underlay.mtu,
        mac: underlay.mac.map(wire).or(own),
        neighbours: underlay.neighbours.iter().map(|&(ip, mac)| (ip, wire(mac))).collect(),
        path_mtu: underlay.path_mtu,
    }
}
