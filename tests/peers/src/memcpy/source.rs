//! DPDK's source package, of the version that is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::measure::{long_output_of, output_of};

/// The line that puts a header before each file of the vhost library, at the end of its
/// `meson.build`.
const PATCH: &str = "\ncflags += ['-include', meson.project_source_root() / 'straightline_copy.h']\n";

/// Returns the version of the installed vhost library, as its source package has it.
pub(super) fn installed() -> Result<String> {
    let mut ask = Command::new("dpkg-query");
    let version = output_of(ask.args(["-W", "-f", "${source:Version}", "librte-vhost23"]));
    version.context("DPDK 22.11 is not installed as a Debian package: install dpkg-dev, dpdk and dpdk-dev")
}

/// Returns the folder of the unpacked and patched source. The first call loads it by apt, with the
/// machine's own configuration. A private list of sources, and private lists of packages, leave
/// those of the machine as they are.
pub(super) fn make(folder: &Path, version: &str) -> Result<PathBuf> {
    let folder = folder.join("source").join(version);
    if unpacked(&folder).is_err() {
        let apt = folder.join("apt");
        for name in ["sources", "lists/partial", "archives/partial"] {
            fs::create_dir_all(apt.join(name))?;
        }
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let count = write_sources(&apt.join("sources"), suite.context("this system names no suite")?)?;
        ensure!(count > 0, "no list of Debian packages in /etc/apt has the suite of this system");
        let run = |args: &[&str]| {
            let mut command = Command::new("apt-get");
            for (key, value) in
                [("Dir::Etc::SourceParts", "sources"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "archives")]
            {
                command.arg("-o").arg(format!("{key}={}", apt.join(value).display()));
            }
            // The folder need not be readable for apt's own user.
            command.args(["-o", "Dir::Etc::SourceList=/dev/null", "-o", "APT::Sandbox::User=root", "-q"]);
            long_output_of(command.args(args).current_dir(&folder))
        };
        run(&["update"])?;
        run(&["source", &format!("dpdk={version}")])?;
    }
    let source = unpacked(&folder)?;
    let driver = fs::read_to_string(source.join("drivers/net/virtio/virtio_rxtx.c"))?;
    ensure!(
        !driver.contains("memcpy("),
        "DPDK's virtio driver copies packets in this version, and this comparison replaces no copy there"
    );
    let meson = source.join("lib/vhost/meson.build");
    let text = fs::read_to_string(&meson)?;
    if !text.ends_with(PATCH) {
        fs::write(&meson, text + PATCH)?;
    }
    Ok(source)
}

fn unpacked(folder: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // apt unpacks as the last step, and an interrupted one leaves no folder of Debian's.
        if path.join("lib/vhost/meson.build").exists() && path.join("debian/control").exists() {
            return Ok(path);
        }
    }
    bail!("no source in {}", folder.display())
}

/// Writes lists of source packages in place of the machine's lists of packages. Returns their
/// number.
fn write_sources(folder: &Path, suite: &str) -> Result<usize> {
    let mut lists = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    lists.extend(more.map(|entry| entry.path()));
    let mut count = 0;
    for list in lists {
        let Ok(text) = fs::read_to_string(&list) else { continue };
        let is_lines = list.extension().is_some_and(|extension| extension == "list");
        let is_stanzas = list.extension().is_some_and(|extension| extension == "sources");
        let sources = match (is_lines, is_stanzas) {
            (true, _) => lines_of_sources(&text, suite),
            (_, true) => stanzas_of_sources(&text, suite),
            _ => continue,
        };
        if !sources.is_empty() {
            fs::write(folder.join(list.file_name().context("a list without a name")?), sources)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Returns whether a word names the suite, or one of its updates. Lists of other publishers have
/// other names, and mostly no sources.
fn is_of(word: &str, suite: &str) -> bool {
    word.strip_prefix(suite).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/']))
}

/// Returns the lines `deb` of a list (sources.list(5)) with this suite, as `deb-src`.
fn lines_of_sources(text: &str, suite: &str) -> String {
    let of_suite = |line: &&str| line.split_whitespace().any(|word| is_of(word, suite));
    let lines = text.lines().map(str::trim).filter(of_suite);
    lines.filter_map(|line| Some(format!("deb-src {}\n", line.strip_prefix("deb ")?))).collect()
}

/// Returns the stanzas of a list in the format of deb822 with this suite, with the type `deb-src`.
fn stanzas_of_sources(text: &str, suite: &str) -> String {
    let mut sources = String::new();
    for stanza in text.split("\n\n") {
        let lines = stanza.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str, name: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        let of_suite = |line: &str| {
            value(line, "suites").is_some_and(|suites| suites.split_whitespace().any(|word| is_of(word, suite)))
        };
        if !lines.clone().any(of_suite) {
            continue;
        }
        for line in lines {
            let line = if value(line, "types").is_some() { "Types: deb-src" } else { line };
            sources += &format!("{line}\n");
        }
        sources += "\n";
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_packages_become_lists_of_sources() {
        let lines = "# deb http://a.example/debian bookworm main\ndeb [signed-by=/k] http://a.example/debian bookworm main\n\
                     deb-src http://a.example/debian bookworm main\ndeb http://b.example tools-bookworm main\n";
        assert_eq!(
            lines_of_sources(lines, "bookworm"),
            "deb-src [signed-by=/k] http://a.example/debian bookworm main\n"
        );
        let stanzas = "Types: deb\n# a remark\nURIs: http://a.example/debian\nSuites: bookworm bookworm-updates\nSigned-By: /k\n\n\
                       Types: deb\nURIs: http://b.example\nSuites: nodistro\n\n\
                       Types: deb deb-src\nURIs: http://a.example/security\nSuites: bookworm-security\n";
        let wanted = "Types: deb-src\nURIs: http://a.example/debian\nSuites: bookworm bookworm-updates\nSigned-By: /k\n\n\
                      Types: deb-src\nURIs: http://a.example/security\nSuites: bookworm-security\n\n";
        assert_eq!(stanzas_of_sources(stanzas, "bookworm"), wanted);
        assert_eq!(stanzas_of_sources(stanzas, "trixie") + &lines_of_sources(lines, "trixie"), "");
    }
}
