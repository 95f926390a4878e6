//! The device half of a ring of either layout, as a port uses it.

use std::sync::Arc;

use straightline_packet::{MemorySegment, Turn};

use super::chain::{Chain, Direction, Fault, First, RingFault};
use super::{Inflight, PackedDevice, SplitDevice, Standing};
use crate::memory::{DirtyLog, GuestMemory};

/// The operations that the loops over a burst need. The loops are compiled for each layout, so no
/// packet pays for a choice between layouts.
///
/// A chain goes through three states: *available* (found, and possibly read), *taken* (kept by this
/// half), and *used* (given back to the driver). Chains are given back in the order in which they
/// were taken.
pub trait Device {
    /// Finds the next available chains, at most `into.len()`, and returns their number. The first
    /// descriptors are read into `into`; nothing is taken yet.
    fn find(&mut self, into: &mut [First]) -> Result<usize, RingFault>;
    /// Takes the next chain, whose first descriptor is `first`.
    fn take(&mut self, first: &First);
    /// Takes the next chains, whose first descriptors are `firsts`. `bytes` returns the number of
    /// bytes written into the chain of each index.
    fn take_all(&mut self, firsts: &[First], bytes: impl Fn(usize) -> u32)
    where
        Self: Sized;
    /// Makes the last `n` taken chains available again.
    fn untake(&mut self, n: u16);
    /// Sets the number of bytes written into the chain that was taken last. Without this call the
    /// chain counts as read only.
    fn written(&mut self, bytes: u32);
    /// Returns the buffer of a chain that has one buffer, in one region. This is the common case,
    /// and it needs no staging.
    fn single<'t>(&mut self, memory: &'t GuestMemory, first: &First, direction: Direction)
    -> Option<MemorySegment<'t>>;
    /// Stages all buffers of a chain that the last [`Self::find`] returned. On a fault nothing
    /// stays staged.
    fn chain<'t>(
        &mut self,
        memory: &'t GuestMemory,
        turn: &mut Turn<'t>,
        first: &First,
        direction: Direction,
    ) -> Result<Chain, Fault>;
    /// Gives back the oldest `n` taken chains.
    fn give_back(&mut self, n: u16);
    /// Returns the number of chains taken and not given back.
    fn outstanding(&self) -> u16;
    /// Returns the number of entries known to be available without a look at the ring: chains, or
    /// descriptors in a packed ring.
    fn known(&self) -> u16;
    /// Returns the number of descriptors that the last [`Self::find`] read behind the first ones of
    /// its chains.
    fn followed(&self) -> u32;
    /// Returns whether the taken chains are all that the ring can hold, so that the driver has no
    /// more to give.
    fn is_all_taken(&self) -> bool;
}

/// A ring of either layout, for operations that run once a burst or less.
#[derive(Debug)]
pub enum Ring {
    /// A split ring (virtio 1.2, 2.7).
    Split(SplitDevice),
    /// A packed ring (virtio 1.2, 2.8).
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
    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        both!(self, ring => ring.size())
    }

    /// Returns the position at which the ring's next device half continues, in vhost-user's form.
    pub fn base(&self) -> u32 {
        match self {
            Ring::Split(ring) => ring.base().into(),
            Ring::Packed(ring) => ring.base(),
        }
    }

    /// Sets the log in which all later writes to the ring are marked.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        both!(self, ring => ring.set_log(log));
    }

    /// Sets the in-flight table in which this half keeps its position from now on; `None` stops
    /// that.
    pub fn track(&mut self, inflight: Option<Inflight>) {
        let position = self.used();
        inflight.iter().for_each(|table| table.begin(position));
        both!(self, ring => ring.inflight = inflight);
    }

    /// Returns whether this is a packed ring.
    pub fn is_packed(&self) -> bool {
        matches!(self, Ring::Packed(_))
    }

    /// Returns the number of chains taken and not given back.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        both!(self, ring => ring.outstanding())
    }

    /// Gives back the oldest `n` taken chains.
    #[inline]
    pub fn give_back(&mut self, n: u16) {
        both!(self, ring => ring.give_back(n));
    }

    /// Makes the last `n` taken chains available again.
    pub fn untake(&mut self, n: u16) {
        both!(self, ring => ring.untake(n));
    }

    /// Returns whether the memory of the ring has vanished.
    #[inline]
    pub fn poisoned(&self) -> bool {
        both!(self, ring => ring.poisoned())
    }

    /// Returns whether the driver asked for a notification of the chains given back since the last
    /// call.
    #[inline]
    pub fn must_notify(&mut self) -> bool {
        both!(self, ring => ring.must_notify())
    }

    /// Returns the position of the next used entry: an index, or in a packed ring an index with its
    /// wrap counter.
    #[inline]
    pub fn used(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.base().wrapping_sub(ring.outstanding()),
            Ring::Packed(ring) => ring.used_position(),
        }
    }

    /// Returns the progress of both sides, or `None` without the event index: then a ring does not
    /// show whether its driver waits.
    pub fn standing(&self) -> Option<Standing> {
        both!(self, ring => ring.standing())
    }

    /// Asks the driver for a kick once there are more than `beyond` chains (descriptors in a packed
    /// ring). Returns true if there are already.
    pub fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
        both!(self, ring => ring.arm(beyond))
    }

    /// Asks the driver for no kicks: the worker polls.
    pub fn disarm(&mut self) {
        both!(self, ring => ring.disarm());
    }
}
