//! The way out, second half: prepends the headers of tunnels, delivers, and restores the packets.

use std::sync::Arc;

use az::SaturatingAs;
use straightline_graph::Port;
use straightline_packet::{Batch, ChangedPackets, Checksum, HEAD, PacketId, Packets, PortIndex, Reason, Turn};
use straightline_wire::{FrameLimit, MacAddr, checksum, ethernet, udp};

use crate::encap::too_big::Source;
use crate::encap::{Gathered, PacketSet, Target};
use crate::headers::{Headers, Macs};
use crate::tunnel::{Path, Tunnel};
use crate::{Gather, Underlay};

/// The packets that have outer headers at the moment. The slots of so many packets stay in the
/// second cache until they are restored.
pub(crate) type Round = ChangedPackets<64>;

/// Bytes of payload that segments of a TCP packet have at least. A packet with so long headers that
/// fewer would fit is too big.
const LEAST_PAYLOAD: u32 = 64;

/// The output of an underlay in one worker's graph. It delivers gathered packets of tunnels in
/// their headers, and all other packets as they are.
///
/// ```text
/// deliver packets that go through no tunnel
/// for each packet:     deliver the round, if it is full or has the packet already
///                      put the headers on, and add it to the round
/// deliver the last round
///
/// deliver a round:     the port delivers its packets; then all are restored ([`ChangedPackets`])
/// ```
#[derive(Debug)]
pub struct UnderlayOutput {
    underlay: Arc<Underlay>,
    port: Arc<dyn Port>,
    gather: Arc<Gather>,
}

impl UnderlayOutput {
    /// Returns the output that delivers to `port`, the underlay's port as this worker serves it.
    #[must_use]
    pub fn new(underlay: Arc<Underlay>, port: Arc<dyn Port>, gather: Arc<Gather>) -> Self {
        UnderlayOutput { underlay, port, gather }
    }

    /// Delivers the packets that go through no tunnel: answers, and packets of the underlay's own.
    fn deliver_others(&self, turn: &mut Turn<'_>, batch: &Batch, gathered: &PacketSet) {
        let mut others = Batch::new();
        batch.ids().iter().filter(|&&id| !gathered.contains(id)).for_each(|&id| others.push(id));
        self.port.deliver(turn, &others, false);
        observe(turn, &*self.port, &others);
    }

    /// Delivers the gathered packets in their headers.
    fn deliver_gathered(&self, turn: &mut Turn<'_>, gathered: &mut Gathered) {
        let Gathered { tunnels, ids, runs, packets, round } = gathered;
        // A flood sends a packet by several tunnels.
        let may_repeat = packets.len() < ids.len();
        let mut rest = &ids[..];
        for run in runs {
            let (ids, later) = rest.split_at(run.packets);
            rest = later;
            let Target { tunnel, remote, network } = run.target;
            let tunnel = &*tunnels[usize::from(tunnel)];
            let paths = tunnel.paths.load(turn.packets());
            let Some(path) = paths.get(remote) else { continue };
            let Some(headers) = path.headers.get(usize::from(network)) else { continue };
            let mut way = Way::new(&self.underlay, tunnel, path, headers, turn.now());
            match way.macs() {
                Ok(macs) => {
                    let mut ids = ids;
                    while let [first, ..] = ids {
                        if round.free() == 0 || may_repeat && round.contains(*first) {
                            deliver(round, turn, &*self.port);
                        }
                        let some = if may_repeat { 1 } else { round.free().min(ids.len()) };
                        way.put_on(turn, &ids[..some], &macs, round);
                        ids = &ids[some..];
                    }
                }
                Err(reason) => {
                    // A packet in the round has headers, so it could not be kept.
                    deliver(round, turn, &*self.port);
                    ids.iter().for_each(|&id| way.fail(turn, id, reason));
                }
            }
            way.count();
        }
        deliver(round, turn, &*self.port);
    }
}

impl Port for UnderlayOutput {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn index(&self) -> Option<PortIndex> {
        self.port.index()
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        let gathered = &mut *self.gather.lock();
        if gathered.packets.len() < batch.len() {
            self.deliver_others(turn, batch, &gathered.packets);
        }
        self.deliver_gathered(turn, gathered);
        gathered.clear();
    }

    fn makes_calls(&self) -> bool {
        self.port.makes_calls()
    }

    /// No port takes a GSO packet with outer headers as it is.
    fn sends(&self, turn: &Turn<'_>, id: PacketId) -> u32 {
        turn.segments(id)
    }

    fn deliveries(&self, batch: &Batch) -> usize {
        let gathered = self.gather.lock();
        batch.len().saturating_sub(gathered.packets.len()) + gathered.ids.len()
    }

    fn for_each_delivery(&self, batch: &Batch, each: &mut dyn FnMut(PacketId)) {
        let gathered = self.gather.lock();
        gathered.ids.iter().for_each(|&id| each(id));
        batch.ids().iter().filter(|&&id| !gathered.packets.contains(id)).for_each(|&id| each(id));
    }

    fn withdraw_left(&self, turn: &Turn<'_>) {
        self.gather.lock().retain(|id| !turn.is_left(id));
    }

    fn observes_deliveries(&self) -> bool {
        true
    }

    fn send_waiting(&self, turn: &Turn<'_>) -> bool {
        self.port.send_waiting(turn)
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Shows delivered packets to observers of the underlay's port, while they have their outer headers.
fn observe(turn: &mut Turn<'_>, port: &dyn Port, batch: &Batch) {
    if turn.is_observed() {
        turn.observe_delivery(port.index(), batch.ids());
    }
}

/// Delivers the packets of the round, and restores them.
fn deliver(round: &mut Round, turn: &mut Turn<'_>, port: &dyn Port) {
    if round.batch().is_empty() {
        return;
    }
    port.deliver(turn, round.batch(), false);
    observe(turn, port, round.batch());
    round.restore(turn.packets());
}

/// The way of consecutive packets by one tunnel to one remote, and their number.
struct Way<'a> {
    underlay: &'a Underlay,
    tunnel: &'a Tunnel,
    path: &'a Path,
    /// The headers of the packets' network.
    headers: &'a Headers,
    /// Bytes of the longest inner packet, Ethernet included.
    longest: u32,
    /// The limit by the tunnel's own MTU, which a second tag may exceed.
    by_mtu: u32,
    /// The limit by the way, which nothing may exceed.
    by_path: u32,
    now: u32,
    /// Bytes of the longest inner packet that is sent.
    sent: u32,
    packets: u64,
    bytes: u64,
}

impl<'a> Way<'a> {
    #[inline]
    fn new(underlay: &'a Underlay, tunnel: &'a Tunnel, path: &'a Path, headers: &'a Headers, now: u32) -> Self {
        // A port takes a tag beyond its MTU. The underlay does not.
        let by_mtu = FrameLimit::new(tunnel.config.mtu).bytes();
        let by_path = u32::from(headers.mtu_inside(path.mtu.get(underlay.mtu(), now))) + u32::from(ETHERNET);
        let longest = by_mtu.min(by_path);
        Way { underlay, tunnel, path, headers, longest, by_mtu, by_path, now, sent: 0, packets: 0, bytes: 0 }
    }

    /// Returns the addresses of the outer Ethernet header, or the reason why no packet can be sent.
    #[inline]
    fn macs(&self) -> Result<Macs, Reason> {
        let src = self.underlay.mac().ok_or(Reason::LinkDown)?;
        let dst = self.path.hop.as_ref().and_then(|hop| self.underlay.neighbours.mac(hop));
        Ok(macs(src, dst.ok_or(Reason::NoNeighbour)?))
    }

    /// Puts the headers on packets and adds them to the round, which has space for them. Drops those
    /// for which that is not possible.
    #[inline(never)]
    fn put_on(&mut self, turn: &mut Turn<'_>, ids: &[PacketId], macs: &Macs, round: &mut Round) {
        for &id in ids {
            let packets = turn.packets();
            let len = packets.len(id);
            let put = round.change(packets, id, |packets, id| {
                if packets.is_gso(id) {
                    self.put_on_gso(packets, id, macs)
                } else if len <= self.longest || len <= self.by_path && packets.fits(id, len, self.by_mtu) {
                    self.headers.put_on(packets, id, macs).map(|()| len)
                } else {
                    Err(Reason::TooBig)
                }
            });
            match put {
                Ok(longest) => {
                    self.sent = self.sent.max(longest);
                    self.packets += 1;
                    self.bytes += u64::from(len);
                }
                Err(reason) => self.fail(turn, id, reason),
            }
        }
    }

    /// Puts the headers on a packet that is still to be segmented. Its segments become short enough
    /// for the underlay. Returns the bytes of the longest inner segment.
    #[inline(never)]
    fn put_on_gso(&self, packets: &mut Packets<'_>, id: PacketId, macs: &Macs) -> Result<u32, Reason> {
        let Some(gso) = packets.offload(id).gso else { return Err(Reason::SegmentHeaders) };
        let longest = self.longest.saturating_sub(gso.header_len.into());
        if u32::from(gso.size) > longest && !(gso.kind.is_tcp() && longest >= LEAST_PAYLOAD) {
            return Err(Reason::TooBig);
        }
        packets.set_gso_size(id, longest.saturating_as::<u16>());
        let segment = u32::from(gso.size).min(longest) + u32::from(gso.header_len);
        let longest = segment.min(packets.len(id));
        self.headers.put_on_gso(packets, id, macs).map(|()| longest)
    }

    /// Deals with a packet that cannot be sent now.
    #[cold]
    fn fail(&mut self, turn: &mut Turn<'_>, id: PacketId, reason: Reason) {
        if reason == Reason::NoNeighbour && self.keep(turn, id) {
            self.packets += 1;
            self.bytes += u64::from(turn.len(id));
            return;
        }
        if reason == Reason::TooBig {
            self.tell_sender(turn.packets(), id);
        }
        turn.drop_at(self.tunnel.port, &[id], reason);
        if turn.is_observed() {
            turn.observe_notes();
        }
    }

    /// Tells the sender of a packet that is too long which length would fit.
    fn tell_sender(&self, packets: &mut Packets<'_>, id: PacketId) {
        let Ok(layout) = packets.layout(id) else { return };
        let fits = self.longest.saturating_sub(layout.payload.into());
        let mtu = fits.saturating_as::<u16>().min(self.tunnel.config.mtu);
        // A bridge finds the VLAN of other tunnels' frames itself.
        let vlan = self.tunnel.networks.as_ref().and_then(|_| packets.vlan(id));
        let source = Source { port: packets.port(id), vlan };
        self.tunnel.too_big(packets.head(id), &layout, source, mtu, self.now);
    }

    /// Leaves a small packet with the table of next hops until the next hop has answered. Returns
    /// `false` if the packet is too long, or another one waits already: then nothing is locked.
    fn keep(&self, turn: &mut Turn<'_>, id: PacketId) -> bool {
        let (Some(hop), Some(src)) = (&self.path.hop, self.underlay.mac()) else { return false };
        let packets = turn.packets();
        let has_kept = self.underlay.neighbours.has_kept(hop);
        if has_kept || packets.offload(id).gso.is_some() || packets.len(id) > self.longest {
            return false;
        }
        let outside = packets.save_outside(id);
        let put = self.headers.put_on(packets, id, &macs(src, MacAddr::default()));
        let is_kept = put.is_ok() && packets.body_len(id) == 0 && {
            let mut bytes = [0; HEAD];
            let whole = packets.head(id);
            let copy = bytes.get_mut(..whole.len());
            copy.is_some_and(|copy| {
                copy.copy_from_slice(whole);
                finish(copy, packets.offload(id).checksum);
                self.underlay.neighbours.keep(hop, copy)
            })
        };
        packets.restore_outside(id, &outside);
        is_kept
    }

    /// Counts the packets for the tunnel, and notes the longest.
    #[inline]
    fn count(&self) {
        if self.sent > 0 {
            self.path.mtu.note_sent(self.headers.ip_len(self.sent), self.now);
        }
        let tx = &self.tunnel.counters.tx;
        tx.packets.add_shared(self.packets);
        tx.bytes.add_shared(self.bytes);
    }
}

fn macs(src: MacAddr, dst: MacAddr) -> Macs {
    let mut macs = [0; 12];
    macs[..6].copy_from_slice(&dst.0);
    macs[6..].copy_from_slice(&src.0);
    macs
}

/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;
const _: () = assert!(ETHERNET as usize == ethernet::LEN);

/// Finishes the checksum of a packet.
fn finish(packet: &mut [u8], state: Checksum) {
    let Checksum::Partial { start, offset } = state else { return };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let value = udp::checksum_of(checksum::sum(packet.get(start..).unwrap_or_default()));
    if let Some(to) = packet.get_mut(field..field + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
