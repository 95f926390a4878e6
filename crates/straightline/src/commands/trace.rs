//! `straightline trace`: packets of ports of a running switch, with their ways.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use straightline_api::{self as api, Request, StreamReader, TraceLine, TraceRequest, table};

use crate::cli::Trace;
use crate::output;

/// The way in which a trace ends.
enum End {
    /// It has all packets, or the user has ended it.
    Done,
    /// The reader of our output has gone.
    ReaderGone,
}

pub(crate) fn execute(args: &Trace) -> anyhow::Result<()> {
    // A signal ends the trace, and a second one the process, for example if standard output is stuck.
    let is_signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_signalled))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&is_signalled)))
            .context("cannot set up signal handlers")?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot set up signal handlers")?;
    let filter = args.filter.as_ref().map(ToString::to_string);
    let request = Request::Trace(TraceRequest { ports: args.ports.clone(), count: args.count, filter });
    let stream = api::stream(&args.api, &request)?;
    let form = "the switch's answer has another form";
    let answer: api::Trace = serde_json::from_str(stream.answer()).context(form)?;
    let start = serde_json::from_str::<serde_json::Value>(stream.answer()).context(form)?["time"].as_f64();
    output::message("tracing", &format_args!("{}; end with Ctrl-C", answer.ports.join(", ")));
    let ender = stream.ender().context("cannot set up signal handlers")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // After an error the stream has ended already.
            let _ = ender.end();
        }
    });
    let mut traced = 0;
    let end = follow(args, stream, start.context(form)?, &mut traced);
    let packets = if traced == 1 { "packet" } else { "packets" };
    output::message("traced", &format_args!("{traced} of {} {packets}{}", args.count, advice(args, traced)));
    let was_ended = is_signalled.load(std::sync::atomic::Ordering::Relaxed);
    match end? {
        End::Done if traced < u64::from(args.count) && !was_ended => {
            bail!("the switch has ended, or has closed the connection")
        }
        End::Done | End::ReaderGone => Ok(()),
    }
}

/// Returns what to look at if no packet came.
fn advice(args: &Trace, traced: u64) -> String {
    match (traced, &args.filter) {
        (0, Some(_)) => "; no packet that the filter selects came from these ports".to_owned(),
        (0, None) => format!("; none came from {}: see `straightline ports`", args.ports.join(", ")),
        _ => String::new(),
    }
}

/// Prints packets until the trace ends, and counts them.
fn follow(args: &Trace, mut stream: StreamReader, start: f64, traced: &mut u64) -> anyhow::Result<End> {
    let mut line = String::new();
    loop {
        line.clear();
        match stream.read_line(&mut line) {
            Ok(0) => return Ok(End::Done),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(End::Done),
            Err(error) => return Err(error).context("cannot read from the switch"),
        }
        let parsed: TraceLine = serde_json::from_str(&line).context("the switch sent something else than a trace")?;
        let text = match parsed {
            TraceLine::Packet(packet) => {
                *traced += 1;
                match args.json {
                    true => line.clone(),
                    false => table::traced_packet(&packet, *traced, start) + "\n",
                }
            }
            TraceLine::Port { port, is_present } => {
                match is_present {
                    true => output::message("note", &format_args!("port {port} is there again")),
                    false => output::message("warning", &format_args!("port {port} is gone; the trace waits for it")),
                }
                continue;
            }
            TraceLine::Other => continue,
        };
        if !output::part(&text)? {
            return Ok(End::ReaderGone);
        }
    }
}
