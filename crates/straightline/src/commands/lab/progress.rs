//! Progress on standard error: a bar on a terminal, otherwise a line for each trial.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use straightline_lab::trial::{Step, Watch};

use crate::output;

pub(super) struct Progress {
    /// The bar; `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates the progress display for this number of trials.
    pub(super) fn new(trials: usize) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(u64::try_from(trials).unwrap_or(u64::MAX));
            // The template is a constant. If it were invalid, the bar would only look different.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => output::message("note", &line),
        }
    }
}

impl Watch for Progress {
    fn begins(&mut self, step: &Step) {
        let left = step.left.map(|left| format!(", {} left", words(left))).unwrap_or_default();
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::try_from(step.trials).unwrap_or(u64::MAX));
                bar.set_position(u64::try_from(step.trial - 1).unwrap_or(u64::MAX));
                bar.set_message(format!("{}{left}", step.what));
            }
            None => self.say(&format!("trial {} of {}: {}{left}", step.trial, step.trials, step.what)),
        }
    }

    fn is_invalid(&mut self, step: &Step, why: &str) {
        self.say(&format!("{} is not valid: {why}", step.what));
    }
}

fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_words() {
        let of = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([of(0), of(119), of(121), of(7200)], ["0 s", "119 s", "3 min", "2 h"]);
    }
}
