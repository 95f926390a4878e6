//! Finds what is wrong with a switch, its sockets, its VMs and its machine, and how to fix it.
//!
//! The work has two halves. [`gather`] collects [`facts`] from the API, `/proc`, `/sys`, sockets
//! and the command lines of VMs. The [`checks`] are pure functions from facts to findings. A fact
//! that cannot be found out is unknown, and a check of unknown facts never passes.
//!
//! The crate does not read configuration files: the caller passes [`facts::Configured`].
//!
//! ```no_run
//! use std::path::Path;
//!
//! let report = straightline_doctor::report(Path::new(straightline_api::DEFAULT_PATH));
//! print!("{}", report.text(false, false));
//! # let _ = report.exit_code(false);
//! ```

#![forbid(unsafe_code)]

pub mod checks;
pub mod facts;
pub mod gather;
mod report;

use std::path::Path;

pub use report::{Finding, Report, Verdict};

/// Examines the switch whose API listens at `api`, and `straightline evpn` at its usual socket. Takes half a
/// second.
#[must_use]
pub fn report(api: &Path) -> Report {
    checks::run(&gather::facts(api, Path::new(straightline_evpn::DEFAULT_SOCKET), None))
}
