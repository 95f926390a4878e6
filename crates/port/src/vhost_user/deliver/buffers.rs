//! The buffers of a receive ring, one after the other.

use straightline_virtio::ring::{BURST, Device, First, RingFault};

/// The next buffers of a ring, looked at in bursts.
pub(super) struct Buffers<'a, R> {
    pub(super) ring: &'a mut R,
    pub(super) firsts: &'a mut [First; BURST],
    pub(super) at: usize,
    pub(super) known: usize,
}

impl<'a, R: Device> Buffers<'a, R> {
    pub(super) fn new(ring: &'a mut R, firsts: &'a mut [First; BURST]) -> Self {
        Buffers { ring, firsts, at: 0, known: 0 }
    }

    /// Whether a next buffer is known of, in `firsts` at `at`. A fault is seen again, and told, by [`Self::next`].
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        self.at < self.known || self.find().is_ok_and(|known| known > 0)
    }

    fn find(&mut self) -> Result<usize, RingFault> {
        (self.at, self.known) = (0, 0);
        self.known = self.ring.find(self.firsts)?;
        Ok(self.known)
    }

    /// Takes the next buffer. Where none is known of, the driver's index is read once more before `None`.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<First>, RingFault> {
        if self.at == self.known && self.find()? == 0 {
            return Ok(None);
        }
        let first = self.firsts[self.at];
        self.at += 1;
        self.ring.take(&first);
        Ok(Some(first))
    }

    pub(super) fn untake(&mut self, n: u16) {
        self.ring.untake(n);
        if let Some(at) = self.at.checked_sub(n.into()) {
            self.at = at;
        } else {
            (self.at, self.known) = (0, 0);
        }
    }

    /// Whether the guest has given every buffer that its ring can hold, and none is taken.
    pub(super) fn all_free(&mut self) -> bool {
        self.ring.is_all_free()
    }
}
