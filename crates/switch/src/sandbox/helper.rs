//! The sandboxes of helper processes, as far as they are alike.

use seccompiler::BackendError;
use straightline_port::{HelperProcess, HelperSandbox};

use super::calls::Allowed;
use super::capabilities::KeptCapabilities;
use super::seccomp;
use crate::config::Mechanism;

/// Confines this process, which has given up all capabilities but those that it `kept`. It has done
/// so whatever the configuration says: they are the reason for the process.
pub(super) fn enter(
    kept: &KeptCapabilities,
    sandbox: &HelperSandbox,
    restrict_files: impl FnOnce() -> Result<String, String>,
    calls: impl FnOnce() -> Result<Vec<Allowed>, BackendError>,
) -> Result<HelperProcess, String> {
    let mut mechanisms = vec![Mechanism::Capabilities.as_str().to_owned()];
    let is_wanted = |mechanism: Mechanism| sandbox.mechanisms.iter().any(|name| name == mechanism.as_str());
    let mut note = |mechanism: Mechanism, entered: Result<String, String>| match entered {
        Ok(_) => {
            mechanisms.push(mechanism.as_str().to_owned());
            Ok(())
        }
        Err(why) if sandbox.required => {
            Err(format!("sandbox {:?} of a helper process is not available: {why}", mechanism.as_str()))
        }
        // The switch's own sandbox warns about the same lack.
        Err(_) => Ok(()),
    };
    // The order matters: the rules for files open files, and the filter of system calls forbids
    // that.
    if is_wanted(Mechanism::Landlock) {
        note(Mechanism::Landlock, restrict_files())?;
    }
    if is_wanted(Mechanism::Seccomp) {
        note(Mechanism::Seccomp, seccomp::allow_only(calls()))?;
    }
    Ok(HelperProcess { pid: std::process::id(), capabilities: kept.names(), mechanisms })
}
