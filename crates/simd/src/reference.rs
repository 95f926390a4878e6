//! Reference implementation of each kernel: loops over single bytes that are obviously right. Tests
//! compare the kernels with them.

/// Reference implementation of [`copy`](crate::copy()).
///
/// # Panics
/// If the lengths differ.
pub fn copy(dst: &mut [u8], src: &[u8]) {
    assert_eq!(dst.len(), src.len());
    for (to, from) in dst.iter_mut().zip(src) {
        *to = *from;
    }
}

/// Reference implementation of [`sum`](crate::sum()) and [`Sum`](crate::Sum). Returns the folded
/// sum of the concatenated chunks.
#[must_use]
pub fn sum(chunks: &[&[u8]]) -> u16 {
    let mut total: u64 = 0;
    let mut high = true;
    for chunk in chunks {
        for &byte in *chunk {
            total += if high { u64::from(byte) << 8 } else { u64::from(byte) };
            high = !high;
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::try_from(total).unwrap_or(u16::MAX)
}

/// Reference implementation of [`copy_sum`](crate::copy_sum) for one chunk.
///
/// # Panics
/// If the lengths differ.
pub fn copy_sum(dst: &mut [u8], src: &[u8]) -> u16 {
    copy(dst, src);
    sum(&[dst])
}

#[cfg(test)]
mod tests {
    /// RFC 1071 section 3 gives these bytes and their sum.
    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(super::sum(&[&bytes]), 0xddf2);
        let mut dst = [0; 8];
        assert_eq!(super::copy_sum(&mut dst, &bytes), 0xddf2);
        assert_eq!(dst, bytes);
    }
}
