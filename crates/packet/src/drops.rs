//! Why packets are dropped, and how often: one counter for each reason, for each port.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet went no further. Its name is what operators see.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])+ $variant,)+ }

        impl Reason {
            /// Every reason, in the order of their indexes.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)+];

            /// The reason as operators see it.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)+ }
            }

            /// One line of meaning.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$variant => concat!($($doc,)+),)+ }
            }
        }
    };
}

reasons! {
    /// The receiving guest had given no buffer, twice.
    NoBuffer = "no-buffer",
    /// Longer than the port's MTU and 18 bytes, or than any port may carry.
    TooBig = "too-big",
    /// Shorter than an Ethernet header.
    Runt = "runt",
    /// The destination's link is down.
    LinkDown = "link-down",
    /// An administrator has set the port's link down.
    SetDown = "set-down",
    /// The ring is set up, but its frontend has disabled it.
    RingDisabled = "ring-disabled",
    /// The port is in no patch and no bridge.
    NotConnected = "not-connected",
    /// The bridge would have sent the frame back where it came from.
    SamePort = "same-port",
    /// The frame's source address is none that a station can have.
    BadSource = "bad-source",
    /// The frame claims an address that its port's `source-check` does not allow, or hides what it claims.
    Spoofed = "spoofed",
    /// The frame is for the next bridge alone (01:80:c2:00:00:00 to 0f) and goes no further.
    LinkLocal = "link-local",
    /// A node of the program that embeds the switch would not have it.
    Node = "node",
    /// A descriptor names memory that the guest does not have.
    BadAddress = "bad-address",
    /// A descriptor is writable where it must be readable, or the other way round.
    BadDirection = "bad-direction",
    /// An indirect table is empty, too long, nested or no multiple of a descriptor.
    BadIndirect = "bad-indirect",
    /// A chain is shorter than the virtio-net header.
    ShortChain = "short-chain",
    /// A chain holds more bytes than a frame can have.
    LongChain = "long-chain",
    /// The virtio-net header asks for what was not negotiated or does not exist.
    BadHeader = "bad-header",
    /// The checksum's start or field lies outside the packet.
    ChecksumRange = "checksum-range",
    /// The checksum's field lies deeper in the packet than a head can reach.
    ChecksumDepth = "checksum-depth",
    /// The segment size is zero, below what a segment needs, or above what the port may carry.
    SegmentSize = "segment-size",
    /// The headers of a packet to be segmented cannot be followed.
    SegmentHeaders = "segment-headers",
    /// The receiving guest's buffer is too small and its driver cannot merge buffers.
    BufferTooSmall = "buffer-too-small",
    /// The receiving guest's buffers are too small or have too many descriptors: looking at them would hold up a turn.
    ManyDescriptors = "many-descriptors",
    /// Guest memory vanished while it was used.
    MemoryFault = "memory-fault",
}

/// The counters of one port: one for each [`Reason`]. Written by workers, read by anybody, without a lock. On lines of
/// their own: other workers write those of other ports.
#[derive(Debug)]
#[repr(align(128))]
pub struct Drops([AtomicU64; Reason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Drops([const { AtomicU64::new(0) }; Reason::ALL.len()])
    }
}

impl Drops {
    /// Counts `n` packets.
    #[inline]
    pub fn add(&self, reason: Reason, n: u64) {
        self.0[reason as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Takes back one that was counted too early.
    pub(crate) fn take_back(&self, reason: Reason) {
        self.0[reason as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// How many packets were dropped for `reason`.
    pub fn count(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// The reasons that have struck, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&r| (r, self.count(r))).filter(|&(_, n)| n > 0)
    }

    /// Adds what others have counted.
    pub fn absorb(&self, other: &Drops) {
        other.nonzero().for_each(|(reason, n)| self.add(reason, n));
    }

    /// All packets dropped.
    pub fn total(&self) -> u64 {
        Reason::ALL.iter().map(|&r| self.count(r)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_the_order_of_all() {
        for (i, &r) in Reason::ALL.iter().enumerate() {
            assert_eq!(r as usize, i);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
