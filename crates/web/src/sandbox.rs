//! The rights that the process gives up, before it starts any thread and serves any client.

use std::path::Path;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{Access as Wanted, AtFlags, CWD, accessat};

/// The version that our rules were written for. An older kernel restricts only the operations that
/// it knows.
const KNOWN: ABI = ABI::V7;

/// Gives up all rights that asking the switch on `api` and serving open sockets do not need: the
/// process can open no file and no further TCP socket, and has no capabilities. Returns notes for
/// the operator, one for each mechanism.
///
/// Only threads that start later are confined, so call it first.
#[must_use]
pub fn confine(api: &Path) -> Vec<String> {
    let landlock = match no_files() {
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
            "landlock is NOT in force: this kernel has none, or it is switched off".to_owned()
        }
        Ok(_) => "landlock in force".to_owned(),
        Err(error) => format!("landlock is NOT in force: {error}"),
    };
    let capabilities = match no_capabilities(api) {
        Ok(false) => "no capabilities kept".to_owned(),
        Ok(true) => format!(
            "CAP_DAC_OVERRIDE kept, because the socket {} is for another user; start the server as that user instead",
            api.display()
        ),
        Err(error) => format!("capabilities are NOT given up: {error}"),
    };
    vec![landlock, capabilities]
}

/// Forbids all files, TCP sockets, abstract sockets and signals to others. Landlock does not cover
/// descriptors that are open, accepting on them, and connecting to a socket in a folder.
fn no_files() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .restrict_self()
}

/// Gives up all capabilities. Returns true if one was kept: root needs it to connect to a socket of
/// another user.
fn no_capabilities(api: &Path) -> Result<bool, CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    rustix::thread::set_no_new_privs(true).map_err(|error| CapsError::from(error.to_string()))?;
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient)?;
    }
    caps::clear(None, CapSet::Inheritable)?;
    caps::clear(None, CapSet::Effective)?;
    let mut kept = CapsHashSet::new();
    // A socket that is not there yet is reached without it, if the switch runs as this user.
    let is_shut_out = accessat(CWD, api, Wanted::WRITE_OK, AtFlags::EACCESS) == Err(rustix::io::Errno::ACCESS);
    if is_shut_out && permitted.contains(&Capability::CAP_DAC_OVERRIDE) {
        kept.insert(Capability::CAP_DAC_OVERRIDE);
    }
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(!kept.is_empty())
}
