//! The networks of a tunnel that has several: a VLAN of its bridge for each network identifier.

use straightline_packet::PacketVlan;
use straightline_wire::VlanId;

use crate::Network;

/// The networks of a tunnel, found by either end. A network is its place in
/// [`TunnelConfig::networks`](crate::TunnelConfig::networks).
#[derive(Debug)]
pub(crate) struct Networks {
    /// The network of each VLAN.
    by_vlan: Box<[Option<u16>]>,
    /// The identifiers in ascending order, each with its network.
    by_vni: Box<[(u32, u16)]>,
}

impl Network {
    /// Returns the VLAN of frames that come in by the network. They have no tag, so no priority.
    pub(crate) fn fact(self) -> PacketVlan {
        PacketVlan { id: self.vlan, pcp: 0, dei: false }
    }
}

impl Networks {
    /// Returns these networks, or `None` if there is none: the tunnel is one network.
    pub(crate) fn of(networks: &[Network]) -> Option<Self> {
        if networks.is_empty() {
            return None;
        }
        let mut by_vlan = vec![None; usize::from(VlanId::MAX.get()) + 1];
        let mut by_vni = Vec::with_capacity(networks.len());
        for (at, network) in (0..).zip(networks) {
            by_vlan[usize::from(network.vlan.get())] = Some(at);
            by_vni.push((network.vni, at));
        }
        by_vni.sort_unstable();
        Some(Networks { by_vlan: by_vlan.into(), by_vni: by_vni.into() })
    }

    /// Returns the network of a VLAN.
    #[inline]
    pub(crate) fn of_vlan(&self, vlan: VlanId) -> Option<u16> {
        self.by_vlan.get(usize::from(vlan.get())).copied().flatten()
    }

    /// Returns the network with an identifier.
    pub(crate) fn of_vni(&self, vni: u32) -> Option<u16> {
        let at = self.by_vni.binary_search_by_key(&vni, |(vni, _)| *vni).ok()?;
        Some(self.by_vni[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_found_by_either_end() {
        let network = |vid, vni| Network { vlan: VlanId::new(vid).unwrap(), vni };
        let all = [network(10, 0xff_ffff), network(20, 0), network(4094, 7)];
        let networks = Networks::of(&all).unwrap();
        for (at, Network { vlan, vni }) in (0..).zip(all) {
            assert_eq!((networks.of_vlan(vlan), networks.of_vni(vni)), (Some(at), Some(at)));
        }
        assert_eq!((networks.of_vlan(VlanId::DEFAULT), networks.of_vni(10)), (None, None));
        assert!(Networks::of(&[]).is_none());
    }
}
