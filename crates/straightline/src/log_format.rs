//! The format of log lines for journald, which adds the time and the process itself.

use std::fmt::{self, Write as _};
use std::os::fd::AsFd;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Returns true if what is written to `output` goes to journald (systemd.exec(5),
/// `JOURNAL_STREAM`).
pub(crate) fn is_journal(output: impl AsFd) -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(output).is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Returns the text with its priority in front of each line (sd-daemon(3)). A line without one would
/// get the priority of the service.
pub(crate) fn with_priority(level: Level, text: &str) -> String {
    // The numbers are those of syslog(3).
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    text.lines().fold(String::new(), |mut lines, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "<{priority}>{line}");
        lines
    })
}

/// Formats an event with its priority, and without time, level and colours.
#[derive(Debug)]
pub(crate) struct JournalFormat(Format<Full, ()>);

impl JournalFormat {
    pub(crate) fn new() -> Self {
        Self(Format::default().without_time().with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&with_priority(*event.metadata().level(), &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority() {
        assert_eq!(with_priority(Level::ERROR, "a\nb\n"), "<3>a\n<3>b\n");
        assert_eq!(with_priority(Level::WARN, "a"), "<4>a\n");
        assert_eq!(with_priority(Level::INFO, ""), "");
    }
}
