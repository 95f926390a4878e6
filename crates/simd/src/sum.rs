//! Running Internet checksum, RFC 1071.

/// One's complement sum over a stream of bytes, which arrives in chunks of any length.
///
/// The stream is divided into 16-bit words. The first byte of a word is the high byte (network byte
/// order, "big endian"). Each `u16` passed in or returned is the *value* of such a word on the
/// host. To write it into a packet, use `to_be_bytes`. A stream of odd length is summed as if one
/// zero byte followed it (RFC 1071 section 4.1).
///
/// A chunk that begins after an odd number of bytes continues the half-filled word. Any division of
/// the same bytes into chunks therefore gives the same sum.
///
/// A sum of no bytes, or of zeros only, folds to 0. Any other sum that is a multiple of 0xffff
/// folds to 0xffff.
///
/// ```
/// use straightline_simd::Sum;
///
/// // The example of RFC 1071 section 3, divided at an odd offset.
/// let mut sum = Sum::new();
/// sum.add_bytes(&[0x00, 0x01, 0xf2]);
/// sum.add_bytes(&[0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(sum.fold(), 0xddf2);
/// assert_eq!(sum.finish(), !0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Sum with end-around carry, of words in the machine's byte order. The byte order may be
    /// corrected after the addition instead of before it (RFC 1071 section 2(B)).
    acc: u64,
    /// True if the stream has an odd number of bytes so far.
    odd: bool,
}

impl Sum {
    /// Returns the sum of an empty stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { acc: 0, odd: false }
    }

    /// Appends bytes that no one else writes. For long chunks [`sum`](crate::sum()) is faster.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut acc = 0;
        for word in words {
            acc = add_carry(acc, u64::from_ne_bytes(*word));
        }
        if !rest.is_empty() {
            acc = add_carry(acc, last_word(rest));
        }
        self.append(acc, bytes.len());
    }

    /// Appends the two bytes of a word, high byte first. After an even number of bytes, which is
    /// the usual case, this adds `word`. The folded value of another sum can be added in this way.
    #[inline]
    pub fn add_u16(&mut self, word: u16) {
        self.append(u64::from(word.to_be()), 2);
    }

    /// Appends two 16-bit words, high byte first. If an even number of bytes came before, this
    /// adds both words to the sum. A 32-bit sum that is not folded yet can be added in this way.
    #[inline]
    pub fn add_u32(&mut self, words: u32) {
        self.append(u64::from(words.to_be()), 4);
    }

    /// Returns the sum folded to 16 bits, as the value of a big-endian word.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(fold_native(self.acc))
    }

    /// Returns the checksum for a header: the complement of [`fold`](Self::fold). UDP writes 0xffff
    /// instead of 0 (RFC 768); the caller must do this.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// Returns the parts of the sum, for callers that store it outside Rust, such as in a C
    /// structure. The number is meaningful only to [`from_parts`](Self::from_parts). The flag is
    /// true if the number of bytes so far is odd.
    #[inline]
    #[must_use]
    pub const fn into_parts(self) -> (u64, bool) {
        (self.acc, self.odd)
    }

    /// Creates a sum from the parts that [`into_parts`](Self::into_parts) returned.
    #[inline]
    #[must_use]
    pub const fn from_parts(acc: u64, odd: bool) -> Self {
        Self { acc, odd }
    }

    /// Appends a chunk of `len` bytes whose own sum, in the machine's byte order, is `partial`.
    #[inline]
    pub(crate) fn append(&mut self, partial: u64, len: usize) {
        let partial = if self.odd {
            // Each byte of the chunk belongs to the other half of its word, so the sum's two bytes
            // are swapped (RFC 1071 section 2(B)).
            u64::from(fold_native(partial).swap_bytes())
        } else {
            partial
        };
        self.acc = add_carry(self.acc, partial);
        self.odd ^= len % 2 == 1;
    }
}

/// Returns fewer than 8 bytes as a word with zeros behind them. An array that is filled and read as a
/// word would be slower: the read must wait for all of the writes.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let mut word = 0;
    let mut bits = 0;
    let mut rest = bytes;
    if let Some((four, behind)) = rest.split_first_chunk() {
        (word, bits, rest) = (u64::from(u32::from_le_bytes(*four)), 32, behind);
    }
    if let Some((two, behind)) = rest.split_first_chunk() {
        word |= u64::from(u16::from_le_bytes(*two)) << bits;
        (bits, rest) = (bits + 16, behind);
    }
    if let [one, ..] = rest {
        word |= u64::from(*one) << bits;
    }
    u64::from_le(word)
}

/// Adds with end-around carry, which is addition modulo 2^64 - 1. 0xffff divides that modulus. The
/// result is 0 only if both operands are 0.
#[inline(always)]
pub(crate) fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry `sum` is at most 2^64 - 2, so this cannot overflow.
    sum + u64::from(carry)
}

/// Folds 64 bits to 16. The value modulo 0xffff is preserved, and the result is 0 only for 0.
#[inline(always)]
fn fold_native(acc: u64) -> u16 {
    let low_half = |x: u64| x & 0xffff_ffff;
    let acc = low_half(acc) + (acc >> 32); // below 2^33
    let acc = (acc & 0xffff) + (acc >> 16); // below 2^18
    let acc = (acc & 0xffff) + (acc >> 16); // below 2^16 + 4
    let acc = (acc & 0xffff) + (acc >> 16); // below 2^16: after a carry the rest is below 4
    #[expect(clippy::cast_possible_truncation, reason = "the line above leaves 16 bits")]
    let folded = acc as u16;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn nothing_and_zeros_fold_to_zero() {
        assert_eq!(Sum::new().fold(), 0);
        assert_eq!(Sum::new().finish(), 0xffff);
        let mut sum = Sum::new();
        sum.add_bytes(&[0; 33]);
        assert_eq!(sum.fold(), 0);
    }

    #[test]
    fn all_ones_fold_to_all_ones() {
        for len in (2..600).step_by(2) {
            let mut sum = Sum::new();
            sum.add_bytes(&vec![0xff; len]);
            assert_eq!(sum.fold(), 0xffff);
            sum.add_bytes(&[0xff]);
            assert_eq!(sum.fold(), 0xff00);
        }
    }

    #[test]
    fn words_stand_where_their_bytes_would() {
        let bytes = [0x12, 0x34, 0x56, 0x78, 0x9a];
        for odd in [false, true] {
            let mut by_word = Sum::new();
            let mut by_byte = Sum::new();
            if odd {
                by_word.add_bytes(&bytes[4..]);
                by_byte.add_bytes(&bytes[4..]);
            }
            by_word.add_u16(0x1234);
            by_word.add_u16(0x5678);
            by_word.add_u32(0xfedc_ba98);
            by_byte.add_bytes(&[0x12, 0x34, 0x56, 0x78, 0xfe, 0xdc, 0xba, 0x98]);
            assert_eq!(by_word.fold(), by_byte.fold());
        }
        let mut sum = Sum::new();
        sum.add_u16(0x1234);
        assert_eq!(sum.fold(), 0x1234);
        // A sum of words that is not folded: 3 times 0xffff, and 5.
        sum.add_u32(0x2_fffd + 5);
        assert_eq!(sum.fold(), 0x1239);
    }

    #[test]
    fn folding_at_the_limits() {
        assert_eq!(fold_native(0), 0);
        assert_eq!(fold_native(u64::MAX), 0xffff);
        for acc in [1, 0xffff, 0x1_0000, 0x1_ffff, 0xffff_ffff, 0x1_0000_0000, u64::MAX - 1, 0xffff_0000_ffff_0001] {
            let folded = fold_native(acc);
            assert_ne!(folded, 0, "{acc:#x}");
            assert_eq!(u64::from(folded) % 0xffff, acc % 0xffff, "{acc:#x}");
        }
    }

    #[test]
    fn every_cut_gives_the_same_sum() {
        let bytes: Vec<u8> = (0u8..=255).map(|i| i.wrapping_mul(167) ^ (i >> 3)).collect();
        let whole = reference::sum(&[&bytes]);
        for first in 0..=40 {
            for second in 0..=40 {
                let mut sum = Sum::new();
                sum.add_bytes(&bytes[..first]);
                sum.add_bytes(&bytes[first..first + second]);
                sum.add_bytes(&bytes[first + second..]);
                assert_eq!(sum.fold(), whole, "{first} {second}");
            }
        }
    }
}
