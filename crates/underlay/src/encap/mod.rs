//! The way out, first half: packets for tunnels are gathered for one delivery to the underlay.

pub(crate) mod output;
pub(crate) mod too_big;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use az::SaturatingAs;
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, IgnorePoison, MAX_BATCH, PacketId, Packets, Reason};
use straightline_wire::ethernet;

use crate::Tunnel;
use crate::encap::output::Round;
use crate::tunnel::inside::Asked;
use crate::tunnel::remotes::{RemoteIndex, Remotes};

/// The packets of a turn that go out by tunnels of one underlay, in one worker.
///
/// One packet may go out by several tunnels, so a batch cannot hold them: it holds each packet once.
#[derive(Debug, Default)]
pub struct Gather(Mutex<Gathered>);

/// The content of a [`Gather`].
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The tunnels of all [`Encap`] nodes with this gather.
    pub(crate) tunnels: Vec<Arc<Tunnel>>,
    /// The packets, in the order in which they go out.
    pub(crate) ids: Vec<PacketId>,
    /// The tunnels of `ids`, from the first to the last.
    pub(crate) runs: Vec<Run>,
    /// The packets in `ids`.
    pub(crate) packets: PacketSet,
    /// Memory of the output, which is used again in each turn.
    pub(crate) round: Round,
}

/// Consecutive packets that go out by one tunnel to one of its remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the tunnel in [`Gathered::tunnels`].
    pub(crate) tunnel: u16,
    /// Index of the remote in [`Tunnel::paths`].
    pub(crate) remote: u16,
    pub(crate) packets: usize,
}

/// A set of packets of one turn. Each has a byte, because changing one bit after the other of a
/// word takes longer.
#[derive(Clone)]
pub(crate) struct PacketSet {
    has: [bool; MAX_BATCH],
    len: usize,
}

impl Gather {
    /// Locks the content. Only one worker uses it, so it never waits.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().ignore_poison()
    }
}

impl Gathered {
    /// Adds packets that go out by a tunnel to a remote.
    fn add(&mut self, tunnel: u16, remote: u16, ids: &[PacketId]) {
        self.ids.extend_from_slice(ids);
        match self.runs.last_mut() {
            Some(run) if run.tunnel == tunnel && run.remote == remote => run.packets += ids.len(),
            _ => self.runs.push(Run { tunnel, remote, packets: ids.len() }),
        }
    }

    /// Keeps the packets for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl Fn(PacketId) -> bool) {
        let mut from = 0;
        for run in &mut self.runs {
            let ids = &self.ids[from..from + run.packets];
            from += run.packets;
            run.packets = ids.iter().filter(|&&id| keep(id)).count();
        }
        self.ids.retain(|&id| keep(id));
        self.packets.clear();
        self.ids.iter().for_each(|&id| _ = self.packets.insert(id));
    }

    /// Removes all packets.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.runs.clear();
        self.packets.clear();
    }
}

impl Default for PacketSet {
    fn default() -> Self {
        PacketSet { has: [false; MAX_BATCH], len: 0 }
    }
}

impl fmt::Debug for PacketSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSet").field("len", &self.len).finish_non_exhaustive()
    }
}

impl PacketSet {
    /// Adds a packet. Returns `true` if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: PacketId) -> bool {
        let is_new = !std::mem::replace(&mut self.has[id.index()], true);
        self.len += usize::from(is_new);
        is_new
    }

    /// Returns whether a packet is in the set.
    #[inline]
    pub(crate) fn contains(&self, id: PacketId) -> bool {
        self.has[id.index()]
    }

    /// Returns the number of packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Removes all packets.
    #[inline]
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Sends the packets of one tunnel to its underlay. Edge 0 leads to the [`UnderlayOutput`] that has
/// the same [`Gather`].
///
/// It ends the graph for packets that the tunnel cannot send, as a port's output does: they count
/// as drops of the tunnel, and other outputs may send the same packets.
///
/// A tunnel with several remotes sends a packet for a known station to its remote, and all other
/// packets to each remote (head-end replication). A packet that came from a remote is not sent to
/// another one, because no patch or bridge returns a packet to the port that it came from.
///
/// [`UnderlayOutput`]: crate::UnderlayOutput
#[derive(Debug)]
pub struct Encap {
    gather: Arc<Gather>,
    tunnel: Arc<Tunnel>,
    /// Index of the tunnel in [`Gathered::tunnels`].
    index: u16,
}

impl Encap {
    /// Returns the node of a tunnel.
    #[must_use]
    pub fn new(gather: Arc<Gather>, tunnel: Arc<Tunnel>) -> Self {
        let mut gathered = gather.lock();
        // Ports are counted by 16 bits, and so are tunnels.
        let index = gathered.tunnels.len().saturating_as::<u16>();
        gathered.tunnels.push(Arc::clone(&tunnel));
        gathered.ids.reserve(MAX_BATCH);
        gathered.runs.reserve(MAX_BATCH);
        drop(gathered);
        Encap { gather, tunnel, index }
    }

    /// Sends packets to one remote.
    fn to_one(&self, ids: &[PacketId], remote: u16, next: &mut Next<'_>) {
        let gathered = &mut *self.gather.lock();
        gathered.add(self.index, remote, ids);
        if gathered.packets.len() == 0 {
            // The first tunnel of the turn, which is mostly the only one: all packets are new.
            ids.iter().for_each(|&id| _ = gathered.packets.insert(id));
            return next.extend(0, ids);
        }
        for &id in ids {
            if gathered.packets.insert(id) {
                next.push(0, id);
            }
        }
    }

    /// Sends each packet to the remote of its station, or to all. To each remote, packets go in the
    /// order of the batch.
    fn to_several(&self, remotes: &Remotes, packets: &Packets<'_>, ids: &[PacketId], next: &mut Next<'_>) {
        let now = packets.now();
        let remote_of = |id: PacketId| {
            let dst = ethernet::Header::new_checked(packets.head(id)).ok()?.dst();
            if dst.is_multicast() { None } else { remotes.of(dst, now) }
        };
        let mut targets = [None; MAX_BATCH];
        let targets = &mut targets[..ids.len()];
        targets.iter_mut().zip(ids).for_each(|(target, &id)| *target = remote_of(id));
        if targets.iter().all(Option::is_some) {
            for (&id, target) in ids.iter().zip(&*targets) {
                self.to_one(&[id], target.map_or(0, |RemoteIndex(at)| at), next);
            }
            return;
        }
        // Remote by remote: consecutive entries then have different packets, which go in one round.
        for remote in (0..).take(self.tunnel.paths.len()) {
            for (&id, target) in ids.iter().zip(&*targets) {
                if target.is_none_or(|RemoteIndex(at)| at == remote) {
                    self.to_one(&[id], remote, next);
                }
            }
        }
    }

    /// Selects the packets that a tunnel of IP carries. It answers questions for MAC addresses.
    fn without_ethernet(&self, packets: &mut Packets<'_>, batch: &Batch) -> Batch {
        let mut selected = Batch::new();
        let Some(face) = &self.tunnel.face else { return selected };
        for &id in batch.ids() {
            let head = packets.head(id);
            match Asked::of(head) {
                None if Asked::is_ip(head) => {
                    if let Ok(header) = ethernet::Header::new_checked(head) {
                        face.learn(header.src());
                    }
                    selected.push(id);
                }
                None => packets.drop_at(self.tunnel.port, &[id], Reason::NotIp),
                Some(asked) => {
                    face.learn(asked.by());
                    let answer = asked.answer(face.mac());
                    let outbox = &self.tunnel.underlay.outbox;
                    if !answer.is_ok_and(|answer| outbox.push_for(&self.tunnel.places, answer.bytes())) {
                        packets.drop_at(self.tunnel.port, &[id], Reason::AnswerLimit);
                    }
                }
            }
        }
        selected
    }
}

impl Node for Encap {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        if self.tunnel.is_set_down() {
            return packets.drop_at(self.tunnel.port, batch.ids(), Reason::SetDown);
        }
        let selected;
        let batch = if self.tunnel.face.is_some() {
            selected = self.without_ethernet(packets, batch);
            &selected
        } else {
            batch
        };
        packets.note_delivered(self.tunnel.port, batch.ids());
        match &self.tunnel.remotes {
            None => self.to_one(batch.ids(), 0, next),
            Some(remotes) => self.to_several(remotes, packets, batch.ids(), next),
        }
    }
}
