//! The checksum of SCTP: CRC32c (RFC 9260, appendix A).
//!
//! The checksum is linear, so the change of a few bytes changes it in a way that the other bytes do not
//! matter for. [`changed`] needs their number only, and no body is read.
//!
//! A header has the checksum in the order of [`u32::to_le_bytes`].

/// The polynomial, its lowest power first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The polynomial 1, and the one of a byte's shift (x^8), their lowest powers first.
const ONE: u32 = 1 << 31;
const BYTE: u32 = 1 << 23;

/// Returns the checksum of bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !divide(!0, bytes)
}

/// Returns the checksum of a message of which some bytes have changed, from the checksum before.
/// `difference` has the bits of these bytes that have changed, and `behind` bytes follow them.
#[must_use]
pub fn changed(checksum: u32, difference: &[u8], behind: usize) -> u32 {
    checksum ^ shift(divide(0, difference), behind)
}

/// Goes on with a division by some bytes.
fn divide(rest: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(rest, |rest, &byte| (0..8).fold(rest ^ u32::from(byte), |rest, _| times_x(rest)))
}

fn times_x(value: u32) -> u32 {
    if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 }
}

/// Returns the rest behind a number of zero bytes: its product with a power of x, which squares make.
fn shift(rest: u32, bytes: usize) -> u32 {
    let mut power = BYTE;
    let mut product = rest;
    let mut left = bytes;
    while left > 0 {
        if left & 1 == 1 {
            product = multiply(product, power);
        }
        power = multiply(power, power);
        left >>= 1;
    }
    product
}

fn multiply(one: u32, other: u32) -> u32 {
    let mut product = 0;
    let mut shifted = other;
    for bit in 0..32 {
        if one & ONE >> bit != 0 {
            product ^= shifted;
        }
        shifted = times_x(shifted);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, B.4.
    #[test]
    fn published_examples() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn a_change_gives_what_summing_anew_gives() {
        for behind in [0_usize, 1, 2, 3, 7, 8, 40, 1480, 65_000] {
            let before: Vec<u8> = (0..behind + 6).map(|at| at.to_le_bytes()[0].wrapping_mul(7)).collect();
            let mut after = before.clone();
            let difference = [0x12, 0, 0xff];
            for (byte, bits) in after[3..].iter_mut().zip(difference) {
                *byte ^= bits;
            }
            assert_eq!(changed(crc32c(&before), &difference, behind), crc32c(&after), "{behind}");
        }
    }
}
