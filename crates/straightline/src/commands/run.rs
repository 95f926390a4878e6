//! `straightline run CONFIG`

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use straightline_switch::api::{ApiHandle, ApiServer, Control};
use straightline_switch::config::{Config, Kinds};
use straightline_switch::{Keeper, LogWriter, Switch, raise_descriptor_limit, sandbox};
use tracing_subscriber::EnvFilter;

use crate::output::{self, Reported};

/// How long the end waits for the log. If nobody reads standard error, the rest of it is lost.
const LOG_TIME: Duration = Duration::from_secs(1);

/// Runs the switch until SIGTERM or SIGINT.
pub(crate) fn execute(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let log = start_logs()?;
    let done = run(path, kinds, &log);
    let done = done.map_err(|error| {
        // By the log, for nobody may read standard error any more. Before the log has its thread, this waits.
        if let Some(line) = output::error_line(&error) {
            let _ = (&*log).write_all(line.as_bytes());
        }
        Reported.into()
    });
    log.flush(LOG_TIME);
    done
}

fn run(path: &Path, kinds: &Kinds, log: &Arc<LogWriter>) -> anyhow::Result<()> {
    // Before anything starts, so that a signal that comes early ends us cleanly as well.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    let config = super::check::load(path, kinds)?;
    if let Err(error) = raise_descriptor_limit() {
        tracing::warn!("cannot raise the soft limit of open descriptors: {error}");
    }
    // Before the first thread: each inherits it.
    sandbox::enter(&config, path)?;
    log.start().context("cannot start the log")?;
    log_panics(Arc::clone(log));
    let switch = Arc::new(Switch::start(&config)?);
    // Without one of its workers it is no switch: whoever started us can do it again.
    let signals_end = signals.handle();
    switch.on_failure(move || signals_end.close());
    let keeper = Arc::new(Keeper::new(Arc::clone(&switch), path).with_kinds(kinds.clone()));
    let api = serve_api(&config, &switch, &keeper)?;
    output::answer("ready\n")?;
    tracing::info!(ports = config.ports.len(), "running");
    for signal in signals.forever() {
        if signal == SIGHUP {
            // What came of it is in the log.
            let _ = keeper.reload();
            continue;
        }
        tracing::info!("stopping on {}", if signal == SIGTERM { "SIGTERM" } else { "SIGINT" });
        break;
    }
    let has_failed = switch.has_failed();
    // Nobody is left to ask for anything, then the last handle stops the switch.
    drop((api, keeper, switch));
    ensure!(!has_failed, "a worker has ended by a bug of the switch; what it was stands above");
    Ok(())
}

fn serve_api(config: &Config, switch: &Switch, keeper: &Arc<Keeper>) -> anyhow::Result<Option<ApiHandle>> {
    let Some(path) = &config.switch.api else {
        return Ok(None);
    };
    let server = ApiServer::bind(path)?;
    let control = Arc::clone(keeper) as Arc<dyn Control>;
    server.serve_control(switch.source(), control).context("cannot start the API").map(Some)
}

/// Logs to standard error what RUST_LOG asks for, or else warnings, and what our own crates tell. Colours follow the same
/// rules as those of help texts: a terminal, `NO_COLOR`, `CLICOLOR_FORCE`.
fn start_logs() -> anyhow::Result<Arc<LogWriter>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,straightline=info"));
    let stderr = io::stderr();
    let has_colours = anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never;
    let fd = stderr.as_fd().try_clone_to_owned().context("cannot use standard error")?;
    let log = Arc::new(LogWriter::new(fd));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(Arc::clone(&log)).init();
    Ok(log)
}

/// Panics go to the log too. The standard library would write them to standard error and wait for its reader.
fn log_panics(log: Arc<LogWriter>) {
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!("thread {name:?} {info}\n{backtrace}"),
            _ => tracing::error!("thread {name:?} {info}"),
        }
        // The process ends with the main thread, perhaps at once. No packet waits for it.
        if name == "main" {
            log.flush(LOG_TIME);
        }
    }));
}
