//! Files: sockets come and go in the folders that the configuration names, and little else can be
//! opened.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use straightline_port::socket_path;

use super::resolved;

/// The version that our rules were written for and tested with. An older kernel restricts only the
/// operations that it knows; a newer one restricts no more than this version.
const KNOWN: ABI = ABI::V7;

/// Read at each reload, to check the CPUs that the configuration names.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// The device by which taps are made and opened.
const TUN: &str = "/dev/net/tun";

/// Restricts this thread and those that it starts.
///
/// Landlock covers files and the network only. It does not restrict open descriptors, descriptors
/// that are sent to us, connections to sockets, and changes of owners and permission bits. Nor does
/// it restrict pipes reopened through `/proc/self/fd`: Landlock does not cover the kernel's
/// internal file systems. The filter in `calls` allows only those of these operations that the
/// configuration needs.
///
/// `others` are further files that a reload reads.
pub(super) fn enter(folders: &[PathBuf], file: &Path, others: &[PathBuf]) -> Result<String, String> {
    let sockets = folders.iter().map(|folder| (folder.clone(), AccessFs::MakeSock | AccessFs::RemoveFile));
    let readable =
        readable(file).into_iter().chain(others.iter().cloned()).map(|path| (path, AccessFs::ReadFile.into()));
    in_force(restrict(sockets.chain(readable)))
}

/// Restricts the process that makes sockets: it may make and remove them in these folders.
pub(super) fn enter_maker(folders: &[PathBuf]) -> Result<String, String> {
    in_force(restrict(folders.iter().map(|folder| (folder.clone(), AccessFs::MakeSock | AccessFs::RemoveFile))))
}

/// Restricts the opener process: it may open the device of taps if `opens_taps` is true, and no
/// file.
pub(super) fn enter_opener(opens_taps: bool) -> Result<String, String> {
    let tun = (PathBuf::from(TUN), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev);
    in_force(restrict(opens_taps.then_some(tun).into_iter()))
}

/// Returns how much of the rules is in force.
fn in_force(status: Result<landlock::RestrictionStatus, RulesetError>) -> Result<String, String> {
    let status = status.map_err(|error| error.to_string())?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Ok(String::new()),
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Ok(format!(", as far as this kernel has it (version {effective_abi} of {KNOWN})"))
        }
        (_, LandlockStatus::NotEnabled) => {
            Err("this kernel has Landlock switched off; add \"landlock\" to its `lsm=` parameter".to_owned())
        }
        _ => Err("this kernel has no Landlock; it came with Linux 5.13".to_owned()),
    }
}

/// Allows this access below each of these paths, and no other.
fn restrict(
    allowed: impl Iterator<Item = (PathBuf, BitFlags<AccessFs>)>,
) -> Result<landlock::RestrictionStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        // No rule follows for TCP, abstract sockets and signals to other processes, so none of
        // these is allowed.
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    for (path, access) in allowed {
        rules = allow(rules, &path, access)?;
    }
    rules.restrict_self()
}

/// Allows access below a path. A path that does not exist needs no rule; its user fails with a
/// message of its own.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(fd) => rules.add_rule(PathBeneath::new(fd, access)),
        Err(_) => Ok(rules),
    }
}

/// Returns the paths that a reload reads. They include the configuration's folder, because editors
/// and deployments replace the file by a new one, unless that folder holds much else.
fn readable(file: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from(CPUS), file.to_owned()];
    let folder = resolved(socket_path::folder(file));
    if is_wide(&folder, std::env::home_dir().as_deref()) {
        tracing::info!(
            "sandbox: {} is not opened for reading; for reloads of a file that was replaced (and not written in place), \
             keep the configuration in a folder of its own",
            folder.display()
        );
    } else {
        paths.push(folder);
    }
    paths
}

/// Returns whether a folder is shared by many users: those directly below the root (`/etc`,
/// `/root`, `/tmp`), and our user's home.
fn is_wide(folder: &Path, home: Option<&Path>) -> bool {
    folder.components().count() < 3 || home.is_some_and(|home| home.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_its_own_is_opened() {
        let home = Some(Path::new("/home/a"));
        for wide in ["/", "/etc", "/home", "/home/a"] {
            assert!(is_wide(Path::new(wide), home), "{wide}");
        }
        for own in ["/etc/straightline", "/home/a/switch", "/home/b"] {
            assert!(!is_wide(Path::new(own), home), "{own}");
        }
        assert!(!is_wide(Path::new("/home/a"), None));
    }
}
