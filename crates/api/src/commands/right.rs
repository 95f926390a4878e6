//! The rights that clients need.

/// The right that a command needs. Each includes those before it. A socket gives its clients one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To see the status, but no contents of packets.
    Read,
    /// To see packets, to send some, and to change what a restart forgets.
    Operate,
    /// To do all that the API can.
    All,
}

impl Right {
    /// Returns the right's name in the documentation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::All => "all",
        }
    }

    /// Returns whether a client that has this right may use a command.
    #[must_use]
    pub fn includes(self, command: super::Command) -> bool {
        command.right() <= self
    }
}
