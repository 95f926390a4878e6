//! `cargo xtask fuzz`: builds the targets of `fuzz/` with libFuzzer, and runs them from their seeds.
//! `cargo xtask test` runs the seeds without it.
//!
//! The flags are those that cargo-fuzz passes to rustc, without the ones that need a nightly
//! compiler. So there is no address sanitizer. Instead, guest memory lies between guard pages, and
//! the targets check each memory segment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run;

/// Options of the command line.
#[derive(Debug)]
pub(crate) struct FuzzOptions {
    /// A target. `None` means all.
    pub(crate) target: Option<String>,
    /// Seconds for each target.
    pub(crate) secs: u32,
}

/// The part of `cargo xtask test --long`.
pub(crate) const LONG: FuzzOptions = FuzzOptions { target: None, secs: 60 };

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Builds and runs the targets. Returns the number of targets that passed, and an error for each
/// that failed.
pub(crate) fn run(options: &FuzzOptions) -> Result<(u64, Vec<String>)> {
    let root = run::root()?;
    let names = names(&root)?;
    let targets: Vec<_> = match &options.target {
        None => names,
        Some(target) if names.contains(target) => vec![target.clone()],
        Some(target) => bail!("{target} is no fuzz target; the targets are {}", names.join(", ")),
    };
    let folder = run::target(&root).join("fuzz");
    let program = build(&root, &folder)?;
    let mut passed = 0;
    let mut failed = Vec::new();
    // Each target keeps one CPU busy.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    for some in targets.chunks(at_once) {
        let run = |target: &str| {
            fuzz(&program, &root, &folder, target, options.secs)
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

/// Returns the names of all targets: those of the folders of their seeds.
pub(crate) fn names(root: &Path) -> Result<Vec<String>> {
    let seeds = root.join("fuzz/seeds");
    let mut names = Vec::new();
    for folder in fs::read_dir(&seeds).with_context(|| format!("cannot read {}", seeds.display()))? {
        names.push(folder?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Builds the program. Returns its path.
fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    let version = run::output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` printed no line that begins with `host: `")?;
    let mut build = run::cargo(root);
    build.args(["build", "--profile", "fuzz", "--locked", "-p", "straightline-fuzz", "--features", "libfuzzer"]);
    // With `--target`, cargo does not apply the flags to build scripts.
    build.args(["--target", host, "--target-dir"]).arg(folder).arg("--quiet").env("RUSTFLAGS", FLAGS);
    run::must(&mut build)?;
    Ok(folder.join(host).join("fuzz/straightline-fuzz"))
}

fn fuzz(program: &Path, root: &Path, folder: &Path, target: &str, secs: u32) -> Result<()> {
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    let mut command = Command::new(program);
    command.env("STRAIGHTLINE_FUZZ_TARGET", target).stdin(Stdio::null());
    command.args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    command.args([format!("-max_total_time={secs}"), format!("-artifact_prefix={}/{target}-", folder.display())]);
    command.arg(&corpus).arg(root.join("fuzz/seeds").join(target));
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<_> = text.lines().collect();
        let panic = lines.iter().position(|line| line.contains("panicked at"));
        let why = panic.map_or(&[][..], |at| &lines[at..lines.len().min(at + 10)]);
        let end = &lines[lines.len().saturating_sub(40)..];
        bail!("{}\n{}", output.status, [why, end].concat().join("\n"));
    }
    let is_result = |line: &&str| {
        ["reached: ", "stat::number_of_executed_units"].iter().any(|start| line.starts_with(start))
            || line.contains("DONE")
    };
    text.lines().filter(is_result).for_each(|line| println!("{target}: {line}"));
    Ok(())
}
