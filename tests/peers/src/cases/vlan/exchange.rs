//! The same frames through a switch and through the model, compared output by output.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::differences::Difference;
use super::frames::{self, BATCH, Sent};
use super::model::{Delivery, Model, Rule};
use super::topology::PORTS;
use crate::cases::ends::End;
use crate::lab::Lab;
use crate::proc;
use crate::say::say;

/// Seed of the frames.
const SEED: u64 = 31;

/// Number of frames.
const FRAMES: usize = 5000;

/// Number of seeds in a long run.
const LONG: u64 = 20;

/// Frames in the report of a failure.
const SHOWN: usize = 12;

/// The outputs by the number of their frame. Frames that are cut have no number.
type Outputs = BTreeMap<Option<usize>, Vec<Delivery>>;

/// Sends frames through a switch, and compares its outputs with those of the model with these
/// differences. Without any of them, the outputs must differ from the model's. `longest` is the length of the longest payload. Returns the outputs.
pub(super) fn agrees(
    lab: &Lab,
    ends: &mut [Box<dyn End>],
    longest: usize,
    differences: &[Difference],
) -> Result<Vec<Delivery>> {
    let mut all_outputs = Vec::new();
    let seeds = if lab.machine.long { LONG } else { 1 };
    let all: Vec<Rule> = differences.iter().map(|difference| difference.rule).collect();
    let mut model = Model::new(&all);
    let mut without: Vec<(&Difference, Model, usize)> = Vec::new();
    for difference in differences {
        let others: Vec<Rule> = all.iter().copied().filter(|rule| *rule != difference.rule).collect();
        without.push((difference, Model::new(&others), 0));
    }
    for seed in SEED..SEED + seeds {
        let frames = frames::generate(seed, FRAMES, longest);
        let expected = frames::predict(&mut model, &frames);
        let outputs = exchange(ends, &frames, &expected)?;
        let (wrong, report) = compare(&model, &frames, &expected, &outputs);
        ensure!(wrong == 0, "seed {seed}: {wrong} of {FRAMES} frames have other outputs than predicted:\n{report}");
        let count: usize = expected.iter().map(Vec::len).sum();
        ensure!(count > FRAMES / 2, "seed {seed}: only {count} outputs are a weak test");
        say!("  seed {seed}: {FRAMES} frames, {count} outputs as predicted");
        for (_, model, seen) in &mut without {
            let expected = frames::predict(model, &frames);
            *seen += compare(model, &frames, &expected, &outputs).0;
        }
        all_outputs.extend(outputs.into_values().flatten());
    }
    for (Difference { rule, reason }, _, seen) in &without {
        ensure!(*seen > 0, "no frame shows the difference {rule:?}: delete it");
        say!("  {rule:?}, {seen} frames: {reason}");
    }
    Ok(all_outputs)
}

/// Sends all frames, and returns the outputs. Each batch waits for the outputs of the one before:
/// learning makes their order matter. An output that should not come has come before those of later
/// batches.
fn exchange(ends: &mut [Box<dyn End>], frames: &[Sent], expected: &[Vec<Delivery>]) -> Result<Outputs> {
    let mut outputs = Outputs::new();
    let mut missing: usize = 0;
    for (batch, expected) in frames.chunks(BATCH).zip(expected.chunks(BATCH)) {
        for frame in batch {
            ends[frame.from].send(&frame.bytes)?;
        }
        missing += expected.iter().map(Vec::len).sum::<usize>();
        let all = proc::until_moved("the outputs of a batch have come", || {
            missing = missing.saturating_sub(collect(ends, &mut outputs)?);
            Ok((missing == 0).then_some(()))
        });
        ensure!(!proc::interrupted(), "interrupted");
        // The comparison shows which outputs are missing.
        if all.is_err() {
            break;
        }
    }
    collect(ends, &mut outputs)?;
    Ok(outputs)
}

/// Adds the outputs that have arrived, and returns their number.
fn collect(ends: &mut [Box<dyn End>], outputs: &mut Outputs) -> Result<usize> {
    let mut count = 0;
    for (port, end) in ends.iter_mut().enumerate() {
        for bytes in end.receive()? {
            outputs.entry(frames::number(&bytes)).or_default().push((port, bytes));
            count += 1;
        }
    }
    Ok(count)
}

/// Compares the outputs with the predicted ones. Returns the number of frames with other outputs, and
/// the first of them as text.
fn compare(model: &Model, frames: &[Sent], expected: &[Vec<Delivery>], outputs: &Outputs) -> (usize, String) {
    let mut predicted = Outputs::new();
    for (frame, deliveries) in frames.iter().zip(expected) {
        predicted.entry(frames::number(&frame.bytes)).or_default().extend(deliveries.clone());
    }
    let mut report = String::new();
    let mut wrong = 0;
    let numbers: BTreeSet<Option<usize>> = predicted.keys().chain(outputs.keys()).copied().collect();
    for number in numbers {
        let [right, came] = [&predicted, outputs].map(|all| {
            let deliveries = all.get(&number).into_iter().flatten();
            let mut compared: Vec<Delivery> = deliveries.map(|delivery| model.compared(delivery.clone())).collect();
            compared.sort();
            compared
        });
        if right == came {
            continue;
        }
        wrong += 1;
        if wrong > SHOWN {
            continue;
        }
        report += &match number.and_then(|number| Some((number, frames.get(number)?))) {
            Some((number, frame)) => {
                format!("frame {number} into {}: {}\n", PORTS[frame.from].name, text(&frame.bytes))
            }
            None => "frames without a number\n".to_owned(),
        };
        for (what, some, others) in [("missing", &right, &came), ("more", &came, &right)] {
            for (port, bytes) in some.iter().filter(|delivery| !others.contains(delivery)) {
                report += &format!("  {what:8} {:9} {}\n", PORTS[*port].name, text(bytes));
            }
        }
    }
    (wrong, report)
}

/// Returns the addresses, tags and length of a frame as text.
fn text(frame: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in frame.iter().enumerate().take(30) {
        if [6, 12, 14, 16, 18, 20, 22, 24, 26].contains(&at) {
            text.push(' ');
        }
        text += &format!("{byte:02x}");
    }
    format!("{text} ({} bytes)", frame.len())
}
