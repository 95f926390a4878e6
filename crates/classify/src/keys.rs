//! Keys of packets: one, and a batch as a structure of arrays.

use crate::column::{COLUMNS, Column};

/// Number of keys in a full batch.
pub const MAX_KEYS: usize = 256;

/// The key of one packet: a value for each column, 0 at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u32; COLUMNS]);

impl Default for Key {
    fn default() -> Self {
        Self([0; COLUMNS])
    }
}

impl Key {
    /// Returns the value of a column.
    #[inline]
    #[must_use]
    pub fn get(&self, column: Column) -> u32 {
        self.0[column as usize]
    }

    /// Sets a column. Bits beyond its width are cut off.
    pub fn set(&mut self, column: Column, value: u32) {
        self.0[column as usize] = value & column.greatest();
    }

    /// Returns the key with a column set.
    #[must_use]
    pub fn with(mut self, column: Column, value: u32) -> Self {
        self.set(column, value);
        self
    }
}

/// One column of a batch. Aligned for vectors of 64 bytes.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Values([u32; MAX_KEYS]);

/// The keys of up to [`MAX_KEYS`] packets: an array for each column.
///
/// Values behind the last key are left over from earlier batches. Lookups may read them, and their
/// results do not depend on them.
#[derive(Clone, Debug)]
pub struct Keys {
    columns: Box<[Values; COLUMNS]>,
    len: usize,
}

impl Default for Keys {
    fn default() -> Self {
        Self { columns: Box::new([const { Values([0; MAX_KEYS]) }; COLUMNS]), len: 0 }
    }
}

impl Keys {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of keys.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends a key. Returns false if the batch is full.
    pub fn push(&mut self, key: &Key) -> bool {
        if self.len == MAX_KEYS {
            return false;
        }
        for (column, value) in self.columns.iter_mut().zip(key.0) {
            column.0[self.len] = value;
        }
        self.len += 1;
        true
    }

    /// Sets the number of keys, for a caller that fills the columns by [`Self::column_mut`]. Numbers
    /// above [`MAX_KEYS`] are cut to it.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(MAX_KEYS);
    }

    /// Returns a column. Only the first [`Self::len`] values belong to keys.
    #[inline]
    #[must_use]
    pub fn column(&self, column: Column) -> &[u32; MAX_KEYS] {
        &self.columns[column as usize].0
    }

    /// Returns a column to be filled. No value may be above [`Column::greatest`].
    #[inline]
    pub fn column_mut(&mut self, column: Column) -> &mut [u32; MAX_KEYS] {
        &mut self.columns[column as usize].0
    }

    /// Returns the key at a position below [`MAX_KEYS`].
    #[must_use]
    pub fn key(&self, at: usize) -> Key {
        Key(std::array::from_fn(|column| self.columns[column].0[at]))
    }
}

impl<'a> FromIterator<&'a Key> for Keys {
    /// Takes the first [`MAX_KEYS`] keys.
    fn from_iter<I: IntoIterator<Item = &'a Key>>(all: I) -> Self {
        let mut keys = Self::new();
        for key in all.into_iter().take(MAX_KEYS) {
            keys.push(key);
        }
        keys
    }
}
