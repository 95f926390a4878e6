//! Sequences on which the kernel and we once differed, and some that are near.

use super::sequence::{ACK, Damage, FIN, IN, Meant, OUT, RST, SYN, Segment, Sequence, Step};

/// Returns all sequences. Rules of each policy allow ports 7 to 9, and questions of echo.
pub(super) fn sequences() -> Vec<Sequence> {
    vec![
        // The opener answers with SYN and ACK, as in a simultaneous open.
        tcp(&[syn(OUT, 0), syn_ack(IN, 0, 1), syn_ack(OUT, 1, 1), data(IN, 1, 2, 500)]),
        tcp(&[syn(OUT, 0), syn_ack(IN, 0, 1), data(OUT, 1, 1, 0), syn_ack(OUT, 1, 1), data(IN, 1, 2, 500)]),
        // After the end, the answerer opens a connection.
        tcp(&[
            syn(OUT, 0),
            syn_ack(IN, 0, 1),
            data(OUT, 1, 1, 0),
            fin(IN, 1, 1),
            fin(OUT, 1, 2),
            data(IN, 2, 2, 0),
            syn(IN, 100_000),
            syn_ack(IN, 100_000, 12),
        ]),
        // A RST answers an ACK that passed without effect, but not the sender's own SYN.
        tcp(&[syn(OUT, 0), data(IN, 0, 1, 500), rst(OUT, 1001, 500)]),
        tcp(&[syn(OUT, 0), data(IN, 0, 1, 500), syn(OUT, 0), rst(OUT, 1001, 500)]),
        tcp(&[syn(OUT, 0), syn_ack(IN, 0, 1), data(OUT, 1, 1, 0), syn(OUT, 5000), rst(IN, 77_777, 5001)]),
        tcp(&[syn(OUT, 0), syn_ack(IN, 0, 1), data(OUT, 1, 1, 0), syn(OUT, 5000), rst(OUT, 77_777, 5001)]),
        tcp(&[
            syn(OUT, 0),
            data(IN, 0, 1, 0),
            syn(OUT, 1),
            rst(OUT, 2, 0),
            syn_ack(IN, 0, 2),
            data(OUT, 2, 1, 10),
            data(IN, 1, 12, 500),
        ]),
        // A second SYN of the opener offers no scale, so its window is 1 byte and not 16 384.
        tcp(&[
            Segment { scale: Some(15), window: 0, ..syn(OUT, 0) },
            Segment { scale: Some(0), window: 0, ..syn_ack(IN, 0, 1) },
            Segment { window: 0, ..syn_ack(OUT, 1, 1) },
            data(IN, 1, 1, 1),
            Segment { window: 65_535, ..data(IN, 2, 1, 10) },
            Segment { window: 1, ..data(OUT, 1, 12, 1000) },
            data(IN, 1001, 12, 1000),
        ]),
        // An answer without its question, and an error about an answer.
        queries(&[query(OUT, 8, 5), query(IN, 0, 6)]),
        queries(&[query(OUT, 8, 5), query(IN, 0, 5), error(OUT)]),
        queries(&[query(OUT, 8, 5), error(IN)]),
        // The meant differences.
        meant(&[Step::Tcp(syn(OUT, 0)), Step::Tcp(syn_ack(IN, 0, 1)), error_about_number()], Meant::QuotedNumber),
        meant(&[Step::Parts { from: OUT, ports: PORTS, parts: vec![80..200, 0..80] }], Meant::LaterFirst),
        meant(&[Step::Damaged { from: OUT, ports: PORTS }], Meant::Checksum),
    ]
}

/// Ports of the guest and of the other station.
const PORTS: [u16; 2] = [9, 40_000];

fn sequence(steps: impl Iterator<Item = Step>) -> Sequence {
    let steps = steps.map(|step| (step, None)).collect();
    Sequence { number: 0, is_ipv6: false, ports: PORTS, begins: [3_126_612_944, 2_147_483_148], steps }
}

fn tcp(segments: &[Segment]) -> Sequence {
    sequence(segments.iter().copied().map(Step::Tcp))
}

fn queries(steps: &[Step]) -> Sequence {
    sequence(steps.iter().cloned())
}

/// A sequence whose last packet shows a difference.
fn meant(steps: &[Step], difference: Meant) -> Sequence {
    let mut sequence = sequence(steps.iter().cloned());
    if let Some((_, meant)) = sequence.steps.last_mut() {
        *meant = Some(difference);
    }
    sequence
}

fn segment(from: usize, flags: u8, seq: u32, ack: u32) -> Segment {
    Segment { from, flags, seq, ack, window: 8192, ..Segment::default() }
}

fn syn(from: usize, seq: u32) -> Segment {
    segment(from, SYN, seq, 0)
}

fn syn_ack(from: usize, seq: u32, ack: u32) -> Segment {
    segment(from, SYN | ACK, seq, ack)
}

fn data(from: usize, seq: u32, ack: u32, len: u16) -> Segment {
    Segment { len, ..segment(from, ACK, seq, ack) }
}

fn fin(from: usize, seq: u32, ack: u32) -> Segment {
    segment(from, FIN | ACK, seq, ack)
}

fn rst(from: usize, seq: u32, ack: u32) -> Segment {
    segment(from, RST | ACK, seq, ack)
}

fn query(from: usize, icmp_type: u8, ident: u16) -> Step {
    Step::Query { from, icmp_type, ident }
}

/// An error about the packet before it.
fn error(from: usize) -> Step {
    Step::Error { from, icmp: [3, 1], quoted: 28, damage: Damage::None }
}

/// An error about the packet before it, with a number that it did not have.
fn error_about_number() -> Step {
    Step::Error { from: OUT, icmp: [3, 1], quoted: 28, damage: Damage::Number }
}
