//! A model of flow tables: slow and obvious. It runs one packet after the other, searches lists, moves
//! bytes, and sums each checksum anew.

use std::collections::{HashMap, HashSet};

use straightline_flow::{Action, ConjunctionKey, Field, Flow, PortNumber, Subfield};
use straightline_packet::Reason;
use straightline_wire::checksum::{add, sum};
use straightline_wire::crc32c::crc32c;

use super::PORTS;

/// Output in place of the bridge.
pub(super) const NORMAL: u16 = 0xffff;

const SCTP: u8 = 132;

/// Where a packet has its fields: bit and number of bits.
type Places = HashMap<Field, (usize, usize)>;

/// A packet, parsed once more for each question.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    in_port: u16,
    registers: [u32; 8],
    mark: u32,
    /// Fields of damaged headers that were written. Their bytes were not read, but the new values are.
    written: Vec<(Field, u128)>,
}

/// The headers of a packet.
#[derive(Default)]
struct Parsed {
    places: Places,
    /// Values that are not bits of the packet as they are.
    values: HashMap<Field, u128>,
    l3: usize,
    /// By the type of the frame. Nobody looks at the header's own version.
    is_ipv4: bool,
    /// Begin and end of what the transport checksum covers, offset of its field, and its protocol.
    sum: Option<(usize, usize, usize, u8)>,
    /// First fragment of a longer transport header.
    is_split: bool,
    /// The sum covers the whole datagram, which is not here.
    is_fragment: bool,
    routed: bool,
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

/// Returns the place of the type behind up to four tags of VLAN 0, which are not those of OvS's flows.
fn behind_priority_tags(bytes: &[u8]) -> Option<usize> {
    for at in (12..=28).step_by(4) {
        if !matches!(half(bytes, at)?, 0x8100 | 0x88a8) {
            return Some(at);
        }
        half(bytes, at + 4)?;
        if half(bytes, at + 2)? & 0xfff != 0 {
            return Some(at);
        }
    }
    None
}

impl Parsed {
    fn of(bytes: &[u8]) -> Self {
        let mut parsed = Parsed::default();
        let _ = parsed.link(bytes);
        parsed
    }

    fn at(&mut self, field: Field, byte: usize, bits: usize) {
        self.places.insert(field, (byte * 8, bits));
    }

    fn link(&mut self, bytes: &[u8]) -> Option<()> {
        self.at(Field::EthDst, 0, 48);
        self.at(Field::EthSrc, 6, 48);
        let mut at = 12;
        if matches!(half(bytes, 12)?, 0x8100 | 0x88a8) && bytes.len() >= 18 {
            self.values.insert(Field::VlanTci, half(bytes, 14)? as u128 | 0x1000);
            at = if half(bytes, 14)? & 0xfff == 0 { behind_priority_tags(bytes).unwrap_or(16) } else { 16 };
        }
        let mut kind = half(bytes, at)?;
        at += 2;
        if kind < 0x600 {
            kind = 0x5ff;
            let is_snap = bytes.len() >= at + 8 && bytes[at..at + 6] == [0xaa, 0xaa, 3, 0, 0, 0];
            if is_snap && half(bytes, at + 6)? >= 0x600 {
                kind = half(bytes, at + 6)?;
                at += 8;
            }
        }
        self.values.insert(Field::EthType, kind as u128);
        self.l3 = at;
        match kind {
            0x800 => {
                self.is_ipv4 = true;
                self.ipv4(bytes, at)
            }
            0x86dd => self.ipv6(bytes, at),
            0x806 | 0x8035 => self.arp(bytes, at),
            _ => Some(()),
        }
    }

    fn arp(&mut self, bytes: &[u8], at: usize) -> Option<()> {
        let body = bytes.get(at..at + 28)?;
        if body[..6] != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        self.at(Field::ArpOp, at + 6, 16);
        if body[6] != 0 {
            self.values.insert(Field::ArpOp, 0);
        }
        self.at(Field::ArpSha, at + 8, 48);
        self.at(Field::ArpSpa, at + 14, 32);
        self.at(Field::ArpTha, at + 18, 48);
        self.at(Field::ArpTpa, at + 24, 32);
        Some(())
    }

    fn ipv4(&mut self, bytes: &[u8], at: usize) -> Option<()> {
        let header = bytes.get(at..at + 20)?;
        let len = usize::from(header[0] & 15) * 4;
        let total = half(header, 2)?;
        let is_sane = len >= 20 && total >= len && at + total <= bytes.len();
        if !is_sane {
            return None;
        }
        self.at(Field::IpTos, at + 1, 8);
        self.at(Field::IpTtl, at + 8, 8);
        self.at(Field::IpProto, at + 9, 8);
        self.at(Field::IpSrc, at + 12, 32);
        self.at(Field::IpDst, at + 16, 32);
        let place = half(header, 6)?;
        let fragment = match (place & 0x1fff, place & 0x2000) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 3,
        };
        self.values.insert(Field::IpFrag, fragment);
        self.transport(bytes, at + len, at + total, header[9], fragment, true);
        Some(())
    }

    fn ipv6(&mut self, bytes: &[u8], at: usize) -> Option<()> {
        let header = bytes.get(at..at + 40)?;
        let end = at + 40 + half(header, 4)?;
        if end > bytes.len() {
            return None;
        }
        self.at(Field::Ipv6Src, at + 8, 128);
        self.at(Field::Ipv6Dst, at + 24, 128);
        // OvS reads no address of a header whose extensions are damaged, but writes find it.
        self.places.insert(Field::Ipv6Label, (at * 8 + 12, 20));
        self.places.insert(Field::IpTos, (at * 8 + 4, 8));
        self.at(Field::IpTtl, at + 7, 8);
        let mut next = header[6];
        let mut at = at + 40;
        let mut fragment = 0;
        let found = loop {
            let extension = bytes.get(at..(at + 8).min(end)).filter(|extension| extension.len() == 8);
            match next {
                0 | 43 | 60 | 51 | 44 => {
                    let Some(extension) = extension else { break None };
                    let len = match next {
                        51 => (usize::from(extension[1]) + 2) * 4,
                        44 => 8,
                        _ => (usize::from(extension[1]) + 1) * 8,
                    };
                    if at + len > end {
                        break None;
                    }
                    self.routed |= next == 43 && extension[3] > 0;
                    if next == 44 {
                        let place = half(extension, 2).unwrap_or(0);
                        if place >> 3 != 0 {
                            fragment = 3;
                            break Some(44);
                        }
                        fragment = if place == 0 { fragment } else { 1 };
                    }
                    next = extension[0];
                    at += len;
                }
                _ => break Some(next),
            }
        };
        self.values.insert(Field::IpFrag, fragment);
        let Some(protocol) = found else {
            for field in [Field::Ipv6Label, Field::IpTos, Field::IpTtl] {
                self.values.insert(field, 0);
            }
            return None;
        };
        self.values.insert(Field::IpProto, protocol.into());
        self.transport(bytes, at, end, protocol, fragment, false);
        Some(())
    }

    fn transport(&mut self, bytes: &[u8], at: usize, end: usize, protocol: u8, fragment: u128, is_v4: bool) {
        if fragment == 3 {
            return;
        }
        let least = match protocol {
            6 => 20,
            17 => 8,
            132 => 12,
            1 if is_v4 => 8,
            58 if !is_v4 => 8,
            _ => return,
        };
        if end - at < least {
            self.is_split = fragment == 1;
            return;
        }
        self.is_fragment = fragment == 1;
        let field = match protocol {
            6 => 16,
            17 => 6,
            132 => 8,
            _ => 2,
        };
        self.sum = Some((at, end, at + field, protocol));
        let tcp_len = usize::from(bytes[at + 12.min(least - 1)] >> 4) * 4;
        if protocol == 6 && !(20..=end - at).contains(&tcp_len) {
            return;
        }
        if matches!(protocol, 6 | 17 | 132) {
            return self.ports(at, protocol);
        }
        self.at(Field::IcmpType, at, 8);
        self.at(Field::IcmpCode, at + 1, 8);
        if protocol == 58 && matches!(bytes[at], 135 | 136) && bytes[at + 1] == 0 && end - at >= 24 {
            self.at(Field::NdTarget, at + 8, 128);
            let mut option = at + 24;
            while option + 8 <= end && bytes[option + 1] != 0 {
                let len = usize::from(bytes[option + 1]) * 8;
                if option + len > end {
                    break;
                }
                let field = [Field::NdSll, Field::NdTll].get(usize::from(bytes[option]).wrapping_sub(1)).copied();
                if let Some(field) = field.filter(|_| len == 8) {
                    if self.places.contains_key(&field) {
                        for field in [Field::NdSll, Field::NdTll, Field::NdTarget] {
                            self.places.remove(&field);
                        }
                        break;
                    }
                    self.at(field, option + 2, 48);
                }
                option += len;
            }
        }
    }

    fn ports(&mut self, at: usize, protocol: u8) {
        self.at(Field::TpSrc, at, 16);
        self.at(Field::TpDst, at + 2, 16);
        if protocol == 6 {
            self.places.insert(Field::TcpFlags, (at * 8 + 100, 12));
        }
    }
}

/// Returns the sum of the pseudo header of a packet.
fn pseudo(bytes: &[u8], parsed: &Parsed, len: usize, protocol: u8) -> u16 {
    let l3 = parsed.l3;
    let addresses = if parsed.is_ipv4 { &bytes[l3 + 12..l3 + 20] } else { &bytes[l3 + 8..l3 + 40] };
    add(add(sum(addresses), u16::try_from(len).unwrap()), u16::from(protocol))
}

/// Returns the checksum of changed bytes. What is not known of the packet, such as the rest of a datagram,
/// stays in its checksum. So does an error.
fn changed(had: u16, before: u16, after: u16) -> u16 {
    if add(before, had) == 0xffff { !after } else { !add(add(!had, !before), after) }
}

impl Packet {
    fn read(&self, field: Field) -> u128 {
        if let Some(register) = Field::REGISTERS.iter().position(|&register| register == field) {
            return self.registers[register].into();
        }
        if let Some((_, value)) = self.written.iter().rfind(|(written, _)| *written == field) {
            return *value;
        }
        let parsed = Parsed::of(&self.bytes);
        match field {
            Field::InPort => self.in_port.into(),
            Field::PktMark => self.mark.into(),
            _ => match (parsed.values.get(&field), parsed.places.get(&field)) {
                (Some(value), _) => *value,
                (None, Some(&(at, bits))) => (at..at + bits)
                    .map(|bit| self.bytes[bit / 8] >> (7 - bit % 8) & 1)
                    .fold(0, |all, bit| all << 1 | u128::from(bit)),
                (None, None) => 0,
            },
        }
    }

    fn write(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Reason> {
        let is_register = Field::REGISTERS.iter().position(|&register| register == field);
        let merged = |old: u128| old & !mask | value & mask;
        if let Some(register) = is_register {
            self.registers[register] = u32::try_from(merged(self.registers[register].into())).unwrap();
            return Ok(());
        }
        match field {
            Field::InPort => self.in_port = u16::try_from(merged(self.in_port.into())).unwrap(),
            Field::PktMark => self.mark = u32::try_from(merged(self.mark.into())).unwrap(),
            Field::VlanTci => {
                let old = self.read(field);
                let new = merged(old);
                let has = old != 0;
                if !has && mask & 0x1000 == 0 || new == old {
                    return Ok(());
                }
                if new & 0x1000 == 0 {
                    self.strip();
                    return Ok(());
                }
                if !has {
                    self.push(0x8100);
                }
                let tci = u16::try_from(new & 0xefff).unwrap().to_be_bytes();
                self.bytes[14..16].copy_from_slice(&tci);
            }
            _ => {
                let parsed = Parsed::of(&self.bytes);
                let is_hidden = parsed.values.contains_key(&field) && parsed.places.contains_key(&field);
                let new = merged(self.read(field));
                self.write_bits(field, value, mask)?;
                if is_hidden {
                    self.written.push((field, new));
                }
            }
        }
        Ok(())
    }

    fn write_bits(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Reason> {
        let parsed = Parsed::of(&self.bytes);
        let Some(&(at, bits)) = parsed.places.get(&field) else { return Ok(()) };
        let before = self.bytes.clone();
        for bit in 0..bits {
            let shift = bits - 1 - bit;
            if mask >> shift & 1 == 1 {
                let place = at + bit;
                let set = u8::from(value >> shift & 1 == 1);
                self.bytes[place / 8] = self.bytes[place / 8] & !(1 << (7 - place % 8)) | set << (7 - place % 8);
            }
        }
        if self.bytes == before {
            return Ok(());
        }
        let is_address =
            matches!(field, Field::IpSrc | Field::IpDst | Field::Ipv6Src) || field == Field::Ipv6Dst && !parsed.routed;
        let is_transport = matches!(
            field,
            Field::TpSrc
                | Field::TpDst
                | Field::IcmpType
                | Field::IcmpCode
                | Field::NdTarget
                | Field::NdSll
                | Field::NdTll
        );
        let is_sctp = parsed.sum.is_some_and(|(.., protocol)| protocol == SCTP);
        let is_unknown = parsed.sum.is_none() || is_sctp && parsed.is_fragment;
        if is_address && parsed.is_split || is_transport && is_unknown {
            self.bytes = before;
            return Err(Reason::FlowHeaders);
        }
        let l3 = parsed.l3;
        if matches!(field, Field::IpTos | Field::IpTtl | Field::IpSrc | Field::IpDst) && parsed.is_ipv4 {
            let end = l3 + usize::from(self.bytes[l3] & 15) * 4;
            let whole = |bytes: &[u8]| add(sum(&bytes[l3..l3 + 10]), sum(&bytes[l3 + 12..end]));
            let had = u16::from_be_bytes([before[l3 + 10], before[l3 + 11]]);
            let checksum = changed(had, whole(&before), whole(&self.bytes));
            self.bytes[l3 + 10..l3 + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        if let Some((begin, end, place, protocol)) = parsed.sum.filter(|_| is_address || is_transport) {
            if protocol == SCTP {
                if is_transport {
                    let whole =
                        |bytes: &[u8]| crc32c(&[&bytes[begin..place], &[0; 4], &bytes[place + 4..end]].concat());
                    let had = u32::from_le_bytes(before[place..place + 4].try_into().unwrap());
                    let checksum = had ^ whole(&before) ^ whole(&self.bytes);
                    self.bytes[place..place + 4].copy_from_slice(&checksum.to_le_bytes());
                }
                return Ok(());
            }
            let is_absent = protocol == 17 && before[place..place + 2] == [0, 0];
            let has_pseudo = protocol != 1;
            if is_absent || is_address && !has_pseudo {
                return Ok(());
            }
            let whole = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                bytes[place..place + 2].fill(0);
                let pseudo = if has_pseudo { pseudo(&bytes, &parsed, end - begin, protocol) } else { 0 };
                add(pseudo, sum(&bytes[begin..end]))
            };
            let had = u16::from_be_bytes([before[place], before[place + 1]]);
            let mut checksum = changed(had, whole(&before), whole(&self.bytes));
            if checksum == 0 && protocol == 17 {
                checksum = 0xffff;
            }
            self.bytes[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        Ok(())
    }

    fn push(&mut self, tpid: u16) {
        let [high, low] = tpid.to_be_bytes();
        self.bytes.splice(12..12, [high, low, 0, 0]);
    }

    fn strip(&mut self) {
        if self.read(Field::VlanTci) != 0 {
            self.bytes.drain(12..16);
        }
    }
}

/// Returns the flow that a packet matches, and its place. `conjunction` is the value of `conj_id`.
fn find<'a>(flows: &'a [Flow], table: u8, packet: &Packet, conjunction: u32) -> Option<(usize, &'a Flow)> {
    let is_fragment = packet.read(Field::IpFrag) > 0;
    let read = |field| match field {
        Field::ConjId => conjunction.into(),
        // Flows see no transport fields of fragments.
        Field::TpSrc | Field::TpDst | Field::IcmpType | Field::IcmpCode if is_fragment => 0,
        field => packet.read(field),
    };
    let is_match = |flow: &Flow| flow.key.table == table && flow.key.condition.accepts(read);
    let (clauses, others): (Vec<_>, Vec<_>) =
        flows.iter().enumerate().filter(|(_, flow)| is_match(flow)).partition(|(_, flow)| flow.is_clause());
    // The first one of several with the greatest priority.
    let greater = |best: (usize, &'a Flow), other: (usize, &'a Flow)| {
        if other.1.key.priority > best.1.key.priority { other } else { best }
    };
    let best = others.into_iter().reduce(greater);
    if conjunction > 0 {
        return best;
    }
    let mut seen: HashMap<_, HashSet<u8>> = HashMap::new();
    for (key, clause) in clauses.iter().flat_map(|(_, flow)| flow.conjunctions()) {
        seen.entry(key).or_default().insert(clause);
    }
    let is_complete = |(key, clauses): &(ConjunctionKey, HashSet<u8>)| {
        clauses.len() == usize::from(key.clauses) && best.is_none_or(|(_, flow)| key.priority > flow.key.priority)
    };
    match seen.into_iter().filter(is_complete).max_by_key(|(key, _)| key.priority) {
        Some((key, _)) => find(flows, table, packet, key.id),
        None => best,
    }
}

/// The way of one packet.
#[derive(Debug)]
pub(super) struct Way<'a> {
    flows: &'a [Flow],
    packet: Packet,
    /// The outputs in order: port, bytes.
    pub(super) outputs: Vec<(u16, Vec<u8>)>,
    /// The flows that count the packet.
    pub(super) hits: Vec<usize>,
    unsent: Reason,
    calls: usize,
}

impl<'a> Way<'a> {
    /// Sends a packet from the port of a number. Returns what becomes of it, and the reason for which it
    /// is dropped.
    pub(super) fn send(flows: &'a [Flow], port: u16, bytes: &[u8]) -> (Self, Option<Reason>) {
        let packet = Packet { bytes: bytes.to_vec(), in_port: port, registers: [0; 8], mark: 0, written: Vec::new() };
        let mut way = Way { flows, packet, outputs: Vec::new(), hits: Vec::new(), unsent: Reason::FlowDrop, calls: 0 };
        let failed = way.search(0, port, 0, 0);
        let dropped = match failed {
            Err(reason) => Some(reason),
            Ok(()) => Some(way.unsent).filter(|_| way.outputs.is_empty()),
        };
        (way, dropped)
    }

    /// Runs the flow that matches in a table. `waiting` lists of actions wait for it.
    fn search(&mut self, table: u8, port: u16, depth: usize, waiting: usize) -> Result<(), Reason> {
        let mut seen = self.packet.clone();
        seen.in_port = port;
        let Some((at, flow)) = find(self.flows, table, &seen, 0) else {
            if waiting == 0 && self.outputs.is_empty() {
                self.unsent = Reason::NoFlow;
            }
            return Ok(());
        };
        self.hits.push(at);
        self.run(flow, depth, waiting)
    }

    fn run(&mut self, flow: &Flow, depth: usize, waiting: usize) -> Result<(), Reason> {
        for (at, action) in flow.actions.iter().enumerate() {
            match *action {
                Action::Output(number) => self.output(number.0),
                Action::OutputField(from) => self.output(u16::try_from(self.bits(from)).unwrap_or(0)),
                Action::InPort => self.push(self.packet.in_port),
                Action::Normal => self.outputs.push((NORMAL, self.packet.bytes.clone())),
                Action::Flood | Action::All => {
                    for port in (1..=PORTS).filter(|&port| port != self.packet.in_port).collect::<Vec<_>>() {
                        self.push(port);
                    }
                }
                Action::SetField { field, value, mask, .. } => self.packet.write(field, value, mask)?,
                Action::Move { from, to } => {
                    let value = self.bits(from) << to.offset;
                    self.packet.write(to.field, value, to.mask())?;
                }
                Action::DecTtl => {
                    if !matches!(self.packet.read(Field::EthType), 0x800 | 0x86dd) {
                        continue;
                    }
                    let ttl = self.packet.read(Field::IpTtl);
                    if ttl <= 1 {
                        self.unsent = Reason::FlowTtl;
                        return Ok(());
                    }
                    self.packet.write(Field::IpTtl, ttl - 1, 0xff)?;
                }
                Action::PushVlan(tpid) => self.packet.push(tpid),
                Action::StripVlan => self.packet.strip(),
                Action::GotoTable(table) => self.call(flow, at, table, self.packet.in_port, depth, waiting)?,
                Action::Resubmit { port, table } => {
                    let port = port.map_or(self.packet.in_port, |port| port.0);
                    self.call(flow, at, table.unwrap_or(flow.key.table), port, depth, waiting)?;
                }
                Action::Conjunction { .. } => unreachable!("clauses are not found"),
                Action::Meter(_) | Action::Ct(_) | Action::CtClear => unreachable!("not generated"),
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        flow: &Flow,
        at: usize,
        table: u8,
        port: u16,
        depth: usize,
        waiting: usize,
    ) -> Result<(), Reason> {
        if self.calls >= 4096 || depth >= 64 {
            return Err(Reason::FlowLimit);
        }
        self.calls += 1;
        let waits = at + 1 < flow.actions.len();
        let goes_back = table <= flow.key.table;
        self.search(table, port, depth + usize::from(waits || goes_back), waiting + usize::from(waits))
    }

    fn bits(&self, from: Subfield) -> u128 {
        from.of(self.packet.read(from.field))
    }

    fn output(&mut self, number: u16) {
        if number == PortNumber::IN_PORT.0 {
            return self.push(self.packet.in_port);
        }
        if number == self.packet.in_port {
            self.unsent = Reason::SamePort;
        } else {
            self.push(number);
        }
    }

    fn push(&mut self, port: u16) {
        if (1..=PORTS).contains(&port) {
            self.outputs.push((port, self.packet.bytes.clone()));
        } else {
            self.unsent = Reason::NoReceiver;
        }
    }
}
