//! File descriptors: the limit of the process, and how many more it can open.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use straightline_packet::IgnorePoison;

use crate::config::{Config, PortConfig};

/// The state that is set up before the sandbox is entered. `None` where there is no `/proc`.
static TABLE: OnceLock<Option<Table>> = OnceLock::new();

#[derive(Debug)]
struct Table {
    /// `/proc/self/fd`, a folder with an entry for each open descriptor. All readers share its
    /// position.
    folder: Mutex<OwnedFd>,
    /// The soft limit of open descriptors.
    limit: u64,
}

/// Raises the soft limit of open descriptors to the hard limit. A port with many queue pairs needs
/// hundreds of descriptors, and the usual soft limit of 1024 only serves programs that call
/// `select`. Call this function before the sandbox is entered: the sandbox forbids the change.
///
/// # Errors
/// The system refused. The limit is unchanged then.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

/// Descriptors that the switch may need besides those of its ports: for 256 clients at each socket of
/// the API, for captures, workers and the log.
const OTHERS: u64 = 640;

/// Returns a warning if the peers of this configuration's ports can have the switch keep more
/// descriptors than it may open. Then frontends may be refused further queue pairs. If not even the
/// ports' reserves suffice, one frontend may take descriptors that others need. A switch compares
/// with its limit at the start, because the sandbox hides the limit later.
#[must_use]
pub fn descriptor_shortage(config: &Config) -> Option<String> {
    let limit = match TABLE.get() {
        Some(table) => table.as_ref()?.limit,
        None => getrlimit(Resource::Nofile).maximum?,
    };
    shortage(config, limit)
}

fn shortage(config: &Config, limit: u64) -> Option<String> {
    let most = OTHERS + config.ports.iter().map(|port| port.kind.most_descriptors()).sum::<u64>();
    if most <= limit {
        return None;
    }
    let is_open = |port: &&PortConfig| port.kind.most_descriptors() > port.kind.reserved_descriptors();
    let open = config.ports.iter().filter(is_open).count();
    let queues = if open == 0 { String::new() } else { format!("set `queues` at the {open} ports without it, or ") };
    let reserved = OTHERS + config.ports.iter().map(|port| port.kind.reserved_descriptors()).sum::<u64>();
    let result = if reserved <= limit {
        "one that starts many queue pairs may be refused some"
    } else {
        "one frontend could take those of others"
    };
    Some(format!(
        "frontends can have the switch keep {most} descriptors, and it may open {limit}: {result}; \
         {queues}raise the limit to {most} (`LimitNOFILE=` of the systemd unit, `ulimit -Hn`)"
    ))
}

/// Opens the folder that [`free`] reads. The sandbox forbids that later.
pub(crate) fn prepare() {
    TABLE.get_or_init(|| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open("/proc/self/fd", flags, Mode::empty()).ok()?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Some(Table { folder: Mutex::new(folder), limit })
    });
}

/// Reserves descriptors for each port, so that no frontend takes those of others.
pub(crate) fn limit_ports() {
    if let Some(Some(table)) = TABLE.get() {
        straightline_port::set_descriptor_limit(table.limit.saturating_sub(OTHERS));
    }
}

/// Checks that a port can be added without taking the reserves of others.
///
/// # Errors
/// There are too few descriptors.
pub(crate) fn check_reserve(port: &PortConfig) -> anyhow::Result<()> {
    let need = port.kind.reserved_descriptors();
    let free = straightline_port::descriptors_free();
    anyhow::ensure!(
        need <= free,
        "the switch may open {free} more descriptors for ports, and the port needs {need}; remove ports or raise the \
         limit (`LimitNOFILE=` of the systemd unit, `ulimit -Hn`)"
    );
    Ok(())
}

/// Returns the number of descriptors that the process can still open, or `None` if it cannot be
/// found out.
pub(crate) fn free() -> Option<u64> {
    prepare();
    let table = TABLE.get()?.as_ref()?;
    let folder = table.folder.lock().ignore_poison();
    seek(&*folder, SeekFrom::Start(0)).ok()?;
    let mut buffer = [const { MaybeUninit::uninit() }; 8192];
    let mut entries = RawDir::new(&*folder, &mut buffer);
    let mut open: u64 = 0;
    while let Some(entry) = entries.next() {
        // All names but `.` and `..` are numbers.
        open += u64::from(!entry.ok()?.file_name().to_bytes().starts_with(b"."));
    }
    Some(table.limit.saturating_sub(open))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_frontends_could_use_up_is_told() {
        let with = |queues: &[Option<u16>]| {
            let port = |queues: &Option<u16>| {
                let mut port = PortConfig::vhost_user("p", "/run/p");
                port.kind.as_vhost_user_mut().expect("it is one").queues = *queues;
                port
            };
            Config { ports: queues.iter().map(port).collect::<Vec<_>>().into(), ..Config::default() }
        };
        // 772 of a frontend, eight in its messages, and one listener.
        assert_eq!(shortage(&with(&[None]), OTHERS + 781), None);
        let told = shortage(&with(&[None, Some(1), None]), OTHERS + 1586).expect("it is one too few");
        assert!(
            told.contains("keep 2227 descriptors, and it may open 2226: one that starts many queue pairs "),
            "{told}"
        );
        assert!(told.contains("set `queues` at the 2 ports without it, or raise the limit to 2227 "), "{told}");
        assert_eq!(shortage(&with(&[None, Some(1), None]), OTHERS + 2 * 781 + 25), None);
        let told = shortage(&with(&[Some(1)]), OTHERS).expect("too few");
        assert!(told.contains("could take those of others; raise the limit to 665 "), "{told}");
    }
}
