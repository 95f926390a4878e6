//! The settings of underlays and tunnels, as plain values that were checked.

use std::borrow::Cow;
use std::net::IpAddr;

use straightline_wire::{MacAddr, VlanId};

use crate::kind::TunnelKind;

/// An address of an underlay, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
}

/// The settings of an underlay: `[underlay.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayConfig {
    /// The name.
    pub name: String,
    /// Our addresses.
    pub addresses: Vec<Address>,
    /// The routers of other networks, at most one for each IP version.
    pub gateways: Vec<IpAddr>,
    /// The VLAN of all packets (802.1Q), or none.
    pub vlan: Option<u16>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Our MAC address. `None`: that of the port's interface, see [`Underlay::set_mac`].
    ///
    /// [`Underlay::set_mac`]: crate::Underlay::set_mac
    pub mac: Option<MacAddr>,
    /// Next hops whose MAC addresses are fixed.
    pub neighbours: Vec<(IpAddr, MacAddr)>,
    /// The belief in ICMP errors about packets that are too long.
    pub path_mtu: PathMtuErrors,
}

impl UnderlayConfig {
    /// Returns the settings of an underlay with these addresses and an MTU of 1500 bytes. All other
    /// settings have the defaults of the file.
    #[must_use]
    pub fn new(name: impl Into<String>, addresses: Vec<Address>) -> Self {
        UnderlayConfig {
            name: name.into(),
            addresses,
            gateways: Vec::new(),
            vlan: None,
            mtu: 1500,
            mac: None,
            neighbours: Vec::new(),
            path_mtu: PathMtuErrors::default(),
        }
    }
}

/// The belief in ICMP errors that tell the MTU of the way to a remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMtuErrors {
    /// They lower the MTU down to what leaves 1280 bytes inside the tunnel.
    #[default]
    UsableInside,
    /// They lower the MTU down to this number of bytes of the outer IP packet.
    Least(u16),
    /// No error is believed.
    Off,
}

/// A network of a tunnel that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The VLAN of its frames in the bridge.
    pub vlan: VlanId,
    /// Its identifier on the wire, 24 bits.
    pub vni: u32,
}

/// The settings of a tunnel port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The port's name.
    pub name: String,
    /// The encapsulation with its keys. With `networks`, its network identifier is that of the first.
    pub kind: TunnelKind,
    /// The network identifier of each VLAN. Empty if the tunnel is one network, that of `kind`. Only
    /// VXLAN, Geneve and VXLAN-GPE have several.
    pub networks: Vec<Network>,
    /// True if frames with a VLAN tag inside are dropped.
    pub drops_tags: bool,
    /// Our address.
    pub local: IpAddr,
    /// The addresses of the other ends, at least one. Only VXLAN, Geneve and VXLAN-GPE have
    /// several.
    pub remotes: Vec<IpAddr>,
    /// Stations whose remote is fixed, if there are several remotes. All others are learned. Without
    /// `networks`, the VLAN is the default one.
    pub stations: Vec<(VlanId, MacAddr, IpAddr)>,
    /// The most stations that are known, if there are several remotes. Those of `stations` count.
    pub limit: usize,
    /// Bytes of the longest inner IP packet.
    pub mtu: u16,
    /// True if outer checksums of received packets are verified.
    pub verify: bool,
    /// True if packets without outer checksum are accepted over IPv6 as well (RFC 6935).
    pub zero_checksum: bool,
    /// The fixed source port (UDP). `None`: by the flow's hash, from 49152 on.
    pub source_port: Option<u16>,
    /// Our MAC address on the Ethernet face of a kind that carries IP.
    pub mac: Option<MacAddr>,
}

impl TunnelConfig {
    /// The value of `limit` if the file has none.
    pub const DEFAULT_LIMIT: u32 = 4096;

    /// Returns the settings of a tunnel between these addresses, for inner IP packets of at most 1500
    /// bytes. All other settings have the defaults of the file.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: TunnelKind, local: IpAddr, remotes: Vec<IpAddr>) -> Self {
        TunnelConfig {
            name: name.into(),
            kind,
            networks: Vec::new(),
            drops_tags: false,
            local,
            remotes,
            stations: Vec::new(),
            limit: Self::DEFAULT_LIMIT as usize,
            mtu: 1500,
            verify: true,
            zero_checksum: false,
            source_port: None,
            mac: None,
        }
    }

    /// Returns the kind in each network, in the order of `networks`: at least one.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (Option<Network>, Cow<'_, TunnelKind>)> {
        let one = self.networks.is_empty().then_some((None, Cow::Borrowed(&self.kind)));
        let several = self.networks.iter().map(|&network| {
            let kind = self.kind.with_vni(network.vni);
            (Some(network), Cow::Owned(kind))
        });
        one.into_iter().chain(several)
    }
}
