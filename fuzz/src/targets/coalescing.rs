//! Fuzz target: packets of one flow of TCP or UDP, or nearly so, for a guest that accepts
//! unsegmented packets. Packets that belong together are coalesced.
//!
//! Invariants:
//! - Segmentation of a coalesced packet returns the original packets, byte by byte.
//! - Packets with finished checksums are one packet only if all of these are right.
//! - A guest may send its header.
//! - Nothing is stored behind it.

use std::cell::RefCell;

use crate::packets::{LONGEST, SINK, accept, stored};
use crate::{FuzzGuest, reached};
use arbitrary::{Result, Unstructured};
use straightline_packet::{Checksum, GsoKinds, GsoSegment, Offload, PacketId, Segmenter, Turn, WrongChecksum};
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_wire::{IpProtocol, checksum, geometry};

/// Bytes that are staged behind the packet and must stay unchanged.
const BEHIND: usize = 3;
/// The most packets.
const MAX_PACKETS: u8 = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const PSH: u8 = 0x08;

thread_local!(static GUEST: RefCell<FuzzGuest> = RefCell::default());

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = GUEST.with_borrow_mut(|guest| run(guest, &mut Unstructured::new(data)));
}

fn run(guest: &mut FuzzGuest, u: &mut Unstructured<'_>) -> Result<()> {
    let flow = Flow::arbitrary(u)?;
    let size = 1 + usize::from(u.arbitrary::<u16>()? % 1500);
    let splits = u.arbitrary()?;
    let count = u.int_in_range(2..=MAX_PACKETS)?;
    let mut packets = Vec::new();
    let mut at = 0;
    let mut all = 0;
    for nth in 0..count {
        let packet = flow.packet(u, nth, at, size)?;
        at += size as u32;
        all += packet.frame.len();
        if all > LONGEST - usize::from(MAX_PACKETS) * BEHIND - LEN {
            break;
        }
        packets.push(packet);
    }
    if u.arbitrary()? {
        packets.iter_mut().for_each(|packet| flow.fix_identification(packet));
    }
    if u.arbitrary()? {
        packets.iter_mut().for_each(|packet| flow.finish_checksum(packet));
        if u.arbitrary()? {
            let nth = u.choose_index(packets.len())?;
            let frame = &mut packets[nth].frame;
            let at = u.choose_index(frame.len())?;
            frame[at] ^= u.int_in_range(1..=255_u8)?;
        }
    }
    guest.clear();
    let mut at = 0;
    for packet in &packets {
        guest.write(at, &packet.frame);
        at += packet.frame.len() as u64;
    }
    for coalesced in guest.turn(|turn, memory| deliver(turn, memory, &packets, splits)) {
        guest.write(SINK, &coalesced.bytes);
        guest.turn(|turn, memory| segment_again(turn, memory, &coalesced));
    }
    Ok(())
}

/// The headers that all packets of a flow share, mostly as a guest's system makes them.
struct Flow {
    l3: usize,
    l4: usize,
    headers: Vec<u8>,
    seq: u32,
    ident: u16,
    /// The most bytes of a packet.
    max_len: usize,
}

/// A packet, and the header with its sender's requests.
struct Packet {
    frame: Vec<u8>,
    header: NetHeader,
}

/// A packet made of several.
struct Coalesced {
    /// Its bytes as stored, with the header in front.
    bytes: Vec<u8>,
    packets: Vec<Vec<u8>>,
    offload: Offload,
    /// True if the packets have finished checksums.
    is_finished: bool,
}

impl Coalesced {
    /// Returns whether the IPv4 identifications are all the same.
    fn is_fixed(&self, l3: usize) -> bool {
        self.packets[0][l3 + 4..l3 + 6] == self.packets[1][l3 + 4..l3 + 6]
    }
}

impl Flow {
    fn arbitrary(u: &mut Unstructured<'_>) -> Result<Flow> {
        let v4 = u.arbitrary()?;
        let tags = u.int_in_range(0..=2_usize)?;
        let options = u.int_in_range(0..=10_u8)?;
        let mut headers = vec![0x02; 12];
        for _ in 0..tags {
            headers.extend([0x81, 0x00, 0x00, 0x07]);
        }
        let l3 = headers.len() + 2;
        if v4 {
            headers.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
            headers.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            headers.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, TCP, 64]);
            headers.extend((0..32).map(|at| 0xfd ^ at));
        }
        let l4 = headers.len();
        headers.extend([0xc3, 0x51, 0x00, 0x50, 0, 0, 0, 0, 1, 2, 3, 4, (5 + options) << 4, 0x10, 0x20, 0, 0, 0, 0, 0]);
        headers.extend((0..4 * options).map(|at| 1 + at));
        let mut flow = Flow { l3, l4, headers, seq: u.arbitrary()?, ident: u.arbitrary()?, max_len: usize::MAX };
        // All packets may be of another protocol, end before their headers do, or have flags or
        // options that prevent coalescing.
        match u.int_in_range(0..=7_u8)? {
            0 => {
                let at = flow.protocol_at();
                flow.headers[at] = UDP;
                flow.max_len = u.int_in_range(l4 + 8..=l4 + 255)?;
            }
            1 => flow.headers[l4 + 13] = u.arbitrary()?,
            2 => {
                let at = u.choose_index(flow.headers.len())?;
                flow.headers[at] = u.arbitrary()?;
            }
            3 => flow.max_len = u.int_in_range(14..=flow.headers.len())?,
            _ => {}
        }
        Ok(flow)
    }

    fn is_v4(&self) -> bool {
        self.headers[self.l3] >> 4 == 4
    }

    fn protocol_at(&self) -> usize {
        self.l3 + if self.is_v4() { 9 } else { 6 }
    }

    /// Returns packet `nth`, whose payload begins at byte `at` of the flow, or a changed form of
    /// it.
    fn packet(&self, u: &mut Unstructured<'_>, nth: u8, at: u32, size: usize) -> Result<Packet> {
        let mut header = NetHeader {
            flags: 1,
            csum_start: self.l4 as u16,
            csum_offset: if self.headers[self.protocol_at()] == UDP && u.arbitrary()? { 6 } else { 16 },
            ..NetHeader::default()
        };
        let mut frame = self.headers.clone();
        frame.extend((0..size).map(|n| (n as u32 ^ at.rotate_left(7)) as u8));
        let mut seq = self.seq.wrapping_add(at);
        let mut ident = self.ident.wrapping_add(nth.into());
        let mut changed = None;
        let mut length_error = 0;
        match u.int_in_range(0..=15_u8)? {
            // PSH marks the last segment of a packet.
            0 => frame[self.l4 + 13] |= PSH,
            1 => frame.truncate(frame.len() - u.int_in_range(1..=size)?),
            2 => frame.resize(frame.len() + usize::from(u.arbitrary::<u8>()?), 0x77),
            // The packet ends within its headers.
            3 => frame.truncate(u.int_in_range(14..=frame.len() - 1)?),
            4 => seq = seq.wrapping_add_signed(u.arbitrary::<i16>()?.into()),
            5 => ident = u.arbitrary()?,
            6 => changed = Some((u.choose_index(frame.len())?, u.int_in_range(1..=255_u8)?, u.arbitrary()?)),
            // The length field is wrong.
            7 => length_error = u.arbitrary::<i8>()?.into(),
            8 => header.csum_start = u.arbitrary::<u8>()?.into(),
            9 => header = NetHeader::default(),
            10 => header.flags = u.arbitrary()?,
            _ => {}
        }
        frame.truncate(self.max_len);
        self.finish(&mut frame, seq, ident, length_error);
        if let Some((at, xor, mended)) = changed {
            let at = at % frame.len();
            frame[at] ^= xor;
            if mended {
                self.sum_network(&mut frame);
            }
        }
        Ok(Packet { frame, header })
    }

    /// Fills in the fields that depend on the packet: its sequence number, lengths and checksums.
    fn finish(&self, frame: &mut [u8], seq: u32, ident: u16, length_error: i32) {
        let (len, (l3, l4)) = (frame.len(), (self.l3, self.l4));
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = frame.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        let transport = len.saturating_sub(l4) as u32;
        let network = if self.is_v4() { len.saturating_sub(l3) as u32 } else { transport };
        let network = network.wrapping_add_signed(length_error) as u16;
        put(l3 + if self.is_v4() { 2 } else { 4 }, &network.to_be_bytes());
        if self.is_v4() {
            put(l3 + 4, &ident.to_be_bytes());
        }
        let protocol = self.headers[self.protocol_at()];
        if protocol == UDP {
            put(l4 + 4, &(transport as u16).to_be_bytes());
        } else {
            put(l4 + 4, &seq.to_be_bytes());
        }
        let addresses = if self.is_v4() { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
        let mut pseudo = self.headers.get(addresses).unwrap_or_default().to_vec();
        pseudo.extend(transport.to_be_bytes());
        pseudo.extend([0, protocol]);
        let at = if protocol == UDP { 6 } else { 16 };
        put(l4 + at, &checksum::sum(&pseudo).to_be_bytes());
        self.sum_network(frame);
    }

    /// Gives a packet the flow's first identification.
    fn fix_identification(&self, packet: &mut Packet) {
        if self.is_v4() && packet.frame.len() >= self.l3 + 20 {
            packet.frame[self.l3 + 4..self.l3 + 6].copy_from_slice(&self.ident.to_be_bytes());
            sum_network(&mut packet.frame, self.l3);
        }
    }

    /// Finishes a packet's checksum, if it is partial and at its usual place.
    fn finish_checksum(&self, Packet { frame, header }: &mut Packet) {
        let offset = if self.headers[self.protocol_at()] == UDP { 6 } else { 16 };
        let asked = (header.flags, usize::from(header.csum_start), usize::from(header.csum_offset));
        if asked == (1, self.l4, offset) && frame.len() >= self.l4 + offset + 2 {
            *header = NetHeader::default();
            finish_at(frame, self.l4, offset);
        }
    }

    fn sum_network(&self, frame: &mut [u8]) {
        if self.is_v4() && frame.len() >= self.l3 + 20 {
            sum_network(frame, self.l3);
        }
    }
}

/// Sums an IPv4 header without options.
fn sum_network(frame: &mut [u8], l3: usize) {
    frame[l3 + 10..l3 + 12].fill(0);
    let sum = !checksum::sum(&frame[l3..l3 + 20]);
    frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Finishes the partial checksum at this offset of the transport header.
fn finish_at(frame: &mut [u8], l4: usize, offset: usize) {
    let sum = match !checksum::sum(&frame[l4..]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[l4 + offset..l4 + offset + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Returns whether the finished checksum of a TCP or UDP packet is right.
fn is_right(frame: &[u8]) -> bool {
    let layers = geometry::locate(frame).expect("headers");
    let l3 = usize::from(layers.l3);
    let l4 = usize::from(layers.l4);
    let addresses = if frame[l3] >> 4 == 4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let mut bytes = frame[addresses].to_vec();
    bytes.extend(((frame.len() - l4) as u32).to_be_bytes());
    bytes.extend([0, layers.protocol.0]);
    bytes.extend_from_slice(&frame[l4..]);
    checksum::sum(&bytes) == 0xffff
}

/// Coalesces packets as a port does when it delivers them; returns the coalesced ones.
fn deliver<'t>(turn: &mut Turn<'t>, memory: &'t GuestMemory, packets: &[Packet], splits: [u16; 3]) -> Vec<Coalesced> {
    let mut ids = Vec::new();
    let mut frames = Vec::new();
    let mut at = 0;
    for Packet { frame, header } in packets {
        let Some(id) = accept(turn, memory, at, frame.len(), splits) else { break };
        at += frame.len() as u64;
        match header.check(u64::MAX, turn, id) {
            Ok(offload) => {
                turn.set_offload(id, offload);
                ids.push(id);
                frames.push(frame);
            }
            Err(_) => reached("a header that is refused"),
        }
    }
    let mut results = Vec::new();
    let mut at = 0;
    while at < ids.len() {
        if is_shaped_like_tcp(turn, &ids[at..]) {
            reached("UDP with a checksum where TCP has it");
        }
        let Some((run, count)) = turn.coalesce(&ids[at..], GsoKinds::of(|_| true)) else {
            at += 1;
            continue;
        };
        let of = at..at + count;
        assert!(count >= 2 && of.end <= ids.len());
        if count < ids.len() - at {
            reached("packets that are one, and another");
        }
        if count > 2 {
            reached("three packets that are one");
        }
        if turn.body_len(ids[at]) > 0 {
            reached("packets that are one, with bodies");
        }
        let mut segment = GsoSegment::default();
        run.headers(turn.head(ids[at]), &mut segment);
        *segment.prefix_mut::<LEN>() = NetHeader::for_receiver(run.offload(), 1).to_bytes();
        let len = LEN + run.len() as usize;
        let there = stored(turn, memory, len + BEHIND, |_, _| ());
        let mut outcome = Ok(0);
        let mut bytes = stored(turn, memory, len + BEHIND, |turn, to| {
            outcome = turn.store_run::<LEN>(&ids[of.clone()], &run, &segment, to);
        });
        assert!(bytes[len..] == there[len..], "nothing is stored behind it");
        bytes.truncate(len);
        at += count;
        let is_finished = turn.offload(ids[of.start]).checksum == Checksum::Complete;
        let packets: Vec<_> = frames[of.clone()].iter().map(|frame| frame.to_vec()).collect();
        if is_finished {
            let all_right = packets.iter().all(|frame| is_right(frame));
            assert_eq!(outcome == Err(WrongChecksum), !all_right);
            if !all_right {
                reached("a wrong checksum");
                continue;
            }
            reached("packets with finished checksums that are one");
        }
        let bodies: u32 = ids[of].iter().map(|&id| turn.body_len(id)).sum();
        assert_eq!(outcome, Ok(bodies));
        if !run.gso().kind.is_tcp() {
            reached("datagrams that are one");
        }
        results.push(Coalesced { bytes, packets, offload: run.offload(), is_finished });
    }
    if results.is_empty() {
        reached("packets that are left alone");
    }
    results
}

/// Returns whether the offloads of the first two packets allow coalescing, and only their headers
/// forbid it.
fn is_shaped_like_tcp(turn: &Turn<'_>, ids: &[PacketId]) -> bool {
    let &[first, second, ..] = ids else { return false };
    let is_alike = turn.offload(first) == turn.offload(second) && turn.len(second) <= turn.len(first);
    let head = turn.head(first);
    let Checksum::Partial { start, offset: 16 } = turn.offload(first).checksum else { return false };
    is_alike && geometry::locate(head).is_ok_and(|layers| layers.protocol == IpProtocol::UDP && layers.l4 == start)
}

/// Checks a coalesced packet. A guest that forwards it would request exactly its offload, and
/// segmentation returns the original packets.
fn segment_again<'t>(turn: &mut Turn<'t>, memory: &'t GuestMemory, coalesced: &Coalesced) {
    let frame = &coalesced.bytes[LEN..];
    let id = accept(turn, memory, SINK + LEN as u64, frame.len(), [u16::MAX; 3]).expect("an empty turn has free slots");
    let header = NetHeader::parse(coalesced.bytes[..LEN].try_into().expect("a header"));
    let offload = header.check(u64::MAX, turn, id).expect("a header that a guest may send");
    assert_eq!(offload, coalesced.offload);
    assert!(matches!(offload.checksum, Checksum::Partial { .. }));
    let gso = offload.gso.expect("it must be segmented");
    turn.set_offload(id, offload);
    let mut plan = Segmenter::new(gso, frame.len() as u32).expect("a coalesced packet can be segmented");
    let mut segment = GsoSegment::default();
    let mut segments = 0;
    while plan.next(turn.head(id), &mut segment) {
        let mut bytes = segment.headers().to_vec();
        bytes.extend_from_slice(&frame[segment.payload().start as usize..segment.payload().end as usize]);
        let l4 = usize::from(gso.l4);
        let offset = usize::from(gso.kind.checksum_offset());
        let mut sent = coalesced.packets[segments].clone();
        // If identifications without a meaning are all the same, segmentation makes them count up.
        if gso.kind.is_v4() && coalesced.is_fixed(usize::from(gso.l3)) {
            let l3 = usize::from(gso.l3);
            assert!(sent[l3 + 6] & 0x40 != 0, "only without fragmentation");
            reached("packets with one identification that are one");
            sent[l3 + 4..l3 + 6].copy_from_slice(&bytes[l3 + 4..l3 + 6]);
            sum_network(&mut sent, l3);
        }
        // In TCP, 0 and 0xffff are one value.
        if coalesced.is_finished && sent[l4 + offset..l4 + offset + 2] == [0, 0] {
            bytes[l4 + offset..l4 + offset + 2].fill(0);
        } else if coalesced.is_finished {
            finish_at(&mut bytes, l4, offset);
        }
        assert!(bytes == sent, "segmentation returns the packets");
        segments += 1;
    }
    assert_eq!(segments, coalesced.packets.len());
}
