//! A receive and a transmit ring of either layout. The layout is tested once per burst.

use straightline_virtio::ring::{Buffers, Bursts, DeviceFault, PackedBursts, PackedDriver, SplitBursts, SplitDriver};

use super::connection::Connection;
use super::memory::Memory;
use super::options::{Layout, PortOptions};
use crate::guest::driver::Driver;

/// The ring that the backend fills.
#[derive(Debug)]
pub(super) enum Receive {
    Split(SplitBursts),
    Packed(PackedBursts),
}

/// The ring from which the backend sends.
#[derive(Debug)]
pub(super) enum Transmit {
    Split(SplitBursts),
    Packed(PackedBursts),
    /// A transmit ring whose packets may be in several buffers.
    SplitChains(Chains<SplitDriver>),
    PackedChains(Chains<PackedDriver>),
}

/// Compiles the given code once for each layout.
macro_rules! either {
    ($ring:expr, $half:ident => $body:expr) => {
        match $ring {
            Receive::Split($half) => $body,
            Receive::Packed($half) => $body,
        }
    };
}

impl Receive {
    pub(super) fn new(connection: &Connection, memory: &Memory, options: &PortOptions) -> anyhow::Result<Receive> {
        let buffers = Buffers::Receive(options.buffer_len);
        Ok(match options.layout {
            Layout::Split => Receive::Split(connection.bursts(0, memory, options, buffers)?),
            Layout::Packed => Receive::Packed(connection.bursts(0, memory, options, buffers)?),
        })
    }

    /// Takes at most `most` buffers that the backend has filled. Appends the address and length of
    /// each buffer to `into`.
    #[inline]
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<(u64, u32)>) -> Result<usize, DeviceFault> {
        either!(self, half => half.collect(most, |addr, len| into.push((addr, len))))
    }

    /// Gives buffers to the backend, which will fill them.
    #[inline]
    pub(super) fn give(&mut self, buffers: impl Iterator<Item = u64>) -> usize {
        let buffers = buffers.map(|addr| (addr, 0));
        either!(self, half => half.fill(buffers))
    }

    pub(super) fn kick_due(&mut self) -> bool {
        either!(self, half => half.kick_due())
    }
}

impl Transmit {
    pub(super) fn new(connection: &Connection, memory: &Memory, options: &PortOptions) -> anyhow::Result<Transmit> {
        let buffers = Buffers::Transmit;
        Ok(match (options.layout, options.buffers_of_longest() > 1) {
            (Layout::Split, false) => Transmit::Split(connection.bursts(1, memory, options, buffers)?),
            (Layout::Packed, false) => Transmit::Packed(connection.bursts(1, memory, options, buffers)?),
            (Layout::Split, true) => {
                let mut driver = connection.ring(1, memory, options, SplitDriver::new)?;
                driver.want_interrupt(false);
                Transmit::SplitChains(Chains::new(driver, options))
            }
            (Layout::Packed, true) => {
                let mut driver = connection.ring(1, memory, options, PackedDriver::new)?;
                driver.want_interrupt(false);
                Transmit::PackedChains(Chains::new(driver, options))
            }
        })
    }

    /// Returns the number of buffers that fit into the ring.
    #[inline]
    pub(super) fn free(&self, size: usize) -> usize {
        match self {
            Transmit::Split(half) => size - half.out(),
            Transmit::Packed(half) => size - half.out(),
            Transmit::SplitChains(half) => half.driver.free().into(),
            Transmit::PackedChains(half) => half.driver.free().into(),
        }
    }

    /// Returns whether a packet may be in several buffers.
    #[inline]
    pub(super) fn chains(&self) -> bool {
        self.longest() > 1
    }

    /// Returns the maximum of buffers per packet.
    #[inline]
    pub(super) fn longest(&self) -> usize {
        match self {
            Transmit::Split(_) | Transmit::Packed(_) => 1,
            Transmit::SplitChains(half) => half.longest,
            Transmit::PackedChains(half) => half.longest,
        }
    }

    /// Makes packets available. The caller has checked that all packets fit. If a packet may be in
    /// several buffers, `spans` has the number of buffers of each packet; otherwise `spans` is not
    /// read.
    #[inline]
    pub(super) fn send(&mut self, buffers: &[(u64, u32)], spans: &[u16]) {
        match self {
            Transmit::Split(half) => _ = half.fill(buffers.iter().copied()),
            Transmit::Packed(half) => _ = half.fill(buffers.iter().copied()),
            Transmit::SplitChains(half) => half.send(buffers, spans),
            Transmit::PackedChains(half) => half.send(buffers, spans),
        }
    }

    /// Takes back all buffers that the backend has used.
    #[inline]
    pub(super) fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault> {
        match self {
            Transmit::Split(half) => half.reclaim(spare),
            Transmit::Packed(half) => half.reclaim(spare),
            Transmit::SplitChains(half) => half.reclaim(spare),
            Transmit::PackedChains(half) => half.reclaim(spare),
        }
    }

    pub(super) fn kick_due(&mut self) -> bool {
        match self {
            Transmit::Split(half) => half.kick_due(),
            Transmit::Packed(half) => half.kick_due(),
            Transmit::SplitChains(half) => half.driver.must_kick(),
            Transmit::PackedChains(half) => half.driver.must_kick(),
        }
    }
}

/// A transmit ring whose packets may be in several buffers.
#[derive(Debug)]
pub(super) struct Chains<D> {
    driver: D,
    /// The maximum of buffers per packet.
    longest: usize,
    /// The buffers of each chain in flight, by its id. Each id has `longest` places, of which the
    /// first `count` are used.
    of: Box<[u64]>,
    count: Box<[u16]>,
    /// Buffers of a chain, in the form that the driver half takes.
    parts: Vec<(u64, u32, bool)>,
}

impl<D: Driver> Chains<D> {
    fn new(driver: D, options: &PortOptions) -> Self {
        let size = usize::from(options.queue_size);
        let longest = options.buffers_of_longest();
        Chains {
            driver,
            longest,
            of: vec![0; size * longest].into_boxed_slice(),
            count: vec![0; size].into_boxed_slice(),
            parts: Vec::with_capacity(longest),
        }
    }

    fn send(&mut self, buffers: &[(u64, u32)], spans: &[u16]) {
        let mut rest = buffers;
        for &span in spans {
            let Some((packet, behind)) = rest.split_at_checked(span.into()) else { break };
            rest = behind;
            self.parts.clear();
            self.parts.extend(packet.iter().map(|&(addr, len)| (addr, len, false)));
            let Some(id) = self.driver.add(&self.parts) else { break };
            let of = &mut self.of[usize::from(id) * self.longest..][..self.longest];
            of.iter_mut().zip(packet).for_each(|(of, &(addr, _))| *of = addr);
            self.count[usize::from(id)] = span;
        }
        self.driver.publish();
    }

    fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault> {
        let mut packets = 0;
        while let Some(used) = self.driver.used() {
            let id = usize::from(used?.0);
            // The first buffer of a chain is reused first. So buffers keep their places in frames,
            // and with them the parts of templates that they hold.
            spare.extend(self.of[id * self.longest..][..usize::from(self.count[id])].iter().rev());
            packets += 1;
        }
        Ok(packets)
    }
}
