//! `straightline ping`: echo requests from an underlay of a running switch.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use az::SaturatingAs;
use straightline_api::{self as api, PingLine, PingRequest, Request, StreamReader};

use super::capture;
use crate::cli::Ping;
use crate::output::{self, Reported};

pub(crate) fn execute(args: &Ping) -> anyhow::Result<()> {
    // A signal ends the ping, or at once the process if the reader of our output does not read.
    let is_stuck = Arc::new(AtomicBool::new(false));
    let signalled = capture::signals(&is_stuck)?;
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned().context("no standard output")?);
    let &Ping { ref underlay, address, count, interval: interval_ms, timeout: timeout_ms, .. } = args;
    let request = PingRequest { underlay: underlay.clone(), address, count, interval_ms, timeout_ms };
    let stream = api::stream(&args.api, &Request::Ping(request))?;
    let answer = serde_json::from_str(stream.answer()).context("the switch's answer has another form")?;
    let api::Ping { source, next_hop, .. } = &answer;
    let by = if *next_hop == answer.address { String::new() } else { format!(" by next hop {next_hop}") };
    output::message("pinging", &format_args!("{address} from {source} of {underlay}{by}; end with Ctrl-C"));
    let ender = stream.ender().context("cannot set up signal handlers")?;
    let was_ended = capture::end_with_signal(signalled, ender);
    let mut summary = Summary::default();
    let mut print = |text: &str| match capture::write_to_pipe(&mut output, text.as_bytes(), &is_stuck) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true).context("cannot write to standard output"),
    };
    if !follow(args, stream, &mut summary, &mut print)? {
        return Ok(());
    }
    if args.json {
        output::message("pinged", &summary);
    } else {
        print(&format!("{summary}\n"))?;
    }
    if summary.requests < count && !was_ended.load(Ordering::Relaxed) {
        bail!("the switch has ended, or has closed the connection");
    }
    if summary.times.is_empty() { Err(Reported.into()) } else { Ok(()) }
}

/// Prints the end of each request until the ping ends. Returns false if the reader of our output has
/// gone.
fn follow(
    args: &Ping,
    mut stream: StreamReader,
    summary: &mut Summary,
    print: &mut impl FnMut(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let mut line = String::new();
    let address = args.address;
    loop {
        line.clear();
        match stream.read_line(&mut line) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(true),
            Err(error) => return Err(error).context("cannot read from the switch"),
        }
        let parsed: PingLine = serde_json::from_str(&line).context("the switch sent something else than a ping")?;
        summary.add(&parsed);
        let text = match parsed {
            PingLine::Failed { error } => bail!(error),
            PingLine::Other => continue,
            _ if args.json => line.clone(),
            PingLine::Reply { seq, time_ms } => format!("reply from {address}: seq={seq} time={time_ms:.3} ms\n"),
            PingLine::NoReply { seq } => format!("no reply from {address}: seq={seq}\n"),
            PingLine::NextHopUnknown { seq, next_hop } => {
                let question = if address.is_ipv4() { "ARP" } else { "neighbour discovery" };
                format!("next hop {next_hop} does not answer {question}: seq={seq}\n")
            }
        };
        if !print(&text)? {
            return Ok(false);
        }
    }
}

/// The outcome of the requests so far.
#[derive(Debug, Default)]
struct Summary {
    requests: u32,
    /// Requests that were not sent, because the MAC address of the next hop is not known.
    unsent: u32,
    /// The time of each reply in milliseconds.
    times: Vec<f64>,
}

impl Summary {
    fn add(&mut self, line: &PingLine) {
        match line {
            PingLine::Reply { time_ms, .. } => self.times.push(*time_ms),
            PingLine::NextHopUnknown { .. } => self.unsent += 1,
            PingLine::NoReply { .. } => {}
            PingLine::Failed { .. } | PingLine::Other => return,
        }
        self.requests += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replies = self.times.len().saturating_as::<u32>();
        write!(f, "{} sent, {replies} received", self.requests - self.unsent)?;
        let lost = self.requests.saturating_sub(replies);
        if self.requests > 0 {
            write!(f, ", {:.0} % lost", 100.0 * f64::from(lost) / f64::from(self.requests))?;
        }
        if replies > 0 {
            let (least, most) = self.times.iter().fold((f64::MAX, 0.0_f64), |(a, b), &t| (a.min(t), b.max(t)));
            let average = self.times.iter().sum::<f64>() / f64::from(replies);
            write!(f, ", min/avg/max {least:.3}/{average:.3}/{most:.3} ms")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_requests_and_times() {
        let mut summary = Summary::default();
        assert_eq!(summary.to_string(), "0 sent, 0 received");
        summary.add(&PingLine::NextHopUnknown { seq: 1, next_hop: "192.0.2.1".to_owned() });
        assert_eq!(summary.to_string(), "0 sent, 0 received, 100 % lost");
        summary.add(&PingLine::NoReply { seq: 2 });
        summary.add(&PingLine::Reply { seq: 3, time_ms: 0.5 });
        summary.add(&PingLine::Reply { seq: 4, time_ms: 0.25 });
        assert_eq!(summary.to_string(), "3 sent, 2 received, 50 % lost, min/avg/max 0.250/0.375/0.500 ms");
    }
}
