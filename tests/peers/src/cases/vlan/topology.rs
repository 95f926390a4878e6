//! The bridges and ports of the comparison, which are the same for each switch.

/// The TPID of a customer's tag (IEEE 802.1Q, table 9-1).
pub(super) const CUSTOMER: u16 = 0x8100;

/// The TPID of a provider's tag (IEEE 802.1Q, table 9-1).
pub(super) const PROVIDER: u16 = 0x88a8;

/// A bridge whose trunks have tags of one kind.
pub(super) struct VlanBridge {
    pub(super) name: &'static str,
    pub(super) tpid: u16,
}

pub(super) const BRIDGES: [VlanBridge; 2] =
    [VlanBridge { name: "lan", tpid: CUSTOMER }, VlanBridge { name: "provider", tpid: PROVIDER }];

/// A port of a bridge.
pub(super) struct VlanPort {
    pub(super) name: &'static str,
    /// Index in [`BRIDGES`].
    pub(super) bridge: usize,
    pub(super) mode: Mode,
    /// Priority of frames that enter without a tag.
    pub(super) priority: u8,
}

/// The part of a port in VLANs.
pub(super) enum Mode {
    /// Untagged outside.
    Access(u16),
    /// Tagged outside, in these VLANs.
    Trunk(&'static [u16], Option<Native>),
    /// A customer's port: its frames travel in this VLAN, with all their tags.
    Qinq(u16),
}

/// The VLAN of untagged frames on a trunk.
#[derive(Clone, Copy)]
pub(super) struct Native {
    pub(super) vlan: u16,
    /// True if the trunk sends them tagged.
    pub(super) tagged: bool,
}

const fn port(name: &'static str, bridge: usize, mode: Mode) -> VlanPort {
    VlanPort { name, bridge, mode, priority: 0 }
}

const LAN: usize = 0;
const CARRIER: usize = 1;

pub(super) const PORTS: [VlanPort; 11] = [
    port("a10", LAN, Mode::Access(10)),
    VlanPort { priority: 5, ..port("b10", LAN, Mode::Access(10)) },
    port("a20", LAN, Mode::Access(20)),
    port("trunk", LAN, Mode::Trunk(&[10, 20, 30, 31, 32, 33, 34, 35], None)),
    port("untagged", LAN, Mode::Trunk(&[10, 30], Some(Native { vlan: 20, tagged: false }))),
    port("tagged", LAN, Mode::Trunk(&[20, 30, 31], Some(Native { vlan: 10, tagged: true }))),
    port("c100", CARRIER, Mode::Qinq(100)),
    VlanPort { priority: 3, ..port("d100", CARRIER, Mode::Qinq(100)) },
    port("c200", CARRIER, Mode::Qinq(200)),
    port("core", CARRIER, Mode::Trunk(&[100, 200, 300], None)),
    port("edge", CARRIER, Mode::Trunk(&[100, 300], Some(Native { vlan: 200, tagged: false }))),
];

impl VlanPort {
    /// Returns the TPID of its bridge.
    pub(super) fn tpid(&self) -> u16 {
        BRIDGES[self.bridge].tpid
    }

    /// Returns its VLANs.
    pub(super) fn vlans(&self) -> Vec<u16> {
        match &self.mode {
            Mode::Access(vlan) | Mode::Qinq(vlan) => vec![*vlan],
            Mode::Trunk(vlans, native) => vlans.iter().copied().chain(native.map(|native| native.vlan)).collect(),
        }
    }

    /// Returns true if the port is in a VLAN.
    pub(super) fn has(&self, vlan: u16) -> bool {
        self.vlans().contains(&vlan)
    }
}
