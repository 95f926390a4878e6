//! Packets through the kernel and through our switch, and what passes.
//!
//! A round has the next packet of each sequence. The packets of one side go in batches, and a marker
//! follows each batch. When the marker arrives, all packets before it have arrived or never will.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::packet::{self, PacketName, UDP};
use super::sequence::{self, IN, Meant, SIDES, Sequence};
use crate::cases::ends::End;
use crate::proc;

/// Frames of a batch. A tap keeps 500, and a guest's ring as many.
const BATCH: usize = 100;

/// A pause in all sequences.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    /// Number of packets of each sequence before the pause.
    pub(super) after: usize,
    pub(super) time: Duration,
    /// The longest time of the packets before the pause, and of those after it.
    pub(super) longest: Duration,
}

/// Whether a packet has passed the kernel, and us.
pub(super) type Passed = [bool; 2];

/// Those that have passed, of each packet of each sequence.
pub(super) struct Exchanged {
    pub(super) passed: Vec<Vec<Passed>>,
    /// The packets after the pause took too long.
    pub(super) is_late: bool,
}

/// The parts of packets that have arrived, each with whether it is the last one.
type Arrived = HashMap<PacketName, Vec<(Range<usize>, bool)>>;

/// The packets of one step of a sequence.
struct Sent {
    sequence: usize,
    name: PacketName,
    frames: Vec<Vec<u8>>,
}

/// The way through the kernel, and the way through our switch.
pub(super) struct Paths {
    ends: [Vec<Box<dyn End>>; 2],
    /// Number of the last packet.
    id: u16,
}

impl Paths {
    /// Makes the ways from their ends, by side.
    pub(super) fn new(ends: [Vec<Box<dyn End>>; 2]) -> Self {
        Paths { ends, id: 0 }
    }

    /// Sends sequences. Returns what has passed. None: the packets before the pause took too long.
    pub(super) fn exchange(&mut self, sequences: &[Sequence], pause: Option<Pause>) -> Result<Option<Exchanged>> {
        let mut passed = vec![Vec::new(); sequences.len()];
        let rounds = sequences.iter().map(|sequence| sequence.steps.len()).max().unwrap_or(0);
        // The time is the subject: timeouts may come in the pause only.
        let mut began = Instant::now();
        for round in 0..rounds {
            if let Some(pause) = pause
                && pause.after == round
            {
                if began.elapsed() > pause.longest {
                    return Ok(None);
                }
                proc::pause(pause.time)?;
                began = Instant::now();
            }
            for side in SIDES {
                let is_sent =
                    |sequence: &&Sequence| sequence.steps.get(round).is_some_and(|(step, _)| step.from() == side);
                let sent: Vec<Sent> = sequences
                    .iter()
                    .enumerate()
                    .filter(|(_, sequence)| is_sent(sequence))
                    .map(|(at, sequence)| {
                        let (name, frames) = sequence.frames(round, self.next());
                        Sent { sequence: at, name, frames }
                    })
                    .collect();
                for batch in sent.chunks(BATCH) {
                    let arrived = [self.pass(0, side, batch)?, self.pass(1, side, batch)?];
                    for sent in batch {
                        let both = arrived
                            .each_ref()
                            .map(|all| all.get(&sent.name).is_some_and(|parts| sequence::is_whole(parts)));
                        passed[sent.sequence].push(both);
                    }
                }
            }
        }
        let is_late = pause.is_some_and(|pause| began.elapsed() > pause.longest);
        Ok(Some(Exchanged { passed, is_late }))
    }

    fn next(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    /// Sends a batch on one way. Returns the parts that have arrived, of each packet.
    fn pass(&mut self, way: usize, side: usize, batch: &[Sent]) -> Result<Arrived> {
        let marker = marker(side, self.next());
        let ends = &mut self.ends[way];
        for frame in batch.iter().flat_map(|sent| &sent.frames) {
            ends[side].send(frame)?;
        }
        let payload = packet::udp(&marker, [7, 7], 8);
        ends[side].send(&packet::frame(&marker, UDP, &payload))?;
        let mut arrived = Arrived::new();
        proc::until_moved(&format!("a marker from side {side} arrives on way {way}"), || {
            for frame in ends[1 - side].receive()? {
                if let Some((name, part, is_last)) = packet::read(&frame) {
                    arrived.entry(name).or_default().push((part, is_last));
                }
            }
            // The kernel's own packets.
            ends[side].receive()?;
            Ok(arrived.contains_key(&marker).then_some(()))
        })?;
        Ok(arrived)
    }
}

/// Returns the name of a packet that each policy allows.
fn marker(side: usize, id: u16) -> PacketName {
    let addresses = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(198, 51, 100, 1)];
    PacketName { src: addresses[side].into(), dst: addresses[1 - side].into(), id }
}

/// The results of a sequence, compared.
#[derive(Default)]
pub(super) struct Compared {
    /// A meant difference that was seen. Packets behind it are not compared.
    pub(super) meant: Option<Meant>,
    /// The sequence, and the first packet that passed at one of both only.
    pub(super) report: Option<String>,
}

/// Compares what has passed of a sequence.
pub(super) fn compare(sequence: &Sequence, passed: &[Passed]) -> Compared {
    let Some(at) = passed.iter().position(|[kernel, ours]| kernel != ours) else { return Compared::default() };
    let [_, ours] = passed[at];
    if let Some(meant) = sequence.steps[at].1.filter(|meant| meant.is_laxer() == ours) {
        return Compared { meant: Some(meant), report: None };
    }
    let version = if sequence.is_ipv6 { "IPv6" } else { "IPv4" };
    let Sequence { number, ports, begins, .. } = sequence;
    let mut text = format!("sequence {number}: {version}, ports {ports:?}, first numbers {begins:?}\n");
    for ((step, _), [kernel, ours]) in sequence.steps.iter().zip(passed).take(at + 1) {
        let word = |passed: &bool| if *passed { "passes" } else { "drops" };
        let arrow = if step.from() == IN { "->" } else { "<-" };
        // Writing into a string does not fail.
        let _ = writeln!(text, "  {arrow} kernel {:6} we {:6} {step:?}", word(kernel), word(ours));
    }
    Compared { meant: None, report: Some(text) }
}
