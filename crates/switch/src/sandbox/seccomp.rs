//! System calls: those of [`super::calls`] pass. Any other fails with `EPERM` and is reported.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::{Needs, calls, refusal};

/// Filters this thread and those that it starts.
pub(super) fn enter(needs: Needs) -> Result<String, String> {
    let list = calls::list(needs).map_err(|error| error.to_string())?;
    let count = list.len();
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .ok()
        .filter(|_| refusal::KNOWS_PROCESSOR)
        .ok_or_else(|| format!("there is no filter for processors of kind {}", std::env::consts::ARCH))?;

    // Threads are made with clone, whose flags a filter can check. Of clone3 it sees only a
    // pointer. The C library uses clone if it is told that clone3 does not exist.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let absent = program(SeccompFilter::new(clone3, SeccompAction::Allow, absent, arch))?;
    let mut allowed: BTreeMap<_, _> = list.into_iter().collect();
    // The stricter answer of two filters counts, so this filter must let clone3 pass; the other one
    // answers it.
    allowed.insert(libc::SYS_clone3, Vec::new());
    let main = program(SeccompFilter::new(allowed, SeccompAction::Trap, SeccompAction::Allow, arch))?;

    refusal::install();
    for filter in [absent, main] {
        apply_filter(&filter).map_err(|error| format!("{error} (it needs a kernel with CONFIG_SECCOMP_FILTER)"))?;
    }
    Ok(format!(", {count} system calls allowed"))
}

fn program(filter: Result<SeccompFilter, seccompiler::BackendError>) -> Result<BpfProgram, String> {
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}
