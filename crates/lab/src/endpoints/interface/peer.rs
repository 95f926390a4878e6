//! The other end of a veth interface.

use std::fs;

use anyhow::{Context, ensure};
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Interface;

impl Interface {
    /// Returns the peer of a veth interface, opened by the same kind of port.
    ///
    /// # Errors
    /// There is no such interface, or its other end is not in this network namespace.
    pub fn peer(&self) -> anyhow::Result<Interface> {
        let name = peer(&self.name).with_context(|| {
            format!("cannot find the other end of {}, which our switch is to open: name it", self.name)
        })?;
        Ok(Interface { kind: self.kind, name })
    }
}

fn peer(name: &str) -> anyhow::Result<String> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let index = name_to_index(&socket, name).with_context(|| format!("there is no interface {name}"))?;
    // A tree of another network namespace may be mounted at /sys, so the indexes are compared.
    ensure!(number(name, "ifindex")? == index, "/sys shows another network namespace");
    let linked = number(name, "iflink")?;
    ensure!(linked != index, "{name} is no veth interface");
    let peer = index_to_name(&socket, linked).context("it is in another network namespace")?;
    // If the peer is in another namespace, an interface of ours may have the peer's index by chance.
    ensure!(
        number(&peer, "iflink")? == index && number(&peer, "ifindex")? == linked,
        "it is in another network namespace"
    );
    Ok(peer)
}

/// Reads a number that the kernel tells about an interface.
fn number(name: &str, file: &str) -> anyhow::Result<u32> {
    let path = format!("/sys/class/net/{name}/{file}");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim().parse().with_context(|| path)
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
        assert!(refused("lo").ends_with("name it: lo is no veth interface"), "{}", refused("lo"));
        assert!(refused("no-such-one").contains("there is no interface no-such-one"), "{}", refused("no-such-one"));
    }
}
