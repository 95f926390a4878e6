//! Output: answers to standard output, messages to standard error.

use std::io::{self, Write};

use crate::log_format;

/// Prints an answer. It is not a failure if the reader stops early, as `head` does.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    part(text).map(drop)
}

/// Prints a part of an answer that has no end. Returns false if the reader has stopped.
pub(crate) fn part(text: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(true),
    }
}

/// Prints the error of a command, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    if let Some(line) = error_line(error) {
        print(&line);
    }
}

/// Returns the message for the error of a command; `None` if the messages are printed already.
pub(crate) fn error_line(error: &anyhow::Error) -> Option<String> {
    // Errors in a configuration file are printed when they are found.
    (!error.is::<Reported>()).then(|| line("error", &format_args!("{error:#}")))
}

/// Prints a message on standard error.
pub(crate) fn message(severity: &str, text: &dyn std::fmt::Display) {
    print(&line(severity, text));
}

#[cfg(feature = "lab")]
/// Prints a line of progress on standard error.
pub(crate) fn progress(text: &dyn std::fmt::Display) {
    print(&prioritised(format!("{text}\n"), tracing::Level::INFO));
}

/// Returns a message, with its priority if standard error goes to the journal.
fn line(severity: &str, text: &dyn std::fmt::Display) -> String {
    let line = format!("{severity}: {text}\n");
    let level = if severity == "error" { tracing::Level::ERROR } else { tracing::Level::WARN };
    prioritised(line, level)
}

/// Adds the priority to a line if standard error goes to the journal.
fn prioritised(line: String, level: tracing::Level) -> String {
    if log_format::is_journal(io::stderr()) { log_format::with_priority(level, &line) } else { line }
}

fn print(line: &str) {
    // If writing to standard error fails, there is no other place for a message.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The error of a command that has printed its messages already.
#[derive(Debug)]
pub(crate) struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the messages are printed already")
    }
}

impl std::error::Error for Reported {}
