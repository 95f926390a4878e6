//! The sandbox: the process gives up capabilities, access to files, and system calls before it
//! listens to any client.
//!
//! | file | mechanism | what is left |
//! |---|---|---|
//! | `landlock` | Landlock | sockets in the folders that the configuration names; its file, to be read again |
//! | `capabilities` | capabilities | those needed for sockets of frontends, and for folders of other users |
//! | `seccomp`, `calls` | seccomp | the system calls of `calls`; any other fails with `EPERM`, and the log names it (`refusal`) |
//!
//! The opener process and the process that makes sockets have sandboxes of their own, made of the
//! same mechanisms (`helper`; `opener`, `opener_calls`; `socket_maker`).
//!
//! Each mechanism applies to one thread and to the threads that it starts later. So [`enter`] must
//! be called before the first of these threads starts. A mechanism stays in force for the process's
//! life. So a reload may only ask for what the configuration needed at the start, and [`Denied`]
//! says so before anything changes.

mod calls;
mod capabilities;
mod helper;
mod landlock;
pub(crate) mod opener;
mod opener_calls;
mod refusal;
mod seccomp;
pub(crate) mod socket_maker;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use straightline_port::{socket_file, socket_path};

use crate::config::{Config, Mechanism, Needs, NumaNodes, PortConfig, seal_names};
use crate::default_mac::read_machine_id;
use crate::descriptors;

pub use refusal::refused_calls;

/// The sandbox that was entered, once for the process.
static ENTERED: OnceLock<Entered> = OnceLock::new();

#[derive(Debug, Default)]
struct Entered {
    mechanisms: Vec<Mechanism>,
    /// Folders in which sockets may be made, links resolved.
    folders: Vec<PathBuf>,
    /// The configuration's file.
    file: PathBuf,
    /// True if another process makes the sockets, for any user.
    has_maker: bool,
    /// The names of the capabilities that are left.
    capabilities: Vec<String>,
    /// The rights that the filter of system calls leaves.
    needs: Needs,
}

/// The reason why the sandbox cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The sandbox was entered before, or other threads run already.
    #[error("the sandbox must be entered once, before any other thread starts; this process has {0} threads")]
    Late(usize),
    /// The configuration names the mechanism, so the switch does not start without it.
    #[error("sandbox {:?} of [switch] is not available: {why}; remove it from the list to start without it", mechanism.as_str())]
    Missing {
        /// The mechanism.
        mechanism: Mechanism,
        /// The system's error, and what may help.
        why: String,
    },
}

/// The reason why the sandbox denies a reload something that it needs.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// Landlock allows no sockets in this folder.
    #[error(
        "folder {} held no socket of the configuration when the switch started, and the sandbox (landlock) allows no \
         other since; restart to apply",
        .0.display()
    )]
    Folder(PathBuf),
    /// The right to give files to other users is gone.
    #[error(
        "owner or group: no port had one when the switch started, and the sandbox ({}) gave up the right to set it; \
         restart to apply",
        .0.as_str()
    )]
    Owner(Mechanism),
    /// The filter allows no system call that sets permission bits.
    #[error(
        "perms: all ports had \"0600\" when the switch started, and the sandbox (seccomp) lets it set no others since; \
         restart to apply"
    )]
    Bits,
    /// The filter allows no system call that connects.
    #[error(
        "mode \"client\": no port had it when the switch started, and the sandbox (seccomp) lets it connect to nobody \
         since; restart to apply"
    )]
    Connect,
    /// There is no opener process.
    #[error(
        "no port had an interface of this machine when the switch started, so no process with the privileges to open \
         one was started beside it; restart to apply"
    )]
    Device,
}

/// Gives up all rights that `config`, which was read from `file`, does not need. A mechanism that
/// the kernel lacks is an error if the configuration names it, else a warning.
///
/// A switch with interfaces of this machine opens them by the opener process, and one with sockets for
/// other users has another process make them: start these before ([`crate::opener::start`],
/// [`crate::socket_maker::start`]).
///
/// # Errors
/// Other threads run already, or a mechanism that the configuration names is missing.
pub fn enter(config: &Config, file: &Path) -> Result<(), SandboxError> {
    let wanted = &config.switch.sandbox;
    if wanted.mechanisms.is_empty() {
        tracing::info!("the sandbox is off");
        return Ok(());
    }
    let threads = threads();
    if threads != 1 || ENTERED.get().is_some() {
        return Err(SandboxError::Late(threads));
    }
    crate::user_names::read();
    // Mapping guest memory needs the page size. The first query of it reads a file, which the
    // sandbox forbids later. So the first query is here.
    let _ = rustix::param::page_size();
    read_machine_id();
    // The files of the kernel can be read now only.
    let _ = NumaNodes::of_this_machine();
    descriptors::prepare();
    descriptors::limit_ports();
    let mut entered = Entered {
        folders: folders(config).iter().map(|folder| resolved(folder)).collect(),
        file: file.to_owned(),
        capabilities: capabilities::effective(),
        needs: Needs::of(config),
        has_maker: socket_file::maker_process().is_some(),
        ..Entered::default()
    };
    if entered.has_maker {
        // The other process sets owners and permission bits.
        (entered.needs.has_owner, entered.needs.sets_bits) = (false, false);
    }
    // The order matters: the rules for files open files, and the filter of system calls forbids
    // that.
    for mechanism in [Mechanism::Landlock, Mechanism::Capabilities, Mechanism::Seccomp] {
        if !wanted.mechanisms.contains(&mechanism) {
            continue;
        }
        let done = match mechanism {
            Mechanism::Landlock => {
                landlock::enter(&folders(config), file, &config.named_files().cloned().collect::<Vec<_>>())
            }
            Mechanism::Capabilities => capabilities::enter(config, entered.needs, file).map(|kept| {
                entered.capabilities = kept.names();
                kept.to_string()
            }),
            Mechanism::Seccomp => seccomp::enter(entered.needs),
        };
        match done {
            Ok(note) => {
                tracing::info!("sandbox: {} in force{note}", mechanism.as_str());
                entered.mechanisms.push(mechanism);
            }
            Err(why) if wanted.required => return Err(SandboxError::Missing { mechanism, why }),
            Err(why) => tracing::warn!("sandbox: {} is NOT in force: {why}", mechanism.as_str()),
        }
    }
    if entered.mechanisms.iter().any(|mechanism| *mechanism != Mechanism::Capabilities) {
        seal_names();
    }
    entered.mechanisms.sort_by_key(|mechanism| mechanism.as_str());
    ENTERED.set(entered).map_err(|_| SandboxError::Late(threads))
}

/// Returns the mechanisms in force, in alphabetical order. Empty if no sandbox was entered.
pub fn in_force() -> &'static [Mechanism] {
    ENTERED.get().map_or(&[], |entered| &entered.mechanisms)
}

/// Returns the names of the capabilities that this process has.
pub(crate) fn held_capabilities() -> Vec<String> {
    ENTERED.get().map_or_else(capabilities::effective, |entered| entered.capabilities.clone())
}

/// Checks that the sandbox lets this port listen or connect. If no sandbox was entered, every port
/// may.
///
/// # Errors
/// The right that is missing.
pub(crate) fn allows(port: &PortConfig) -> Result<(), Denied> {
    let Some(entered) = ENTERED.get() else { return Ok(()) };
    let needs = port.kind.needs();
    let is_in_force = |mechanism| entered.mechanisms.contains(&mechanism);
    let left = entered.needs;
    let is_filtered = is_in_force(Mechanism::Seccomp);
    if is_filtered && needs.connects && !left.connects {
        return Err(Denied::Connect);
    }
    if needs.has_device && !left.has_device {
        return Err(Denied::Device);
    }
    let Some(socket) = port.kind.made_socket() else { return Ok(()) };
    let folder = socket_path::folder(socket);
    let known = entered.folders.iter().any(|known| resolved(folder).starts_with(known));
    if is_in_force(Mechanism::Landlock) && !known {
        return Err(Denied::Folder(folder.to_owned()));
    }
    if entered.has_maker {
        return Ok(());
    }
    if is_in_force(Mechanism::Capabilities) && needs.gives_away {
        return Err(Denied::Owner(Mechanism::Capabilities));
    }
    if is_filtered && needs.has_owner && !left.has_owner {
        return Err(Denied::Owner(Mechanism::Seccomp));
    }
    if is_filtered && needs.sets_bits && !left.sets_bits {
        return Err(Denied::Bits);
    }
    Ok(())
}

/// Returns an addition to the message that a file cannot be read, for the case that the sandbox is
/// the reason.
pub fn about_reading(file: &Path, error: &std::io::Error) -> &'static str {
    let landlocked = in_force().contains(&Mechanism::Landlock);
    if error.kind() != std::io::ErrorKind::PermissionDenied || !landlocked {
        ""
    } else if ENTERED.get().is_some_and(|entered| entered.file == file) {
        " (the sandbox knows the file that was there at the start; restart, and give it a folder of its own)"
    } else {
        " (the sandbox allows no other file than the configuration's own)"
    }
}

/// Returns the folders of all sockets that this process makes.
pub(crate) fn folders(config: &Config) -> Vec<PathBuf> {
    let mut folders: Vec<_> = sockets(config).iter().map(|path| socket_path::folder(path).to_owned()).collect();
    folders.sort();
    folders.dedup();
    folders
}

/// Returns the paths of all sockets that this process makes.
fn sockets(config: &Config) -> Vec<&Path> {
    let ports = config.ports.iter().filter_map(|port| port.kind.made_socket());
    ports.chain(config.switch.api_sockets().map(PathBuf::as_path)).collect()
}

/// Returns the path without links, if it leads somewhere.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the number of threads of this process, or 0 if it cannot be read.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
