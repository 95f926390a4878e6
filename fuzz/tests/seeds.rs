//! Runs each target with its seeds, and with inputs that are made of them. `cargo xtask fuzz` goes
//! on from there, guided by the code that an input reaches.

use std::fs;
use std::path::PathBuf;

use libtest_mimic::{Arguments, Failed, Trial};
use straightline_fuzz::{TARGETS, Target, places};
use straightline_report::random::Random;

/// Inputs that are made of the seeds, for each target.
const CHANGED: usize = 2000;

/// Most bytes of an input: libFuzzer's default.
const LONGEST: usize = 4096;

fn main() {
    let mut trials: Vec<_> = TARGETS.iter().map(|target| Trial::test(target.name, || run(target))).collect();
    trials.push(Trial::test("each folder of seeds has a target", each_folder_has_a_target));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Prints the input of a run that panics.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {}", self.0.escape_ascii());
        }
    }
}

fn run(target: &Target) -> Result<(), Failed> {
    let seeds = seeds(target.name)?;
    let run = |input: &[u8]| {
        let input = Input(input);
        (target.run)(input.0);
    };
    seeds.iter().for_each(|seed| run(seed));
    let reached = places();
    if let Some(lost) = target.must_reach.iter().find(|place| !reached.contains(**place)) {
        return Err(format!(
            "the seeds reach only {reached:?}, no longer {lost:?}: in fuzz/seeds/{}, add a seed that reaches it",
            target.name
        )
        .into());
    }
    let mut random = Random::new(0);
    for _ in 0..CHANGED {
        run(&change(&seeds, &mut random));
    }
    Ok(())
}

/// `cargo xtask fuzz` runs the target of each folder.
fn each_folder_has_a_target() -> Result<(), Failed> {
    for folder in fs::read_dir(seed_folder())? {
        let name = folder?.file_name();
        if !TARGETS.iter().any(|target| name == target.name) {
            return Err(format!("no target is named {}", name.display()).into());
        }
    }
    Ok(())
}

fn seed_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

fn seeds(target: &str) -> Result<Vec<Vec<u8>>, Failed> {
    let folder = seed_folder().join(target);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder)? {
        paths.push(entry?.path());
    }
    // The order of a folder differs from machine to machine.
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(fs::read).collect::<Result<_, _>>()?;
    if seeds.is_empty() { Err("it has no seeds".into()) } else { Ok(seeds) }
}

/// Returns a seed with some changes, as libFuzzer makes them.
fn change(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = pick(seeds, random).clone();
    for _ in 0..=below(random, 4) {
        let at = below(random, input.len());
        match random.below(6) {
            0 => input.truncate(at),
            1 => input.insert(at, any(random)),
            2 => {
                let other = pick(seeds, random);
                input.truncate(at);
                input.extend_from_slice(&other[below(random, other.len())..]);
            }
            _ if input.is_empty() => input.push(any(random)),
            3 => input[at] ^= 1 << random.below(8),
            4 => input[at] = [0, 1, 0x7f, 0x80, 0xff][below(random, 5)],
            _ => input[at] = any(random),
        }
    }
    input.truncate(LONGEST);
    input
}

fn pick<'a>(seeds: &'a [Vec<u8>], random: &mut Random) -> &'a Vec<u8> {
    &seeds[below(random, seeds.len())]
}

/// Returns a number below `bound`; 0 if that is 0.
fn below(random: &mut Random, bound: usize) -> usize {
    let bound = u64::try_from(bound.max(1)).unwrap_or(1);
    usize::try_from(random.below(bound)).unwrap_or(0)
}

fn any(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).unwrap_or(0)
}
