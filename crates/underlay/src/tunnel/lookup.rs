//! The tunnels of an underlay, found by the headers of received packets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::RandomState;
use straightline_packet::{PacketVlan, Packets};
use straightline_wire::VlanId;

use crate::kind::{Form, Traits};
use crate::tunnel::remotes::RemoteIndex;
use crate::{Network, Tunnel};

/// The tunnels of an underlay, found by the headers of received packets. It never changes; the remotes
/// of tunnels that take some may.
#[derive(Debug)]
pub struct Tunnels {
    tunnels: Vec<Arc<Tunnel>>,
    /// Remotes choose keys, so the hash is seeded.
    places: HashMap<Key, Place, RandomState>,
    /// The tunnels that take remotes, by the headers without the remote.
    open: HashMap<OpenKey, Vec<OpenPlace>, RandomState>,
}

/// The headers that name tunnels, whatever their remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenKey {
    local: u128,
    is_v4: bool,
    form: Form,
    key: u32,
}

/// A tunnel that takes remotes.
#[derive(Clone, Copy, Debug)]
struct OpenPlace {
    tunnel: u16,
    vlan: Option<PacketVlan>,
}

/// The place of a tunnel, and that of the remote which sent the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tunnel: u16,
    pub(crate) remote: RemoteIndex,
    /// The VLAN of the network, if the tunnel has several.
    pub(crate) vlan: Option<PacketVlan>,
}

impl Place {
    /// Returns the VLAN of the packet's station in the tunnel's table.
    #[inline]
    pub(crate) fn station_vlan(&self) -> VlanId {
        self.vlan.map_or(VlanId::DEFAULT, |vlan| vlan.id)
    }
}

/// The addresses of a packet, as numbers: it comes from the remote to one of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) remote: u128,
    pub(crate) local: u128,
    pub(crate) is_v4: bool,
}

/// The headers that name a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) ends: Ends,
    pub(crate) form: Form,
    pub(crate) key: u32,
}

impl Ends {
    /// Returns the addresses, or `None` if they differ in their version.
    pub(crate) fn new(remote: IpAddr, local: IpAddr) -> Option<Self> {
        match (remote, local) {
            (IpAddr::V4(remote), IpAddr::V4(local)) => {
                Some(Ends { remote: remote.to_bits().into(), local: local.to_bits().into(), is_v4: true })
            }
            (IpAddr::V6(remote), IpAddr::V6(local)) => {
                Some(Ends { remote: remote.to_bits(), local: local.to_bits(), is_v4: false })
            }
            _ => None,
        }
    }

    /// Returns the other end's address.
    fn remote(&self) -> IpAddr {
        if self.is_v4 {
            Ipv4Addr::from_bits(u32::try_from(self.remote).unwrap_or(0)).into()
        } else {
            Ipv6Addr::from_bits(self.remote).into()
        }
    }

    /// Returns our address.
    pub(crate) fn local(&self) -> IpAddr {
        if self.is_v4 {
            // The number came from an address of 32 bits.
            Ipv4Addr::from_bits(u32::try_from(self.local).unwrap_or(0)).into()
        } else {
            Ipv6Addr::from_bits(self.local).into()
        }
    }
}

impl Tunnels {
    /// Returns the table of these tunnels. The configuration gives no two of them one key; if two
    /// have the same, the first gets its packets.
    #[must_use]
    pub fn new(tunnels: Vec<Arc<Tunnel>>) -> Arc<Self> {
        let mut places = HashMap::default();
        let mut open: HashMap<OpenKey, Vec<OpenPlace>, RandomState> = HashMap::default();
        for (at, tunnel) in tunnels.iter().enumerate() {
            for (network, kind) in tunnel.config.kinds() {
                let Traits { form, key, .. } = kind.traits();
                let vlan = network.map(Network::fact);
                let Ok(tunnel_at) = u16::try_from(at) else { continue };
                if tunnel.takes_remotes() {
                    // The remote does not matter.
                    let Some(ends) = Ends::new(tunnel.config.local, tunnel.config.local) else { continue };
                    let open_key = OpenKey { local: ends.local, is_v4: ends.is_v4, form, key };
                    open.entry(open_key).or_default().push(OpenPlace { tunnel: tunnel_at, vlan });
                    continue;
                }
                for (index, &remote) in tunnel.config.remotes.iter().enumerate() {
                    let Ok(index) = u16::try_from(index) else { continue };
                    let Some(ends) = Ends::new(remote, tunnel.config.local) else { continue };
                    let place = Place { tunnel: tunnel_at, remote: RemoteIndex(index), vlan };
                    places.entry(Key { ends, form, key }).or_insert(place);
                }
            }
        }
        Arc::new(Tunnels { tunnels, places, open })
    }

    /// Returns the tunnels, in the order of their edges.
    pub(crate) fn all(&self) -> &[Arc<Tunnel>] {
        &self.tunnels
    }

    /// Returns whether a tunnel of GRE has a key.
    pub(crate) fn has_gre_keys(&self) -> bool {
        self.places.keys().any(|key| key.form == Form::GreKeyed)
    }

    /// Returns whether a tunnel is one of GTP-U.
    pub(crate) fn has_gtpu(&self) -> bool {
        self.places.keys().any(|key| key.form == Form::Gtpu)
    }

    /// Finds the tunnel that these headers name.
    pub(crate) fn find(&self, key: &Key, packets: &Packets<'_>) -> Option<Place> {
        self.places.get(key).copied().or_else(|| self.find_open(key, packets))
    }

    /// Finds the tunnel that takes remotes, and has the one of these headers now.
    fn find_open(&self, key: &Key, packets: &Packets<'_>) -> Option<Place> {
        let Key { ends, form, key } = *key;
        let places = self.open.get(&OpenKey { local: ends.local, is_v4: ends.is_v4, form, key })?;
        places.iter().find_map(|&OpenPlace { tunnel, vlan }| {
            let paths = self.tunnels[usize::from(tunnel)].paths.load(packets);
            Some(Place { tunnel, remote: paths.index(ends.remote())?, vlan })
        })
    }
}
