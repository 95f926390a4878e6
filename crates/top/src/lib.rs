//! Live view of a running switch: rates, drops, the workers' time, nodes and links.
//!
//! It asks the switch over the API in each interval, and knows nothing else of it. [`run`] shows a
//! screen, tables or lines of JSON. The rates are those of [`straightline_api::rates`].

mod app;
mod batch;
mod column;
mod past;
mod screen;
mod text;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use straightline_api::RequestError;
use straightline_api::rates::{Rates, Sample};

pub use column::{Column, Sort};

/// The way in which the rates are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A screen that is drawn again after each interval.
    Screen,
    /// Tables, once for each interval.
    Tables,
    /// A line of JSON for each interval.
    Json,
}

/// The settings of the view.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// The API socket.
    pub api: PathBuf,
    /// The time between two samples.
    pub interval: Duration,
    /// The number of intervals; without end if there is none.
    pub count: Option<u64>,
    /// The way in which the rates are shown.
    pub output: Output,
    /// The order of the ports.
    pub sort: Sort,
    /// The columns of the table of ports.
    pub columns: Vec<Column>,
}

/// The reason why the view ended early.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The switch does not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Standard input or output is no terminal.
    #[error("the screen needs a terminal as standard input and output; use --batch or --json without one")]
    NoTerminal,
    /// The terminal or the output failed.
    #[error("the output failed: {0}")]
    Io(#[from] io::Error),
}

/// Shows the switch until the user or the number of intervals ends it.
///
/// # Errors
/// The output fails. Without a screen, also if the switch does not answer.
pub fn run(options: &TopOptions) -> Result<(), TopError> {
    let printed = match options.output {
        Output::Screen => return screen::run(options),
        Output::Tables => print(options, |rates| batch::tables(rates, options.sort, &options.columns)),
        Output::Json => print(options, |rates| serde_json::to_string(rates).unwrap_or_default() + "\n"),
    };
    match printed {
        // The reader has stopped early, as `head` does.
        Err(TopError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints a text for each interval.
fn print(options: &TopOptions, render: impl Fn(&Rates) -> String) -> Result<(), TopError> {
    let mut stdout = io::stdout().lock();
    let mut before = Sample::ask(&options.api)?;
    let mut printed = 0;
    while options.count.is_none_or(|count| printed < count) {
        let now = next(&options.api, options.interval)?;
        // Tables of several intervals are apart.
        let gap = if printed > 0 && options.output == Output::Tables { "\n" } else { "" };
        write!(stdout, "{gap}{}", render(&Rates::between(&before, &now)))?;
        stdout.flush()?;
        before = now;
        printed += 1;
    }
    Ok(())
}

fn next(api: &Path, interval: Duration) -> Result<Sample, RequestError> {
    thread::sleep(interval);
    Sample::ask(api)
}
