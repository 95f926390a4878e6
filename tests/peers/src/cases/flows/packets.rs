//! The same packets through Open vSwitch and through our switch, with the same flows.
//!
//! Packets go in batches, each into one port. Behind a batch goes a marker, which its own flow sends to
//! all ports: once it has come everywhere, all outputs of the batch have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};
use straightline_report::random::Random;
use straightline_testing::frames::FrameDraft;

use super::differences::{self, Difference};
use super::rules::Actions;
use super::{counts, rules};
use crate::cases::ends::{Embedded, End, Stream};
use crate::lab::Lab;
use crate::ovs::PlainOvs;
use crate::proc;
use crate::say::say;
use crate::seed::seed;
use crate::switch::{Port, Switch};

/// Seeds that once failed.
const KEPT: &[u64] = &[];

/// Files of flows of a seed, and packets for each.
const FILES: usize = 10;
const PACKETS: usize = 1000;

/// New seeds of a long run.
const LONG: u64 = 20;

/// Packets of a batch. A port of OvS keeps at most 100 of them that wait to be read.
const BATCH: usize = 12;

/// The actions of files, in turn.
const KINDS: [Actions; 5] = [Actions::Changes, Actions::Changes, Actions::Ethernet, Actions::Changes, Actions::Normal];

/// Packets of a file with `normal`. There, the order of packets matters: they go one by one.
const PACKETS_WITH_NORMAL: usize = 200;

const PORTS: [&str; 4] = ["p1", "p2", "p3", "p4"];

/// Type of markers, which no other packet has.
const MARKER: [u8; 2] = [0x88, 0xb6];
const MARKER_FLOW: &str = "priority=65535,dl_type=0x88b6,actions=output:1,output:2,output:3,output:4,in_port";

/// Differences in the report of a failure.
const SHOWN: usize = 4;

/// Frames that each port has got.
pub(super) type Outputs = Vec<Vec<Vec<u8>>>;

/// The differences of a seed, and the first of them as text.
#[derive(Default)]
struct Report {
    wrong: usize,
    text: String,
}

/// The ends of a switch's ports.
pub(super) struct Ends {
    ends: Vec<Box<dyn End>>,
    /// Markers that a batch takes. Our worker sends changed packets behind the first one that it has
    /// received with them.
    markers: u32,
    next: u32,
}

/// Both switches, with four ports each.
pub(super) struct Both<'l> {
    pub(super) ovs: PlainOvs<'l>,
    pub(super) theirs: Ends,
    pub(super) switch: Switch<'l>,
    pub(super) ours: Ends,
}

impl<'l> Both<'l> {
    pub(super) fn start(lab: &'l Lab<'l>) -> Result<Self> {
        let mut ovs = PlainOvs::start(lab)?;
        ovs.add_bridge("br0")?;
        for (number, port) in (1..).zip(PORTS) {
            ovs.add_stream(
                "br0",
                port,
                &[
                    "--".to_owned(),
                    "set".to_owned(),
                    "Interface".to_owned(),
                    port.to_owned(),
                    format!("ofport_request={number}"),
                ],
            )?;
        }
        ovs.wait_bridge()?;
        let mut theirs = Ends { ends: Vec::new(), markers: 1, next: 0 };
        for port in PORTS {
            theirs.ends.push(Box::new(Stream::connect(&ovs.wait_stream(port)?)?));
        }
        let mut text = Switch::configuration(lab, &["vm1", "vm2", "vm3", "vm4"].map(Port::new), &[], &[])?;
        // The packets move stations from port to port, as no network does.
        text += "loop-protection = false\n";
        let mut switch = Switch::spawn_with(lab, &[], &text)?;
        switch.wait_ready()?;
        let mut ours = Ends { ends: Vec::new(), markers: 2, next: 0 };
        for port in ["vm1", "vm2", "vm3", "vm4"] {
            ours.ends.push(Box::new(Embedded::connect(&lab.socket(port))?));
        }
        Ok(Both { ovs, theirs, switch, ours })
    }

    /// Loads a file of flows into both.
    pub(super) fn load(&self, lab: &Lab, text: &str) -> Result<()> {
        let file = lab.log("flows");
        fs::write(&file, format!("{MARKER_FLOW}\n{text}"))?;
        let path = file.display().to_string();
        self.ovs.flows(&["del-flows"], &[])?;
        self.ovs.flows(&["add-flows"], &[&path])?;
        self.switch.flow(&["replace", "lan", "/dev/null"])?;
        self.switch.flow(&["replace", "lan", &path])?;
        Ok(())
    }
}

pub(super) fn same_packets(lab: &Lab) -> Result<()> {
    let mut both = Both::start(lab)?;
    let new = seed(lab.machine.long)?;
    let seeds = if lab.machine.long { LONG } else { 1 };
    for seed in KEPT.iter().copied().chain(new..new + seeds) {
        let mut random = Random::new(seed);
        let mut outputs = 0;
        let mut report = Report::default();
        for kind in KINDS.into_iter().cycle().take(FILES) {
            outputs += compare(lab, &mut random, kind, &mut report, &mut both)?;
        }
        ensure!(report.wrong == 0, "seed {seed}: {} differences:\n{}", report.wrong, report.text);
        ensure!(outputs > 5000, "seed {seed}: only {outputs} outputs are a weak test");
        say!("  seed {seed}: {outputs} outputs are the same");
    }
    both.switch.end()
}

/// Loads a file of flows into both switches, and compares outputs and counters. Returns the number of
/// outputs.
fn compare(lab: &Lab, random: &mut Random, kind: Actions, report: &mut Report, both: &mut Both<'_>) -> Result<usize> {
    let text = rules::file(random, kind);
    both.load(lab, &text)?;
    let Both { ovs, theirs, switch, ours } = both;
    let (batch, packets) = if kind == Actions::Normal { (1, PACKETS_WITH_NORMAL) } else { (BATCH, PACKETS) };
    // OvS's bridge learns stations by VLAN, and ours, without VLANs, does not. Behind `strip_vlan`, OvS sees
    // no second tag unless `vlan-limit` is set.
    let tags = if kind == Actions::Normal { 0 } else { 2 - u64::from(text.contains("strip_vlan")) };
    let mut count = 0;
    let wrong_before = report.wrong;
    for first in (0..packets).step_by(batch) {
        let port = usize::try_from(random.below(4))?;
        let frames: Vec<_> =
            (first..packets.min(first + batch)).map(|number| frame(random, number, kind, tags)).collect();
        let expected = theirs.pass(port, &frames)?;
        let got = ours.pass(port, &frames)?;
        count += expected.iter().map(Vec::len).sum::<usize>();
        let [expected, got] = [expected, got].map(by_number);
        for (number, frame) in (first..).zip(&frames) {
            let [right, came] = [&expected, &got].map(|all| all.get(&number).cloned().unwrap_or_default());
            let compared = |outputs: &[(usize, Vec<u8>)]| -> Vec<(usize, Vec<u8>)> {
                let Some(difference) = Difference::of(frame).filter(|_| kind != Actions::Ethernet) else {
                    return outputs.to_vec();
                };
                let mut all: Vec<_> = outputs.iter().map(|(port, bytes)| (*port, difference.compared(bytes))).collect();
                all.sort();
                all
            };
            if compared(&right) != compared(&came) {
                report.wrong += 1;
                if report.wrong <= SHOWN {
                    let text = &mut report.text;
                    writeln!(text, "packet {number} into port {}: {}", port + 1, hex(frame))?;
                    for (who, outputs, others) in [("OvS", &right, &came), ("ours", &came, &right)] {
                        let mut others = others.clone();
                        let is_further =
                            |output: &&(usize, Vec<u8>)| match others.iter().position(|other| other == *output) {
                                Some(at) => {
                                    others.remove(at);
                                    false
                                }
                                None => true,
                            };
                        for (port, bytes) in outputs.iter().filter(is_further) {
                            writeln!(text, "  {who:4} port {}: {}", port + 1, hex(bytes))?;
                        }
                    }
                }
            }
        }
    }
    ovs.control("revalidator/purge")?;
    let of_ovs = counts::read(&ovs.flows(&["dump-flows"], &[])?);
    let of_ours = counts::read(&switch.flow(&["dump", "lan", "--no-names"])?);
    for flow in counts::differences(&of_ours, &of_ovs).into_iter().filter(|flow| !flow.contains("0x88b6")) {
        report.wrong += 1;
        if report.wrong <= SHOWN {
            writeln!(report.text, "counters: {flow}")?;
        }
    }
    if report.wrong > wrong_before && wrong_before < SHOWN {
        writeln!(report.text, "with the flows\n{text}")?;
    }
    Ok(count)
}

/// Sorts outputs by the number at the end of their frames: port and bytes of each.
fn by_number(outputs: Outputs) -> BTreeMap<usize, Vec<(usize, Vec<u8>)>> {
    let mut all: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (port, frames) in outputs.into_iter().enumerate() {
        for frame in frames {
            let number = frame.last_chunk().map_or(usize::MAX, |end| u32::from_be_bytes(*end) as usize);
            all.entry(number).or_default().push((port, frame));
        }
    }
    all.values_mut().for_each(|outputs| outputs.sort());
    all
}

/// Returns a random frame with a number at its end.
fn frame(random: &mut Random, number: usize, kind: Actions, most_tags: u64) -> Vec<u8> {
    loop {
        let frame = any_frame(random, number, most_tags);
        let is_like_ovs = !differences::has_several_priority_tags(&frame);
        if is_like_ovs && (kind == Actions::Ethernet || differences::can_change(&frame)) {
            return frame;
        }
    }
}

fn any_frame(random: &mut Random, number: usize, most_tags: u64) -> Vec<u8> {
    let mut below = |bound: u64| random.below(bound);
    let byte = |value: u64| u8::try_from(value).unwrap_or(0);
    let tags = (0..below(most_tags + 1)).map(|_| [5, 0xa006, 0][usize::try_from(below(3)).unwrap_or(0)]).collect();
    let body = match below(8) {
        0 => 300 + below(1000),
        _ => below(24),
    };
    let draft = FrameDraft {
        macs: [byte(below(3)), byte(below(3))],
        tags,
        network: byte(below(10)),
        transport: byte(below(8)),
        addresses: [below(3), below(3)].map(|at| usize::try_from(at).unwrap_or(0)),
        ports: [below(4), below(4)].map(|port| u16::try_from(port).unwrap_or(0)),
        ttl: byte(below(4)),
        tos: if below(2) == 0 { 0x48 } else { byte(below(256)) },
        fragment: byte(below(12)),
        options: byte(below(4)),
        body: (0..body).map(|_| byte(below(256))).collect(),
        cut: usize::try_from(if below(5) == 0 { 1 + below(60) } else { 0 }).unwrap_or(0),
    };
    let mut bytes = draft.bytes();
    if below(8) == 0 {
        for _ in 0..1 + below(3) {
            let at = 12 + usize::try_from(below(bytes.len() as u64 - 12)).unwrap_or(0);
            bytes[at] = byte(below(256));
        }
    }
    if bytes[12..14] == MARKER {
        bytes[13] = 0;
    }
    bytes.resize(bytes.len().max(56), 0);
    bytes.extend(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    bytes
}

impl Ends {
    /// Sends packets into a port, and returns all outputs.
    pub(super) fn pass(&mut self, port: usize, frames: &[Vec<u8>]) -> Result<Outputs> {
        for frame in frames {
            self.ends[port].send(frame)?;
        }
        let mut outputs = vec![Vec::new(); self.ends.len()];
        for _ in 0..self.markers {
            self.next += 1;
            let number = self.next.to_be_bytes();
            let marker = [&[2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x78][..], &MARKER, &[0; 42], &number].concat();
            self.ends[port].send(&marker)?;
            let mut waiting = self.ends.len();
            let all = proc::until_moved("the markers have come", || {
                for (end, outputs) in self.ends.iter_mut().zip(&mut outputs) {
                    for frame in end.receive()? {
                        if frame[12..14] == MARKER {
                            ensure!(frame == marker, "a marker was changed");
                            waiting -= 1;
                        } else {
                            outputs.push(frame);
                        }
                    }
                }
                Ok((waiting == 0).then_some(()))
            });
            all.with_context(|| format!("{waiting} markers are missing"))?;
        }
        Ok(outputs)
    }
}

/// Returns the bytes of a frame as text.
pub(super) fn hex(frame: &[u8]) -> String {
    frame.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
