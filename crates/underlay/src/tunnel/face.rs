//! The Ethernet face of a tunnel that carries IP: the Ethernet header that its packets get inside.
//!
//! Stations inside see one more station, which has all far addresses. That station is the tunnel.

use std::sync::atomic::{AtomicU64, Ordering};

use straightline_wire::{EtherType, MacAddr, ethernet};

use crate::underlay::neighbours::is_station;

/// The state in which no station was heard yet.
const NONE: u64 = 0;

/// The Ethernet face of a tunnel.
#[derive(Debug)]
pub(crate) struct Face {
    mac: MacAddr,
    /// The station inside: the address of the one heard last, as a number, or [`NONE`].
    inside: AtomicU64,
}

impl Face {
    /// Returns the face with this address.
    pub(crate) fn new(mac: MacAddr) -> Self {
        Face { mac, inside: AtomicU64::new(NONE) }
    }

    /// Returns the tunnel's own address.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Returns the destination of packets that leave the tunnel: the station that was heard last, so
    /// that one with a new address is found at its first packet. Broadcast while none was heard.
    #[inline]
    pub(crate) fn inside(&self) -> MacAddr {
        match self.inside.load(Ordering::Relaxed) {
            NONE => MacAddr::BROADCAST,
            mac => {
                let [_, _, bytes @ ..] = mac.to_be_bytes();
                MacAddr(bytes)
            }
        }
    }

    /// Learns the address of a station inside, the source of a packet for the tunnel.
    #[inline]
    pub(crate) fn learn(&self, mac: MacAddr) {
        // Packets of all workers read the word, so it is written only if it changes.
        if self.inside.load(Ordering::Relaxed) != mac.as_u64() && is_station(mac) {
            self.inside.store(mac.as_u64(), Ordering::Relaxed);
        }
    }

    /// Returns the Ethernet header of a packet that leaves the tunnel.
    #[inline]
    pub(crate) fn header(&self, ether_type: EtherType) -> [u8; ethernet::LEN] {
        let mut bytes = [0; ethernet::LEN];
        bytes[..6].copy_from_slice(&self.inside().0);
        bytes[6..12].copy_from_slice(&self.mac.0);
        bytes[12..].copy_from_slice(&ether_type.0.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_station_heard_last_is_addressed() {
        let [own, a, b] = [1, 2, 3].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        let face = Face::new(own);
        assert_eq!(face.inside(), MacAddr::BROADCAST);
        face.learn(MacAddr::default());
        face.learn(a);
        face.learn(a);
        assert_eq!((face.inside(), face.mac()), (a, own));
        assert_eq!(face.header(EtherType::IPV6), [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        face.learn(b);
        assert_eq!(face.inside(), b, "its address has changed");
        for none in [MacAddr::default(), MacAddr::BROADCAST] {
            face.learn(none);
            assert_eq!(face.inside(), b);
        }
    }
}
