//! Reads requests.

use serde::Deserialize;

use super::{Command, ErrorCode, Refusal, Request};

impl Request {
    /// Reads a request line.
    ///
    /// # Errors
    /// The line is not a request. The error says what would be right.
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Word {
            cmd: String,
        }
        let bad = |error: String| Refusal::new(ErrorCode::BadRequest, error);
        let Word { cmd } = serde_json::from_slice(line)
            .map_err(|error| bad(format!("not a request: {error}; write for example {{\"cmd\":\"ports\"}}")))?;
        let command: Command =
            cmd.parse().map_err(|error: String| Refusal::new(ErrorCode::UnknownCommand, error).about(&cmd))?;
        serde_json::from_slice(line)
            .map_err(|error| bad(format!("{cmd}: {error}; {}", command.arguments())).about(&cmd))
    }
}
