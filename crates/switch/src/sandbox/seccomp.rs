//! The filter of system calls. The calls in [`super::calls`] pass. Any other call fails with
//! `EPERM` and is reported.

use std::collections::BTreeMap;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::calls::Allowed;
use super::{Needs, calls, refusal};

/// Filters this thread and those that it starts, by the calls that these needs take.
pub(super) fn enter(needs: Needs) -> Result<String, String> {
    allow_only(calls::list(needs))
}

/// Filters this thread and those that it starts: only the calls of this list pass.
pub(super) fn allow_only(list: Result<Vec<Allowed>, BackendError>) -> Result<String, String> {
    let list = list.map_err(|error| error.to_string())?;
    let count = list.len();
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .ok()
        .filter(|_| refusal::KNOWS_PROCESSOR)
        .ok_or_else(|| format!("there is no filter for processors of kind {}", std::env::consts::ARCH))?;

    // Threads are made with clone, whose flags a filter can check. With clone3, a filter sees only
    // a pointer. The C library uses clone if clone3 seems not to exist.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let absent = program(SeccompFilter::new(clone3, SeccompAction::Allow, absent, arch))?;
    let mut allowed: BTreeMap<_, _> = list.into_iter().collect();
    // Of two filters, the stricter answer counts. So this filter must let clone3 pass, and the
    // other filter answers it.
    allowed.insert(libc::SYS_clone3, Vec::new());
    let main = program(SeccompFilter::new(allowed, SeccompAction::Trap, SeccompAction::Allow, arch))?;

    refusal::install();
    for filter in [absent, main] {
        apply_filter(&filter).map_err(|error| format!("{error} (it needs a kernel with CONFIG_SECCOMP_FILTER)"))?;
    }
    Ok(format!(", {count} system calls allowed"))
}

fn program(filter: Result<SeccompFilter, BackendError>) -> Result<BpfProgram, String> {
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}
