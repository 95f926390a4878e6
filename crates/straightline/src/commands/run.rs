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
use straightline_config::{Config, Kinds, Loaded};
use straightline_graph::Clock;
use straightline_switch::api::{ApiHandle, ApiServer, Control};
use straightline_switch::{
    Keeper, LogWriter, StartOptions, Switch, descriptor_shortage, opener, raise_descriptor_limit, sandbox, socket_maker,
};
use tracing_subscriber::EnvFilter;

use crate::log_format::{self, JournalFormat};
use crate::output::{self, Reported};
use crate::service_manager::ServiceManager;

/// Maximum time at the end of the process to write the rest of the log. If no process reads
/// standard error, the rest is lost.
const LOG_TIME: Duration = Duration::from_secs(1);

/// Runs the switch until SIGTERM or SIGINT.
pub(crate) fn execute(path: &Path, kinds: &Kinds) -> anyhow::Result<()> {
    let clock = Clock::real();
    let log = start_logs(clock.clone())?;
    let done = run(path, kinds, &log, &clock);
    let done = done.map_err(|error| {
        // This error goes through the log, because standard error may have no reader any more.
        // Before the log thread runs, writing to the log blocks.
        if let Some(line) = output::error_line(&error) {
            let _ = (&*log).write_all(line.as_bytes());
        }
        Reported.into()
    });
    log.flush(LOG_TIME);
    done
}

fn run(path: &Path, kinds: &Kinds, log: &Arc<LogWriter>, clock: &Clock) -> anyhow::Result<()> {
    // Handlers are set up before anything starts, so that an early signal ends the process cleanly
    // too.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot set up signal handlers")?;
    let Loaded { config, text, .. } = super::check::load_to_run(path, kinds)?;
    let manager = Arc::new(ServiceManager::connect().context("cannot reach the socket that NOTIFY_SOCKET names")?);
    if let Err(error) = raise_descriptor_limit() {
        tracing::warn!("cannot raise the soft limit on open descriptors to the hard limit: {error}");
    }
    if let Some(shortage) = descriptor_shortage(&config) {
        tracing::warn!("{shortage}");
    }
    // The sandbox takes the privileges away to open interfaces, and to give sockets to other users.
    // Other processes keep them.
    let devices = opener::start(&config, super::open_devices::command(), clock)?;
    socket_maker::start(&config, super::make_sockets::command(), clock)?;
    // The sandbox is entered before the first thread starts, because each thread inherits it.
    sandbox::enter(&config, path)?;
    log.start().context("cannot start the log thread")?;
    log_panics(Arc::clone(log));
    let switch = Arc::new(Switch::start_by(&config, StartOptions { devices, clock: clock.clone() })?);
    // If a worker fails, the process ends, so that its supervisor can start it again.
    let signals_end = signals.handle();
    switch.on_failure(move || signals_end.close());
    let keeper = Arc::new(Keeper::new(Arc::clone(&switch), path, text).with_kinds(kinds.clone()));
    let api = serve_api(&config, &switch, &keeper)?;
    output::answer("ready\n")?;
    manager.ready(&switch.source().status());
    let follower =
        manager.follow(switch.source(), clock.clone()).context("cannot start the thread for the service manager")?;
    tracing::info!(ports = config.ports.len(), "running");
    for signal in signals.forever() {
        if signal == SIGHUP {
            manager.reloading();
            // `reload` writes its result to the log.
            let _ = keeper.reload();
            manager.ready(&switch.source().status());
            continue;
        }
        tracing::info!("stopping on {}", if signal == SIGTERM { "SIGTERM" } else { "SIGINT" });
        break;
    }
    drop(follower);
    manager.stopping();
    let has_failed = switch.has_failed();
    // First the API ends, so that no request can arrive. Then dropping the last handle stops the
    // switch.
    drop((api, keeper, switch));
    ensure!(
        !has_failed,
        "a worker thread has panicked, which is a bug in the switch; the panic message is in the log above"
    );
    Ok(())
}

/// Serves the API's sockets. Each has a thread and places of its own, so clients of one cannot keep
/// clients of the other waiting.
fn serve_api(config: &Config, switch: &Switch, keeper: &Arc<Keeper>) -> anyhow::Result<Vec<ApiHandle>> {
    let mut handles = Vec::new();
    let no_thread = "cannot start the API thread";
    if let Some(path) = &config.switch.api {
        let server = ApiServer::bind_for(path, &config.switch.api_permissions())?;
        let control = Arc::clone(keeper) as Arc<dyn Control>;
        handles.push(server.serve_control(switch.source(), control).context(no_thread)?);
    }
    if let Some(path) = &config.switch.api_read_only {
        let server = ApiServer::bind_for(path, &config.switch.api_read_only_permissions())?;
        handles.push(server.serve(switch.source()).context(no_thread)?);
    }
    Ok(handles)
}

/// Starts the log on standard error. RUST_LOG sets the filter; by default the log has warnings, and
/// information from the project's own crates. Colours follow the same rules as in help texts: a
/// terminal, `NO_COLOR`, `CLICOLOR_FORCE`.
fn start_logs(clock: Clock) -> anyhow::Result<Arc<LogWriter>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,straightline=info"));
    let stderr = io::stderr();
    let has_colours = anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never;
    let fd = stderr.as_fd().try_clone_to_owned().context("cannot use standard error")?;
    let log = Arc::new(LogWriter::new(fd, clock));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(Arc::clone(&log));
    if log_format::is_journal(&stderr) {
        lines.with_ansi(false).event_format(JournalFormat::new()).init();
    } else {
        lines.init();
    }
    Ok(log)
}

/// Makes panics go to the log. The standard library would write them to standard error, and block
/// if the reader is slow.
fn log_panics(log: Arc<LogWriter>) {
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!("thread {name:?} {info}\n{backtrace}"),
            _ => tracing::error!("thread {name:?} {info}"),
        }
        // The process may end at once with the main thread, so this thread writes the panic message
        // now. No packet waits for this thread.
        if name == "main" {
            log.flush(LOG_TIME);
        }
    }));
}
