//! `cargo xtask fuzz`: builds the targets of `fuzz/` with libFuzzer's counters, and runs them from
//! their seeds.
//!
//! The flags are those that cargo-fuzz passes to rustc, without the ones that need a nightly
//! compiler. So there is no address sanitizer. Instead, guest memory lies between guard pages, and
//! the targets check each memory segment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run;

/// FuzzOptions of the command line.
#[derive(Debug)]
pub(crate) struct FuzzOptions {
    /// One of [`TARGETS`]. `None` means all.
    pub(crate) target: Option<String>,
    /// Seconds for each target.
    pub(crate) secs: u32,
    /// Build profile.
    pub(crate) profile: Profile,
    /// True to take only the time that no other program wants.
    pub(crate) is_idle: bool,
}

/// A profile of `fuzz/Cargo.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For a smoke run.
    Smoke,
    /// For a long run.
    Release,
}

impl Profile {
    /// Returns the name of the profile, which is also the name of cargo's folder.
    fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Release => "release",
        }
    }
}

/// A smoke run: the seeds, then five seconds of fuzzing.
pub(crate) const SMOKE: FuzzOptions = FuzzOptions { target: None, secs: 5, profile: Profile::Smoke, is_idle: true };

/// The targets, each with the places that its seeds must reach. A seed that no longer reaches its
/// place is an error.
const TARGETS: &[(&str, &[&str])] = &[
    ("api", &["an answer", "an error", "a stream"]),
    ("classify", &["a rule", "a rule behind a dead one", "a rule that was added", "a key without a rule"]),
    (
        "bridge_groups",
        &[
            "a query",
            "a report",
            "a report that is pulled up",
            "a report that is too long",
            "a leave",
            "a damaged message",
            "a packet that goes to all",
            "a packet that is pruned",
        ],
    ),
    (
        "bridge_tags",
        &[
            "a tag that was pushed",
            "a tag that was popped",
            "a tag that was written",
            "three tags",
            "a frame for several ports",
            "a frame that is cut",
            "a frame with a length",
            "a checksum that moved",
        ],
    ),
    (
        "coalescing",
        &[
            "three packets that are one",
            "packets that are one, with bodies",
            "packets that are one, and another",
            "packets that are left alone",
            "UDP with a checksum where TCP has it",
            "packets with finished checksums that are one",
            "packets with one identification that are one",
            "datagrams that are one",
            "a wrong checksum",
        ],
    ),
    ("config", &["a port", "a bridge", "an error"]),
    (
        "decap",
        &[
            "l2tpv3",
            "vxlan",
            "geneve",
            "gre",
            "nvgre",
            "vxlan-gpe",
            "gtpu",
            "mpls-udp",
            "an answer",
            "a packet that is used",
            "a packet that is dropped",
        ],
    ),
    ("device_packets", &["a packet", "a large packet", "a segment", "a packet that is refused"]),
    ("drivers", &["a packed driver's wrap", "a packed chain that came back", "a split chain that came back"]),
    (
        "multicast_messages",
        &[
            "a query of IGMP",
            "a query of IGMPv3",
            "a query of IGMP with too many sources",
            "a report of IGMP",
            "a report of IGMPv3",
            "a record that is too long",
            "a leave of IGMP",
            "a query of MLD",
            "a query of MLDv2",
            "a report of MLD",
            "a report of MLDv2",
            "a leave of MLD",
            "a router alert",
            "a hello of PIM",
        ],
    ),
    (
        "neighbours",
        &[
            "a question",
            "an answer",
            "another address",
            "a next hop that is gone",
            "an answer of ARP",
            "an advertisement",
            "an echo over IPv4",
            "an echo over IPv6",
        ],
    ),
    (
        "packed_device",
        &[
            "a packed ring's wrap",
            "a chain of a packed ring",
            "an indirect table of a packed ring",
            "a packet in several buffers of a packed ring",
        ],
    ),
    ("packet", &["a packet that was cut", "a checksum that was finished", "a header that is refused"]),
    (
        "split_device",
        &[
            "a chain of a split ring",
            "an indirect table of a split ring",
            "a packet in several buffers of a split ring",
            "a notification",
        ],
    ),
    (
        "tunnel_headers",
        &[
            "L2TPv3 over IP",
            "L2TPv3 over UDP",
            "VXLAN",
            "VXLAN-GPE with IP",
            "Geneve",
            "a critical option of Geneve",
            "an option of Geneve that is too long",
            "GRE with all fields",
            "GTP-U",
            "GTP-U with an extension",
            "the bottom of a stack of labels",
            "fragmentation needed",
            "packet too big",
        ],
    ),
    (
        "vhost_user",
        &[
            "a memory table",
            "a region removed",
            "a ring that is ready",
            "a ring stopped",
            "a reset",
            "a message that was parsed",
        ],
    ),
];

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Returns whether a target has this name.
pub(crate) fn is_target(name: &str) -> bool {
    TARGETS.iter().any(|(target, _)| *target == name)
}

/// Returns the names of all targets, for a message.
pub(crate) fn names() -> String {
    TARGETS.iter().map(|(target, _)| *target).collect::<Vec<_>>().join(", ")
}

/// Builds and runs the targets. Returns the number of targets that passed, and an error for each
/// that failed.
pub(crate) fn run(options: &FuzzOptions) -> Result<(u64, Vec<String>)> {
    let root = run::root()?;
    let folder = folder(&root);
    let cargo = if options.is_idle { run::idle_cargo(&root) } else { run::cargo(&root) };
    let programs = build(cargo, &root, options.profile)?;
    let wanted = |name: &str| options.target.as_deref().is_none_or(|wanted| wanted == name);
    let targets: Vec<_> = TARGETS.iter().filter(|(name, _)| wanted(name)).collect();
    let mut passed = 0;
    let mut failed = Vec::new();
    // Each target keeps one CPU busy.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    for some in targets.chunks(at_once) {
        let run = |(target, must_reach): &(&str, &[&str])| {
            fuzz(&programs.join(target), &root, &folder, target, must_reach, options)
                .map_err(|error| format!("fuzz target {target}: {error:#}"))
        };
        std::thread::scope(|threads| {
            let started: Vec<_> = some.iter().map(|target| threads.spawn(move || run(target))).collect();
            for thread in started {
                match thread.join() {
                    Ok(Ok(())) => passed += 1,
                    Ok(Err(error)) => failed.push(error),
                    Err(_) => failed.push("fuzz targets: a thread panicked".to_owned()),
                }
            }
        });
    }
    Ok((passed, failed))
}

fn folder(root: &Path) -> PathBuf {
    run::target(root).join("fuzz")
}

/// Builds the targets by this cargo. Returns the folder of the built programs.
fn build(mut build: Command, root: &Path, profile: Profile) -> Result<PathBuf> {
    let folder = folder(root);
    let version = run::output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` printed no line that begins with `host: `")?;
    // With `--target`, cargo does not apply the flags to build scripts.
    build.args(["build", "--profile", profile.name(), "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    build.args(["--target", host, "--target-dir"]).arg(&folder).arg("--quiet").env("RUSTFLAGS", FLAGS);
    run::must(&mut build)?;
    Ok(folder.join(host).join(profile.name()))
}

fn fuzz(
    program: &Path,
    root: &Path,
    folder: &Path,
    target: &str,
    must_reach: &[&str],
    options: &FuzzOptions,
) -> Result<()> {
    let start = || if options.is_idle { run::idle(program) } else { Command::new(program) };
    let seeds = root.join("fuzz/seeds").join(target);
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    let found = format!("-artifact_prefix={}/{target}-", folder.display());
    let reached = attempt(target, start().args(["-runs=0", &found]).arg(&seeds))?;
    if let Some(lost) = must_reach.iter().find(|what| !reached.contains(**what)) {
        bail!(
            "the seeds reach only {reached:?}, no longer {lost:?}: in fuzz/seeds/{target}, add a seed that \
             reaches {lost:?}"
        );
    }
    let time = format!("-max_total_time={}", options.secs);
    let limits = ["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"];
    let all = attempt(target, start().args(limits).args([&time, &found]).arg(&corpus).arg(&seeds))?;
    println!("{target} reached: {}", all.into_iter().collect::<Vec<_>>().join("; "));
    Ok(())
}

/// Runs a target. Returns the places that it reached, or an error with the end of its output.
fn attempt(target: &str, command: &mut Command) -> Result<BTreeSet<String>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<_> = text.lines().collect();
        bail!("{}\n{}", output.status, lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    for line in text.lines().filter(|line| line.starts_with("stat::number_of_executed_units") || line.contains("DONE"))
    {
        println!("{target}: {line}");
    }
    Ok(text.lines().filter_map(|line| line.strip_prefix("reached: ")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_its_file_and_seeds() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("fuzz");
        let files = fs::read_dir(fuzz.join("src/bin")).expect("the targets");
        let names = files.map(|file| file.expect("a file").path());
        let names: BTreeSet<_> = names.map(|path| path.file_stem().expect("a name").to_owned()).collect();
        assert_eq!(names.len(), TARGETS.len());
        for (target, _) in TARGETS {
            assert!(names.contains(std::ffi::OsStr::new(target)), "{target}");
            let seeds = fs::read_dir(fuzz.join("seeds").join(target)).expect("seeds");
            assert!(seeds.count() > 0, "{target}");
        }
    }
}
