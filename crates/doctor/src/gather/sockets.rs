//! Sockets: their state, who has them, and who can reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use straightline_port::socket_path::{self, SocketState};

use super::host::{self, Host};
use crate::facts::{Access, Fact, Holder, SocketFacts, SocketFile, Unknown, User};

/// Gathers the facts of a socket to which `user` is to connect.
pub(super) fn facts(listeners: &Listeners, path: &Path, user: &Fact<User>) -> SocketFacts {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let file = match fs::symlink_metadata(&path) {
        Ok(metadata) => Ok(Some(access(&path, &metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(host::unknown(&path, &error)),
    };
    let mut folders: Vec<_> =
        path.ancestors().skip(1).map(|folder| (folder.to_owned(), folder_access(folder))).collect();
    folders.reverse();
    let user = user.clone();
    SocketFacts { state: state(listeners, &path), holders: listeners.holders(&path), file, folders, user, path }
}

fn folder_access(folder: &Path) -> Fact<Access> {
    let metadata = fs::metadata(folder).map_err(|error| host::unknown(folder, &error))?;
    Ok(access(folder, &metadata))
}

fn access(path: &Path, metadata: &fs::Metadata) -> Access {
    // A size of 0 bytes asks for the length only.
    let has_list = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok_and(|length| length > 0);
    Access { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() & 0o7777, has_list }
}

/// Finds the state of a path. A user who may not connect sees whether a process listens there.
fn state(listeners: &Listeners, path: &Path) -> Fact<SocketFile> {
    match socket_path::state(path) {
        Ok(SocketState::Free) => Ok(SocketFile::Missing),
        Ok(SocketState::Stale) => Ok(SocketFile::Stale),
        Ok(SocketState::Live) => Ok(SocketFile::Live),
        Ok(SocketState::NotASocket) => Ok(SocketFile::NotASocket),
        Err(error) => {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
            match listeners.at(path) {
                // Only sockets of this network namespace are listed, so a missing one says nothing.
                Ok(found) if is_socket && !found.is_empty() => Ok(SocketFile::Live),
                _ => Err(host::unknown(path, &error)),
            }
        }
    }
}

/// The sockets of this network namespace that listen, and the processes that have them.
#[derive(Debug)]
pub(super) struct Listeners {
    /// The path of each socket, with its inode.
    sockets: Fact<Vec<(String, String)>>,
    /// The processes that have a socket, by its inode.
    holders: Fact<BTreeMap<String, Vec<Holder>>>,
    /// The descriptors of some processes are not visible.
    is_hidden: bool,
}

impl Listeners {
    /// Looks at all sockets and all processes once.
    pub(super) fn scan(host: &Host) -> Self {
        let sockets = host.read("proc/net/unix").map(|table| listening(&table));
        let inodes: BTreeSet<&str> = sockets.iter().flatten().map(|(_, inode)| inode.as_str()).collect();
        let mut is_hidden = false;
        let holders = host.numbers("proc").map(|processes| {
            let mut holders: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
            for pid in processes {
                let open = match fs::read_dir(host.path(&format!("proc/{pid}/fd"))) {
                    Ok(links) => inodes_of(links, &inodes),
                    Err(error) => {
                        is_hidden |= error.kind() == io::ErrorKind::PermissionDenied;
                        continue;
                    }
                };
                for inode in open {
                    let name = host.line(&format!("proc/{pid}/comm")).unwrap_or_else(|_| "a program".to_owned());
                    holders.entry(inode).or_default().push(Holder { pid, name });
                }
            }
            holders
        });
        Listeners { sockets, holders, is_hidden }
    }

    /// Returns the inodes of the sockets that listen at a path.
    fn at(&self, path: &Path) -> Fact<Vec<&str>> {
        let sockets = self.sockets.as_ref().map_err(Clone::clone)?;
        let path = path.to_string_lossy();
        Ok(sockets.iter().filter(|(bound, _)| *bound == path).map(|(_, inode)| inode.as_str()).collect())
    }

    /// Returns the processes that listen at a path.
    pub(super) fn holders(&self, path: &Path) -> Fact<Vec<Holder>> {
        let inodes = self.at(path)?;
        let all = self.holders.as_ref().map_err(Clone::clone)?;
        let found: Vec<_> = inodes.iter().filter_map(|&inode| all.get(inode)).flatten().cloned().collect();
        if !inodes.is_empty() && found.is_empty() && self.is_hidden {
            Err(Unknown::for_root("the descriptors of other users' processes are not visible to this user"))
        } else {
            Ok(found)
        }
    }
}

/// Parses `/proc/net/unix`: the path and the inode of each socket that listens.
fn listening(table: &str) -> Vec<(String, String)> {
    let sockets = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let flags = fields.nth(3)?;
        let inode = fields.nth(2)?;
        let (_, path) = line.split_once(&format!(" {inode} "))?;
        // SO_ACCEPTCON (include/uapi/linux/net.h) marks a listener.
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        listens.then(|| (path.to_owned(), inode.to_owned()))
    });
    sockets.collect()
}

/// Returns those of `inodes` that are open in a process, by the links of its descriptors.
fn inodes_of(links: fs::ReadDir, inodes: &BTreeSet<&str>) -> BTreeSet<String> {
    let targets = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    let open = targets.filter_map(|target| {
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inodes.contains(inode).then(|| inode.to_owned())
    });
    open.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_of_ours_is_live_then_stale_then_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let scan = || Listeners::scan(&Host::new("/"));
        let nobody = || Err(Unknown::new("nobody"));
        let listener = UnixListener::bind(&path).unwrap();
        let found = facts(&scan(), &path, &nobody());
        assert_eq!(found.state, Ok(SocketFile::Live));
        let pids: Vec<_> = found.holders.unwrap().iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [std::process::id()]);
        assert_eq!(found.file.unwrap().unwrap().uid, rustix::process::geteuid().as_raw());
        let folders: Vec<_> = found.folders.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!((folders.first(), folders.last()), (Some(&Path::new("/")), Some(&folder.path())));
        drop(listener);
        let found = facts(&scan(), &path, &nobody());
        assert_eq!((found.state, found.holders), (Ok(SocketFile::Stale), Ok(Vec::new())));
        fs::remove_file(&path).unwrap();
        let found = facts(&scan(), &path, &nobody());
        assert_eq!((found.state, found.file), (Ok(SocketFile::Missing), Ok(None)));
        fs::write(&path, "").unwrap();
        assert_eq!(facts(&scan(), &path, &nobody()).state, Ok(SocketFile::NotASocket));
    }

    #[test]
    fn listening_sockets_with_spaces_in_their_paths() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000001: 00000002 00000000 00010000 0001 01 77 /run/a b.sock\n\
                     0000000000000002: 00000003 00000000 00000000 0001 03 78 /run/a b.sock\n\
                     0000000000000003: 00000002 00000000 00010000 0001 01 79\n";
        assert_eq!(listening(table), [("/run/a b.sock".to_owned(), "77".to_owned())]);
    }
}
