//! File descriptors: the limit of the process, and how many more it can open.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

/// Opens the folder that [`free`] reads. The sandbox forbids that later.
pub(crate) fn prepare() {
    TABLE.get_or_init(|| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open("/proc/self/fd", flags, Mode::empty()).ok()?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Some(Table { folder: Mutex::new(folder), limit })
    });
}

/// Returns the number of descriptors that the process can still open, or `None` if it cannot be
/// found out.
pub(crate) fn free() -> Option<u64> {
    prepare();
    let table = TABLE.get()?.as_ref()?;
    let folder = table.folder.lock().unwrap_or_else(PoisonError::into_inner);
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
