//! File descriptors: how many the process may open, and how many it has open.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What has to be had before the sandbox is entered. `None` where there is no `/proc`.
static TABLE: OnceLock<Option<Table>> = OnceLock::new();

#[derive(Debug)]
struct Table {
    /// The folder with an entry for each open descriptor; its position is shared by all who read it.
    folder: Mutex<OwnedFd>,
    /// The soft limit.
    limit: u64,
}

/// Raises the soft limit of open descriptors to the hard limit. A port with many queue pairs needs hundreds of them, and
/// the usual soft limit of 1024 is one for programs that call `select`. Called before the sandbox is entered, which forbids
/// it.
///
/// # Errors
/// What the system said; the limit is as before then.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

/// Opens what [`free`] reads; the sandbox forbids it later.
pub(crate) fn prepare() {
    TABLE.get_or_init(|| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open("/proc/self/fd", flags, Mode::empty()).ok()?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Some(Table { folder: Mutex::new(folder), limit })
    });
}

/// How many more descriptors the process can open; `None` if it cannot be told.
pub(crate) fn free() -> Option<u64> {
    prepare();
    let table = TABLE.get()?.as_ref()?;
    let folder = table.folder.lock().unwrap_or_else(PoisonError::into_inner);
    seek(&*folder, SeekFrom::Start(0)).ok()?;
    let mut buffer = [const { MaybeUninit::uninit() }; 8192];
    let mut entries = RawDir::new(&*folder, &mut buffer);
    let mut open: u64 = 0;
    while let Some(entry) = entries.next() {
        // All names are numbers but `.` and `..`.
        open += u64::from(!entry.ok()?.file_name().to_bytes().starts_with(b"."));
    }
    Some(table.limit.saturating_sub(open))
}
