//! Progress on standard error: a bar on a terminal, otherwise a line for each step.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use az::SaturatingAs;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use straightline_lab::trial::{Step, Watch};

use crate::output;

pub(super) struct Progress {
    began: Instant,
    /// The bar; `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates the progress display for this number of trials.
    pub(super) fn new(trials: usize) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(trials.saturating_as::<u64>());
            // The template is a constant. If it were invalid, the bar would only look different.
            if let Ok(style) = ProgressStyle::with_template("{clock} {bar:20} {msg}") {
                let shown = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
                    // If the text cannot be written, the bar only lacks it.
                    let _ = to.write_str(&clock(state.elapsed()));
                };
                bar.set_style(style.with_key("clock", shown));
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Progress { began: Instant::now(), bar }
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
        match &self.bar {
            Some(bar) => {
                bar.set_length(step.trials.saturating_as::<u64>());
                bar.set_position((step.trial - 1).saturating_as::<u64>());
                bar.set_message(place(step));
            }
            None => output::progress(&format_args!("{} {}", clock(self.began.elapsed()), place(step))),
        }
    }

    fn is_invalid(&mut self, step: &Step, why: &str) {
        self.say(&format!("{} is not valid: {why}", step.what));
    }
}

/// Returns the elapsed time as text.
fn clock(elapsed: Duration) -> String {
    format!("[{:>3} s]", elapsed.as_secs())
}

/// Returns the number of a step, the number of all, and the step itself.
fn place(step: &Step) -> String {
    format!("{} of {} {}", step.trial, step.trials, step.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_with_the_time_and_all_steps() {
        let step = Step { trial: 3, trials: 40, round: 1, what: "pvp 64 split".to_owned() };
        let line_after = |seconds| format!("{} {}", clock(Duration::from_secs(seconds)), place(&step));
        assert_eq!(line_after(12), "[ 12 s] 3 of 40 pvp 64 split");
        assert_eq!(line_after(1234), "[1234 s] 3 of 40 pvp 64 split");
    }
}
