//! A namespace that forwards, with or without rules, and the packets that it forwards.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use straightline_guest::endpoints::InterfaceKind;

use super::options::ConntrackCell;
use crate::cases::ends::{Device, End};
use crate::cases::firewall::packet::{PacketName, TCP, Wire, frame};
use crate::net::Namespace;

/// Flags of TCP.
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Known connections.
const CONNECTIONS: u32 = 1000;

/// Number of rules. The last one allows all packets of a trial.
const RULES: u32 = 100;

/// The address of the side that opens connections.
const OPENER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Bytes of data in a segment, as in the bench.
const DATA: u16 = 6;

/// The taps for packets of the opener, and for answers. What is forwarded leaves by bridges without ports, which
/// drop it.
const OPENERS: &str = "openers";
const ANSWERS: &str = "answers";
const SINKS: [(&str, &str); 2] = [("sink0", "192.0.0.0/16"), ("sink1", "10.0.0.0/8")];

/// Sends the packets of a trial. Returns the nanoseconds that each has taken.
pub(super) fn nanoseconds(cell: ConntrackCell, packets: u32) -> Result<f64> {
    let namespace = Namespace::silent("conntrack")?;
    set_up(&namespace, cell != ConntrackCell::Forward)?;
    namespace.run(|| {
        let mut opener = Device::open(InterfaceKind::Tap, OPENERS)?;
        let mut answerer = Device::open(InterfaceKind::Tap, ANSWERS)?;
        if cell == ConntrackCell::Known {
            for (is_answer, flags) in [(false, SYN), (true, SYN | ACK), (false, ACK)] {
                let end = if is_answer { &mut answerer } else { &mut opener };
                (0..CONNECTIONS).try_for_each(|flow| end.send(&segment(flow, 0, is_answer, flags)))?;
            }
        }
        let frames: Vec<_> = (0..packets).map(|n| packet(cell, n)).collect();
        let before = (forwarded(&namespace)?, connections(&namespace)?);
        let began = Instant::now();
        frames.iter().try_for_each(|frame| opener.send(frame))?;
        let took = began.elapsed();
        let came = forwarded(&namespace)? - before.0;
        ensure!(came == u64::from(packets), "{came} of {packets} packets were forwarded: {cell}");
        let new = connections(&namespace)? - before.1;
        let expected = if cell == ConntrackCell::New { packets } else { 0 };
        ensure!(new == expected, "nf_conntrack follows {new} more connections: {cell}");
        Ok(took.as_secs_f64() * 1e9 / f64::from(packets))
    })?
}

fn set_up(namespace: &Namespace, has_rules: bool) -> Result<()> {
    let mut script = "for all in all default; do echo 0 > /proc/sys/net/ipv4/conf/$all/rp_filter; done\n\
                      echo 1 > /proc/sys/net/ipv4/ip_forward\n"
        .to_owned();
    for tap in [OPENERS, ANSWERS] {
        writeln!(script, "ip tuntap add dev {tap} mode tap vnet_hdr\nip link set {tap} address 02:00:00:00:00:0a up")?;
    }
    for (sink, prefix) in SINKS {
        writeln!(script, "ip link add {sink} type bridge mcast_snooping 0\nip link set {sink} multicast off up")?;
        writeln!(script, "ip neigh add 169.254.0.1 lladdr 02:00:00:00:00:0b nud permanent dev {sink}")?;
        writeln!(script, "ip route add {prefix} via 169.254.0.1 dev {sink} onlink")?;
    }
    if has_rules {
        let others: String = (1..RULES).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "ip daddr 10.{}.{}.0/24 tcp dport {n} accept", n >> 8, n & 255);
            text
        });
        writeln!(
            script,
            "nft -f - << 'END'\ntable inet bench {{\nchain forward {{\ntype filter hook forward priority 0; policy drop;\n\
             ct state established,related accept\nct state invalid drop\n{others}ip daddr 192.0.0.0/16 accept\n}}\n}}\nEND"
        )?;
    }
    namespace.sh(&script).map(drop)
}

/// Returns the packets that left by the first sink.
fn forwarded(namespace: &Namespace) -> Result<u64> {
    let text = namespace.sh(&format!("ip -s link show {} | tail -1", SINKS[0].0))?;
    text.split_whitespace().nth(1).and_then(|packets| packets.parse().ok()).with_context(|| format!("ip wrote {text}"))
}

/// Returns the connections that nf_conntrack follows.
fn connections(namespace: &Namespace) -> Result<u32> {
    Ok(namespace.sh("cat /proc/sys/net/netfilter/nf_conntrack_count 2> /dev/null || echo 0")?.parse()?)
}

/// Returns the nth packet of a trial.
fn packet(cell: ConntrackCell, n: u32) -> Vec<u8> {
    match cell {
        ConntrackCell::New => segment(n, 0, false, SYN),
        _ => segment(n % CONNECTIONS, n / CONNECTIONS + 1, false, ACK),
    }
}

/// Returns a segment of a connection; the pass counts the segments with data.
fn segment(flow: u32, pass: u32, is_answer: bool, flags: u8) -> Vec<u8> {
    // Not one after the other: neighbours would be neighbours in tables.
    let [a, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut ends = [(OPENER, u16::from_be_bytes([c | 0x80, d])), (Ipv4Addr::new(192, 0, a, b), 5000)];
    let has_begun = u32::from(flags & SYN == 0);
    let data = u32::from(DATA) * pass.saturating_sub(1);
    let mut seq = 1000 + has_begun + data;
    let mut acked = 2000 + has_begun;
    if is_answer {
        ends.reverse();
        std::mem::swap(&mut seq, &mut acked);
    }
    let ack = match (flags & ACK != 0, is_answer) {
        (false, _) => 0,
        (true, true) => acked + 1,
        (true, false) => acked,
    };
    let name = PacketName { src: ends[0].0.into(), dst: ends[1].0.into(), id: 0 };
    let len = if pass == 0 { 0 } else { DATA };
    let scale = (flags & SYN != 0).then_some(14);
    let wire = Wire { ports: ends.map(|(_, port)| port), seq, ack, flags, window: 0xffff, scale, len };
    frame(&name, TCP, &wire.bytes(&name))
}
