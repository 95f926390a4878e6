//! The way out, first half: packets for tunnels are gathered for one delivery to the underlay.

pub(crate) mod output;
pub(crate) mod too_big;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use az::SaturatingAs;
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, IgnorePoison, MAX_BATCH, PacketId, Packets, Reason};
use straightline_wire::{Question, VlanId, ethernet, ndp, vlan};

use crate::Tunnel;
use crate::encap::output::Round;
use crate::tunnel::face::Face;
use crate::tunnel::inside::is_ip;
use crate::tunnel::networks::Networks;
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

/// The end of packets that go out: a remote of a tunnel, in one of the tunnel's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Index of the tunnel in [`Gathered::tunnels`].
    pub(crate) tunnel: u16,
    /// Index of the remote in [`Tunnel::paths`].
    pub(crate) remote: u16,
    /// Index of the network in [`Path::headers`](crate::tunnel::Path::headers).
    pub(crate) network: u16,
}

/// Consecutive packets that have one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) target: Target,
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
    /// Adds packets that go to a target.
    fn add(&mut self, target: Target, ids: &[PacketId]) {
        self.ids.extend_from_slice(ids);
        match self.runs.last_mut() {
            Some(run) if run.target == target => run.packets += ids.len(),
            _ => self.runs.push(Run { target, packets: ids.len() }),
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
/// In a tunnel with several networks, the VLAN that the bridge has noted chooses the network. A
/// packet of another VLAN is dropped.
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

    /// Sends packets of one network. `vlan` is that of their stations.
    #[inline]
    fn send(&self, packets: &mut Packets<'_>, ids: &[PacketId], network: u16, vlan: VlanId, next: &mut Next<'_>) {
        packets.note_delivered(self.tunnel.port, ids);
        match &self.tunnel.remotes {
            None => self.to_one(ids, 0, network, next),
            Some(remotes) => self.to_several(remotes, packets, ids, network, vlan, next),
        }
    }

    /// Sends each packet in the network of its VLAN.
    fn by_network(&self, networks: &Networks, packets: &mut Packets<'_>, ids: &[PacketId], next: &mut Next<'_>) {
        let vlan_of = |packets: &Packets<'_>, id| packets.vlan(id).map(|vlan| vlan.id);
        let mut rest = ids;
        while let [first, ..] = rest {
            let vlan = vlan_of(packets, *first);
            let len = rest.iter().take_while(|&&id| vlan_of(packets, id) == vlan).count();
            let (run, later) = rest.split_at(len);
            rest = later;
            match vlan.and_then(|vlan| Some((networks.of_vlan(vlan)?, vlan))) {
                Some((network, vlan)) => self.send(packets, run, network, vlan, next),
                None => packets.drop_at(self.tunnel.port, run, Reason::VlanNotAllowed),
            }
        }
    }

    /// Sends packets to one remote.
    fn to_one(&self, ids: &[PacketId], remote: u16, network: u16, next: &mut Next<'_>) {
        let gathered = &mut *self.gather.lock();
        gathered.add(Target { tunnel: self.index, remote, network }, ids);
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
    fn to_several(
        &self,
        remotes: &Remotes,
        packets: &Packets<'_>,
        ids: &[PacketId],
        network: u16,
        vlan: VlanId,
        next: &mut Next<'_>,
    ) {
        let now = packets.now();
        let station_of = |id: PacketId| {
            let dst = ethernet::Header::new_checked(packets.head(id)).ok()?.dst();
            if dst.is_multicast() { None } else { Some(dst) }
        };
        remotes.prefetch(vlan, ids.iter().filter_map(|&id| station_of(id)));
        let remote_of = |id: PacketId| remotes.of(vlan, station_of(id)?, now);
        let paths = self.tunnel.paths.load(packets);
        let mut targets = [None; MAX_BATCH];
        let targets = &mut targets[..ids.len()];
        targets.iter_mut().zip(ids).for_each(|(target, &id)| *target = remote_of(id));
        if targets.iter().all(Option::is_some) {
            for (&id, target) in ids.iter().zip(&*targets) {
                self.to_one(&[id], target.map_or(0, |RemoteIndex(at)| at), network, next);
            }
            return;
        }
        // Remote by remote: consecutive entries then have different packets, which go in one round.
        for RemoteIndex(remote) in paths.indices() {
            for (&id, target) in ids.iter().zip(&*targets) {
                if target.is_none_or(|RemoteIndex(at)| at == remote) {
                    self.to_one(&[id], remote, network, next);
                }
            }
        }
    }

    /// Selects the packets that a tunnel carries which does not carry all.
    fn select(&self, packets: &mut Packets<'_>, batch: &Batch) -> Batch {
        match &self.tunnel.face {
            Some(face) => self.without_ethernet(face, packets, batch),
            None => self.without_tag(packets, batch),
        }
    }

    /// Selects the packets without a VLAN tag.
    fn without_tag(&self, packets: &mut Packets<'_>, batch: &Batch) -> Batch {
        let mut selected = Batch::new();
        for &id in batch.ids() {
            if has_vlan_tag(packets, id) {
                packets.drop_at(self.tunnel.port, &[id], Reason::VlanNotAllowed);
            } else {
                selected.push(id);
            }
        }
        selected
    }

    /// Selects the packets that a tunnel of IP carries. It answers questions for MAC addresses.
    fn without_ethernet(&self, face: &Face, packets: &mut Packets<'_>, batch: &Batch) -> Batch {
        let mut selected = Batch::new();
        for &id in batch.ids() {
            let head = packets.head(id);
            // It carries no IP behind a tag, so it does not answer behind one, either.
            match Question::of(head).filter(|_| vlan::skip_priority(head).is_ok_and(|(_, at)| at == ethernet::LEN)) {
                None if is_ip(head) => {
                    if let Ok(header) = ethernet::Header::new_checked(head) {
                        face.learn(header.src());
                    }
                    selected.push(id);
                }
                None => packets.drop_at(self.tunnel.port, &[id], Reason::NotIp),
                Some(asked) => {
                    face.learn(asked.by());
                    let answer = asked.answer(face.mac(), ndp::Flags::NONE);
                    let outbox = &self.tunnel.underlay.outbox;
                    if !answer.is_ok_and(|answer| outbox.push_for(&self.tunnel.places, answer.bytes(), None)) {
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
        if self.tunnel.paths.load(packets).is_empty() {
            return packets.drop_at(self.tunnel.port, batch.ids(), Reason::LinkDown);
        }
        let selected;
        let batch = if self.tunnel.is_selective {
            selected = self.select(packets, batch);
            &selected
        } else {
            batch
        };
        match &self.tunnel.networks {
            None => self.send(packets, batch.ids(), 0, VlanId::DEFAULT, next),
            Some(networks) => self.by_network(networks, packets, batch.ids(), next),
        }
    }
}

/// Returns whether a frame has the tag of a VLAN. A tag with VID 0 tells its priority only (IEEE 802.1Q,
/// 6.9.1). More of them than receivers agree on may hide another one.
pub(crate) fn has_vlan_tag(packets: &mut Packets<'_>, id: PacketId) -> bool {
    const WITH_TAGS: usize = ethernet::LEN + vlan::LEN * (vlan::MAX_PRIORITY_TAGS + 1);
    let len = packets.len(id) as usize;
    packets.pull_up(id, len.min(WITH_TAGS));
    let head = packets.head(id);
    match vlan::skip_priority(head) {
        Ok((ether_type, _)) => ether_type.is_vlan(),
        Err(_) => ethernet::Header::new_checked(head).is_ok_and(|header| header.ether_type().is_vlan()),
    }
}
