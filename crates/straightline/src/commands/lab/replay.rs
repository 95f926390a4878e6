//! `straightline lab replay`

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use straightline_capture::pcapng;
use straightline_guest::endpoints::{PortOptions, VhostPort};
use straightline_lab::traffic::capture::Capture;
use straightline_lab::traffic::generator::{self, Rate, ReplayTiming, Replayed};

use super::{Ports, RingKind, seconds, stop_on_signals};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Capture file, pcap or pcapng
    pub(crate) file: PathBuf,
    /// Socket on which a backend listens; may be repeated. The first backend's port sends; all
    /// ports receive
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// Speed, as a multiple of the captured speed
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Rate, used instead of the captured times: `max`, or a rate such as `500kpps`, `10gbit`
    #[arg(long, value_name = "RATE", conflicts_with = "speed")]
    pub(crate) rate: Option<Rate>,
    /// Number of times that the capture is sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) times: u16,
    /// Write the received frames to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Ring layout
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Pin the thread to this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Seconds without a returned frame after which the command stops waiting for missing frames
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) quiet: Duration,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn execute(args: &Replay) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    let capture = Capture::open(&args.file)?;
    if capture.shortened > 0 {
        let text =
            format!("{} frames were truncated when they were captured, and are sent truncated", capture.shortened);
        output::message("warning", &text);
    }
    let ports = VhostPort::connect_all(&args.backend, &options(args, &capture)?)?;
    let timing = args.rate.map_or(ReplayTiming::Captured(args.speed), ReplayTiming::Rate);
    let keep = args.write.is_some();
    let replay = generator::Replay::new(ports, &capture, timing, args.times.into(), args.quiet, keep)?;
    // The file is created before anything is sent, as this may fail. All other checks come before,
    // so that a refused command does not overwrite an existing file.
    let file =
        args.write.as_ref().map(|path| File::create(path).with_context(|| path.display().to_string())).transpose()?;
    let (report, kept, ended) = replay.run(args.cpu, &stop);
    if let Some(file) = file {
        // The timestamps of received frames continue the capture's clock.
        let start = capture.frames.first().map_or(0, |frame| frame.at);
        let mut writer = pcapng::Writer::of_frames(BufWriter::new(file))?;
        for frame in &kept {
            writer.frame(start.saturating_add(frame.at), &frame.bytes)?;
        }
        writer.get_mut().flush()?;
    }
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        output::answer(&text(&report))?;
    }
    ended?;
    verdict(&report)
}

/// Returns an error unless each frame returned once and unchanged.
fn verdict(report: &Replayed) -> anyhow::Result<()> {
    report.fault().map_or(Ok(()), |why| Err(anyhow!("not every frame returned once and unchanged: {why}")))
}

fn options(args: &Replay, capture: &Capture) -> anyhow::Result<PortOptions> {
    let longest = capture.frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or(0);
    Ok(PortOptions { layout: args.ring.into(), longest: u32::try_from(longest)?, ..args.ports.options() })
}

fn text(report: &Replayed) -> String {
    let Replayed { sent, identical, duplicates, different, secs, late_secs } = report;
    let late = if *late_secs > 0.0 { format!(", {late_secs:.6} s late") } else { String::new() };
    format!(
        "{sent} frames sent in {secs:.6} s{late}\n{identical} returned unchanged, {} did not return; {duplicates} \
         returned more often than sent, {different} were never sent\n",
        report.lost()
    )
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| *speed > 0.0 && speed.is_finite());
    speed.ok_or_else(|| "use a number greater than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_of_which_something_is_lost_fails() {
        let whole = Replayed { sent: 2, identical: 2, ..Replayed::default() };
        verdict(&whole).expect("each returned");
        let lost = Replayed { identical: 1, ..whole };
        let why = verdict(&lost).expect_err("one is lost").to_string();
        assert!(why.contains("2 frames were sent: 1 did not return unchanged"), "{why}");
        assert!(text(&lost).contains("1 returned unchanged, 1 did not return"), "{}", text(&lost));
    }
}
