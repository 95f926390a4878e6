//! Reads and writes fields in bytes whose length a view has checked.
//!
//! An index out of range here is a bug in a view, not in the bytes: a view checks them when it is
//! made.

use crate::WireError;

#[inline]
pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(get(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(get(bytes, at))
}

/// Returns the three bytes at `at` as a number below 2^24.
#[inline]
pub(crate) fn u24_at(bytes: &[u8], at: usize) -> u32 {
    let [a, b, c] = get(bytes, at);
    u32::from_be_bytes([0, a, b, c])
}

/// Writes a number below 2^24 as three bytes.
///
/// # Errors
/// [`WireError::BadValue`] if the number is larger.
pub(crate) fn put_u24(bytes: &mut [u8], at: usize, value: u32) -> Result<(), WireError> {
    let [0, low @ ..] = value.to_be_bytes() else { return Err(WireError::BadValue) };
    put(bytes, at, &low);
    Ok(())
}

#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Returns the first `len` bytes of the caller's buffer, set to zero, for a builder to fill.
pub(crate) fn cleared(buffer: &mut [u8], len: usize) -> Result<&mut [u8], WireError> {
    let bytes = buffer.get_mut(..len).ok_or(WireError::BufferTooSmall)?;
    bytes.fill(0);
    Ok(bytes)
}
