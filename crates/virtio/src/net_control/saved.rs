//! A device's state as bytes, for a frontend that migrates its guest (vhost-user, "Migrating
//! back-end state"). The state holds the settings that the driver has made by commands. It holds
//! nothing that is in guest memory, and nothing that a frontend sets up again at the destination.
//!
//! Numbers are little-endian.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `SL-net-1`: the kind of the device and of the format |
//! | 8 | 2 | version of the format: 1 |
//! | 10 | 2 | bit 0: the driver has still to announce itself; bit 1: it has set an address; others 0 |
//! | 12 | 4 | bytes of the whole state |
//! | 16 | 8 | the negotiated features, without those between frontend and backend |
//! | 24 | 8 | the offloads that are on |
//! | 32 | 2 | queue pairs in use |
//! | 34 | 2 | receive modes in the order of their commands (virtio 1.2, 5.1.6.5.1), from bit 0 on; others 0 |
//! | 36 | 6 | the address that the driver has set, or zeros |
//! | 42 | 2 | number of unicast addresses |
//! | 44 | 2 | number of multicast addresses |
//! | 46 | 512 | VLANs that the driver wants to receive, a bit for each |
//! | 558 | 6 each | the unicast, then the multicast addresses |
//! | at the end | 4 | CRC-32 (IEEE 802.3, 3.2.9) of all bytes before |
//!
//! Each state has exactly one form, and nothing else is accepted.

use az::SaturatingAs;

use super::{LONGEST, NetControl, OFFLOADS, RxFilter, VLANS};
use crate::features as f;

const KIND: [u8; 8] = *b"SL-net-1";
const VERSION: u16 = 1;
/// Bytes before the addresses.
const HEAD: usize = 46 + VLANS / 8;
const CRC: usize = 4;

const ANNOUNCES: u16 = 1;
const HAS_MAC: u16 = 2;

/// Features that a frontend negotiates for itself: they may differ at the destination.
const NOT_THE_DRIVER_S: u64 = f::VHOST_F_LOG_ALL | f::VHOST_USER_F_PROTOCOL_FEATURES;

/// A device's state, on its way from one backend to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    features: u64,
    offloads: u64,
    pairs: u16,
    announces: bool,
    rx_filter: RxFilter,
    vlans: Box<[bool]>,
}

/// The reason why bytes are not a valid state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedStateError {
    /// The state is too short or too long.
    #[error("it has {0} bytes; expected {least} to {most}", least = HEAD + CRC, most = SavedState::LONGEST)]
    Length(usize),
    /// The state does not begin with the identifier of this format.
    #[error("the saved state is not the state of a network device of this switch")]
    Kind,
    /// The format has an unknown version.
    #[error("its format is version {0}; expected version {VERSION}")]
    Version(u16),
    /// The length in the head is not the number of bytes.
    #[error("its header gives a length of {said} bytes, but it has {got}")]
    Truncated {
        /// Length according to the field in the head.
        said: u32,
        /// Bytes that were read.
        got: usize,
    },
    /// The checksum does not match.
    #[error("its checksum does not match its contents")]
    Checksum,
    /// A field has an invalid value.
    #[error("it has an invalid value for its {0}")]
    Value(&'static str),
}

impl SavedState {
    /// Bytes of the longest state: with as many addresses as a command can set.
    pub const LONGEST: usize = HEAD + LONGEST + CRC;

    /// Returns the features that were negotiated with the driver.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns whether the state was saved with these features, apart from those that the frontend
    /// negotiated for itself.
    pub fn fits(&self, acked: u64) -> bool {
        self.features == acked & !NOT_THE_DRIVER_S
    }

    /// Returns the number of queue pairs in use.
    pub fn pairs(&self) -> u16 {
        self.pairs
    }

    /// Returns whether the driver must still announce itself.
    pub fn announces(&self) -> bool {
        self.announces
    }

    /// Returns the bytes to send.
    pub fn to_bytes(&self) -> Vec<u8> {
        let RxFilter { mac, unicast, multicast, .. } = &self.rx_filter;
        let flags = if self.announces { ANNOUNCES } else { 0 } | if mac.is_some() { HAS_MAC } else { 0 };
        let modes = modes(&self.rx_filter).into_iter().rev().fold(0_u16, |bits, on| bits << 1 | u16::from(on));
        let count = |table: &[[u8; 6]]| table.len().saturating_as::<u16>().to_le_bytes();
        let len = HEAD + 6 * (unicast.len() + multicast.len()) + CRC;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(KIND);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(len.saturating_as::<u32>().to_le_bytes());
        bytes.extend(self.features.to_le_bytes());
        bytes.extend(self.offloads.to_le_bytes());
        bytes.extend(self.pairs.to_le_bytes());
        bytes.extend(modes.to_le_bytes());
        bytes.extend(mac.unwrap_or_default());
        bytes.extend(count(unicast));
        bytes.extend(count(multicast));
        let eight = |bits: &[bool]| bits.iter().rev().fold(0_u8, |byte, on| byte << 1 | u8::from(*on));
        bytes.extend(self.vlans.chunks(8).map(eight));
        bytes.extend(unicast.iter().chain(multicast).flatten());
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid state. The bytes are not trusted.
    pub fn read(bytes: &[u8]) -> Result<Self, SavedStateError> {
        let got = bytes.len();
        let wrong = SavedStateError::Length(got);
        let (all, sum) = bytes.split_last_chunk::<CRC>().filter(|_| got <= Self::LONGEST).ok_or(wrong)?;
        let (head, tables) = all.split_first_chunk::<HEAD>().ok_or(wrong)?;
        let mut fields = Fields(head);
        if fields.take() != Some(KIND) {
            return Err(SavedStateError::Kind);
        }
        let version = fields.u16().ok_or(wrong)?;
        if version != VERSION {
            return Err(SavedStateError::Version(version));
        }
        let flags = fields.u16().ok_or(wrong)?;
        let said = fields.take().map(u32::from_le_bytes).ok_or(wrong)?;
        if usize::try_from(said) != Ok(got) {
            return Err(SavedStateError::Truncated { said, got });
        }
        if *sum != crc(all).to_le_bytes() {
            return Err(SavedStateError::Checksum);
        }
        let features = fields.take().map(u64::from_le_bytes).ok_or(wrong)?;
        let offloads = fields.take().map(u64::from_le_bytes).ok_or(wrong)?;
        let pairs = fields.u16().ok_or(wrong)?;
        let modes = fields.u16().ok_or(wrong)?;
        let mac = fields.take().ok_or(wrong)?;
        let unicast = fields.u16().ok_or(wrong)?;
        let multicast = fields.u16().ok_or(wrong)?;
        let vlans = fields.0.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();

        let (addresses, rest) = tables.as_chunks::<6>();
        let counted = usize::from(unicast) + usize::from(multicast) == addresses.len() && rest.is_empty();
        let has_mac = flags & HAS_MAC != 0;
        for (what, right) in [
            ("flags", flags & !(ANNOUNCES | HAS_MAC) == 0),
            ("features", features & NOT_THE_DRIVER_S == 0),
            ("offloads", offloads & !(features & OFFLOADS) == 0),
            ("number of queue pairs", pairs == 1 || pairs > 1 && features & f::VIRTIO_NET_F_MQ != 0),
            ("receive modes", modes < 1 << MODES),
            ("address", has_mac || mac == [0; 6]),
            ("number of addresses", counted),
        ] {
            if !right {
                return Err(SavedStateError::Value(what));
            }
        }
        let (unicast, multicast) = addresses.split_at(usize::from(unicast));
        let on = |mode: u16| modes >> mode & 1 == 1;
        let rx_filter = RxFilter {
            promiscuous: on(0),
            all_multicast: on(1),
            all_unicast: on(2),
            no_multicast: on(3),
            no_unicast: on(4),
            no_broadcast: on(5),
            mac: has_mac.then_some(mac),
            unicast: unicast.to_vec(),
            multicast: multicast.to_vec(),
        };
        Ok(SavedState { features, offloads, pairs, announces: flags & ANNOUNCES != 0, rx_filter, vlans })
    }
}

impl NetControl {
    /// Returns the state, with which another backend can continue. `announces`: the configuration
    /// space asks the driver to announce itself.
    pub fn save(&self, announces: bool) -> SavedState {
        SavedState {
            features: self.acked & !NOT_THE_DRIVER_S,
            offloads: self.offloads,
            pairs: self.pairs,
            announces,
            rx_filter: self.rx_filter.clone(),
            vlans: self.vlans.clone(),
        }
    }

    /// Continues with a state that was saved elsewhere, for a driver that negotiated the same
    /// features. Returns `None` with other features, or if `max_pairs` is less than the pairs in
    /// use.
    pub fn restore(saved: &SavedState, acked: u64, max_pairs: u16) -> Option<Self> {
        (saved.fits(acked) && saved.pairs <= max_pairs).then(|| NetControl {
            acked,
            max_pairs,
            rx_filter: saved.rx_filter.clone(),
            vlans: saved.vlans.clone(),
            pairs: saved.pairs,
            offloads: saved.offloads,
        })
    }
}

const MODES: usize = 6;

/// Returns the receive modes in the order of their commands.
fn modes(r: &RxFilter) -> [bool; MODES] {
    [r.promiscuous, r.all_multicast, r.all_unicast, r.no_multicast, r.no_unicast, r.no_broadcast]
}

/// Returns the CRC-32, computed bit by bit: states are short and rare.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// A reader that takes fields off the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: u64 = !NOT_THE_DRIVER_S;

    /// Returns a device whose driver has sent commands of each kind.
    fn set_up() -> NetControl {
        let mut control = NetControl::new(u64::MAX, 4);
        let offloads = f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_USO6;
        let table = [&[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 2, 0, 0, 0][..], &[0x33; 6], &[0x35; 6]].concat();
        for command in [
            &[0, 0, 0][..],
            &[0, 1, 1],
            &[0, 5, 1],
            &table,
            &[1, 1, 2, 0, 0, 0, 0, 9],
            &[2, 0, 42, 0],
            &[2, 0, 0xff, 0x0f],
            &[4, 0, 3, 0],
            &[&[5, 0][..], &offloads.to_le_bytes()].concat(),
        ] {
            assert!(control.execute(command).is_some(), "{command:?}");
        }
        control
    }

    /// Returns the bytes with a checksum that matches.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        let end = bytes.len() - CRC;
        let sum = crc(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        bytes
    }

    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_is_saved_here_goes_on_there() {
        let control = set_up();
        for announces in [false, true] {
            let saved = control.save(announces);
            let bytes = saved.to_bytes();
            assert_eq!(bytes.len(), 558 + 3 * 6 + 4);
            let flags = 2 | u8::from(announces);
            assert_eq!(bytes[..16], [&b"SL-net-1"[..], &[1, 0, flags, 0, 0x44, 2, 0, 0]].concat());
            assert_eq!(SavedState::read(&bytes).as_ref(), Ok(&saved));
            assert_eq!(saved.announces(), announces);
            // The log and the frontend's own features may differ.
            let there = NetControl::restore(&saved, ALL, 4).expect("the same features");
            assert_eq!((there.rx_filter(), there.pairs()), (control.rx_filter(), 3));
            assert!(there.vlans().eq([42, 4095]));
            assert_eq!(there.features() & OFFLOADS, f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_USO6);
            assert_eq!(there.save(announces), saved);
            assert!(NetControl::restore(&saved, ALL, 2).is_none(), "three pairs are in use");
            assert!(NetControl::restore(&saved, ALL & !f::VIRTIO_NET_F_CSUM, 4).is_none());
        }
        let untouched = NetControl::new(0, 1).save(false);
        assert_eq!(SavedState::read(&untouched.to_bytes()), Ok(untouched));
    }

    #[test]
    fn bytes_that_are_no_state_are_refused_in_words() {
        let bytes = set_up().save(false).to_bytes();
        for cut in 0..bytes.len() {
            assert!(SavedState::read(&bytes[..cut]).is_err(), "{cut}");
        }
        let error = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            (SavedState::read(&bytes).expect_err("another byte"), SavedState::read(&summed(bytes)))
        };
        assert_eq!(SavedState::read(&[]), Err(SavedStateError::Length(0)));
        assert_eq!(
            SavedState::read(&vec![0; SavedState::LONGEST + 1]),
            Err(SavedStateError::Length(SavedState::LONGEST + 1))
        );
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(SavedState::read(&longer), Err(SavedStateError::Truncated { said: 580, got: 581 }));
        assert_eq!(error(0, 0).0, SavedStateError::Kind);
        assert_eq!(error(8, 2).0, SavedStateError::Version(2));
        assert_eq!(error(100, 0xaa).0, SavedStateError::Checksum);
        for (at, value, what) in [
            (10, 7, "flags"),
            (11, 1, "flags"),
            (10, 0, "address"),
            (19, 0xff, "features"),
            (24, 1, "offloads"),
            (32, 0, "number of queue pairs"),
            (34, 0x40, "receive modes"),
            (35, 1, "receive modes"),
            (42, 2, "number of addresses"),
            (45, 0xff, "number of addresses"),
        ] {
            assert_eq!(error(at, value).1, Err(SavedStateError::Value(what)), "{at}");
        }
        // The table has a kilobyte more than its counts.
        let mut longer = [&bytes[..bytes.len() - CRC], &[0; 1024 + CRC]].concat();
        let len = u32::try_from(longer.len()).expect("short");
        longer[12..16].copy_from_slice(&len.to_le_bytes());
        assert_eq!(SavedState::read(&summed(longer)), Err(SavedStateError::Value("number of addresses")));
        // Pairs need the feature.
        let mut saved = set_up().save(false);
        saved.features &= !f::VIRTIO_NET_F_MQ;
        assert_eq!(SavedState::read(&saved.to_bytes()), Err(SavedStateError::Value("number of queue pairs")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            changes in proptest::collection::vec((0..580_usize, any::<u8>()), 0..6),
            sums: bool,
        ) {
            let _ = SavedState::read(&bytes);
            // Bytes near a valid state. A state that is accepted is written back unchanged.
            let mut near = set_up().save(true).to_bytes();
            changes.iter().for_each(|(at, byte)| near[*at] = *byte);
            let near = if sums { summed(near) } else { near };
            if let Ok(saved) = SavedState::read(&near) {
                prop_assert_eq!(saved.to_bytes(), near);
            }
        }
    }
}
