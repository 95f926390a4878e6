//! The way in: finds the tunnel of each packet, removes its headers, and sends it on.
//!
//! A packet is read once, from the outside to the inside:
//!
//! 1. Ethernet, VLAN tag and IP ([`Carrier`]), then the tunnel's own header ([`TunnelHeader`]).
//! 2. The addresses and the key name the tunnel.
//! 3. The cookie, the lengths and the outer checksum are checked.
//! 4. The headers and the bytes behind the outer packet are removed. The congestion mark of the
//!    outer header goes to the inner packet.
//!
//! Most packets have the headers of the packet before them. A [`Template`] recognises these, so that
//! steps 1 and 2 and the cookie are one comparison.
//!
//! From step 3 on the packet counts as the tunnel's own, so the tunnel's port has its drops.
//! Packets that no step knows go to [`Underlay::answer`].

pub(crate) mod carrier;
pub(crate) mod found;
pub(crate) mod template;
pub(crate) mod tunnel_header;
pub(crate) mod verify;

use std::sync::Arc;

use az::SaturatingAs;
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Checksum, Offload, PacketId, Packets, Reason, StripError, unfinished, unfinished_ip};
use straightline_wire::ecn::{self, Ecn};
use straightline_wire::{EtherType, FrameLimit, MacAddr, ethernet, ipv4, ipv6, vlan};

use crate::answer::Answered;
use crate::decap::carrier::Carrier;
use crate::decap::found::Found;
use crate::decap::template::Template;
use crate::decap::tunnel_header::TunnelHeader;
use crate::decap::verify::verify;
use crate::encap::has_vlan_tag;
use crate::kind::{BAD_HEADER, Carries, Refusal};
use crate::tunnel::lookup::{Key, Place};
use crate::{Tunnel, TunnelKind, Tunnels, Underlay};

/// Packets between the one at work and the one that is prefetched.
const AHEAD: usize = 4;

/// Bytes of an inner frame that hold its headers: two VLAN tags, IP without many options, TCP.
const INNER_HEADERS: usize = 128;

/// The node behind an underlay's port. Edge 0 leads back to the underlay, and one edge for each
/// tunnel leads to its patch or bridge, in the order of [`Tunnels`].
#[derive(Debug)]
pub struct Decap {
    underlay: Arc<Underlay>,
    tunnels: Arc<Tunnels>,
    /// The headers of an earlier packet that was read field by field. They begin with `own`.
    last: Option<Template>,
    /// The headers that name the tunnel of the last packet that was read field by field.
    last_key: Option<Key>,
    /// The underlay's address. Broadcast while it is not known: broadcasts are sorted out before.
    own: MacAddr,
    /// A tunnel of GRE has a key, so that it may differ from an NVGRE tunnel by the flow's byte.
    has_gre_keys: bool,
    /// The number of changes of the tunnels' remotes that `last` knows.
    remote_changes: u64,
    /// A tunnel is one of GTP-U, so that we are an end of its paths (3GPP TS 29.281, 7.2).
    has_gtpu: bool,
}

/// Consecutive packets of one tunnel, for its counters.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    tunnel: u16,
    packets: u64,
    bytes: u64,
}

impl Decap {
    /// Returns the node of an underlay with these tunnels.
    #[must_use]
    pub fn new(underlay: Arc<Underlay>, tunnels: Arc<Tunnels>) -> Self {
        let has_gre_keys = tunnels.has_gre_keys();
        let has_gtpu = tunnels.has_gtpu();
        Decap {
            underlay,
            tunnels,
            last: None,
            last_key: None,
            own: MacAddr::BROADCAST,
            has_gre_keys,
            remote_changes: 0,
            has_gtpu,
        }
    }

    /// Removes the headers of a packet. Returns the place of its tunnel.
    #[inline]
    fn decapsulate(&mut self, packets: &mut Packets<'_>, id: PacketId) -> Result<u16, Refusal> {
        let head = packets.head(id);
        let len = packets.len(id) as usize;
        let found = match self.last.as_ref().and_then(|last| last.find(head, len)) {
            Some(found) => found,
            None => self.read(packets, id)?,
        };
        let tunnel = &self.tunnels.all()[usize::from(found.place.tunnel)];
        packets.set_port(id, tunnel.port);
        packets.set_vlan(id, found.place.vlan);
        open(packets, id, tunnel, &found).map_err(Refusal::Drop)?;
        if let Some(remotes) = &tunnel.remotes
            && let Some(source) = source(packets.head(id))
        {
            remotes.learn(found.place.station_vlan(), source, found.place.remote, packets.now());
        }
        Ok(found.place.tunnel)
    }

    /// Reads the headers of a packet field by field, and finds its tunnel.
    #[inline(never)]
    fn read(&mut self, packets: &mut Packets<'_>, id: PacketId) -> Result<Found, Refusal> {
        let head = packets.head(id);
        match destination(head) {
            // ARP and neighbour discovery ask by broadcast and multicast. Tunnels are unicast.
            Some(mac) if mac.is_multicast() => return Err(Refusal::Other),
            Some(mac) if mac == self.own => {}
            _ => return Err(Refusal::Drop(Reason::NotOurs)),
        }
        let len = packets.len(id) as usize;
        let (carrier, mut header) = match self.parse(head, len) {
            Err(BAD_HEADER) if head.len() < len => self.parse_deep(packets, id)?,
            parsed => parsed?,
        };
        let place = match self.tunnels.find(&header.key, packets) {
            Some(place) => place,
            None => self.find_nvgre(&carrier, &mut header, packets)?,
        };
        let tunnel = &self.tunnels.all()[usize::from(place.tunnel)];
        let mut has_sublayer = false;
        if let TunnelKind::L2tpv3 { cookie, previous_cookie, l2spec, .. } = &tunnel.config.kind {
            let cookies = [Some(cookie), previous_cookie.as_ref()];
            has_sublayer = *l2spec;
            header = header.behind_cookie(packets.head(id), cookies, has_sublayer).map_err(|reason| {
                packets.set_port(id, tunnel.port);
                Refusal::Drop(reason)
            })?;
        }
        let found = Found::new(place, &carrier, &header, has_sublayer);
        let is_tagged = self.underlay.config.vlan.is_some();
        // A template is worth its cost when a second packet has the headers.
        if self.last_key == Some(header.key) {
            self.last = Template::new(packets.head(id), &carrier, &header, found, is_tagged);
        }
        self.last_key = Some(header.key);
        Ok(found)
    }

    #[inline]
    fn parse(&self, head: &[u8], len: usize) -> Result<(Carrier, TunnelHeader), Refusal> {
        let carrier = Carrier::parse(head, len, &self.underlay)?;
        Ok((carrier, TunnelHeader::parse(head, &carrier)?))
    }

    /// Parses a packet whose headers may be longer than its head is now. Geneve, for example, has
    /// up to 252 bytes of options.
    #[cold]
    fn parse_deep(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(Carrier, TunnelHeader), Refusal> {
        let len = packets.len(id) as usize;
        packets.pull_up(id, len.min(packets.max_head(id)));
        self.parse(packets.head(id), len)
    }

    /// Finds the NVGRE tunnel that the headers name. No tunnel has their key whole.
    fn find_nvgre(
        &self,
        carrier: &Carrier,
        header: &mut TunnelHeader,
        packets: &Packets<'_>,
    ) -> Result<Place, Refusal> {
        if let Some(key) = header.as_nvgre(carrier)
            && let Some(place) = self.tunnels.find(&key, packets)
        {
            // Without keys of GRE, the flow's byte decides nothing.
            if !self.has_gre_keys {
                header.key = key;
            }
            return Ok(place);
        }
        let is_own = self.underlay.is_own(carrier.ends.local());
        Err(Refusal::Drop(if is_own { Reason::TunnelUnknown } else { Reason::NotOurs }))
    }

    /// Counts the packets of a run for their tunnel.
    fn count(&self, run: Run) {
        if run.packets > 0 {
            let rx = &self.tunnels.all()[usize::from(run.tunnel)].counters.rx;
            rx.packets.add_shared(run.packets);
            rx.bytes.add_shared(run.bytes);
        }
    }

    /// Sweeps the table of the tunnel of a batch's last packets: busy tunnels have their turns.
    #[inline]
    fn sweep(&self, run: Run, now: u32) {
        if run.packets > 0
            && let Some(remotes) = &self.tunnels.all()[usize::from(run.tunnel)].remotes
        {
            remotes.sweep(now);
        }
    }

    /// Sends on a packet that is no tunnel's.
    #[cold]
    fn answer(&self, packets: &mut Packets<'_>, id: PacketId, next: &mut Next<'_>) {
        match self.underlay.answer(packets, id) {
            Answered::Reply => next.push(0, id),
            Answered::Used => {}
            Answered::Drop(reason) => packets.discard(id, reason),
        }
    }
}

impl Node for Decap {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        // Until our address is known, no unicast packet is ours.
        let own = self.underlay.mac().unwrap_or(MacAddr::BROADCAST);
        if own != self.own {
            (self.own, self.last) = (own, None);
        }
        // A template names a remote, which may have gone.
        let remote_changes = self.underlay.remote_changes();
        if remote_changes != self.remote_changes {
            (self.remote_changes, self.last) = (remote_changes, None);
        }
        let mut run = Run::default();
        for (id, later) in batch.ahead(AHEAD) {
            packets.prefetch(later);
            match self.decapsulate(packets, id) {
                Ok(tunnel) => {
                    if tunnel != run.tunnel {
                        self.count(run);
                        run = Run { tunnel, ..Run::default() };
                    }
                    run.packets += 1;
                    run.bytes += u64::from(packets.len(id));
                    next.push(1 + usize::from(tunnel), id);
                    let port = packets.port(id);
                    packets.note_received(port, &[id]);
                }
                Err(Refusal::Drop(reason)) => packets.discard(id, reason),
                Err(Refusal::GtpuEcho) if !self.has_gtpu => packets.discard(id, Reason::NotOurs),
                Err(Refusal::Other | Refusal::GtpuEcho) => self.answer(packets, id, next),
            }
        }
        self.count(run);
        self.sweep(run, packets.now());
    }
}

#[inline]
fn destination(head: &[u8]) -> Option<MacAddr> {
    head.first_chunk().map(|&mac| MacAddr(mac))
}

#[inline]
fn source(head: &[u8]) -> Option<MacAddr> {
    head.get(6..)?.first_chunk().map(|&mac| MacAddr(mac))
}

/// Checks a packet of this tunnel, and leaves the inner packet of it.
#[inline]
fn open(packets: &mut Packets<'_>, id: PacketId, tunnel: &Tunnel, found: &Found) -> Result<(), Reason> {
    if tunnel.is_set_down() {
        return Err(Reason::SetDown);
    }
    let is_ethernet = found.carries == Carries::Ethernet;
    if tunnel.face.is_some() == is_ethernet {
        return Err(Reason::TunnelHeader);
    }
    if is_ethernet && found.end - found.payload < ethernet::LEN {
        return Err(Reason::Runt);
    }
    // Padding is no part of a checksum, so it goes first.
    if !packets.truncate(id, narrow(found.checked_end)) {
        return Err(Reason::TunnelHeader);
    }
    if tunnel.underlay.leaves_unfinished() {
        recognise_unfinished(packets, id, found);
    }
    verify(packets, id, tunnel, found)?;
    if !packets.truncate(id, narrow(found.end)) {
        return Err(Reason::TunnelHeader);
    }
    packets.strip(id, found.payload).map_err(|error| match error {
        StripError::TooShort | StripError::TooDeep => Reason::TunnelHeader,
        StripError::Segmentation if has_several(packets.offload(id), found) => Reason::TunnelCoalesced,
        StripError::Segmentation => Reason::SegmentHeaders,
        StripError::Checksum => Reason::TunnelChecksum,
    })?;
    // A sum over a tag would come after all decisions by its VLAN.
    if let Checksum::Partial { start, .. } = packets.checksum(id)
        && is_ethernet
        && !vlan::is_behind_tags(packets.head(id), start.into())
    {
        return Err(Reason::TunnelChecksum);
    }
    if found.ecn != Ecn::NotEct {
        mark(packets.head_mut(id), found.ecn, found.carries)?;
    }
    if tunnel.is_selective {
        match &tunnel.face {
            Some(face) => {
                let ether_type = ip_inside(packets.head(id), found.carries).ok_or(Reason::TunnelHeader)?;
                packets.prepend(id, &face.header(ether_type)).map_err(|_| Reason::TunnelHeader)?;
            }
            None if has_vlan_tag(packets, id) => return Err(Reason::VlanNotAllowed),
            None => {}
        }
    }
    let limit = FrameLimit::new(tunnel.config.mtu).bytes();
    if packets.fits(id, packets.len(id), limit) { Ok(()) } else { Err(Reason::TooBig) }
}

/// Returns whether the packet has several of a tunnel: its outer UDP packet is to be segmented.
#[cold]
fn has_several(offload: Offload, found: &Found) -> bool {
    offload.gso.is_some_and(|gso| !gso.kind.is_tcp() && usize::from(gso.l4) == found.l4)
}

/// Makes the checksum of an inner packet partial if its sender has not finished it.
#[cold]
fn recognise_unfinished(packets: &mut Packets<'_>, id: PacketId, found: &Found) {
    if packets.offload(id).checksum != Checksum::Complete {
        return;
    }
    packets.pull_up(id, found.end.min(found.payload + INNER_HEADERS).min(packets.max_head(id)));
    let Some(inner) = packets.head(id).get(found.payload..) else { return };
    let len = narrow(found.end - found.payload);
    let checksum = match found.carries {
        Carries::Ethernet => unfinished(inner, len),
        Carries::Ip(_) | Carries::AnyIp => unfinished_ip(inner, len),
    };
    if let Some(Checksum::Partial { start, offset }) = checksum
        && let Ok(start) = u16::try_from(found.payload + usize::from(start))
    {
        packets.set_offload(id, Offload { checksum: Checksum::Partial { start, offset }, gso: None });
    }
}

/// Gives the inner packet the congestion mark that follows from both (RFC 6040, 4.2). Only IP has
/// marks.
fn mark(head: &mut [u8], outer: Ecn, carries: Carries) -> Result<(), Reason> {
    let (ether_type, l3) = match carries {
        Carries::Ethernet => match vlan::skip_all(head) {
            Ok((ether_type, payload)) => (Some(ether_type), payload),
            Err(_) => return Ok(()),
        },
        Carries::Ip(_) | Carries::AnyIp => (ip_inside(head, carries), 0),
    };
    let Some(packet) = head.get_mut(l3..) else { return Ok(()) };
    match ether_type {
        Some(EtherType::IPV4) => {
            let Ok(mut header) = ipv4::Header::new_checked(packet) else { return Ok(()) };
            let inner = Ecn::of(header.tos());
            let marked = ecn::decapsulate(inner, outer).ok_or(Reason::TunnelEcn)?;
            if marked != inner {
                header.replace_tos(marked.put(header.tos()));
            }
        }
        Some(EtherType::IPV6) => {
            let Ok(mut header) = ipv6::Header::new_checked(packet) else { return Ok(()) };
            let marked = ecn::decapsulate(Ecn::of(header.traffic_class()), outer).ok_or(Reason::TunnelEcn)?;
            header.set_traffic_class(marked.put(header.traffic_class()));
        }
        _ => {}
    }
    Ok(())
}

/// Returns the Ethernet type of the IP packet that `head` begins with. `None` if its first four
/// bits are not those of IP, or if they contradict the tunnel's header.
#[inline]
fn ip_inside(head: &[u8], carries: Carries) -> Option<EtherType> {
    let found = match head.first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    match carries {
        Carries::Ip(named) if named != found => None,
        _ => Some(found),
    }
}

/// Returns the offset as a length of a packet. Packets have less than 4 GiB.
#[inline]
fn narrow(offset: usize) -> u32 {
    offset.saturating_as::<u32>()
}
