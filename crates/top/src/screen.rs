//! The terminal: it is prepared, drawn on, and given back in every case.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;
use straightline_api::ask;
use straightline_api::rates::Sample;

use crate::app::{App, Effect};
use crate::view::{Theme, draw};
use crate::{TopError, TopOptions, past};

/// The time after which signals and samples are looked for. Keys wake at once.
const TICK: Duration = Duration::from_millis(50);

/// Shows the screen until the user, a signal or the number of intervals ends it.
pub(crate) fn run(options: &TopOptions) -> Result<(), TopError> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(TopError::NoTerminal);
    }
    let [end, suspend] = [&[SIGTERM, SIGINT, SIGHUP][..], &[SIGTSTP]].map(|signals| {
        let flag = Arc::new(AtomicBool::new(false));
        signals.iter().try_for_each(|signal| signal_hook::flag::register(*signal, Arc::clone(&flag)).map(drop))?;
        Ok::<_, io::Error>(flag)
    });
    let end = end?;
    let suspend = suspend?;
    // A terminal that is already gone cannot be given back.
    let guard = Guard;
    // This also gives the terminal back before a panic's message.
    let terminal = ratatui::try_init()?;
    let shown = show(terminal, options, &end, &suspend);
    drop(guard);
    Ok(shown?)
}

/// Gives the terminal back when it is dropped.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // If this fails, the terminal is gone.
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

fn show(mut terminal: DefaultTerminal, options: &TopOptions, end: &AtomicBool, suspend: &AtomicBool) -> io::Result<()> {
    let theme = Theme::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    let mut app = App::new(options);
    let (kept, samples) = sampler(options)?;
    end_with_terminal()?;
    let mut changed = true;
    while !end.load(Ordering::Relaxed) && options.count.is_none_or(|count| app.shown < count) {
        for sample in samples.try_iter() {
            // It comes before the first sample.
            kept.try_iter().for_each(|kept| app.begin(kept));
            app.take(sample);
            changed = true;
        }
        if changed {
            terminal.draw(|frame| draw(frame, &app, theme))?;
            changed = false;
        }
        let mut effect = Effect::None;
        match event::poll(TICK) {
            Ok(false) => {}
            Ok(true) => {
                changed = true;
                if let Event::Key(key) = event::read()?
                    && key.kind != KeyEventKind::Release
                {
                    effect = app.key(key);
                }
            }
            // A signal came.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if effect == Effect::Quit {
            break;
        }
        if effect == Effect::Suspend || suspend.swap(false, Ordering::Relaxed) {
            give_back();
            io::stdout().flush()?;
            emulate_default_handler(SIGTSTP)?;
            // The shell has continued the program.
            terminal = ratatui::try_init()?;
            terminal.clear()?;
            changed = true;
        }
    }
    Ok(())
}

/// Starts the thread that ends the process when the terminal is gone. Crossterm reads the end of a
/// terminal again and again, and never returns.
fn end_with_terminal() -> io::Result<()> {
    let watch = || {
        loop {
            let stdin = io::stdin();
            // The end of a terminal is reported without being asked for.
            let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                // Nobody is left to read a message.
                _ => std::process::exit(1),
            }
        }
    };
    thread::Builder::new().name("top-terminal".to_owned()).spawn(watch).map(drop)
}

/// The recent loads of each port that the switch has kept.
type Kept = Vec<(String, Vec<f64>)>;

/// A sample, or the reason why there is none.
type Sampled = Result<Sample, String>;

/// Starts the thread that asks the switch, so that keys work while a switch does not answer.
fn sampler(options: &TopOptions) -> io::Result<(Receiver<Kept>, Receiver<Sampled>)> {
    // The channel is short: a stopped program needs no samples.
    let (sender, receiver) = mpsc::sync_channel(1);
    let (keep, kept) = mpsc::sync_channel(1);
    let api = options.api.clone();
    let interval = options.interval;
    let sample = move || {
        // An older switch has kept nothing.
        if let Ok(history) = ask(&api) {
            let _ = keep.send(past::loads(&history, interval));
        }
        while sender.send(Sample::ask(&api).map_err(|error| error.to_string())).is_ok() {
            thread::sleep(interval);
        }
    };
    thread::Builder::new().name("top-sampler".to_owned()).spawn(sample)?;
    Ok((kept, receiver))
}
