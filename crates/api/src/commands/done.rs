//! The answer to changes.

use serde::{Deserialize, Serialize};

/// The answer to a command that has nothing to tell: it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Done {}
