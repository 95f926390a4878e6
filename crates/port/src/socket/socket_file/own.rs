//! Sockets that this process makes itself, with their files.
//!
//! The user of a frontend may own the socket's folder. That user can put any other file, such as a
//! link to a system file, in the socket's place at any moment. So each step names the folder by a
//! descriptor and follows no link at the file's name. It also compares device and inode with the
//! file that `bind` made. An inode number is not given to another file while the socket is open,
//! because the socket holds the inode.
//!
//! `bind` does not say which inode it made. Between `bind` and the first look at the file, the
//! folder's owner can put another socket there. Such a socket passes the checks if only root may
//! use it, it has no second name, and another program made it. No socket of this process passes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, chmodat, chownat, fchmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, sendto, socket_with};
use rustix::process::geteuid;
use straightline_graph::OWN_MODE;
use straightline_packet::IgnorePoison;

use super::{SocketFileError, SocketStep, bound};
use crate::socket::socket_path::{self, SocketState};

/// The files of all sockets of this process.
static OURS: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

/// The file of a socket. When dropped, it removes the file, unless another file is in its place.
#[derive(Debug)]
pub(super) struct OwnFile {
    folder: OwnedFd,
    name: OsString,
    id: FileId,
    /// The file that `bind` made, opened without any access right. It keeps the inode's number from
    /// being given to another file, also where the socket is another process's.
    _file: OwnedFd,
    /// Owner and group as `bind` set them.
    made_for: (u32, u32),
}

/// The identity of a file for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// A file at a path.
struct Found {
    folder: OwnedFd,
    name: OsString,
    /// Opened without any access right (`O_PATH`).
    file: OwnedFd,
    stat: Stat,
}

impl OwnFile {
    /// Makes a stream socket and binds it to `path`. After that only our own user may connect.
    pub(super) fn make(path: &Path) -> Result<(OwnedFd, Self), SocketFileError> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(failed(SocketStep::Make))?;
        let file = Self::bind(&socket, path)?;
        Ok((socket, file))
    }

    fn bind(socket: &OwnedFd, path: &Path) -> Result<Self, SocketFileError> {
        let address = SocketAddrUnix::new(path).map_err(failed(SocketStep::Path))?;
        let name = path.file_name().ok_or(Errno::INVAL).map_err(failed(SocketStep::Path))?.to_owned();
        let folder = open_folder(path).map_err(failed(SocketStep::Folder))?;
        // The file takes the socket's permission bits (unix(7)).
        fchmod(socket, Mode::from_raw_mode(OWN_MODE)).map_err(failed(SocketStep::Permissions))?;
        bind(socket, &address).map_err(failed(SocketStep::Bind))?;
        let file = open_file(&folder, &name).map_err(failed(SocketStep::Find))?;
        let stat = fstat(&file).map_err(failed(SocketStep::Find))?;
        let id = FileId::of(&stat);
        let mut ours = ours();
        if !looks_new(&stat) || ours.contains(&id) {
            return Err(replaced(SocketStep::Find));
        }
        ours.push(id);
        drop(ours);
        Ok(OwnFile { folder, name, id, _file: file, made_for: (stat.st_uid, stat.st_gid) })
    }

    /// Sets the file's owner, group and permission bits. Without an owner or group, the file gets
    /// back its first one.
    ///
    /// # Errors
    /// The step that failed, or that another file is in the socket's place. That file is left
    /// alone.
    pub(super) fn set_permissions(
        &self,
        owner: Option<u32>,
        group: Option<u32>,
        mode: u32,
    ) -> Result<(), SocketFileError> {
        let open = || open_file(&self.folder, &self.name).and_then(|file| Ok((fstat(&file)?, file)));
        let (stat, file) = open().map_err(failed(SocketStep::Find))?;
        if FileId::of(&stat) != self.id {
            return Err(replaced(SocketStep::Permissions));
        }
        let owner = owner.unwrap_or(self.made_for.0);
        let group = group.unwrap_or(self.made_for.1);
        if (owner, group) != (stat.st_uid, stat.st_gid) {
            let owner = Uid::from_raw(owner);
            let group = Gid::from_raw(group);
            chownat(&file, "", Some(owner), Some(group), AtFlags::EMPTY_PATH).map_err(failed(SocketStep::Owner))?;
        }
        if stat.st_mode & 0o7777 != mode {
            // fchmod refuses a descriptor of this kind. The link in /proc leads to the same file,
            // wherever that is now.
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            chmodat(CWD, link, Mode::from_raw_mode(mode), AtFlags::empty()).map_err(failed(SocketStep::Permissions))?;
        }
        Ok(())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // If another process has removed it already, there is nothing left to do.
        let _ = remove(&self.folder, &self.name, self.id);
        ours().retain(|id| *id != self.id);
    }
}

/// Removes the file at `path` if it is a socket that a dead process left. Returns what is there
/// afterwards.
///
/// # Errors
/// The system's error, or that another file has come into the stale socket's place.
pub fn clear_stale(path: &Path) -> io::Result<SocketState> {
    let Some(found) = Found::at(path)? else { return Ok(SocketState::Free) };
    match found.state()? {
        SocketState::Stale => match remove(&found.folder, &found.name, FileId::of(&found.stat)) {
            // The process that had made it may have removed it meanwhile.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(SocketState::Free),
        },
        state => Ok(state),
    }
}

/// Returns what is at `path` now, without disturbing a process that listens there.
pub(crate) fn state(path: &Path) -> io::Result<SocketState> {
    Found::at(path)?.map_or(Ok(SocketState::Free), |found| found.state())
}

impl Found {
    fn at(path: &Path) -> io::Result<Option<Self>> {
        // A path without a last component names a folder.
        let (folder, name) = match path.file_name() {
            Some(name) => (open_folder(path), name.to_owned()),
            None => (openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()), ".".into()),
        };
        let found = folder.and_then(|folder| {
            let file = open_file(&folder, &name)?;
            Ok(Found { stat: fstat(&file)?, folder, name, file })
        });
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an empty *datagram* to the file, through its descriptor. The kernel finds out whether
    /// a socket is bound to the file before it compares the kinds: `ECONNREFUSED` if none is,
    /// `EPROTOTYPE` if one of another kind is (`unix_find_bsd` in Linux's `net/unix/af_unix.c`). So
    /// a stream listener never sees a connection, which a vhost-user backend would take for its VM,
    /// and nothing ever blocks. Connecting would give the same answer, but the sandbox forbids it.
    fn state(&self) -> io::Result<SocketState> {
        if FileType::from_raw_mode(self.stat.st_mode) != FileType::Socket {
            return Ok(SocketState::NotASocket);
        }
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        match sendto(&probe, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &address) {
            Ok(_) | Err(Errno::PROTOTYPE | Errno::AGAIN) => Ok(SocketState::Live),
            Err(Errno::CONNREFUSED) => Ok(SocketState::Stale),
            // We may not connect, such as to a socket that a killed process of ours had given to the
            // user of a frontend. The kernel's table of sockets knows.
            Err(Errno::ACCESS) => match bound::is_bound(&self.stat, self.name.as_bytes()) {
                Ok(true) => Ok(SocketState::Live),
                Ok(false) => Ok(SocketState::Stale),
                Err(error) => Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!("{}, and the kernel's table of sockets: {error}", io::Error::from(Errno::ACCESS)),
                )),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl FileId {
    fn of(stat: &Stat) -> Self {
        FileId { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Returns whether the file can be one that `bind` has just made for us.
fn looks_new(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        && stat.st_mode & 0o7777 & !OWN_MODE == 0
        && stat.st_uid == geteuid().as_raw()
        && stat.st_nlink == 1
}

/// Removes the file if it is this one. Between the check and the removal, the folder's owner may
/// put another file there; the owner could remove that anyway.
fn remove(folder: &OwnedFd, name: &OsString, id: FileId) -> io::Result<()> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileId::of(&stat) != id {
        return Err(is_replaced());
    }
    Ok(unlinkat(folder, name, AtFlags::empty())?)
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    // The sandbox does not allow `open`.
    openat(CWD, socket_path::folder(path), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn open_file(folder: &OwnedFd, name: &OsString) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn ours() -> MutexGuard<'static, Vec<FileId>> {
    OURS.lock().ignore_poison()
}

fn failed(step: SocketStep) -> impl Fn(Errno) -> SocketFileError {
    move |error| SocketFileError { step, source: error.into() }
}

fn replaced(step: SocketStep) -> SocketFileError {
    SocketFileError { step, source: is_replaced() }
}

fn is_replaced() -> io::Error {
    io::Error::other("another file is in its place")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use rustix::net::listen;

    use super::*;

    /// A socket that listens in a folder of its own, and a file beside it that must not be touched.
    struct Scene {
        folder: tempfile::TempDir,
        socket: OwnedFd,
        file: OwnFile,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("system"), "secret").unwrap();
            fs::set_permissions(folder.path().join("system"), fs::Permissions::from_mode(0o640)).unwrap();
            let (socket, file) = bound(&folder.path().join("s")).unwrap();
            Scene { folder, socket, file }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Puts another file where the socket was, in each way that the folder's owner has.
        fn replaced(what: &str) -> Self {
            let scene = Scene::new();
            fs::rename(scene.path("s"), scene.path("away")).unwrap();
            match what {
                "link" => symlink(scene.path("system"), scene.path("s")).unwrap(),
                "hard link" => fs::hard_link(scene.path("system"), scene.path("s")).unwrap(),
                "link to the socket" => symlink(scene.path("away"), scene.path("s")).unwrap(),
                _ => drop(UnixListener::bind(scene.path("s")).unwrap()),
            }
            scene
        }
    }

    const REPLACED: [&str; 4] = ["link", "hard link", "link to the socket", "socket"];

    fn bound(path: &Path) -> Result<(OwnedFd, OwnFile), SocketFileError> {
        let (socket, file) = OwnFile::make(path)?;
        listen(&socket, 1).unwrap();
        Ok((socket, file))
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn permissions_are_those_of_the_socket_alone() {
        let scene = Scene::new();
        assert_eq!(mode(&scene.path("s")), OWN_MODE);
        scene.file.set_permissions(None, None, 0o666).unwrap();
        assert_eq!(mode(&scene.path("s")), 0o666);
        for what in REPLACED {
            let scene = Scene::replaced(what);
            let owner = geteuid().is_root().then_some(1);
            let before = fs::symlink_metadata(scene.path("s")).unwrap().mode();
            let error = scene.file.set_permissions(owner, owner, 0o666).unwrap_err().to_string();
            assert!(error.contains("another file is in its place"), "{what}: {error}");
            for name in ["system", "away"] {
                let metadata = fs::metadata(scene.path(name)).unwrap();
                assert_eq!(metadata.uid(), geteuid().as_raw(), "{what}: {name}");
                assert_ne!(metadata.mode() & 0o777, 0o666, "{what}: {name}");
            }
            assert_eq!(fs::symlink_metadata(scene.path("s")).unwrap().mode(), before, "{what}");
        }
    }

    #[test]
    fn an_owner_is_given_and_taken_back() {
        if !geteuid().is_root() {
            // `cargo xtask test` counts this line. `println!` would be captured.
            let _ = writeln!(std::io::stdout(), "\nskipped an_owner_is_given_and_taken_back: it needs root");
            return;
        }
        let scene = Scene::new();
        let owner = || {
            let metadata = fs::metadata(scene.path("s")).unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
        };
        scene.file.set_permissions(Some(1), Some(2), 0o660).unwrap();
        assert_eq!(owner(), (1, 2, 0o660));
        scene.file.set_permissions(None, None, 0o600).unwrap();
        assert_eq!(owner(), (0, 0, 0o600));
    }

    #[test]
    fn only_the_socket_itself_is_removed() {
        let scene = Scene::new();
        let path = scene.path("s");
        drop(scene.file);
        assert!(!path.exists());
        for what in REPLACED {
            let Scene { folder, socket, file } = Scene::replaced(what);
            drop(file);
            drop(socket);
            assert!(fs::symlink_metadata(folder.path().join("s")).is_ok(), "{what}");
            assert_eq!(fs::read_to_string(folder.path().join("system")).unwrap(), "secret", "{what}");
        }
    }

    /// The folder stays the one in which the socket was made, even if another folder is at its path
    /// now.
    #[test]
    fn a_folder_that_was_replaced_loses_nothing() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let (_socket, file) = bound(&folder.join("s")).unwrap();
        fs::rename(&folder, outer.path().join("away")).unwrap();
        fs::create_dir(outer.path().join("other")).unwrap();
        fs::write(outer.path().join("other/s"), "").unwrap();
        symlink(outer.path().join("other"), &folder).unwrap();
        file.set_permissions(None, None, 0o666).unwrap();
        assert_eq!(mode(&outer.path().join("away/s")), 0o666);
        assert_ne!(mode(&outer.path().join("other/s")), 0o666);
        drop(file);
        assert!(!outer.path().join("away/s").exists() && outer.path().join("other/s").exists());
    }

    #[test]
    fn a_stale_socket_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert_eq!(clear_stale(&path).unwrap(), SocketState::Free);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(clear_stale(&path).unwrap(), SocketState::Free);
        assert!(!path.exists());
        // A link to a stale socket is no socket, and the socket at its end belongs to another
        // process.
        drop(UnixListener::bind(folder.path().join("away")).unwrap());
        symlink(folder.path().join("away"), &path).unwrap();
        assert_eq!(clear_stale(&path).unwrap(), SocketState::NotASocket);
        assert!(folder.path().join("away").exists() && fs::symlink_metadata(&path).is_ok());
        // A file that has taken the stale socket's place since it was checked stays.
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let found = Found::at(&path).unwrap().unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        fs::write(&path, "new").unwrap();
        assert!(remove(&found.folder, &found.name, FileId::of(&found.stat)).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    /// A file that `bind` cannot have made is not ours, even if it was put there in the moment
    /// after.
    #[test]
    fn a_file_in_the_place_of_a_new_socket_is_known() {
        let scene = Scene::new();
        let stat = |name: &str| statat(&scene.file.folder, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert!(looks_new(&stat("s")));
        assert!(ours().contains(&FileId::of(&stat("s"))));
        symlink(scene.path("s"), scene.path("link")).unwrap();
        assert!(!looks_new(&stat("link")) && !looks_new(&stat("system")));
        drop(UnixListener::bind(scene.path("open")).unwrap());
        fs::set_permissions(scene.path("open"), fs::Permissions::from_mode(0o660)).unwrap();
        assert!(!looks_new(&stat("open")));
        fs::hard_link(scene.path("s"), scene.path("twice")).unwrap();
        assert!(!looks_new(&stat("s")));
    }
}
