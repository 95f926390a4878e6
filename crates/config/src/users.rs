//! Looks up users and groups through the system's name service (NSS). So it finds users of LDAP and
//! systemd as well as users in `/etc/passwd`.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr};

use straightline_packet::IgnorePoison;

/// True once names cannot be looked up any more.
static IS_SEALED: AtomicBool = AtomicBool::new(false);

/// Has all later searches use earlier answers. A sandbox forbids the files of the name service and
/// the libraries that it loads.
pub fn seal_names() {
    IS_SEALED.store(true, Ordering::Relaxed);
}

/// The outcome of a search for the id of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// The name has this id.
    Found(u32),
    /// The name is not known.
    Unknown,
}

/// Returns the id of a user, by name or, if no user has that name, as a number.
pub(super) fn user(name: &str) -> io::Result<Id> {
    static KNOWN: IdCache = Mutex::new(BTreeMap::new());
    let found =
        remembered(&KNOWN, name, || Ok(look_up(name, libc::getpwnam_r)?.map(|entry: libc::passwd| entry.pw_uid)))?;
    Ok(or_number(found, name))
}

/// Returns the id of a group, by name or, if no group has that name, as a number.
pub(super) fn group(name: &str) -> io::Result<Id> {
    static KNOWN: IdCache = Mutex::new(BTreeMap::new());
    let found =
        remembered(&KNOWN, name, || Ok(look_up(name, libc::getgrnam_r)?.map(|entry: libc::group| entry.gr_gid)))?;
    Ok(or_number(found, name))
}

/// Ids that the name service has returned, by name.
type IdCache = Mutex<BTreeMap<String, u32>>;

/// Asks the name service. In the sandbox, which forbids the service's files, it uses earlier
/// answers instead.
fn remembered(known: &IdCache, name: &str, ask: impl Fn() -> io::Result<Option<u32>>) -> io::Result<Option<u32>> {
    let mut known = known.lock().ignore_poison();
    if !IS_SEALED.load(Ordering::Relaxed) {
        let found = ask()?;
        known.extend(found.map(|id| (name.to_owned(), id)));
        return Ok(found);
    }
    match known.get(name) {
        Some(id) => Ok(Some(*id)),
        None if name.bytes().all(|byte| byte.is_ascii_digit()) => Ok(None),
        None => {
            Err(io::Error::other("names cannot be looked up in the sandbox; restart the switch, or write the number"))
        }
    }
}

/// Treats digits as an id if they are no user's name, as chown(1) does.
fn or_number(found: Option<u32>, name: &str) -> Id {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    // The highest id means "leave it" to chown(2).
    let number = || name.parse().ok().filter(|id| digits && *id != u32::MAX);
    found.or_else(number).map_or(Id::Unknown, Id::Found)
}

/// `getpwnam_r` and `getgrnam_r` differ in the type of the entry only.
type Getter<Entry> = unsafe extern "C" fn(*const c_char, *mut Entry, *mut c_char, usize, *mut *mut Entry) -> c_int;

/// The maximum size of an entry in bytes. A database that asks for more is broken.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Returns the entry of a name. Its pointers dangle: only its numbers may be used.
fn look_up<Entry: Copy>(name: &str, get: Getter<Entry>) -> io::Result<Option<Entry>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let mut buffer: Vec<c_char> = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<Entry>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: `name` ends in a NUL and outlives the call; `entry`, `buffer` (with its true
        // length) and `found` are ours alone, writable, and outlive the call too. These functions
        // keep no pointer once they return (POSIX.1-2017, getpwnam_r, getgrnam_r).
        let error =
            unsafe { get(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
        match error {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call succeeded and set `found`, so it has filled in `entry`.
            0 => return Ok(Some(unsafe { entry.assume_init() })),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < MAX_ENTRY_BYTES => buffer.resize(buffer.len() * 4, 0),
            // getpwnam(3), "ERRORS": some services report an unknown name like this.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            other => return Err(io::Error::from_raw_os_error(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_zero() {
        assert_eq!(user("root").unwrap(), Id::Found(0));
        assert_eq!(group("root").unwrap(), Id::Found(0));
    }

    #[test]
    fn unknown_names() {
        for name in ["", "no-such-name-here", "ro\0ot", "-1", "+1", "4294967295", "99999999999"] {
            assert_eq!(user(name).unwrap(), Id::Unknown, "{name:?}");
            assert_eq!(group(name).unwrap(), Id::Unknown, "{name:?}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(user("4294967294").unwrap(), Id::Found(u32::MAX - 1));
        assert_eq!(group("12345").unwrap(), Id::Found(12345));
    }
}
