//! The state of a batch on its way into a ring's buffers, and the reservation of buffers.

use std::ops::Range;

use straightline_packet::{DropTally, GsoSegment, PacketId, Reason, Segmenter, Turn};
use straightline_virtio::ring::{Device, Direction, Fault, First};

use super::budget::MOST_BUFFERS;
use super::buffers::Buffers;
use crate::vhost_user::data::HEADER;
use crate::vhost_user::data::delivery_plan::Planned;
use crate::vhost_user::data::link::Link;

/// A batch on its way into a ring's buffers.
pub(super) struct Delivery<'a, 't, R> {
    pub(super) link: &'t Link,
    pub(super) turn: &'a mut Turn<'t>,
    pub(super) ids: &'a [PacketId],
    pub(super) buffers: Buffers<'a, R>,
    pub(super) plan: &'a mut Vec<Planned>,
    pub(super) segment: &'a mut GsoSegment,
    pub(super) wait: bool,
}

/// The reason why a packet is not delivered.
pub(super) enum NotDelivered {
    Dropped(Reason),
    /// The ring is unusable: the connection must be restarted. The message says why.
    Broken(String),
}

/// The counts of a batch. They are added to the counters only once the batch is visible, because a
/// batch may have to be done again.
pub(super) struct Tally {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) body: u64,
    pub(super) drops: DropTally,
    /// The position of the first packet that stays in its source's ring. All later packets stay
    /// too.
    pub(super) left_from: Option<usize>,
    /// The chains that were available when that packet found too few.
    pub(super) short: u16,
    pub(super) broken: Option<String>,
}

impl<R: Device> Delivery<'_, '_, R> {
    /// Returns how a packet is segmented if this guest does not take it unsegmented, or `None` if
    /// it does. Returns an error if the packet is not for this guest at all.
    pub(super) fn segmenter(&self, id: PacketId, without_vanished: bool) -> Result<Option<Segmenter>, Reason> {
        if without_vanished && self.turn.poisoned(id) {
            return Err(Reason::MemoryFault);
        }
        let len = self.turn.len(id);
        let fits = |len: u32| self.turn.fits(id, len, self.link.max_len);
        match self.turn.offload(id).gso {
            None if !fits(len) => Err(Reason::TooBig),
            Some(gso) if !fits(u32::from(gso.header_len) + u32::from(gso.size)) => Err(Reason::TooBig),
            Some(gso) if !self.link.receiver.takes(gso) => {
                Segmenter::new(gso, len).map(Some).ok_or(Reason::SegmentHeaders)
            }
            _ => Ok(None),
        }
    }

    /// Takes buffers for a packet of `len` bytes and stages them. Returns their positions in the
    /// turn's staged segments, and the number of chains. On an error nothing has changed.
    #[inline(always)]
    pub(super) fn reserve(&mut self, len: u32) -> Result<(Range<usize>, u16), NotDelivered> {
        let need = len + HEADER;
        if let Some(reason) = self.buffers.refuses(need) {
            return Err(NotDelivered::Dropped(reason));
        }
        let mark = self.turn.mark();
        let limit = self.buffers.budget.limit();
        let mut got = 0;
        let mut chains = 0;
        let taken = self.take(need, &mut got, &mut chains);
        self.buffers.budget.spend(chains.into());
        match taken {
            Ok(()) => Ok((mark..self.turn.mark(), chains)),
            Err(refused) => {
                // The buffers may be looked at again for every packet that finds too few.
                self.buffers.budget.set_limit(limit);
                match refused {
                    NotDelivered::Dropped(reason) => self.buffers.refuse(reason, got, chains),
                    NotDelivered::Broken(_) => self.buffers.untake(chains),
                }
                self.turn.unstage(mark);
                Err(refused)
            }
        }
    }

    /// Takes buffers for `need` bytes, header included. Sets `got` to their capacity and `chains`
    /// to their number, even if they do not suffice.
    #[inline]
    fn take(&mut self, need: u32, got: &mut u32, chains: &mut u16) -> Result<(), NotDelivered> {
        if self.link.mergeable {
            (*got, *chains) = self.buffers.take_singles(&self.link.memory, self.turn, need);
        }
        while *got < need {
            if *chains == MOST_BUFFERS {
                return Err(NotDelivered::Dropped(Reason::ManyDescriptors));
            }
            let next = self.buffers.next().map_err(|fault| NotDelivered::Broken(fault.to_string()))?;
            let first = next.ok_or(NotDelivered::Dropped(Reason::NoBuffer))?;
            *chains += 1;
            let len = match self.buffers.ring.single(&self.link.memory, &first, Direction::ToGuest) {
                Some(segment) => {
                    if self.turn.prefetches() {
                        segment.prefetch_for_store::<HEADER>();
                    }
                    self.turn.stage(segment);
                    segment.len()
                }
                None => self.chain(&first)?,
            };
            if len < HEADER && *got == 0 {
                return Err(NotDelivered::Broken(format!(
                    "a buffer of {len} bytes is too small for the 12-byte header"
                )));
            }
            if len == 0 {
                // Nothing would be written into such a buffer. With a ring full of them, the walk
                // to the ring's end would be useless work.
                return Err(NotDelivered::Broken("an empty buffer".to_owned()));
            }
            self.buffers.ring.written(len.min(need - *got));
            *got = got.saturating_add(len);
            if *got < need && !self.link.mergeable {
                return Err(NotDelivered::Dropped(Reason::BufferTooSmall));
            }
        }
        Ok(())
    }

    /// Stages a buffer of several descriptors. If a receive buffer is invalid, the port stops: used
    /// in the middle of a packet, the buffer would make the packet unreadable.
    #[cold]
    fn chain(&mut self, first: &First) -> Result<u32, NotDelivered> {
        // The guest decides how many descriptors a buffer has, and all ports of the worker share
        // the turn. The packet does not wait for free buffers: the next turn would find as many
        // descriptors.
        if self.buffers.budget.is_spent() {
            return Err(NotDelivered::Dropped(Reason::ManyDescriptors));
        }
        self.buffers.budget.allow_one();
        let before = self.turn.descriptors();
        let chain = self.buffers.ring.chain(&self.link.memory, self.turn, first, Direction::ToGuest);
        self.buffers.budget.spend(self.turn.descriptors().saturating_sub(before));
        match chain {
            Ok(chain) => Ok(chain.len),
            Err(Fault::Chain(fault)) => Err(NotDelivered::Broken(format!(
                "the buffer at descriptor {}: {}",
                first.head,
                fault.reason().meaning()
            ))),
            Err(Fault::Ring(fault)) => Err(NotDelivered::Broken(fault.to_string())),
        }
    }
}
