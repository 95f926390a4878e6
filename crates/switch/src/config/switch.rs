//! Reads `[switch]`.

use std::path::PathBuf;

use straightline_packet::Level;

use super::diagnostic::Findings;
use super::section::{Section, hint};
use super::{Copier, Copies, Draft, DraftSocket, Idle, Machine, Mechanism, SandboxConfig, socket_path};

/// The keys of `[switch]`.
pub(super) const KEYS: &[&str] = &["workers", "idle", "api", "copies", "simd", "copy", "sandbox"];

pub(super) fn read(section: &Section<'_>, machine: &Machine, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(KEYS, report);
    draft.switch.workers = read_workers(section, machine, report);
    if let Some(idle) = section.choice("idle", &[("sleep", Idle::Sleep), ("spin", Idle::Spin)], report) {
        draft.switch.idle = *idle.get_ref();
    }
    if let Some(copies) = section.integer("copies", 1..=2, report) {
        draft.switch.copies = if *copies.get_ref() == 1 { Copies::One } else { Copies::Two };
    }
    draft.switch.simd = read_simd(section, report);
    let copiers = Copier::ALL.map(|copier| (copier.as_str(), copier));
    if let Some(copy) = section.choice("copy", &copiers, report) {
        let copier = *copy.get_ref();
        draft.switch.copy = copier;
        if copier != Copier::Kernel && draft.switch.simd.is_some() {
            let (word, title) = (copier.as_str(), section.title());
            let message = format!(
                "copy {word:?} in {title}: simd selects the switch's own kernels, and this copy does not use \
                 them; leave simd out"
            );
            report.error(&copy.span(), message);
        }
    }
    if let Some(sandbox) = read_sandbox(section, report) {
        draft.switch.sandbox = sandbox;
    }
    if let Some(api) = section.text("api", "api = \"/run/straightline/api.sock\"", report) {
        let path = PathBuf::from(api.get_ref());
        let owner = "the API".to_owned();
        if let Err(why) = socket_path::check(&path) {
            report.error(&api.span(), format!("socket {:?} of {owner}: {why}", api.get_ref()));
        }
        draft.switch.api = Some(path.clone());
        draft.sockets.push(DraftSocket { owner, path, ours: true, span: api.span() });
    }
}

/// Reads the mechanisms that the file names. Returns `None` without such a key.
fn read_sandbox(section: &Section<'_>, report: &mut Findings<'_>) -> Option<SandboxConfig> {
    let words = Mechanism::ALL.map(Mechanism::as_str);
    let named = section.texts("sandbox", &format!("sandbox = {words:?}"), report)?;
    let mut mechanisms = Vec::new();
    for name in named.get_ref() {
        let word = *name.get_ref();
        match Mechanism::ALL.into_iter().find(|mechanism| mechanism.as_str() == word) {
            None => {
                let known = hint(word, &words, "known");
                report.error(&name.span(), format!("{word:?} in sandbox of {}: unknown; {known}", section.title()));
            }
            Some(again) if mechanisms.contains(&again) => {
                report.error(
                    &name.span(),
                    format!("{word:?} in sandbox of {}: named twice; name it once", section.title()),
                );
            }
            Some(mechanism) => mechanisms.push(mechanism),
        }
    }
    mechanisms.sort_by_key(|mechanism| mechanism.as_str());
    Some(SandboxConfig { mechanisms, required: true })
}

/// Reads the instruction set that the file names, if this machine has it.
fn read_simd(section: &Section<'_>, report: &mut Findings<'_>) -> Option<Level> {
    let named = section.text("simd", "simd = \"auto\"", report)?;
    let word = *named.get_ref();
    if word == "auto" {
        return None;
    }
    let level = Level::supported().find(|level| level.name() == word);
    if level.is_none() {
        let title = section.title();
        let message = if Level::NAMES.contains(&word) {
            let here: Vec<_> = Level::supported().map(Level::name).collect();
            format!("simd {word:?} in {title}: this machine does not have it; it has {}", here.join(", "))
        } else {
            let mut words = vec!["auto"];
            words.extend(Level::NAMES);
            format!("simd {word:?} in {title}: unknown; {}", hint(word, &words, "known"))
        };
        report.error(&named.span(), message);
    }
    level
}

fn read_workers(section: &Section<'_>, machine: &Machine, report: &mut Findings<'_>) -> Vec<usize> {
    let mut workers = Vec::new();
    let Some(cpus) = section.numbers("workers", "workers = [0]", report) else {
        return workers;
    };
    if cpus.get_ref().is_empty() && section.get("workers").is_some_and(is_empty_array) {
        let message =
            "workers in [switch] is empty; name at least one CPU, or leave it out for one thread that is not pinned";
        report.error(&cpus.span(), message);
    }
    for cpu in cpus.get_ref() {
        let number = *cpu.get_ref();
        if workers.contains(&number) {
            report.error(
                &cpu.span(),
                format!(
                    "CPU {number} in workers of [switch]: named twice; name it once, since one worker runs on each"
                ),
            );
            continue;
        }
        if let Some(why) = machine.refuse_cpu(number) {
            report.error(&cpu.span(), format!("CPU {number} in workers of [switch]: {why}"));
        }
        workers.push(number);
    }
    workers
}

fn is_empty_array(value: &toml::Spanned<toml::de::DeValue<'_>>) -> bool {
    value.get_ref().as_array().is_some_and(|array| array.is_empty())
}
