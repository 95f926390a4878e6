//! The commands of a network device's control queue (virtio 1.2, 5.1.6.5): parses a command's
//! bytes, and changes the state or refuses the command.
//!
//! The caller reads a command once from guest memory, and writes its acknowledgement. The driver's
//! receive settings are recorded and shown to operators. No packet is filtered by them: all of them
//! are best effort (5.1.6.5.1, 5.1.6.5.3: "unwanted packets could still arrive"). The guest filters
//! all packets from a bridge itself in any case.
//!
//! ```
//! use straightline_virtio::features::{VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_VQ};
//! use straightline_virtio::net_control::{CommandOutcome, NetControl};
//!
//! let mut control = NetControl::new(VIRTIO_NET_F_CTRL_VQ | VIRTIO_NET_F_CTRL_RX, 1);
//! // VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, on.
//! assert_eq!(control.execute(&[0, 1, 1]), Some(CommandOutcome::Recorded));
//! assert!(control.rx_filter().all_multicast);
//! ```

mod saved;

use crate::features as f;

pub use saved::{SavedState, SavedStateError};

/// Bytes of the longest command that is read: an address table of more than two thousand entries.
pub const LONGEST: usize = 16 << 10;

/// Acknowledgement (5.1.6.5): the command was executed.
pub const OK: u8 = 0;
/// Acknowledgement: the command was not executed.
pub const ERR: u8 = 1;

/// The offloads that a driver can turn on and off (5.1.6.5.8). Their bits are the bits of the
/// features.
const OFFLOADS: u64 = f::VIRTIO_NET_F_GUEST_CSUM
    | f::VIRTIO_NET_F_GUEST_TSO4
    | f::VIRTIO_NET_F_GUEST_TSO6
    | f::VIRTIO_NET_F_GUEST_ECN
    | f::VIRTIO_NET_F_GUEST_UFO
    | f::VIRTIO_NET_F_GUEST_USO4
    | f::VIRTIO_NET_F_GUEST_USO6;

/// The number of VLANs: 12 bits of a tag (IEEE 802.1Q, 9.6).
const VLANS: usize = 4096;

/// The driver's receive settings. They are recorded, not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxFilter {
    /// Receive everything.
    pub promiscuous: bool,
    /// Receive every multicast frame.
    pub all_multicast: bool,
    /// Receive every unicast frame.
    pub all_unicast: bool,
    /// Receive no multicast frame.
    pub no_multicast: bool,
    /// Receive no unicast frame.
    pub no_unicast: bool,
    /// Receive no broadcast frame.
    pub no_broadcast: bool,
    /// The driver's own address, if it has set one.
    pub mac: Option<[u8; 6]>,
    /// Further unicast addresses.
    pub unicast: Vec<[u8; 6]>,
    /// Multicast addresses.
    pub multicast: Vec<[u8; 6]>,
}

/// The outcome of an executed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The setting is recorded. Nothing else has to be done.
    Recorded,
    /// The driver has announced itself. The status in the configuration space must stop asking for
    /// an announcement (5.1.6.5.4).
    Announced,
    /// The queue pairs or the offloads have changed. The change must take effect before the command
    /// is acknowledged.
    Changed,
}

/// The part of the device's state that the driver sets by commands.
#[derive(Clone, Debug)]
pub struct NetControl {
    acked: u64,
    max_pairs: u16,
    rx_filter: RxFilter,
    vlans: Box<[bool]>,
    pairs: u16,
    offloads: u64,
}

impl NetControl {
    /// Creates the state after a reset, for a driver that negotiated the features `acked`.
    pub fn new(acked: u64, max_pairs: u16) -> Self {
        NetControl {
            acked,
            max_pairs,
            rx_filter: RxFilter {
                promiscuous: true,
                all_multicast: false,
                all_unicast: false,
                no_multicast: false,
                no_unicast: false,
                no_broadcast: false,
                mac: None,
                unicast: Vec::new(),
                multicast: Vec::new(),
            },
            vlans: vec![false; VLANS].into(),
            // 5.1.6.5.5: one pair until the driver asks for more.
            pairs: 1,
            // 5.1.6.5.8: all negotiated offloads, until the driver asks for fewer.
            offloads: acked & OFFLOADS,
        }
    }

    /// Returns the driver's receive settings.
    pub fn rx_filter(&self) -> &RxFilter {
        &self.rx_filter
    }

    /// Returns the VLANs that the driver wants to receive.
    pub fn vlans(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&*self.vlans).filter(|(_, is_set)| **is_set).map(|(vlan, _)| vlan)
    }

    /// Returns the number of queue pairs that the driver uses.
    pub fn pairs(&self) -> u16 {
        self.pairs
    }

    /// Returns the negotiated features, without the offloads that the driver has turned off.
    pub fn features(&self) -> u64 {
        self.acked & !OFFLOADS | self.offloads
    }

    /// Executes a command: class, command, and its data. Returns `None`, and changes nothing, if
    /// the command cannot be executed.
    pub fn execute(&mut self, command: &[u8]) -> Option<CommandOutcome> {
        let (&[class, command], data) = command.split_first_chunk()?;
        match class {
            0 => self.set_mode(command, data),
            1 => self.set_addresses(command, data),
            2 => self.set_vlan(command, data),
            3 if command == 0 && self.has(f::VIRTIO_NET_F_GUEST_ANNOUNCE) => Some(CommandOutcome::Announced),
            4 if command == 0 && self.has(f::VIRTIO_NET_F_MQ) => {
                let pairs = u16::from_le_bytes(data.try_into().ok()?);
                let pairs = Some(pairs).filter(|pairs| (1..=self.max_pairs).contains(pairs))?;
                Some(changed(&mut self.pairs, pairs))
            }
            5 if command == 0 && self.has(f::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS) => {
                let offloads = u64::from_le_bytes(data.try_into().ok()?);
                // 5.1.6.5.8.1: only what was negotiated.
                let offloads = Some(offloads).filter(|offloads| offloads & !(self.acked & OFFLOADS) == 0)?;
                Some(changed(&mut self.offloads, offloads))
            }
            _ => None,
        }
    }

    fn has(&self, feature: u64) -> bool {
        self.acked & feature != 0
    }

    fn set_mode(&mut self, command: u8, data: &[u8]) -> Option<CommandOutcome> {
        let &[on @ 0..=1] = data else { return None };
        let feature = if command < 2 { f::VIRTIO_NET_F_CTRL_RX } else { f::VIRTIO_NET_F_CTRL_RX_EXTRA };
        if !self.has(feature) {
            return None;
        }
        let rx_filter = &mut self.rx_filter;
        let mode = match command {
            0 => &mut rx_filter.promiscuous,
            1 => &mut rx_filter.all_multicast,
            2 => &mut rx_filter.all_unicast,
            3 => &mut rx_filter.no_multicast,
            4 => &mut rx_filter.no_unicast,
            5 => &mut rx_filter.no_broadcast,
            _ => return None,
        };
        *mode = on == 1;
        Some(CommandOutcome::Recorded)
    }

    fn set_addresses(&mut self, command: u8, data: &[u8]) -> Option<CommandOutcome> {
        match command {
            0 if self.has(f::VIRTIO_NET_F_CTRL_RX) => {
                let (unicast, rest) = addresses(data)?;
                let (multicast, rest) = addresses(rest)?;
                if !rest.is_empty() {
                    return None;
                }
                (self.rx_filter.unicast, self.rx_filter.multicast) = (unicast, multicast);
            }
            1 if self.has(f::VIRTIO_NET_F_CTRL_MAC_ADDR) => self.rx_filter.mac = Some(data.try_into().ok()?),
            _ => return None,
        }
        Some(CommandOutcome::Recorded)
    }

    fn set_vlan(&mut self, command: u8, data: &[u8]) -> Option<CommandOutcome> {
        let vlan = u16::from_le_bytes(data.try_into().ok()?);
        let is_set = self.vlans.get_mut(usize::from(vlan)).filter(|_| self.acked & f::VIRTIO_NET_F_CTRL_VLAN != 0)?;
        *is_set = match command {
            0 => true,
            1 => false,
            _ => return None,
        };
        Some(CommandOutcome::Recorded)
    }
}

/// Splits off a table of addresses behind its count, and returns the rest (5.1.6.5.2).
fn addresses(data: &[u8]) -> Option<(Vec<[u8; 6]>, &[u8])> {
    let (&count, rest) = data.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(count)).ok()?.checked_mul(6)?;
    let (table, rest) = rest.split_at_checked(len)?;
    Some((table.as_chunks().0.to_vec(), rest))
}

/// Sets a value. A guest that repeats the same command must not disturb workers each time, so an
/// equal value changes nothing.
fn changed<T: PartialEq>(value: &mut T, new: T) -> CommandOutcome {
    if std::mem::replace(value, new) == *value { CommandOutcome::Recorded } else { CommandOutcome::Changed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> NetControl {
        NetControl::new(u64::MAX, 4)
    }

    #[test]
    fn modes() {
        let mut control = all();
        assert!(control.rx_filter().promiscuous);
        for command in 0..6 {
            for on in [1, 0] {
                assert_eq!(control.execute(&[0, command, on]), Some(CommandOutcome::Recorded));
                let r = control.rx_filter();
                let modes =
                    [r.promiscuous, r.all_multicast, r.all_unicast, r.no_multicast, r.no_unicast, r.no_broadcast];
                assert_eq!(modes[usize::from(command)], on == 1);
            }
        }
        for bad in [&[0, 0, 2][..], &[0, 0], &[0, 0, 1, 1], &[0, 6, 1], &[0], &[], &[6, 0, 1]] {
            assert_eq!(control.execute(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn addresses_and_vlans() {
        let mut control = all();
        let mut table = vec![1, 0, 2, 0, 0, 0];
        table.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(control.execute(&table), Some(CommandOutcome::Recorded));
        assert_eq!(
            (control.rx_filter().unicast.len(), &*control.rx_filter().multicast),
            (2, &[[0x33, 0x33, 0, 0, 0, 1]][..])
        );
        let before = control.rx_filter().clone();
        for cut in 2..table.len() {
            assert_eq!(control.execute(&table[..cut]), None, "{cut}");
        }
        // Counts larger than the table.
        for lie in [[3, 0, 0, 0], [0, 0, 0, 0x80], [0xff; 4]] {
            table[2..6].copy_from_slice(&lie);
            assert_eq!(control.execute(&table), None, "{lie:?}");
        }
        assert_eq!(*control.rx_filter(), before);
        assert_eq!(control.execute(&[1, 1, 2, 0, 0, 0, 0, 9]), Some(CommandOutcome::Recorded));
        assert_eq!(control.rx_filter().mac, Some([2, 0, 0, 0, 0, 9]));
        assert_eq!(control.execute(&[1, 1, 2, 0, 0, 0, 0]), None);

        for vlan in [7, 4095_u16] {
            assert_eq!(control.execute(&[&[2, 0][..], &vlan.to_le_bytes()].concat()), Some(CommandOutcome::Recorded));
        }
        assert_eq!(control.execute(&[2, 0, 0, 0x10]), None, "4096");
        assert_eq!(control.execute(&[2, 1, 7, 0]), Some(CommandOutcome::Recorded));
        assert_eq!(control.vlans().collect::<Vec<_>>(), [4095]);
    }

    #[test]
    fn pairs_offloads_and_announcement() {
        let mut control = all();
        assert_eq!(control.pairs(), 1);
        assert_eq!(control.execute(&[4, 0, 4, 0]), Some(CommandOutcome::Changed));
        assert_eq!(control.execute(&[4, 0, 4, 0]), Some(CommandOutcome::Recorded), "as it was");
        for bad in [&[4, 0, 0, 0][..], &[4, 0, 5, 0], &[4, 0, 4], &[4, 1, 1, 0]] {
            assert_eq!(control.execute(bad), None);
        }
        assert_eq!(control.pairs(), 4);
        assert_eq!(control.execute(&[3, 0]), Some(CommandOutcome::Announced));
        let offloads = |bits: u64| [&[5, 0][..], &bits.to_le_bytes()].concat();
        assert_eq!(control.execute(&offloads(f::VIRTIO_NET_F_GUEST_CSUM)), Some(CommandOutcome::Changed));
        assert_eq!(control.execute(&offloads(f::VIRTIO_NET_F_GUEST_CSUM)), Some(CommandOutcome::Recorded), "as it was");
        assert_eq!(control.features() & OFFLOADS, f::VIRTIO_NET_F_GUEST_CSUM);
        assert_eq!(control.features() | OFFLOADS, u64::MAX);
        assert_eq!(control.execute(&offloads(1)), None, "the device's own");
    }

    #[test]
    fn nothing_without_its_feature() {
        let mut control = NetControl::new(f::VIRTIO_NET_F_CTRL_VQ, 4);
        let commands: [&[u8]; 8] = [
            &[0, 0, 1],
            &[0, 2, 1],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 1, 2, 0, 0, 0, 0, 9],
            &[2, 0, 1, 0],
            &[3, 0],
            &[4, 0, 1, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert!(commands.iter().all(|command| control.execute(command).is_none()));
        assert!(commands.iter().all(|command| all().execute(command).is_some()));
    }
}
