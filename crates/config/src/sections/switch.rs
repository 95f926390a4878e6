//! Reads `[switch]`.

use std::path::PathBuf;

use straightline_packet::Level;

use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::permissions::{read_id, read_perms};
use crate::sections::section::{Section, hint};
use crate::{Copies, Draft, DraftSocket, Idle, Machine, Mechanism, SandboxConfig, check_socket, users};

/// The keys of `[switch]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "workers",
        Value::Integers { of: "CPU numbers, each once" },
        Absent::Text("one thread, not pinned"),
        "One polling thread is pinned to each CPU. Each CPU must be online and allowed for the process.",
        "[2, 3]",
    ),
    Key::new(
        "idle",
        Value::Choice(&["sleep", "spin"]),
        Absent::Value("\"sleep\""),
        "What a worker does when there is nothing to do. `\"sleep\"`: it polls for a short time, then waits for a \
         kick. `\"spin\"`: it never sleeps.",
        "\"spin\"",
    ),
    Key::new(
        "api",
        Value::Text("path of a socket"),
        Absent::Text("no API"),
        "Where the API listens. Without it, commands such as `ports` cannot reach the switch.",
        "\"/run/straightline/api.sock\"",
    ),
    Key::new(
        "api-group",
        Value::Text("name or number of a group"),
        Absent::Text("none"),
        "Group that gets the API's sockets. Its members may use the API, and so may change the switch.",
        "\"straightline\"",
    ),
    Key::new(
        "api-perms",
        Value::Text("permission bits in octal, as text"),
        Absent::Text("`\"0600\"`; with `api-group`: `\"0660\"`"),
        "Permission bits of the socket `api`.",
        "\"0660\"",
    ),
    Key::new(
        "api-read-only",
        Value::Text("path of a socket"),
        Absent::Text("none"),
        "A second socket, for users who may look but not change: it shows status, counters, addresses and events. It \
         refuses changes, and all that shows the contents of packets.",
        "\"/run/straightline/read-only.sock\"",
    ),
    Key::new(
        "api-read-only-group",
        Value::Text("name or number of a group"),
        Absent::Text("that of `api-group`"),
        "Group that gets the socket `api-read-only`. Its members may ask, and change nothing.",
        "\"straightline-read\"",
    ),
    Key::new(
        "api-read-only-perms",
        Value::Text("permission bits in octal, as text"),
        Absent::Text("`\"0666\"`; with `api-read-only-group`: `\"0660\"`"),
        "Permission bits of the socket `api-read-only`. With 0666, each user who can open its folder may ask.",
        "\"0660\"",
    ),
    Key::new(
        "copies",
        Value::integer(1, 2),
        Absent::Value("1"),
        "How often the body of a packet is copied. 2: through a buffer of the switch, as other switches do; for \
         comparison.",
        "2",
    ),
    Key::new(
        "simd",
        Value::Choice(&["auto", "scalar", "sse2", "avx2", "avx512", "avx512-copies", "neon"]),
        Absent::Value("\"auto\""),
        "Instruction set of copies and checksums. `\"auto\"` takes the fastest that was measured: on x86-64 AVX2 or \
         SSE2, AVX-512 for checksums from AMD's Zen 5 on; on 64-bit ARM NEON. `\"avx512-copies\"` copies by AVX-512 \
         too, for comparisons.",
        "\"avx512\"",
    ),
    Key::new(
        "copy",
        Value::Choice(&["kernel", "libc", "bytes", "movsb", "movsb-long", "unaligned", "streaming"]),
        Absent::Value("\"kernel\""),
        "Copy of bodies and heads. Others than `\"kernel\"` are for comparisons, and take no `simd`: `\"libc\"` is \
         `memmove` of the C library, `\"bytes\"` a loop byte by byte, `\"movsb\"` the instruction `rep movsb`, \
         `\"movsb-long\"` that from 8 KiB on, `\"unaligned\"` does not align the destination, `\"streaming\"` stores \
         past the caches. A reload may change this key and `simd` while packets pass.",
        "\"libc\"",
    ),
    Key::new(
        "sandbox",
        Value::Choices(&["capabilities", "landlock", "seccomp"]),
        Absent::Text("all that the kernel has"),
        "What confines the process. A named mechanism is required: the switch does not start without it. `[]`: no \
         sandbox.",
        "[\"landlock\", \"seccomp\"]",
    ),
];

pub(crate) fn read(section: &Section<'_>, machine: &Machine, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(KEYS, report);
    draft.switch.workers = read_workers(section, machine, report);
    if let Some(idle) = section.choice("idle", &[("sleep", Idle::Sleep), ("spin", Idle::Spin)], report) {
        draft.switch.idle = *idle.get_ref();
    }
    if let Some(copies) = section.integer("copies", 1..=2, report) {
        draft.switch.copies = if *copies.get_ref() == 1 { Copies::One } else { Copies::Two };
    }
    draft.switch.simd = read_simd(section, report);
    draft.switch.copy = read_copy(section, report);
    if let Some(sandbox) = read_sandbox(section, report) {
        draft.switch.sandbox = sandbox;
    }
    read_api(section, report, draft);
}

fn read_api(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    let mut read_socket = |key: &str, file: &str, owner: &str, report: &mut Findings<'_>| {
        let socket = section.text(key, &format!("{key} = \"/run/straightline/{file}\""), report)?;
        let path = PathBuf::from(socket.get_ref());
        check_socket(draft, report, &path, owner, &socket.span());
        let owner = owner.to_owned();
        draft.sockets.push(DraftSocket { owner, path: path.clone(), ours: true, span: socket.span() });
        Some(path)
    };
    let api = read_socket("api", "api.sock", "the API", report);
    let read_only = read_socket("api-read-only", "read-only.sock", "the API that only answers questions", report);
    let has_api = section.get("api").is_some();
    let has_read_only = section.get("api-read-only").is_some();
    for (key, socket, has_socket) in [
        ("api-group", "api", has_api || has_read_only),
        ("api-perms", "api", has_api),
        ("api-read-only-group", "api-read-only", has_read_only),
        ("api-read-only-perms", "api-read-only", has_read_only),
    ] {
        if let Some(value) = section.get(key)
            && !has_socket
            && !section.has_misspelled(socket, report)
        {
            let message = format!(
                "{key} in {}: there is no \"{socket}\" to which it applies; add one, or leave it out",
                section.title()
            );
            report.error(&value.span(), message);
        }
    }
    draft.switch.api_group = read_id(section, "api-group", users::group, report);
    draft.switch.api_perms = read_perms(section, "api-perms", report);
    draft.switch.api_read_only_group = read_id(section, "api-read-only-group", users::group, report);
    draft.switch.api_read_only_perms = read_perms(section, "api-read-only-perms", report);
    (draft.switch.api, draft.switch.api_read_only) = (api, read_only);
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

/// Reads the copy that the file names, if it is another one than the switch's own.
fn read_copy(section: &Section<'_>, report: &mut Findings<'_>) -> Option<Level> {
    let named = section.text("copy", "copy = \"kernel\"", report)?;
    let word = *named.get_ref();
    if word == "kernel" {
        return None;
    }
    let title = section.title();
    if let Some(simd) = section.get("simd") {
        report.error(&simd.span(), format!("simd in {title}: copy {word:?} takes no instruction set; leave one out"));
    }
    let level = Level::for_comparison().find(|level| level.name() == word);
    if level.is_none() {
        let message = if Level::COMPARISONS.contains(&word) {
            let here: Vec<_> = Level::for_comparison().map(Level::name).collect();
            format!("copy {word:?} in {title}: this machine does not have it; it has {}", here.join(", "))
        } else {
            let mut words = vec!["kernel"];
            words.extend(Level::COMPARISONS);
            format!("copy {word:?} in {title}: unknown; {}", hint(word, &words, "known"))
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
