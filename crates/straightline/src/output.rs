//! What is printed where.

use std::io::{self, Write};

/// Prints an answer. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints why a command failed, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    if let Some(line) = error_line(error) {
        print(&line);
    }
}

/// Returns the line that says why a command failed, unless that was printed already.
pub(crate) fn error_line(error: &anyhow::Error) -> Option<String> {
    // Errors of a file are lines of their own, printed when they were found.
    (!error.is::<Reported>()).then(|| line("error", &format_args!("{error:#}")))
}

/// Prints a message on standard error.
pub(crate) fn message(severity: &str, text: &dyn std::fmt::Display) {
    print(&line(severity, text));
}

fn line(severity: &str, text: &dyn std::fmt::Display) -> String {
    format!("{severity}: {text}\n")
}

fn print(line: &str) {
    // Without a standard error there is nobody to tell that to.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The command failed, and its messages are printed already.
#[derive(Debug)]
pub(crate) struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("see above")
    }
}

impl std::error::Error for Reported {}
