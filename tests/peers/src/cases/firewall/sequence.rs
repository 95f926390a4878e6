//! Sequences of packets between a guest and one other station: what they are, and how they are made.
//!
//! A sequence begins as two stations would speak. Then packets are left out, repeated, exchanged or
//! changed. Numbers of TCP count from the first one of their sender, so a failing sequence can be read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use straightline_report::random::Random;

use super::packet::{self, ICMP, ICMPV6, PacketName, TCP, UDP, Wire};

/// The guest's side, and that of the other stations.
pub(super) const IN: usize = 0;
pub(super) const OUT: usize = 1;
pub(super) const SIDES: [usize; 2] = [IN, OUT];

/// Destination ports of sequences. Rules are about some of them.
pub(super) const PORTS: [u16; 6] = [9, 22, 53, 80, 443, 1000];

/// Ports of the stations that speak in a sequence: the guest's, and the other's.
type Ends = [u16; 2];

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// A segment of TCP. Its numbers count from the first one of their sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) from: usize,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) len: u16,
    pub(super) scale: Option<u8>,
}

/// A packet of a sequence.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Tcp(Segment),
    Udp {
        from: usize,
        ports: Ends,
        len: u16,
    },
    /// A query of ICMP or its answer.
    Query {
        from: usize,
        icmp_type: u8,
        ident: u16,
    },
    /// An error about the packet before it, which the receiver of the error has sent.
    Error {
        from: usize,
        icmp: [u8; 2],
        quoted: usize,
        damage: Damage,
    },
    /// A packet of another protocol.
    Other {
        from: usize,
        protocol: u8,
    },
    /// A UDP datagram of 200 bytes in these parts.
    Parts {
        from: usize,
        ports: Ends,
        parts: Vec<Range<usize>>,
    },
    /// A packet with a wrong checksum.
    Damaged {
        from: usize,
        ports: Ends,
    },
}

/// A mistake in the packet that an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    None,
    /// A port, or the identification of a query.
    Port,
    /// The address of its sender.
    Sender,
    /// The sequence number of TCP.
    Number,
}

/// A difference between the kernel and us that is meant. `docs/firewall.md` has the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meant {
    /// An error must quote a segment that may be on its way.
    QuotedNumber,
    /// The first fragment must come first.
    LaterFirst,
    /// Only the receiver checks checksums.
    Checksum,
}

/// All meant differences.
pub(super) const MEANT: [Meant; 3] = [Meant::QuotedNumber, Meant::LaterFirst, Meant::Checksum];

impl Meant {
    /// Returns whether packets pass us that do not pass the kernel; otherwise it is the other way round.
    pub(super) fn is_laxer(self) -> bool {
        self == Meant::Checksum
    }
}

/// Packets between the guest and one other station.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) number: u32,
    pub(super) is_ipv6: bool,
    /// Ports of TCP.
    pub(super) ports: Ends,
    /// First numbers of TCP.
    pub(super) begins: [u32; 2],
    pub(super) steps: Vec<(Step, Option<Meant>)>,
}

impl Sequence {
    /// Makes a sequence.
    pub(super) fn random(number: u32, random: &mut Random) -> Self {
        let opener = pick(random, &SIDES);
        let mut ports = [40_000, 40_000];
        // Port 9 is always allowed.
        ports[1 - opener] = if random.below(3) == 0 { 9 } else { pick(random, &PORTS) };
        let begins = SIDES.map(|_| {
            let any = u32::try_from(random.below(1 << 32)).unwrap_or(0);
            pick(random, &[any, any, u32::MAX - 500, 0, (1 << 31) - 500])
        });
        let mut sequence = Sequence { number, is_ipv6: random.below(3) == 0, ports, begins, steps: Vec::new() };
        match random.below(10) {
            0..6 => sequence.tcp(opener, random),
            6 | 7 => sequence.udp(opener, random),
            8 => sequence.queries(opener, random),
            _ => sequence.parts(opener, random),
        }
        sequence.errors(random);
        sequence
    }

    /// Returns the addresses of the guest and of the other station.
    fn addresses(&self) -> [IpAddr; 2] {
        // An odd factor spreads the numbers over all prefixes.
        let [high, low] = u16::try_from(self.number.wrapping_mul(40_503) & 0xffff).unwrap_or(0).to_be_bytes();
        if self.is_ipv6 {
            let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]));
            [Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(), other.into()]
        } else {
            [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(198, 18, high, low).into()]
        }
    }

    /// Returns the name of a packet, and its frames.
    pub(super) fn frames(&self, at: usize, id: u16) -> (PacketName, Vec<Vec<u8>>) {
        let (step, _) = &self.steps[at];
        let addresses = self.addresses();
        let from = step.from();
        let mut name = PacketName { src: addresses[from], dst: addresses[1 - from], id };
        if let Step::Error { from: OUT, icmp: [kind, _], .. } = step
            && *kind != 3
        {
            // Any router on the way may send it.
            name.src =
                if self.is_ipv6 { "2001:db8:ffff::9".parse() } else { "203.0.113.9".parse() }.unwrap_or(name.src);
        }
        let (protocol, payload) = self.payload(at, &name);
        let whole = packet::frame(&name, protocol, &payload);
        match step {
            Step::Parts { parts, .. } => (name, packet::fragments(&whole, parts)),
            _ => (name, vec![whole]),
        }
    }

    /// Returns the protocol of a packet and its payload.
    fn payload(&self, at: usize, name: &PacketName) -> (u8, Vec<u8>) {
        let ordered = |ports: &Ends, from: usize| [ports[from], ports[1 - from]];
        let icmp_protocol = if self.is_ipv6 { ICMPV6 } else { ICMP };
        match &self.steps[at].0 {
            Step::Tcp(segment) => (TCP, self.wire(segment).bytes(name)),
            Step::Udp { from, ports, len } => (UDP, packet::udp(name, ordered(ports, *from), *len)),
            Step::Parts { from, ports, .. } => (UDP, packet::udp(name, ordered(ports, *from), 192)),
            Step::Damaged { from, ports } => {
                let mut bytes = packet::udp(name, ordered(ports, *from), 20);
                bytes[6] ^= 0x55;
                (UDP, bytes)
            }
            Step::Query { icmp_type, ident, .. } => {
                let [high, low] = ident.to_be_bytes();
                (icmp_protocol, packet::icmp(name, [*icmp_type, 0], [high, low, 0, 1], &[7; 12]))
            }
            Step::Other { protocol, .. } => (*protocol, vec![9; 24]),
            Step::Error { icmp, quoted, damage, .. } => {
                let body = self.quoted(at - 1, *quoted, *damage);
                (icmp_protocol, packet::icmp(name, *icmp, [0; 4], &body))
            }
        }
    }

    fn wire(&self, segment: &Segment) -> Wire {
        let Segment { from, flags, seq, ack, window, len, scale } = *segment;
        Wire {
            ports: [self.ports[from], self.ports[1 - from]],
            seq: self.begins[from].wrapping_add(seq),
            ack: if flags & ACK == 0 { ack } else { self.begins[1 - from].wrapping_add(ack) },
            flags,
            window,
            scale,
            len,
        }
    }

    /// Returns the begin of a packet of IP, with a mistake in it.
    fn quoted(&self, at: usize, len: usize, damage: Damage) -> Vec<u8> {
        let (_, frames) = self.frames(at, 99);
        let mut bytes = frames[0][14..].to_vec();
        let l4 = if self.is_ipv6 { 40 } else { 20 };
        match damage {
            Damage::None => {}
            // A query's identification lies in its second word.
            Damage::Port if matches!(self.steps[at].0, Step::Query { .. }) => bytes[l4 + 5] ^= 0x40,
            Damage::Port => bytes[l4 + 1] ^= 0x40,
            Damage::Sender => bytes[if self.is_ipv6 { 22 } else { 15 }] ^= 0x40,
            Damage::Number => bytes[l4 + 4] ^= 0x40,
        }
        bytes.truncate(l4 + len);
        bytes
    }

    fn tcp(&mut self, opener: usize, random: &mut Random) {
        let mut moves = moves(opener, random);
        match random.below(6) {
            0 => {
                let at = below(random, moves.len() - 1);
                moves.swap(at, at + 1);
            }
            1 => {
                moves.remove(below(random, moves.len()));
            }
            2 => {
                let at = below(random, moves.len());
                let again = moves[at];
                moves.insert(at, again);
            }
            _ => {}
        }
        let mut next = [0_u32; 2];
        let mut spoken = [false; 2];
        let scales = SIDES.map(|_| pick(random, &[None, Some(0), Some(2), Some(7), Some(14), Some(15)]));
        let mut before = Vec::<Segment>::new();
        let changes = random.below(3) == 0;
        for (from, flags, len) in moves {
            let other = 1 - from;
            if flags & SYN != 0 && next[from] > 100 {
                // The connection begins again, with a number of its own.
                next[from] = next[from].wrapping_add(100_000);
            }
            let flags = if flags & (SYN | RST) == 0 || flags & ACK != 0 || spoken[other] && flags & RST != 0 {
                flags | ACK
            } else {
                flags
            };
            let mut segment = Segment {
                from,
                flags,
                seq: next[from],
                ack: if flags & ACK == 0 { 0 } else { next[other] },
                window: pick(random, &[8192, 8192, 8192, 65_535, 1000, 100, 1, 0]),
                len,
                scale: if flags & SYN == 0 { None } else { scales[from] },
            };
            let is_changed = changes && random.below(4) == 0;
            if is_changed {
                change(&mut segment, &before, random);
            } else {
                let marks = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
                next[from] = next[from].wrapping_add(u32::from(len) + marks);
                spoken[from] = true;
            }
            before.push(segment);
            self.steps.push((Step::Tcp(segment), None));
        }
    }

    fn udp(&mut self, opener: usize, random: &mut Random) {
        for nth in 0..1 + random.below(6) {
            let from = if nth == 0 { opener } else { pick(random, &SIDES) };
            let mut ports = self.ports;
            if random.below(8) == 0 {
                ports[pick(random, &SIDES)] ^= 1;
            }
            let len = pick(random, &[0, 1, 20, 1000]);
            self.steps.push((Step::Udp { from, ports, len }, None));
        }
        if random.below(4) == 0 {
            self.steps.push((Step::Damaged { from: pick(random, &SIDES), ports: self.ports }, Some(Meant::Checksum)));
        }
    }

    fn queries(&mut self, opener: usize, random: &mut Random) {
        if random.below(4) == 0 {
            let protocol = pick(random, &[50, 99]);
            for _ in 0..1 + random.below(4) {
                self.steps.push((Step::Other { from: pick(random, &SIDES), protocol }, None));
            }
            return;
        }
        let kinds: &[[u8; 2]] =
            if self.is_ipv6 { &[[128, 129]] } else { &[[8, 0], [8, 0], [13, 14], [15, 16], [17, 18]] };
        let kind = pick(random, kinds);
        for nth in 0..1 + random.below(5) {
            let is_question = nth == 0 || random.below(2) == 0;
            let from = if is_question == (random.below(6) > 0) { opener } else { 1 - opener };
            let ident = pick(random, &[5, 5, 5, 6]);
            self.steps.push((Step::Query { from, icmp_type: kind[usize::from(!is_question)], ident }, None));
        }
    }

    fn parts(&mut self, opener: usize, random: &mut Random) {
        for nth in 0..1 + random.below(4) {
            let from = if nth == 0 { opener } else { pick(random, &SIDES) };
            let first = 8 + 8 * below(random, 20);
            let (parts, is_good, meant) = match random.below(12) {
                0 => (vec![0..80, 80..160], false, None),
                1 => (vec![80..160, 160..200], false, None),
                2 => (vec![0..80, 72..160, 160..200], false, None),
                3 => (vec![80..200, 0..80], false, Some(Meant::LaterFirst)),
                4 => (vec![0..80, 80..160, 80..160, 160..200], true, None),
                5 => (vec![0..80, 160..200, 80..160], true, None),
                _ => (vec![0..first, first..200], true, None),
            };
            self.steps.push((Step::Parts { from, ports: self.ports, parts }, meant));
            if !is_good {
                // To the kernel, a datagram that is not complete opens no connection.
                return;
            }
        }
    }

    /// Adds errors about some packets.
    fn errors(&mut self, random: &mut Random) {
        let mut at = 0;
        while at < self.steps.len() {
            at += 1;
            let about = &self.steps[at - 1].0;
            let is_single = !matches!(about, Step::Parts { .. } | Step::Error { .. } | Step::Damaged { .. });
            if !is_single || random.below(10) > 0 {
                continue;
            }
            let is_tcp = matches!(about, Step::Tcp(_));
            let has_ports = !matches!(about, Step::Other { .. });
            let damage = match random.below(8) {
                0 if has_ports => Damage::Port,
                1 => Damage::Sender,
                2 if is_tcp => Damage::Number,
                _ => Damage::None,
            };
            let icmp = if self.is_ipv6 {
                pick(random, &[[1, 4], [1, 0], [3, 0], [4, 1]])
            } else {
                pick(random, &[[3, 1], [3, 3], [11, 0], [12, 0]])
            };
            let from = 1 - about.from();
            let quoted = pick(random, &[8, 20, 28]);
            // A segment that changes nothing is not on its way any more.
            let meant = (is_tcp && matches!(damage, Damage::Number | Damage::None)).then_some(Meant::QuotedNumber);
            self.steps.insert(at, (Step::Error { from, icmp, quoted, damage }, meant));
            at += 1;
        }
    }
}

impl Step {
    pub(super) fn from(&self) -> usize {
        match self {
            Step::Tcp(Segment { from, .. })
            | Step::Udp { from, .. }
            | Step::Query { from, .. }
            | Step::Error { from, .. }
            | Step::Other { from, .. }
            | Step::Parts { from, .. }
            | Step::Damaged { from, .. } => *from,
        }
    }
}

/// Returns whether these parts of a packet are all of it.
pub(super) fn is_whole(arrived: &[(Range<usize>, bool)]) -> bool {
    let Some((last, _)) = arrived.iter().find(|(_, is_last)| *is_last) else { return false };
    let mut parts: Vec<&Range<usize>> = arrived.iter().map(|(part, _)| part).collect();
    parts.sort_by_key(|part| part.start);
    let mut covered = 0;
    for part in parts {
        if part.start <= covered {
            covered = covered.max(part.end);
        }
    }
    covered >= last.end
}

/// Returns the segments of a connection as two stations would send them: sender, flags, bytes.
fn moves(opener: usize, random: &mut Random) -> Vec<(usize, u8, u16)> {
    let other = 1 - opener;
    let mut moves = match random.below(12) {
        0 => vec![(opener, SYN, 0), (other, SYN, 0), (opener, SYN | ACK, 0), (other, SYN | ACK, 0)],
        1 => vec![(opener, SYN, 0), (other, RST | ACK, 0)],
        2 => vec![(opener, SYN, 0), (other, ACK, 0), (opener, RST, 0), (opener, SYN, 0), (other, SYN | ACK, 0)],
        3 => vec![(opener, ACK, 0), (other, ACK, 10)],
        4 => vec![(opener, SYN, 0), (opener, SYN, 0), (other, SYN | ACK, 0), (opener, ACK, 0)],
        5 => vec![(opener, SYN, 0), (other, SYN | ACK, 0), (opener, SYN, 0), (other, SYN | ACK, 0), (opener, ACK, 0)],
        _ => vec![(opener, SYN, 0), (other, SYN | ACK, 0), (opener, ACK, 0)],
    };
    for _ in 0..random.below(5) {
        moves.push((pick(random, &SIDES), ACK, pick(random, &[0, 1, 10, 500, 1000])));
    }
    let first = pick(random, &SIDES);
    let last = 1 - first;
    moves.extend(match random.below(7) {
        0 => vec![(first, FIN, 0), (last, ACK, 0), (last, FIN, 0), (first, ACK, 0)],
        1 => vec![(first, FIN, 0), (last, FIN, 0), (first, ACK, 0), (last, ACK, 0)],
        2 => vec![(first, RST, 0), (last, ACK, 10)],
        3 => vec![(first, FIN, 0), (last, ACK, 500), (first, ACK, 0), (last, RST, 0), (first, ACK, 0)],
        4 => vec![(first, FIN, 0), (last, FIN, 0), (first, ACK, 0), (opener, SYN, 0), (other, SYN | ACK, 0)],
        5 => vec![(first, RST, 0), (opener, SYN, 0), (other, SYN | ACK, 0), (opener, ACK, 0), (opener, ACK, 10)],
        _ => Vec::new(),
    });
    moves
}

/// Changes a segment.
fn change(segment: &mut Segment, before: &[Segment], random: &mut Random) {
    let window = before.last().map_or(8192, |last| u32::from(last.window));
    let far = u32::try_from(random.below(1 << 32)).unwrap_or(0);
    let distances =
        [1, 0_u32.wrapping_sub(1), window, window + 1, 0_u32.wrapping_sub(window), 0_u32.wrapping_sub(window + 1)];
    let more = [65_999, 66_000, 66_001, 0_u32.wrapping_sub(66_000), 0_u32.wrapping_sub(66_002), 1 << 31, far];
    let by = pick(random, &[&distances[..], &more].concat());
    match random.below(8) {
        0 => segment.flags = u8::try_from(random.below(64)).unwrap_or(0),
        1 => segment.flags ^= 1 << random.below(6),
        2 | 3 => segment.seq = segment.seq.wrapping_add(by),
        4 | 5 => segment.ack = segment.ack.wrapping_add(by),
        6 => segment.from = 1 - segment.from,
        _ => {
            if !before.is_empty() {
                *segment = pick(random, before);
            }
        }
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}

fn pick<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[below(random, values.len())]
}
