//! `straightline bugreport [CONFIG]`

mod secrets;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use straightline_api::{self as api, Answer, DEFAULT_PATH, Fdb, table};
use straightline_config::Kinds;
use straightline_doctor::checks;

use super::doctor;
use crate::cli::Bugreport;
use crate::output;

/// The configuration of the package's unit.
const SYSTEM_CONFIG: &str = "/etc/straightline/switch.toml";

/// Files that tell the system. All users may read them.
const SYSTEM_FILES: [&str; 5] =
    ["/etc/os-release", "/proc/version", "/proc/cmdline", "/proc/meminfo", "/sys/devices/system/cpu/isolated"];

/// Lines of the list of addresses. A bridge may have a hundred thousand.
const MAX_ADDRESSES: usize = 100;

/// Writes the report.
pub(crate) fn execute(args: &Bugreport, kinds: &Kinds) -> anyhow::Result<()> {
    let config = args.config.clone().or_else(|| Some(PathBuf::from(SYSTEM_CONFIG)).filter(|path| path.exists()));
    let text = report(config.as_deref(), args.api.as_deref(), kinds);
    if args.output == Path::new("-") {
        return output::answer(&text);
    }
    let path = &args.output;
    // Only its owner may read it until they have looked through it.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| {
        format!(
            "cannot make {}; name another file with --output, or use --output - for standard output",
            path.display()
        )
    })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    let message = format!("{}; look through it before you send it: it has addresses, names and paths", path.display());
    output::message("written", &message);
    Ok(())
}

/// Returns the report. A part that cannot be made says why.
fn report(config: Option<&Path>, api: Option<&Path>, kinds: &Kinds) -> String {
    let configured = config.map(|path| doctor::configured(path, kinds));
    let in_file = configured.as_ref().and_then(|file| file.api.clone());
    let api = api.map(Path::to_owned).or(in_file).unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    // The system's time: the report says when it was made.
    let mut text = format!(
        "Bug report of straightline {}, made at {}.\nValues of cookies are left out. It has addresses, names and paths.\n",
        straightline_switch::VERSION,
        humantime::format_rfc3339_seconds(SystemTime::now()),
    );
    let mut part = |title: &str, body: &str| {
        let _ = write!(text, "\n## {title}\n\n{}\n", body.trim_end());
    };
    part(
        "doctor",
        &checks::run(&straightline_doctor::gather::facts(
            &api,
            Path::new(straightline_evpn::DEFAULT_SOCKET),
            configured,
        ))
        .text(true, false),
    );
    match config {
        Some(path) => part(&format!("configuration {}", path.display()), &read(path)),
        None => part("configuration", &format!("none was named, and there is no {SYSTEM_CONFIG}")),
    }
    part("status", &answer(&api, table::status));
    part("ports", &answer(&api, table::ports));
    part("drops", &answer(&api, table::drops));
    part("runtime", &answer(&api, table::runtime));
    part("neighbours", &answer(&api, table::neighbours));
    part("fdb", &answer(&api, addresses));
    part("events", &answer(&api, table::events));
    SYSTEM_FILES.iter().for_each(|path| part(path, &read(Path::new(path))));
    part("processor", &processor());
    secrets::without(&text)
}

fn answer<A: Answer>(api: &Path, render: fn(&A) -> String) -> String {
    api::ask(api).map_or_else(|error| format!("{:#}", anyhow::Error::from(error)), |answer| render(&answer))
}

fn addresses(fdb: &Fdb) -> String {
    let text = table::fdb(fdb);
    let mut lines = text.lines();
    let mut shown: String = lines.by_ref().take(MAX_ADDRESSES).map(|line| format!("{line}\n")).collect();
    let more = lines.count();
    if more > 0 {
        let _ = writeln!(shown, "and {more} lines more");
    }
    shown
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the lines about the first processor, and the number of processors.
fn processor() -> String {
    let text = read(Path::new("/proc/cpuinfo"));
    let first = text.split("\n\n").next().unwrap_or_default();
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} processors, of which this is the first:\n{first}")
}
