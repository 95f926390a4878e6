//! Packets of connections through both switches, whose flows write the state that `ct` finds into each
//! packet.
//!
//! The stations speak as TCP, UDP and ping do. Some of their ports commit connections, some are in another
//! zone, and some packets belong to nothing. `docs/flows.md` names the packets that both see differently;
//! none of them is here.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Result, ensure};
use straightline_report::random::Random;

use super::packets::{Both, Outputs, hex};
use crate::cases::firewall::packet::{self, ICMP, ICMPV6, PacketName, TCP, UDP, Wire};
use crate::lab::Lab;
use crate::say::say;
use crate::seed::seed;

/// Files of flows, and conversations with each.
const FILES: usize = 4;
const CONVERSATIONS: usize = 40;

/// Files of a long run.
const LONG: usize = 40;

/// Differences in the report of a failure.
const SHOWN: usize = 6;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Writes state and zone into the source address, and sends the packet to all ports.
const SHOW: &str = "table=2,actions=move:NXM_NX_CT_STATE[0..7]->NXM_OF_ETH_SRC[0..7],\
                    move:NXM_NX_CT_ZONE[]->NXM_OF_ETH_SRC[16..31],output:1,output:2,output:3,output:4,in_port";

pub(super) fn same_states(lab: &Lab) -> Result<()> {
    let mut both = Both::start(lab)?;
    let seed = seed(lab.machine.long)?;
    let mut random = Random::new(seed);
    let mut number = 0;
    let mut states = Vec::new();
    let mut wrong = Vec::new();
    for _ in 0..if lab.machine.long { LONG } else { FILES } {
        let policy = Policy::random(&mut random);
        both.load(lab, &policy.flows())?;
        let mut conversations: Vec<_> = (0..CONVERSATIONS)
            .map(|_| {
                number += 1;
                Conversation::random(number, &policy, &mut random)
            })
            .collect();
        let mut packets = 0_u16;
        while !conversations.is_empty() {
            let at = usize::try_from(random.below(conversations.len() as u64))?;
            let Some((port, frame)) = conversations[at].next(packets) else {
                conversations.swap_remove(at);
                continue;
            };
            packets += 1;
            let [theirs, ours] =
                [&mut both.theirs, &mut both.ours].map(|ends| ends.pass(port, std::slice::from_ref(&frame)));
            let [theirs, ours] = [theirs?, ours?];
            states.extend(shown(&theirs));
            if theirs != ours {
                wrong.push(format!(
                    "{}into port {}: {}\n  OvS {:02x?}, ours {:02x?} with {policy:?}",
                    conversations[at].said,
                    port + 1,
                    hex(&frame),
                    shown(&theirs),
                    shown(&ours),
                ));
            }
        }
    }
    let differences = wrong.len();
    ensure!(
        wrong.is_empty(),
        "seed {seed}: {differences} differences:\n{}",
        wrong[..differences.min(SHOWN)].join("\n")
    );
    let packets = states.len();
    states.sort_unstable();
    states.dedup();
    // New, established, an answer, related and invalid.
    for state in [0x21, 0x22, 0x2a, 0x2c, 0x30] {
        ensure!(states.contains(&state), "seed {seed}: no packet has the state {state:#x}: {states:02x?}");
    }
    say!("  seed {seed}: {packets} packets have the same states {states:02x?}");
    both.switch.end()
}

/// Returns the state that a switch has found, once for each packet that it has sent.
fn shown(outputs: &Outputs) -> Option<u8> {
    outputs.iter().flatten().next().and_then(|frame| frame.get(11).copied())
}

/// The flows for the packets of each port.
#[derive(Debug)]
struct Policy {
    zones: [u16; 4],
    commits: [bool; 4],
}

impl Policy {
    fn random(random: &mut Random) -> Self {
        let mut below = |bound| random.below(bound);
        let zones = std::array::from_fn(|_| if below(4) == 0 { 700 } else { 0 });
        Policy { zones, commits: std::array::from_fn(|_| below(3) > 0) }
    }

    fn flows(&self) -> String {
        let mut text = String::new();
        for (at, (zone, commits)) in self.zones.iter().zip(self.commits).enumerate() {
            let port = at + 1;
            for version in ["ip", "ipv6"] {
                // One form with a number, one with a register.
                let _ = if port % 2 == 0 {
                    writeln!(text, "{version},in_port={port},actions=ct(table=1,zone={zone})")
                } else {
                    let load = format!("load:{zone}->NXM_NX_REG3[0..15]");
                    writeln!(text, "{version},in_port={port},actions={load},ct(table=1,zone=NXM_NX_REG3[0..15])")
                };
                if commits {
                    let condition = format!("table=1,{version},in_port={port},ct_state=+trk+new,ct_zone={zone}");
                    let _ = writeln!(text, "{condition},actions=resubmit(,2),ct(commit,zone={zone})");
                }
            }
        }
        let _ = writeln!(text, "table=1,priority=1,ct_state=+trk,actions=resubmit(,2)\n{SHOW}");
        text
    }
}

/// A packet of a conversation: its sender, 0 for the station that begins.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Tcp {
        from: usize,
        flags: u8,
        len: u16,
        far: u32,
    },
    Udp {
        from: usize,
    },
    Echo {
        from: usize,
        is_question: bool,
    },
    /// An error of the other station about the datagram that the first one has sent.
    Error,
}

/// Two stations at two ports.
struct Conversation {
    number: u16,
    is_ipv6: bool,
    /// Ports of the switch.
    at: [usize; 2],
    packets: std::vec::IntoIter<Packet>,
    /// Next sequence numbers, behind a SYN.
    next: [u32; 2],
    /// The packets so far, for a report.
    said: String,
}

impl Conversation {
    fn random(number: u16, policy: &Policy, random: &mut Random) -> Self {
        let mut below = |bound: u64| usize::try_from(random.below(bound)).unwrap_or(0);
        let first = below(4);
        let at = [first, (first + 1 + below(3)) % 4];
        let is_known = policy.commits[at[0]] && policy.zones[at[0]] == policy.zones[at[1]];
        let tcp = |from, flags, len| Packet::Tcp { from, flags, len, far: 0 };
        let packets = match below(8) {
            0 => vec![Packet::Udp { from: 0 }, Packet::Udp { from: 0 }],
            1 => vec![Packet::Udp { from: 0 }, Packet::Error, Packet::Udp { from: 1 }],
            2 => {
                vec![Packet::Udp { from: 0 }, Packet::Udp { from: 1 }, Packet::Udp { from: 0 }, Packet::Udp { from: 1 }]
            }
            3 if is_known => {
                [true, false, true, false].map(|asks| Packet::Echo { from: asks.into(), is_question: asks }).to_vec()
            }
            3 => vec![Packet::Echo { from: 0, is_question: true }],
            4 => vec![Packet::Echo { from: 1, is_question: false }],
            5 if is_known => vec![tcp(0, SYN, 0), tcp(0, SYN, 0), tcp(1, RST | ACK, 0)],
            _ => {
                let mut all =
                    vec![tcp(0, SYN, 0), tcp(1, SYN | ACK, 0), tcp(0, ACK, 0), tcp(0, ACK, 10), tcp(1, ACK, 300)];
                if policy.commits[at[0]] && !is_known {
                    // Without an answer in the same zone, OvS's user-space datapath takes the opener's ACK for
                    // valid, and the kernel's does not. Neither do we.
                    all.truncate(2);
                }
                if is_known {
                    all.push(Packet::Tcp { from: 1, flags: ACK, len: 5, far: 1_000_000_000 });
                    all.extend([tcp(0, FIN | ACK, 0), tcp(1, FIN | ACK, 0), tcp(0, ACK, 0)]);
                }
                all
            }
        };
        let next = [100, u32::MAX - 200];
        Conversation { number, is_ipv6: below(3) == 0, at, packets: packets.into_iter(), next, said: String::new() }
    }

    /// Returns the next packet, and the port by which it comes.
    fn next(&mut self, id: u16) -> Option<(usize, Vec<u8>)> {
        let packet = self.packets.next()?;
        let _ = writeln!(self.said, "{packet:?} at {:?}", self.at);
        let (from, frame) = match packet {
            Packet::Tcp { from, flags, len, far } => {
                let ack = if flags & ACK == 0 { 0 } else { self.next[1 - from] };
                let begin = u32::from(flags & SYN != 0);
                let seq = self.next[from].wrapping_add(far).wrapping_sub(begin);
                if far == 0 {
                    self.next[from] = self.next[from].wrapping_add(u32::from(len) + u32::from(flags & FIN));
                }
                let ports = if from == 0 { [5000, 80] } else { [80, 5000] };
                let name = self.name(from, id);
                let segment = Wire { ports, seq, ack, flags, window: 8192, scale: None, len };
                (from, packet::frame(&name, TCP, &segment.bytes(&name)))
            }
            Packet::Udp { from } => (from, self.datagram(from, id)),
            Packet::Echo { from, is_question } => {
                let name = self.name(from, id);
                let kinds = if self.is_ipv6 { [128, 129] } else { [8, 0] };
                let kind = kinds[usize::from(!is_question)];
                let bytes = packet::icmp(&name, [kind, 0], [0, 9, 0, 1], &[7; 12]);
                (from, packet::frame(&name, self.icmp(), &bytes))
            }
            Packet::Error => {
                let name = self.name(1, id);
                let quoted = self.datagram(0, id)[14..].to_vec();
                let kind = if self.is_ipv6 { [1, 4] } else { [3, 3] };
                (1, packet::frame(&name, self.icmp(), &packet::icmp(&name, kind, [0; 4], &quoted)))
            }
        };
        Some((self.at[from], frame))
    }

    fn datagram(&self, from: usize, id: u16) -> Vec<u8> {
        let name = self.name(from, id);
        let ports = if from == 0 { [7000, 53] } else { [53, 7000] };
        packet::frame(&name, UDP, &packet::udp(&name, ports, 20))
    }

    fn icmp(&self) -> u8 {
        if self.is_ipv6 { ICMPV6 } else { ICMP }
    }

    fn name(&self, from: usize, id: u16) -> PacketName {
        let [high, low] = self.number.to_be_bytes();
        let ends: [IpAddr; 2] = if self.is_ipv6 {
            [[0xfd00, 0, 0, 0, 0, 0, self.number, 1].into(), [0xfd00, 0, 0, 0, 0, 0, self.number, 2].into()]
        } else {
            [[10, high, low, 1].into(), [10, high, low, 2].into()]
        };
        PacketName { src: ends[from], dst: ends[1 - from], id }
    }
}
