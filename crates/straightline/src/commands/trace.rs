//! `straightline trace`: packets of ports of a running switch, with their ways.

use std::fs::File;
use std::io::{BufRead, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use straightline_api::{self as api, Request, StreamReader, TraceLine, TraceRequest, table};

use super::capture;
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
    // A signal ends the trace, or at once the process if the reader of our output does not read.
    let is_stuck = Arc::new(AtomicBool::new(false));
    let signalled = capture::signals(&is_stuck)?;
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned().context("no standard output")?);
    let filter = args.filter.as_ref().map(ToString::to_string);
    let request = Request::Trace(TraceRequest { ports: args.ports.clone(), count: args.count, filter });
    let stream = api::stream(&args.api, &request)?;
    let form = "the switch's answer has another form";
    let answer: api::Trace = serde_json::from_str(stream.answer()).context(form)?;
    let start = serde_json::from_str::<serde_json::Value>(stream.answer()).context(form)?["time"].as_f64();
    output::message("tracing", &format_args!("{}; end with Ctrl-C", answer.ports.join(", ")));
    let ender = stream.ender().context("cannot set up signal handlers")?;
    signalled.set_read_timeout(args.limit_time).context("cannot limit the time")?;
    let was_ended = capture::end_with_signal(signalled, ender);
    let mut traced = 0;
    let end = follow(args, stream, start.context(form)?, &mut traced, |text| {
        match capture::write_to_pipe(&mut output, text.as_bytes(), &is_stuck) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            done => done.map(|()| true).context("cannot write to standard output"),
        }
    });
    let packets = if args.count == 1 { "packet" } else { "packets" };
    output::message("traced", &format_args!("{traced} of {} {packets}{}", args.count, advice(args, traced)));
    match end? {
        End::Done if traced < u64::from(args.count) && !was_ended.load(Ordering::Relaxed) => {
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

/// Prints packets until the trace ends, and counts them. `print` returns false if the reader of our
/// output has gone.
fn follow(
    args: &Trace,
    mut stream: StreamReader,
    start: f64,
    traced: &mut u64,
    mut print: impl FnMut(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<End> {
    let mut line = String::new();
    loop {
        line.clear();
        match stream.read_line(&mut line) {
            Ok(0) => return Ok(End::Done),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(End::Done),
            Err(error) => return Err(error).context("cannot read from the switch"),
        }
        let parsed: TraceLine = serde_json::from_str(&line).context("the switch sent something else than a trace")?;
        let text = match parsed {
            TraceLine::Packet(packet) => {
                *traced += 1;
                if args.json { line.clone() } else { table::traced_packet(&packet, *traced, start) + "\n" }
            }
            TraceLine::Port { port, is_present } => {
                if is_present {
                    output::message("note", &format_args!("port {port} is there again"))
                } else {
                    output::message("warning", &format_args!("port {port} is gone; the trace waits for it"))
                }
                continue;
            }
            TraceLine::Other => continue,
        };
        if !print(&text)? {
            return Ok(End::ReaderGone);
        }
    }
}
