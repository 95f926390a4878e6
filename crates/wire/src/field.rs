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
