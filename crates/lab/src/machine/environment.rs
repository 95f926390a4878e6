//! The environment of samples: this machine, and this process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use straightline_packet::Level;
use straightline_report::results::{Environment, FORMAT};

/// Reads the environment of this machine and this process.
pub fn environment() -> Environment {
    Environment {
        taken: date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
        command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        simd: Level::detect().to_string(),
        ..read("/".as_ref())
    }
}

/// Reads Linux's description of itself and its machine under `/proc` and `/sys` in `root`.
fn read(root: &Path) -> Environment {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
    let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
    // Values of the first CPU. ARM has other names for some fields.
    let first = |names: &[&str]| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| names.contains(&name.trim())).map(|(_, value)| value.trim().to_owned())
    };
    let flags = first(&["flags", "Features"]).unwrap_or_default();
    Environment {
        format: FORMAT,
        program: straightline_switch::VERSION.to_owned(),
        commit: option_env!("STRAIGHTLINE_COMMIT").map(str::to_owned),
        cpu: first(&["model name", "CPU part"]).unwrap_or_else(|| "unknown".to_owned()),
        flags: flags.split_whitespace().map(str::to_owned).collect(),
        microcode: first(&["microcode"]),
        cpus: text("sys/devices/system/cpu/online").unwrap_or_default(),
        smt: text("sys/devices/system/cpu/smt/control"),
        caches: caches(&root.join("sys/devices/system/cpu/cpu0/cache")),
        kernel: text("proc/sys/kernel/osrelease").unwrap_or_default(),
        governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        transparent_huge_pages: text("sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
        huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
        ..Environment::default()
    }
}

fn caches(folder: &Path) -> BTreeMap<String, String> {
    let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let cache = |path: &Path| {
        Some((format!("L{} {}", text(&path.join("level"))?, text(&path.join("type"))?), text(&path.join("size"))?))
    };
    entries.filter_map(|entry| cache(&entry.path())).collect()
}

fn huge_pages(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size_and_count = |path: &Path| {
        let size = path.file_name()?.to_str()?.strip_prefix("hugepages-")?.to_owned();
        Some((size, fs::read_to_string(path.join("nr_hugepages")).ok()?.trim().to_owned()))
    };
    entries.filter_map(|entry| size_and_count(&entry.path())).collect()
}

/// Returns the setting in brackets, such as `madvise` in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    text.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// Formats seconds since 1970 as a date, in the Gregorian calendar.
fn date(secs: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut day = secs / 86_400;
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    let hour = secs / 3600 % 24;
    let minute = secs / 60 % 60;
    let second = secs % 60;
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_264_496, "2026-11-21T12:34:56Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(secs), text);
        }
    }

    #[test]
    fn a_machine_is_read_from_its_files_and_one_without_them_is_none() {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            (
                "proc/cpuinfo",
                "processor : 0\nmodel name\t: A CPU: fast\nflags\t: sse2 avx2\nmicrocode : 0xa1\n\nflags : x\n",
            ),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let found = read(root.path());
        assert_eq!((found.cpu.as_str(), found.microcode.as_deref()), ("A CPU: fast", Some("0xa1")));
        assert_eq!((found.flags.join(" ").as_str(), found.kernel.as_str()), ("sse2 avx2", "6.1.0"));
        assert_eq!((found.cpus.as_str(), found.governor.as_deref()), ("0-1", Some("performance")));
        assert_eq!(found.transparent_huge_pages.as_deref(), Some("madvise"));
        assert_eq!((found.caches["L1 Data"].as_str(), found.huge_pages["2048kB"].as_str()), ("32K", "512"));

        let nothing = read("/nonexistent".as_ref());
        assert_eq!((nothing.cpu.as_str(), nothing.governor), ("unknown", None));
    }
}
