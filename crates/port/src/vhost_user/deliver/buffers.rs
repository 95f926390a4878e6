//! The buffers of a receive ring, one after the other.

use straightline_packet::Turn;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::{BURST, Device, Direction, First, RingFault};

use super::HEADER;

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

    /// Takes and stages buffers of one descriptor for `need` bytes, as many as are known of, together; returns the bytes that
    /// they have room for, and how many they are. Whatever is wrong with the next one is left for others to find.
    #[inline]
    pub(super) fn take_singles<'t>(&mut self, memory: &'t GuestMemory, turn: &mut Turn<'t>, need: u32) -> (u32, u16) {
        let (mut got, mut chains) = (0_u32, 0);
        while got < need && self.look() {
            let (staged, mut found) = (turn.mark(), 0);
            for first in &self.firsts[self.at..self.known] {
                let Some(buffer) = self.ring.single(memory, first, Direction::ToGuest) else { break };
                if buffer.is_empty() || (got == 0 && buffer.len() < HEADER) {
                    break;
                }
                if got == 0 {
                    buffer.prefetch_for_store::<HEADER>();
                }
                turn.stage(buffer);
                found += 1;
                got = got.saturating_add(buffer.len());
                if got >= need {
                    break;
                }
            }
            if found == 0 {
                break;
            }
            // The last one need not be full.
            let (taken, beyond) = (turn.staged(staged), got.saturating_sub(need));
            let written = |nth: usize| taken[nth].len() - if nth + 1 == found { beyond } else { 0 };
            self.ring.take_all(&self.firsts[self.at..self.at + found], written);
            self.at += found;
            chains += u16::try_from(found).unwrap_or(u16::MAX);
        }
        (got, chains)
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
