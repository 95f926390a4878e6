//! The word of a station: VLAN, MAC address and port in 64 bits.
//!
//! A VLAN and a MAC address have 60 bits, a port up to 16, and there are no atomics of 128 bits. So
//! the word leaves out what its place in the table says already (*quotienting*: Knuth, volume 3,
//! exercise 6.4-13; Cleary 1984). A table has 2^q slots. A secret permutation of 60 bits scatters the
//! keys ([`Permutation`]). The lower q bits of the result are the *home* slot, the upper ones the
//! *remainder*:
//!
//! ```text
//! permutation of the key:  | remainder: 60 - q bits | home: q | 0: 4 |
//!
//! word:                    | remainder: 60 - q bits | distance: 6 | port + 1: q - 2 |
//! ```
//!
//! A port takes at most 17 of its bits. If the home is taken, the word lies up to 63 slots behind it.
//! *Distance* says how far.
//!
//! # No reader confuses two stations
//!
//! A reader has found a word in slot `s`. It read the word in one load, so remainder, distance and
//! port were written together. It knows `s`, because it chose the slot itself. Then there is only
//! one key that the word can belong to:
//!
//! 1. The home is `s` - distance, modulo 2^q.
//! 2. Remainder and home are the permutation of the key.
//! 3. A permutation has one key for each result.
//!
//! So (`s`, word) names one VLAN, one MAC address and one port, whatever other words a writer changes
//! meanwhile. [`Layout::key`] does these steps, and a test compares it with the way there for
//! generated keys. [`Layout::matches`] compares remainder and distance only. That is the same: in a
//! given slot, these two determine the key.
//!
//! A free slot is 0. No word is 0: it has its port plus 1.
//!
//! # Addresses that guests choose
//!
//! Guests invent addresses in a row, or with a common end. Whatever they choose must be scattered
//! over the table: a row of 64 taken slots leaves a station without a place. So the home depends on
//! all bits of the key and on the secret.

use std::hash::BuildHasher;

use straightline_wire::{MacAddr, VlanId};

/// Number of slots in which a word may be: its home and those behind it.
pub(crate) const WINDOW: usize = 1 << DISTANCE_BITS;

const KEY_BITS: u32 = 60;
const MAC_BITS: u32 = 48;
const DISTANCE_BITS: u32 = 6;
/// Bits of a word that are not the key's.
const SPARE_BITS: u32 = u64::BITS - KEY_BITS;
/// Least q: no word is further from its home than there are slots.
const LEAST: u32 = DISTANCE_BITS;
/// Greatest q.
const MOST: u32 = MAC_BITS;

/// A station: a MAC address in a VLAN. It is one number of 60 bits, the key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station(u64);

impl Station {
    /// Returns the station with this address.
    #[inline]
    #[must_use]
    pub fn new(vlan: VlanId, mac: MacAddr) -> Self {
        Self::of_number(vlan, mac.as_u64())
    }

    /// Returns the station whose address is this number ([`MacAddr::as_u64`]). Higher bits do not
    /// count. A caller that has read the address as a number saves some steps.
    #[inline]
    #[must_use]
    pub fn of_number(vlan: VlanId, mac: u64) -> Self {
        Station(u64::from(vlan.get()) << MAC_BITS | mac & ((1 << MAC_BITS) - 1))
    }

    /// Returns the number of 60 bits: VLAN, then address.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns the address.
    #[must_use]
    pub fn mac(self) -> MacAddr {
        MacAddr::from_u64(self.0)
    }

    /// Returns the VLAN. It is [`VlanId::DEFAULT`] for a number that no station has.
    #[must_use]
    pub fn vlan(self) -> VlanId {
        let [high, low, ..] = self.0.to_be_bytes();
        VlanId::new(u16::from_be_bytes([high, low])).unwrap_or_default()
    }
}

/// Remainder and distance of a key in one slot, at their places in a word. All other bits are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity(u64);

/// A secret permutation of the numbers of 60 bits. They are the upper bits of a word: so a product
/// modulo 2^64 is one modulo 2^60, and the lower bits stay 0.
///
/// It multiplies by a secret odd number, which carries lower bits up, between shifts that carry upper
/// bits down. Each of these steps can be undone.
#[derive(Clone, Debug)]
struct Permutation {
    factors: [u64; 2],
}

impl Permutation {
    fn new(secret: &impl BuildHasher) -> Self {
        Permutation { factors: [1_u64, 2].map(|nth| secret.hash_one(nth) | 1) }
    }

    #[inline]
    fn apply(&self, number: u64) -> u64 {
        let [first, second] = self.factors;
        folded(folded(folded(number).wrapping_mul(first)).wrapping_mul(second))
    }

    fn undo(&self, result: u64) -> u64 {
        let [first, second] = self.factors.map(inverse);
        folded(folded(folded(result).wrapping_mul(second)).wrapping_mul(first))
    }
}

/// Adds the upper half of the bits of a number to its lower half. Twice is nothing.
#[inline]
fn folded(number: u64) -> u64 {
    number ^ (number >> (KEY_BITS / 2) & (!0 << SPARE_BITS))
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's method: each step doubles the
/// number of right bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |known, _| known.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(known))))
}

/// Layout of the words of a table with 2^q slots.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The number of slots less one.
    slots: usize,
    /// Bits of the remainder.
    remainder: u64,
    /// A distance of 1.
    step: u64,
    /// Bits of the port plus 1.
    port: u64,
    permutation: Permutation,
}

impl Layout {
    /// Returns the layout of a table with at least `slots` slots, and enough for each of `ports`
    /// port indices: a word has a bit more for its port with each doubling of the table.
    pub(crate) fn new(slots: usize, ports: usize, secret: &impl BuildHasher) -> Self {
        // A port has q - 2 bits, and 0 is none.
        let least = slots.max((ports + 1).saturating_mul(4)).max(1);
        Self::with_bits(least.next_power_of_two().trailing_zeros().clamp(LEAST, MOST), secret)
    }

    fn with_bits(q: u32, secret: &impl BuildHasher) -> Self {
        let step = 1 << (q + SPARE_BITS - DISTANCE_BITS);
        Layout {
            slots: (1 << q) - 1,
            remainder: !0 << (q + SPARE_BITS),
            step,
            port: (step - 1) & ((1 << 17) - 1),
            permutation: Permutation::new(secret),
        }
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots + 1
    }

    /// Returns the slot at this distance behind another one.
    #[inline]
    pub(crate) fn behind(&self, slot: usize, distance: usize) -> usize {
        slot.wrapping_add(distance) & self.slots
    }

    /// Returns the slots between a home and a slot behind it.
    pub(crate) fn between(&self, home: usize, slot: usize) -> usize {
        slot.wrapping_sub(home) & self.slots
    }

    /// Returns the home of a key, and its identity there.
    #[inline]
    pub(crate) fn home(&self, key: Station) -> (usize, Identity) {
        let scattered = self.permutation.apply(key.0 << SPARE_BITS);
        (low(scattered >> SPARE_BITS) & self.slots, Identity(scattered & self.remainder))
    }

    /// Returns the identity of the same key one slot further. The caller counts: there are
    /// [`WINDOW`] of them.
    #[inline]
    pub(crate) fn further(&self, identity: Identity) -> Identity {
        Identity(identity.0 + self.step)
    }

    /// Returns whether a word has this identity.
    #[inline]
    pub(crate) fn matches(&self, word: u64, identity: Identity) -> bool {
        // The bits of remainder and distance are equal if the difference is below them.
        word ^ identity.0 < self.step
    }

    /// Returns the word of a station in the slot of this identity.
    pub(crate) fn word(&self, identity: Identity, port: u16) -> u64 {
        identity.0 | self.port_bits(port)
    }

    /// Returns the word of the same station at another port.
    pub(crate) fn with_port(&self, word: u64, port: u16) -> u64 {
        word & !self.port | self.port_bits(port)
    }

    /// Returns the word of the same station so many slots nearer to its home.
    pub(crate) fn nearer(&self, word: u64, slots: usize) -> u64 {
        word.wrapping_sub(self.step.wrapping_mul(slots as u64))
    }

    /// Returns the home of a word in this slot.
    pub(crate) fn home_of(&self, slot: usize, word: u64) -> usize {
        let distance = low(word / self.step) % WINDOW;
        self.behind(slot, distance.wrapping_neg())
    }

    /// Returns the key of a word in this slot.
    pub(crate) fn key(&self, slot: usize, word: u64) -> Station {
        let home = self.home_of(slot, word) as u64;
        Station(self.permutation.undo(word & self.remainder | home << SPARE_BITS) >> SPARE_BITS)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a port has 16 bits")]
    pub(crate) fn port(&self, word: u64) -> u16 {
        (word & self.port).wrapping_sub(1) as u16
    }

    /// Returns the bits of a port. A table has fewer ports than the numbers of these bits.
    fn port_bits(&self, port: u16) -> u64 {
        (u64::from(port) + 1) & self.port
    }
}

/// Returns the lower bits of a number, at least as many as a table has slots.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the callers use no more bits")]
fn low(number: u64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        (LEAST..=20, any::<u64>()).prop_map(|(q, seed)| Layout::with_bits(q, &FixedState::with_seed(seed)))
    }

    fn keys() -> impl Strategy<Value = Station> {
        (1_u16..=4094, any::<[u8; 6]>()).prop_map(|(vlan, mac)| Station::new(VlanId::new(vlan).unwrap(), MacAddr(mac)))
    }

    /// Returns the slot and the identity of a key at this distance from its home.
    fn at(layout: &Layout, key: Station, distance: usize) -> (usize, Identity) {
        let (home, identity) = layout.home(key);
        (layout.behind(home, distance), (0..distance).fold(identity, |identity, _| layout.further(identity)))
    }

    proptest! {
        /// The proof above: slot and word give back all that was written.
        #[test]
        fn slot_and_word_name_one_station(
            layout in layouts(), key in keys(), distance in 0..WINDOW, port in any::<[u16; 2]>(),
        ) {
            let most = u16::try_from(layout.port - 1).unwrap_or(u16::MAX);
            let [port, other_port] = port.map(|port| port.min(most));
            let (slot, identity) = at(&layout, key, distance);
            let word = layout.word(identity, port);
            prop_assert_ne!(word, 0);
            prop_assert!(layout.matches(word, identity));
            prop_assert_eq!((layout.key(slot, word), layout.port(word)), (key, port));
            prop_assert_eq!(layout.with_port(word, other_port), layout.word(identity, other_port));
            let (home, at_home) = layout.home(key);
            prop_assert_eq!(layout.home_of(slot, word), home);
            prop_assert_eq!(layout.nearer(word, distance), layout.word(at_home, port));
        }

        /// Two words that may be in one slot, and are not those of one station, tell it apart. The other
        /// word is any one, so its key is any key that may be there.
        #[test]
        fn no_word_matches_another_station(
            layout in layouts(), key in keys(), distance in 0..WINDOW, other in any::<u64>(), flipped in 0..64_u32,
        ) {
            let (slot, identity) = at(&layout, key, distance);
            let near = layout.word(identity, 3) ^ 1_u64 << flipped;
            for other in [other, near] {
                let other_key = layout.key(slot, other);
                prop_assert_eq!(layout.matches(other, identity), other_key == key && {
                    layout.home_of(slot, other) == layout.home(key).0
                });
                prop_assert!(!layout.matches(other, identity) || other_key == key);
            }
        }
    }

    /// Rows of addresses with any step, and addresses that differ in some bits only: no home has many
    /// times its share, and no row of slots is the home of all.
    #[test]
    fn addresses_that_guests_choose_are_scattered() {
        for seed in 0..64 {
            let layout = Layout::with_bits(10, &FixedState::with_seed(seed));
            for shift in 0..40 {
                let mut homes = vec![0_u32; layout.slots()];
                for n in 0..256_u64 {
                    let [_, _, bytes @ ..] = (0x0200_0000_0000 ^ n << shift).to_be_bytes();
                    homes[layout.home(Station::new(VlanId::DEFAULT, MacAddr(bytes))).0] += 1;
                }
                let row: u32 = (0..homes.len()).map(|at| homes.iter().cycle().skip(at).take(64).sum()).max().unwrap();
                assert!(row <= 56, "{row} of 256 stations in 64 of 1024 slots, seed {seed}, shift {shift}");
            }
        }
    }

    #[test]
    fn a_table_has_slots_enough_for_the_bits_of_a_port() {
        for ports in [1, 2, 3, 16, 17, 1000, 1 << 15, 1 << 16] {
            let layout = Layout::new(1, ports, &FixedState::default());
            let greatest = u16::try_from(ports - 1).unwrap();
            let (slot, identity) = at(&layout, Station::new(VlanId::MAX, MacAddr::BROADCAST), WINDOW - 1);
            let word = layout.word(identity, greatest);
            assert_eq!(layout.port(word), greatest, "{ports} ports");
            assert_eq!(layout.key(slot, word), Station::new(VlanId::MAX, MacAddr::BROADCAST));
        }
    }
}
