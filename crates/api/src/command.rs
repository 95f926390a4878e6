//! The words of requests.

use std::str::FromStr;

/// The commands of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The status of the whole switch.
    Status,
    /// The ports.
    Ports,
    /// The addresses that the bridges know.
    Fdb,
    /// The next hops of the underlays.
    Neighbours,
    /// The use of the workers' time.
    Runtime,
    /// The dropped packets by reason.
    Drops,
    /// The traffic of the last two minutes.
    History,
    /// The events: changes of links, reloads, faults.
    Events,
    /// Captures packets until the client leaves.
    Capture,
    /// Follows single packets on their way through the switch.
    Trace,
    /// Sends echo requests of an underlay's own, and tells of the replies.
    Ping,
    /// Reads the configuration file again and applies it.
    Reload,
    /// Sets a port's link down, or allows it to be up again.
    Link,
    /// Adds a port until the connection closes.
    Port,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 14] = [
        Self::Status,
        Self::Ports,
        Self::Fdb,
        Self::Neighbours,
        Self::Runtime,
        Self::Drops,
        Self::History,
        Self::Events,
        Self::Capture,
        Self::Trace,
        Self::Ping,
        Self::Reload,
        Self::Link,
        Self::Port,
    ];

    /// Returns the command's name in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Ports => "ports",
            Self::Fdb => "fdb",
            Self::Neighbours => "neighbours",
            Self::Runtime => "runtime",
            Self::Drops => "drops",
            Self::History => "history",
            Self::Events => "events",
            Self::Capture => "capture",
            Self::Trace => "trace",
            Self::Ping => "ping",
            Self::Reload => "reload",
            Self::Link => "link",
            Self::Port => "port",
        }
    }

    /// Returns the arguments that a request of this command has, in words.
    #[must_use]
    pub fn arguments(self) -> &'static str {
        match self {
            Self::Events => "its arguments are \"since\" (a number) and \"follow\" (true or false), both optional",
            Self::Capture => {
                "it needs \"ports\" (names) and \"snaplen\" (bytes), and one of \"in\", \"out\" (true) and \"dropped\" \
                 (a reason, or an empty text); \"filter\" is optional"
            }
            Self::Trace => "it needs \"ports\" (names) and \"count\" (a number of packets); \"filter\" is optional",
            Self::Ping => {
                "it needs \"underlay\" (a name) and \"address\" (an IP address); \"count\", \"interval_ms\" and \
                 \"timeout_ms\" (numbers) are optional"
            }
            Self::Link => "it needs \"port\" (a name) and \"up\" (true or false)",
            Self::Port => "it needs \"name\", \"join\" and \"socket\" (texts), and a socket as a descriptor",
            _ => "it has no arguments",
        }
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|command| command.as_str() == word);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown command {word:?}; commands are {words}")
        })
    }
}
