//! Errors that the switch answers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The answer to a request that the switch did not execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The error in words; it may have several lines.
    pub error: String,
    /// The kind of error.
    #[serde(default)]
    pub code: ErrorCode,
    /// The thing that the error is about, such as the name of a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
    /// The place of the wrong entry in a change with several, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The line is not a request, or an argument is missing or wrong.
    BadRequest,
    /// No command has this name.
    UnknownCommand,
    /// No port has this name.
    UnknownPort,
    /// No underlay has this name.
    UnknownUnderlay,
    /// No table has this name.
    UnknownTable,
    /// This socket only answers questions.
    ReadOnly,
    /// As many clients as possible use this already; a later try can succeed.
    Busy,
    /// The request cannot be executed as the switch is now. Nothing is changed.
    Refused,
    /// A fault of the switch.
    Internal,
    /// Another kind, from a switch of another version.
    #[default]
    #[serde(other)]
    Other,
}

impl Refusal {
    /// Returns an error of this kind.
    #[must_use]
    pub fn new(code: ErrorCode, error: impl Into<String>) -> Self {
        Refusal { error: error.into(), code, culprit: None, index: None }
    }

    /// Names the thing that the error is about.
    #[must_use]
    pub fn about(self, culprit: impl Into<String>) -> Self {
        Refusal { culprit: Some(culprit.into()), ..self }
    }

    /// Names the wrong entry of a change.
    #[must_use]
    pub fn at(self, index: usize) -> Self {
        Refusal { index: Some(index as u64), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Refusal {}
