//! Batches: up to [`MAX_BATCH`] packets on their way from one node to the next.

/// Largest number of packets in a batch, and in a turn.
pub const MAX_BATCH: usize = 256;

/// A packet of the present turn. It is an index, and has no meaning after the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketId(u8);

impl PacketId {
    #[expect(clippy::cast_possible_truncation, reason = "the assertion bounds it")]
    pub(crate) fn new(index: usize) -> Self {
        const { assert!(MAX_BATCH <= u8::MAX as usize + 1) };
        debug_assert!(index < MAX_BATCH);
        PacketId(index as u8)
    }

    /// Returns the index of the packet in its turn, below [`MAX_BATCH`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Up to [`MAX_BATCH`] packets. A turn holds no more packets, and no node sends a packet twice
/// along one edge. So a batch that is emptied every turn cannot overflow.
#[derive(Clone)]
pub struct Batch {
    ids: [PacketId; MAX_BATCH],
    len: u16,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch.
    pub const fn new() -> Self {
        Batch { ids: [PacketId(0); MAX_BATCH], len: 0 }
    }

    /// Adds a packet at the end.
    ///
    /// # Panics
    /// If the batch is full, which is a bug (see the type).
    #[inline]
    pub fn push(&mut self, id: PacketId) {
        self.ids[usize::from(self.len)] = id;
        self.len += 1;
    }

    /// Adds packets at the end. It panics as [`Self::push`] does.
    #[inline]
    pub fn extend(&mut self, ids: &[PacketId]) {
        let at = usize::from(self.len);
        self.ids[at..at + ids.len()].copy_from_slice(ids);
        // At most MAX_BATCH, else the line above has panicked.
        self.len = u16::try_from(at + ids.len()).unwrap_or(self.len);
    }

    /// Keeps the packets for which `keep` returns true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(PacketId) -> bool) {
        let mut kept = 0;
        for at in 0..self.len() {
            let id = self.ids[at];
            self.ids[kept] = id;
            kept += usize::from(keep(id));
        }
        // At most as many as before.
        self.len = u16::try_from(kept).unwrap_or(self.len);
    }

    /// Removes all packets.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether the batch has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the packets, in the order in which they came.
    #[inline]
    pub fn ids(&self) -> &[PacketId] {
        &self.ids[..usize::from(self.len)]
    }

    /// Returns the packets, each with the packet that comes `distance` places later, for
    /// [`Packets::prefetch`](crate::Packets::prefetch). With a distance of 0 there is no later
    /// packet, so nothing is prefetched.
    #[inline]
    pub fn ahead(&self, distance: usize) -> impl Iterator<Item = (PacketId, Option<PacketId>)> + '_ {
        let ids = self.ids();
        let later = if distance == 0 { &[] } else { ids.get(distance..).unwrap_or_default() };
        ids.iter().enumerate().map(move |(at, &id)| (id, later.get(at).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept() {
        let mut batch = Batch::new();
        (0..7).for_each(|index| batch.push(PacketId::new(index)));
        batch.retain(|id| id.0 % 3 != 1);
        assert_eq!(batch.ids().iter().map(|id| id.0).collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
        batch.retain(|_| false);
        assert!(batch.is_empty());
    }

    #[test]
    fn who_comes_behind() {
        let mut batch = Batch::new();
        (0..3).for_each(|index| batch.push(PacketId::new(index)));
        let later =
            |distance| batch.ahead(distance).map(|(id, later)| (id.0, later.map(|id| id.0))).collect::<Vec<_>>();
        assert_eq!(later(0), [(0, None), (1, None), (2, None)]);
        assert_eq!(later(1), [(0, Some(1)), (1, Some(2)), (2, None)]);
        assert_eq!(later(2), [(0, Some(2)), (1, None), (2, None)]);
        assert_eq!(later(9), later(0));
    }
}
