//! The other end of a veth interface.

use anyhow::{Context, bail, ensure};
use netlink_packet_core::{Emitable, NlasIterator};
use netlink_packet_route::link::LinkHeader;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Interface;
use crate::netlink;

impl Interface {
    /// Returns the peer of a veth interface, with the same kind of port.
    ///
    /// # Errors
    /// There is no such interface, or its other end is not in this network namespace.
    pub fn peer(&self) -> anyhow::Result<Interface> {
        let name = peer(&self.name).with_context(|| {
            format!("no interface for our switch at the other end of {self}: name it by --switch-interface")
        })?;
        Ok(Interface { kind: self.kind, name })
    }
}

fn peer(name: &str) -> anyhow::Result<String> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let index = name_to_index(&socket, name).with_context(|| format!("there is no interface {name}"))?;
    // Netlink answers for this network namespace. The tree at /sys may be another one's.
    let answer = netlink::ask(libc::RTM_GETLINK, 0, &LinkHeader { index, ..LinkHeader::default() })?;
    let attributes = answer.get(LinkHeader::default().buffer_len()..).unwrap_or_default();
    let peer = index_to_name(&socket, peer_index(attributes, name)?);
    peer.with_context(|| format!("the peer of {name} has gone"))
}

/// Returns the index of the interface's peer, from the attributes of the interface.
fn peer_index(attributes: &[u8], name: &str) -> anyhow::Result<u32> {
    let attributes: Vec<_> = NlasIterator::new(attributes).map_while(Result::ok).collect();
    let find = |kind| attributes.iter().find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value());
    let info = NlasIterator::new(find(libc::IFLA_LINKINFO).unwrap_or_default());
    let mut kinds = info.map_while(Result::ok).filter(|attribute| attribute.kind() == libc::IFLA_INFO_KIND);
    ensure!(kinds.any(|kind| kind.value().starts_with(b"veth")), "{name} is no veth interface");
    if find(libc::IFLA_LINK_NETNSID).is_some() {
        bail!("the peer of {name} is in another network namespace");
    }
    let index = find(libc::IFLA_LINK).and_then(|index| index.first_chunk());
    Ok(u32::from_ne_bytes(*index.with_context(|| format!("{name} has no peer"))?))
}

#[cfg(test)]
mod tests {
    use super::super::InterfaceKind;
    use super::*;

    #[test]
    fn an_interface_without_a_peer_is_told_of() {
        let refused = |name: &str| {
            let error = Interface { kind: InterfaceKind::Tap, name: name.to_owned() }.peer().expect_err("no peer");
            format!("{error:#}")
        };
        assert!(refused("lo").ends_with("--switch-interface: lo is no veth interface"), "{}", refused("lo"));
        assert!(refused("no-such-one").contains("there is no interface no-such-one"), "{}", refused("no-such-one"));
    }

    #[test]
    fn attributes_that_are_cut_short_name_no_peer() {
        let attribute = |kind: u16, value: &[u8]| {
            let len = u16::try_from(4 + value.len()).expect("a few bytes");
            let mut bytes = [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let kind = attribute(libc::IFLA_LINKINFO, &attribute(libc::IFLA_INFO_KIND, b"veth\0"));
        let link = attribute(libc::IFLA_LINK, &7_u32.to_ne_bytes());
        let whole = [kind.clone(), link.clone()].concat();
        assert_eq!(peer_index(&whole, "x").expect("a peer"), 7);
        assert!((0..whole.len()).all(|len| peer_index(&whole[..len], "x").is_err()));
        let elsewhere = [kind, attribute(libc::IFLA_LINK_NETNSID, &0_u32.to_ne_bytes()), link.clone()].concat();
        assert!(peer_index(&elsewhere, "x").expect_err("elsewhere").to_string().contains("another network namespace"));
        assert!(peer_index(&link, "x").expect_err("no kind").to_string().contains("no veth"));
    }
}
