//! The tag at the start of a packet's payload. The tag identifies the packet, whatever happened to
//! the headers.
//!
//! ```text
//! | check 2 | stream 2 | sequence number 5 | time 5 | hash 4 | the rest of the payload ...
//! ```
//!
//! The check covers stream, number and time. Bytes with a right check count as a tag. The hash
//! covers the rest of the payload. A packet with a right check and a wrong hash was copied wrongly.
//! Numbers are big-endian, as everywhere on the wire.
//!
//! The tag has the lower bits of number and time. [`Tag::of_sent`] finds the whole number.

use az::SaturatingAs;

/// Number of bytes of a tag. With the headers of Ethernet, IPv4 and UDP, a tag fills the shortest
/// Ethernet frame: 60 bytes without the frame check sequence.
pub(crate) const LEN: usize = 18;

/// Number of words of 8 bytes that hold a tag. The tag ends where the last word ends.
pub(crate) const WORDS: usize = 3;
/// Number of bytes of these words that lie before the tag.
pub(crate) const BEFORE: usize = 8 * WORDS - LEN;

/// The mask of a tag's sequence number and of its time, which have 40 bits. That is a million
/// million packets, and six minutes of a counter of 3 GHz.
const LOWER: u64 = (1 << 40) - 1;

/// Odd factors whose products look random: one from the golden ratio, and one of `MurmurHash3`'s
/// finaliser (Appleby 2008).
const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xff51_afd7_ed55_8ccd;

/// The content of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The stream's number.
    pub(crate) stream: u16,
    /// The packet's number in its stream, from 0. A parsed tag has its lower 40 bits.
    pub(crate) sequence: u64,
    /// The lower 40 bits of the time-stamp counter at the packet's due time, or at maximum rate at
    /// its sending time.
    pub(crate) time: u64,
    /// The hash of the rest of the payload.
    pub(crate) hash: u32,
}

impl Tag {
    /// Returns the tag as words in network byte order. The first [`BEFORE`] bytes are not part of
    /// the tag, and are zero.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let Tag { stream, sequence, time, hash } = self;
        let sequence = sequence & LOWER;
        let time = time & LOWER;
        [
            u64::from(check(stream, sequence, time)),
            u64::from(stream) << 48 | sequence << 8 | time >> 32,
            time << 32 | u64::from(hash),
        ]
    }

    /// Parses a tag, as [`Self::to_words`] makes it; the first [`BEFORE`] bytes may have any value.
    /// Returns `None` if the check is wrong.
    #[inline]
    pub(crate) fn from_words([first, second, third]: [u64; WORDS]) -> Option<Tag> {
        let tag = Tag {
            stream: low16(second >> 48),
            sequence: second >> 8 & LOWER,
            time: (second & 0xff) << 32 | third >> 32,
            hash: low32(third),
        };
        (check(tag.stream, tag.sequence, tag.time) == low16(first)).then_some(tag)
    }

    /// Parses a tag. Returns `None` if the check is wrong.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Tag> {
        let mut words = [0; 8 * WORDS];
        words[BEFORE..].copy_from_slice(bytes);
        let (words, _) = words.as_chunks::<8>();
        Tag::from_words(std::array::from_fn(|at| u64::from_be_bytes(words[at])))
    }

    /// Returns the tag with the whole number, if a packet of the stream has this tag. `sent` is the
    /// number of packets that were sent. The packet is the last one whose lower bits are right.
    #[inline]
    pub(crate) fn of_sent(self, sent: u64) -> Option<Tag> {
        let last = sent.checked_sub(1)?;
        let behind = last.wrapping_sub(self.sequence) & LOWER;
        last.checked_sub(behind).map(|sequence| Tag { sequence, ..self })
    }

    /// Returns the cycles from the tag's time until `now`. The result is right for ages below six
    /// minutes.
    #[inline]
    pub(crate) fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.time) & LOWER
    }
}

#[inline]
fn low16(word: u64) -> u16 {
    u16::try_from(word & 0xffff).unwrap_or(0)
}

#[inline]
fn low32(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or(0)
}

/// Each step is invertible, so tags that differ in one field have different values of 64 bits. 16
/// of these bits are kept.
#[inline]
fn check(stream: u16, sequence: u64, time: u64) -> u16 {
    let mut mix = (sequence ^ A).wrapping_mul(B);
    mix ^= mix >> 32;
    mix = (mix ^ (time << 16 | u64::from(stream))).wrapping_mul(A);
    mix ^= mix >> 32;
    let [high, low, ..] = mix.wrapping_mul(B).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// A hash of bytes that come in chunks. It is not cryptographic: wrong copies are no attack here. A
/// difference within one word of eight bytes can be lost only in the last fold to 32 bits. All
/// steps before it are invertible.
pub(crate) struct Hash {
    lanes: [u64; 4],
    len: u64,
}

/// Bytes of one round.
pub(crate) const ROUND: usize = 32;

impl Hash {
    pub(crate) fn new() -> Hash {
        Hash { lanes: [A, B, !A, !B], len: 0 }
    }

    /// Adds the next chunk. The length of each chunk except the last one must be a multiple of
    /// [`ROUND`].
    #[inline]
    pub(crate) fn update(&mut self, chunk: &[u8]) {
        let (rounds, rest) = chunk.as_chunks::<ROUND>();
        rounds.iter().for_each(|round| self.round(round));
        if !rest.is_empty() {
            let mut last = [0; ROUND];
            last[..rest.len()].copy_from_slice(rest);
            self.round(&last);
        }
        self.len += chunk.len().saturating_as::<u64>();
    }

    #[inline]
    fn round(&mut self, bytes: &[u8; ROUND]) {
        let (words, _) = bytes.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(A).rotate_left(29);
        }
    }

    /// Returns the hash. It includes the length, because bytes that are missing at the end may have
    /// been zeros.
    #[inline]
    pub(crate) fn finish(self) -> u32 {
        let fold = |sum: u64, lane: u64| (sum ^ lane).wrapping_mul(B).rotate_left(31);
        let sum = self.lanes.into_iter().fold(self.len, fold).wrapping_mul(A);
        let [a, b, c, d, ..] = sum.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// Returns the hash of contiguous bytes.
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    let mut hash = Hash::new();
    hash.update(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_report::random::Random;

    impl Tag {
        pub(crate) fn to_bytes(self) -> [u8; LEN] {
            let words = self.to_words().map(u64::to_be_bytes).concat();
            words[BEFORE..].try_into().expect("the tag's bytes")
        }
    }

    #[test]
    fn a_tag_is_read_as_written() {
        for (stream, sequence, time) in [(0, 0, 0), (1, 2, 3), (u16::MAX, LOWER, LOWER)] {
            let tag = Tag { stream, sequence, time, hash: 0x1234_5678 };
            assert_eq!(Tag::parse(&tag.to_bytes()), Some(tag));
            // The bytes before the tag do not matter.
            let [first, second, third] = tag.to_words();
            assert_eq!(Tag::from_words([first | 0xffff_ffff_ffff << 16, second, third]), Some(tag));
        }
        let tag = Tag { stream: 0x0102, sequence: 0x11_1213_1415, time: 0x21_2223_2425, hash: 0x3132_3334 };
        let bytes = tag.to_bytes();
        let literal = [1, 2, 0x11, 0x12, 0x13, 0x14, 0x15, 0x21, 0x22, 0x23, 0x24, 0x25, 0x31, 0x32, 0x33, 0x34];
        assert_eq!(bytes[2..], literal);
        // The tag does not have the counter's upper bits, but the age is right when they change.
        let tag = Tag { stream: 1, sequence: 1, time: LOWER + 1 - 10, hash: 0 };
        let read = Tag::parse(&tag.to_bytes()).expect("a tag");
        assert_eq!((read.age(LOWER + 6), read.age(LOWER - 9)), (15, 0));
    }

    #[test]
    fn the_whole_number_follows_from_what_was_sent() {
        let tag_of = |sequence: u64, sent: u64| {
            let tag = Tag::parse(&Tag { stream: 1, sequence, time: 2, hash: 3 }.to_bytes()).expect("a tag");
            tag.of_sent(sent).map(|tag| tag.sequence)
        };
        assert_eq!([tag_of(0, 1), tag_of(6, 7), tag_of(7, 7), tag_of(0, 0)], [Some(0), Some(6), None, None]);
        let many = LOWER + 1;
        for sequence in [0, 1, LOWER, many, many + 1, 3 * many + 5] {
            assert_eq!(tag_of(sequence, sequence + 1), Some(sequence));
            assert_eq!(tag_of(sequence, sequence + 1000), Some(sequence));
        }
        // A number that has not been sent yet is taken for an old one only if there is an old one.
        assert_eq!([tag_of(many + 9, many), tag_of(many + 9, many + 3), tag_of(many - 1, 9)], [Some(9), Some(9), None]);
    }

    #[test]
    fn other_bytes_are_no_tag() {
        assert_eq!(Tag::parse(&[0; LEN]), None);
        assert_eq!(Tag::parse(&[0xff; LEN]), None);
        let bytes = Tag { stream: 3, sequence: 77, time: 99, hash: 5 }.to_bytes();
        for bit in 0..14 * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::parse(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn the_hash_sees_each_bit_each_length_and_each_order() {
        let mut random = Random::new(1);
        let bytes: Vec<u8> = (0..300).map(|_| random.next().to_le_bytes()[0]).collect();
        let whole = hash(&bytes);
        for bit in 0..300 * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(hash(&changed), whole, "bit {bit}");
        }
        let zeros: std::collections::BTreeSet<u32> = (0..200).map(|len| hash(&vec![0; len])).collect();
        assert_eq!(zeros.len(), 200);
        let mut swapped = bytes.clone();
        swapped.swap(10, 42);
        assert_ne!(hash(&swapped), whole);
        let mut chunks = Hash::new();
        for chunk in [&bytes[..64], &bytes[64..96], &bytes[96..]] {
            chunks.update(chunk);
        }
        assert_eq!(chunks.finish(), whole);
    }
}
