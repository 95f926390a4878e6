//! Keys of the table: a group in a VLAN, or the queriers of a protocol there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use straightline_wire::{IpVersion, VlanId};

use super::store;

/// A group in a VLAN. The unspecified address stands for the queriers of IGMP or MLD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub(super) vlan: VlanId,
    pub(super) group: IpAddr,
}

impl GroupKey {
    /// Returns the key of a VLAN's queriers of IGMP (IPv4) or MLD (IPv6).
    pub(super) fn of_queriers(vlan: VlanId, version: IpVersion) -> Self {
        let group = match version {
            IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
            IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        GroupKey { vlan, group }
    }

    /// Returns the key of the queriers that ask for this group.
    #[inline]
    pub(super) fn queriers(self) -> Self {
        Self::of_queriers(self.vlan, if self.group.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 })
    }

    /// Returns whether this is a key of queriers.
    pub(super) fn is_queriers(self) -> bool {
        self.group.is_unspecified()
    }

    /// Returns the key as words. The VLAN is not 0.
    #[inline]
    pub(super) fn words(self) -> store::Key {
        const IS_V6: u64 = 1 << 16;
        let vlan = u64::from(self.vlan.get());
        match self.group {
            IpAddr::V4(group) => [vlan, 0, group.to_bits().into()],
            IpAddr::V6(group) => {
                let [high, low] =
                    [0, 8].map(|at| group.octets()[at..].first_chunk().copied().map_or(0, u64::from_be_bytes));
                [vlan | IS_V6, high, low]
            }
        }
    }
}

/// Returns whether the table knows this group. Packets to others go to all ports: control protocols of a
/// link use them, and hosts need not report them.
///
/// - IPv4: 224.0.0.0/24 (RFC 4541, 2.1.2, 2).
/// - IPv6: the scopes 0 and 1, which hosts never report (RFC 3810, 6), and ff02::/16. That has ff02::1,
///   the solicited-node groups, and the control protocols of a link.
#[inline]
pub(super) fn is_tracked(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group.octets()[..3] != [224, 0, 0],
        IpAddr::V6(group) => {
            let [_, scope, ..] = group.octets();
            group.is_multicast() && scope & 0xf > 1 && scope != 2
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn groups_of_a_link_are_not_tracked() {
        let tracked = |group: &str| is_tracked(group.parse().unwrap());
        for group in
            ["224.0.1.0", "239.255.255.250", "232.1.1.1", "ff05::2", "ff0e::1", "ff12::1", "ff32::8000:1", "ff3e::1"]
        {
            assert!(tracked(group), "{group}");
        }
        for group in ["224.0.0.1", "224.0.0.251", "255.255.255.255", "10.0.0.1", "fe80::1"] {
            assert!(!tracked(group), "{group}");
        }
        for group in ["ff02::1", "ff02::1:ff12:3456", "ff02::fb", "ff01::1", "ff11::2", "ff00::1", "ff30::1"] {
            assert!(!tracked(group), "{group}");
        }
    }

    #[test]
    fn keys_differ_in_their_words() {
        let groups = ["0.0.0.0", "::", "224.1.1.1", "224.1.1.2", "::224.1.1.1", "ff0e::1", "ff0e:0:0:1::"];
        let vlans = [1, 2, 4094].map(|vid| VlanId::new(vid).unwrap());
        let keys = vlans.iter().flat_map(|&vlan| groups.map(|group| GroupKey { vlan, group: group.parse().unwrap() }));
        let words: HashSet<_> = keys.map(GroupKey::words).collect();
        assert_eq!(words.len(), groups.len() * vlans.len());
        assert!(words.iter().all(|words| words[0] != 0));
    }
}
