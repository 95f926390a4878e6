//! Runs each target with its seeds, and with inputs that are made of them. `cargo xtask fuzz` goes
//! on from there, guided by the code that an input reaches.

use std::fs;
use std::path::PathBuf;

use straightline_fuzz::{TARGETS, places};
use straightline_report::random::Random;

/// Inputs that are made of the seeds, for each target.
const CHANGED: usize = 2000;

/// Most bytes of an input: libFuzzer's default.
const LONGEST: usize = 4096;

/// A test of each target. `each_folder_has_a_test` fails if one is missing here.
macro_rules! tests {
    ($($target:ident),* $(,)?) => {
        const TESTED: &[&str] = &[$(stringify!($target)),*];
        $(
            #[test]
            fn $target() {
                run(stringify!($target));
            }
        )*
    };
}

tests![
    api,
    bridge_groups,
    bridge_tags,
    classify,
    coalescing,
    config,
    decap,
    device_packets,
    drivers,
    firewall_rules,
    flow_actions,
    flows,
    multicast_messages,
    neighbours,
    packed_device,
    packet,
    split_device,
    tunnel_headers,
    vhost_user
];

/// Prints the input of a run that panics.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {}", self.0.escape_ascii());
        }
    }
}

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target has this name");
    let seeds = seeds(name);
    let run = |input: &[u8]| {
        let input = Input(input);
        (target.run)(input.0);
    };
    seeds.iter().for_each(|seed| run(seed));
    let reached = places();
    let lost = target.must_reach.iter().find(|place| !reached.contains(**place));
    assert!(
        lost.is_none(),
        "the seeds reach only {reached:?}, no longer {lost:?}: in fuzz/seeds/{name}, add a seed that reaches it"
    );
    let mut random = Random::new(0);
    for _ in 0..CHANGED {
        run(&change(&seeds, &mut random));
    }
}

/// `cargo xtask fuzz` runs the target of each folder.
#[test]
fn each_folder_has_a_test() {
    let folders = fs::read_dir(seed_folder()).expect("the folder of seeds");
    let mut names: Vec<_> = folders.map(|folder| folder.expect("a folder").file_name()).collect();
    names.sort();
    assert_eq!(names, TESTED);
}

fn seed_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(seed_folder().join(target)).expect("seeds");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    // The order of a folder differs from machine to machine.
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no seeds");
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
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
