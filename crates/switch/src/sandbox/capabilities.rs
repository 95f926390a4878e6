//! Capabilities: the switch gives up all of them, except those that frontends' sockets and folders of
//! other users take.

use std::fmt;
use std::path::{Path, PathBuf};

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use straightline_port::socket_file;

use super::{folders, sockets};
use crate::config::Config;
use crate::config::Needs;

/// The capabilities that were kept.
#[derive(Debug)]
pub(super) struct KeptCapabilities(CapsHashSet);

impl KeptCapabilities {
    /// Returns their names in alphabetical order.
    pub(super) fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

/// Returns the names of the capabilities that this process has now.
pub(super) fn effective() -> Vec<String> {
    // A kernel without capabilities grants none.
    caps::read(None, CapSet::Effective).map_or_else(|_| Vec::new(), |set| names(&set))
}

fn names(set: &CapsHashSet) -> Vec<String> {
    let mut names: Vec<_> = set.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

impl fmt::Display for KeptCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        if names.is_empty() { f.write_str(", none kept") } else { write!(f, ", kept: {}", names.join(", ")) }
    }
}

/// Drops all other capabilities from every set of this thread and of the threads that it starts.
pub(super) fn enter(config: &Config, needs: Needs, file: &Path) -> Result<KeptCapabilities, String> {
    drop_all_but(needed(needs), config, file).map_err(|error| error.to_string())
}

fn drop_all_but(mut keep: CapsHashSet, config: &Config, file: &Path) -> Result<KeptCapabilities, CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let effective = caps::read(None, CapSet::Effective)?;
    keep.retain(|capability| permitted.contains(capability));
    remove_stale(config);
    drop_inherited(&effective)?;
    caps::set(None, CapSet::Effective, &keep)?;
    // Another process may make the sockets.
    let folders = if socket_file::maker_process().is_some() { Vec::new() } else { folders(config) };
    let shut_out = is_shut_out(&folders) || refuses(file, Access::READ_OK);
    if permitted.contains(&Capability::CAP_DAC_OVERRIDE) && shut_out {
        keep.insert(Capability::CAP_DAC_OVERRIDE);
        caps::set(None, CapSet::Effective, &keep)?;
    }
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(KeptCapabilities(keep))
}

/// Keeps these capabilities, as far as this process has them, and drops all others. For the opener
/// process.
pub(super) fn keep_only(keep: CapsHashSet) -> Result<KeptCapabilities, String> {
    keep_unless(keep, None).map_err(|error| error.to_string())
}

/// Keeps these capabilities as [`keep_only`] does, but the right to pass over permissions only if
/// the kernel would keep us from one of these folders. For the process that makes sockets.
pub(super) fn keep_for_folders(keep: CapsHashSet, folders: &[PathBuf]) -> Result<KeptCapabilities, String> {
    keep_unless(keep, Some(folders)).map_err(|error| error.to_string())
}

fn keep_unless(mut keep: CapsHashSet, folders: Option<&[PathBuf]>) -> Result<KeptCapabilities, CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    keep.retain(|capability| permitted.contains(capability));
    drop_inherited(&caps::read(None, CapSet::Effective)?)?;
    if let Some(folders) = folders
        && keep.remove(&Capability::CAP_DAC_OVERRIDE)
    {
        caps::set(None, CapSet::Effective, &keep)?;
        if is_shut_out(folders) {
            keep.insert(Capability::CAP_DAC_OVERRIDE);
        }
    }
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(KeptCapabilities(keep))
}

/// Drops all capabilities that a program could get by being executed.
fn drop_inherited(effective: &CapsHashSet) -> Result<(), CapsError> {
    rustix::thread::set_no_new_privs(true).map_err(|error| CapsError::from(error.to_string()))?;
    // Without CAP_SETPCAP the bounding set stays. Nothing is executed that could draw on it.
    if effective.contains(&Capability::CAP_SETPCAP) {
        caps::clear(None, CapSet::Bounding)?;
    }
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient)?;
    }
    caps::clear(None, CapSet::Inheritable)
}

/// Returns the capabilities that the sockets need. Connecting to a socket of another user takes one.
/// Sockets for other users are another process's matter ([`crate::socket_maker`]).
fn needed(needs: Needs) -> CapsHashSet {
    let mut needed = CapsHashSet::new();
    if needs.connects {
        // The user that will have made the socket is not known yet.
        needed.insert(Capability::CAP_DAC_OVERRIDE);
    }
    needed
}

/// Returns whether the kernel would now keep us from making sockets in one of these folders.
fn is_shut_out(folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| refuses(folder, Access::WRITE_OK | Access::EXEC_OK))
}

fn refuses(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_err()
}

/// Removes the sockets that a dead process left. Finding out that no process listens takes the
/// right to connect, which we are about to lose for sockets of other users, or a question that the
/// filter of system calls does not allow.
fn remove_stale(config: &Config) {
    for path in sockets(config) {
        // If a socket cannot be removed, binding to its path reports that.
        let _ = socket_file::clear_stale_here(path);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getegid, geteuid};

    use super::*;
    use crate::config::{Mode, PortConfig, VhostUserConfig};

    fn needed_with(change: impl FnOnce(&mut VhostUserConfig)) -> CapsHashSet {
        let mut port = PortConfig::vhost_user("p", "/run/p");
        change(port.kind.as_vhost_user_mut().expect("it is one"));
        needed(Needs::of(&Config { ports: vec![port].into(), ..Config::default() }))
    }

    #[test]
    fn only_sockets_of_frontends_need_any() {
        let us = geteuid().as_raw();
        let ours = getegid().as_raw();
        for (owner, group) in [(None, None), (Some(us), Some(ours)), (None, Some(ours + 1)), (Some(us + 1), None)] {
            assert_eq!(needed_with(|port| (port.owner, port.group) = (owner, group)), CapsHashSet::new());
        }
        let client = needed_with(|port| (port.owner, port.mode) = (Some(us + 1), Mode::Client));
        assert_eq!(client, [Capability::CAP_DAC_OVERRIDE].into());
    }
}
