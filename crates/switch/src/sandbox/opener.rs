//! The sandbox of the opener process.

use caps::{Capability, CapsHashSet};
use straightline_port::device::{DeviceRequest, HelperProcess, HelperSandbox};

use super::{capabilities, landlock, opener_calls, seccomp};
use crate::config::Mechanism;

/// Returns the capabilities that opening this interface takes.
pub(crate) fn needed(request: &DeviceRequest) -> &'static [Capability] {
    use Capability::{CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW};
    match request {
        DeviceRequest::Tap(_) => &[CAP_NET_ADMIN],
        DeviceRequest::AfPacket(_) => &[CAP_NET_RAW],
        // The last one lifts the limit of lockable memory.
        DeviceRequest::AfXdp(_) => &[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK],
    }
}

/// Returns the capabilities that opening these interfaces takes.
pub(crate) fn needed_by_all(requests: &[DeviceRequest]) -> CapsHashSet {
    requests.iter().flat_map(needed).copied().collect()
}

/// Gives up all rights that opening these interfaces does not take. The capabilities are given up
/// whatever the configuration says: they are the reason for the process.
///
/// # Errors
/// A mechanism that the configuration names is missing.
pub(crate) fn enter(requests: &[DeviceRequest], sandbox: &HelperSandbox) -> Result<HelperProcess, String> {
    let mut mechanisms = vec![Mechanism::Capabilities.as_str().to_owned()];
    let kept = capabilities::keep_only(needed_by_all(requests))?;
    let has = |mechanism: Mechanism| sandbox.mechanisms.iter().any(|name| name == mechanism.as_str());
    // The order matters: the rules for files open files, and the filter of system calls forbids
    // that.
    for mechanism in [Mechanism::Landlock, Mechanism::Seccomp] {
        if !has(mechanism) {
            continue;
        }
        let done = match mechanism {
            Mechanism::Landlock => landlock::enter_opener(),
            _ => seccomp::allow_only(opener_calls::list(requests)),
        };
        match done {
            Ok(_) => mechanisms.push(mechanism.as_str().to_owned()),
            Err(why) if sandbox.required => {
                return Err(format!("sandbox {:?} of the opener process is not available: {why}", mechanism.as_str()));
            }
            // The switch's own sandbox warns about the same lack.
            Err(_) => {}
        }
    }
    Ok(HelperProcess { pid: std::process::id(), capabilities: kept.names(), mechanisms })
}
