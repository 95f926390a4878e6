//! The device half of a ring of either layout: what a port needs of it.

use std::sync::Arc;

use straightline_packet::{MemorySegment, Turn};

use super::chain::{Chain, Direction, Fault, First, RingFault};
use super::{Inflight, PackedDevice, SplitDevice, Standing};
use crate::memory::{DirtyLog, GuestMemory};

/// What the loops over a burst need. They are compiled for each layout, so that nothing is asked for each packet.
pub trait Device {
    /// Finds the next chains that are available, as many as `into` has room for; returns how many.
    fn find(&mut self, into: &mut [First]) -> Result<usize, RingFault>;
    /// Takes the next chain, whose first descriptor is `first`.
    fn take(&mut self, first: &First);
    /// Takes the next chains, whose first descriptors are `firsts`; `bytes` says of each how many are written into it.
    fn take_all(&mut self, firsts: &[First], bytes: impl Fn(usize) -> u32)
    where
        Self: Sized;
    /// Un-takes the last `n` chains.
    fn untake(&mut self, n: u16);
    /// Says how many bytes were written into the chain that was taken last.
    fn written(&mut self, bytes: u32);
    /// The one buffer of a chain that has only one, in one region.
    fn single<'t>(&mut self, memory: &'t GuestMemory, first: &First, direction: Direction)
    -> Option<MemorySegment<'t>>;
    /// Stages all buffers of a chain found last. On a fault nothing is staged.
    fn chain<'t>(
        &mut self,
        memory: &'t GuestMemory,
        turn: &mut Turn<'t>,
        first: &First,
        direction: Direction,
    ) -> Result<Chain, Fault>;
    /// Gives back the oldest `n` taken chains.
    fn give_back(&mut self, n: u16);
    /// Chains taken and not given back.
    fn outstanding(&self) -> u16;
    /// What is known to be available, without a look at the ring: chains, or, in a packed ring, descriptors.
    fn known(&self) -> u16;
    /// Descriptors that the last [`Self::find`] read behind the first ones of its chains.
    fn followed(&self) -> u32;
    /// Whether the taken chains are all that the ring can hold, so that the driver has no more to give.
    fn is_all_taken(&self) -> bool;
}

/// A ring of either layout, for what is done once a burst or less.
#[derive(Debug)]
pub enum Ring {
    /// Virtio 1.2, 2.7.
    Split(SplitDevice),
    /// Virtio 1.2, 2.8.
    Packed(PackedDevice),
}

macro_rules! both {
    ($self:expr, $ring:ident => $body:expr) => {
        match $self {
            Ring::Split($ring) => $body,
            Ring::Packed($ring) => $body,
        }
    };
}

impl Ring {
    /// Entries.
    pub fn size(&self) -> u16 {
        both!(self, ring => ring.size())
    }

    /// Where a successor goes on, in vhost-user's form.
    pub fn base(&self) -> u32 {
        match self {
            Ring::Split(ring) => ring.base().into(),
            Ring::Packed(ring) => ring.base(),
        }
    }

    /// What is written into the ring is marked in `log` from now on.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        both!(self, ring => ring.set_log(log));
    }

    /// What is in flight is kept in this table from now on, or in none.
    pub fn track(&mut self, inflight: Option<Inflight>) {
        let position = self.used();
        inflight.iter().for_each(|table| table.begin(position));
        both!(self, ring => ring.inflight = inflight);
    }

    /// Whether it is a packed ring.
    pub fn is_packed(&self) -> bool {
        matches!(self, Ring::Packed(_))
    }

    /// Chains taken and not given back.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        both!(self, ring => ring.outstanding())
    }

    /// Gives back the oldest `n` taken chains.
    #[inline]
    pub fn give_back(&mut self, n: u16) {
        both!(self, ring => ring.give_back(n));
    }

    /// Un-takes the last `n` chains.
    pub fn untake(&mut self, n: u16) {
        both!(self, ring => ring.untake(n));
    }

    /// Whether the memory it lies in has vanished.
    #[inline]
    pub fn poisoned(&self) -> bool {
        both!(self, ring => ring.poisoned())
    }

    /// Whether the driver is to be notified of what was given back since the last call.
    #[inline]
    pub fn must_notify(&mut self) -> bool {
        both!(self, ring => ring.must_notify())
    }

    /// Returns the position of the next used entry: an index, or in a packed ring a position with its wrap counter.
    #[inline]
    pub fn used(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.base().wrapping_sub(ring.outstanding()),
            Ring::Packed(ring) => ring.used_position(),
        }
    }

    /// Returns where both sides stand, or `None` without the event index: then a ring does not say whether its driver
    /// waits.
    pub fn standing(&self) -> Option<Standing> {
        both!(self, ring => ring.standing())
    }

    /// Asks the driver for a kick when there are more than `beyond` chains (in a packed ring, descriptors); `true` if there
    /// are already.
    pub fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
        both!(self, ring => ring.arm(beyond))
    }

    /// Asks the driver for no kicks.
    pub fn disarm(&mut self) {
        both!(self, ring => ring.disarm());
    }
}
