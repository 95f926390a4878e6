//! The commands of the API on a command line.

use super::{Command, Request};

impl Command {
    /// Returns `straightline WORD` with its arguments, if it only sends a request and prints the answer.
    /// The caller adds what all such commands share.
    #[must_use]
    pub fn command_line(self) -> Option<clap::Command> {
        self.text()?;
        Some(self.add_arguments(clap::Command::new(self.as_str())).about(self.help()).long_about(None))
    }

    /// Returns the request of a command line that [`Self::command_line`] describes.
    ///
    /// # Errors
    /// An argument is missing or wrong.
    pub fn request_from(self, given: &clap::ArgMatches) -> Result<Request, clap::Error> {
        self.read_arguments(given)
    }
}
