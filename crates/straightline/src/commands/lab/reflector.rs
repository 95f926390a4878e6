//! `straightline lab loop`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use straightline_guest::endpoints::PortOptions;
use straightline_lab::guests::forward::Touch;
use straightline_lab::guests::reflector::{self, Load, ReflectorOptions, Sizes};

use super::{Ports, RingKind, seconds, stop_on_signals, time, usage, wrong_backends};
use crate::output;

/// Length of a frame that carries the payload of 45 segments of 1448 bytes.
const SEGMENTS: u32 = 54 + 45 * 1448;

#[derive(Debug, Args)]
pub(crate) struct Loop {
    /// Socket on which a backend listens; given twice. The switch must forward between the two
    /// ports
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// Load: `loop` sends packets received on one port through the other, `flood` sends on both
    /// without pause and drops received packets, `one-way` floods from the first port to the second
    #[arg(long, value_name = "loop|flood|one-way", default_value = "loop")]
    pub(crate) load: LoadKind,
    /// Bytes of each packet that the guest touches: `none`, `header` (reads the first bytes),
    /// `read` (reads all), `edit` (reads all and writes them back unchanged)
    #[arg(long, value_name = "none|header|read|edit", default_value = "none")]
    pub(crate) touch: Touch,
    /// Ring layout
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Frame lengths without the frame check sequence: `64`, `64,1518`, with weights `60:7,566:4`,
    /// `uniform:64-1518`, or `imix` (`60:7,566:4,1514:1`); default: 64, with --segments 65214
    #[arg(long, visible_alias = "sizes", value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// Random seed for frame lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Send TCP packets that the switch may deliver unsegmented or segment; checksum offload and
    /// segmentation are negotiated in both directions
    #[arg(long)]
    pub(crate) segments: bool,
    /// Number of bursts of 32 packets that are sent into each port at the start; default: 16, or as
    /// many as fit into a ring
    #[arg(long, value_name = "N")]
    pub(crate) bursts: Option<u16>,
    /// Pin the thread to this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Do not compare returned packets with sent ones; for switches that copy nothing
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Seconds of traffic before the measurement
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) warm_up: Duration,
    /// Measured seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = time)]
    pub(crate) secs: Duration,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Loop {
    /// Returns both backends. Ends the program with a usage error if there are not two.
    pub(crate) fn backends(&self) -> [PathBuf; 2] {
        <[PathBuf; 2]>::try_from(self.backend.clone()).unwrap_or_else(|given| wrong_backends(&given, &[2]))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadKind {
    Loop,
    Flood,
    OneWay,
}

pub(crate) fn execute(args: &Loop) -> anyhow::Result<()> {
    let options = options(args);
    usage(options.check());
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    let report = reflector::run(&ReflectorOptions { stop: Some(stop), may_end_early: true, ..options })?;
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        output::answer(&report.to_string())?;
    }
    verdict(report.lost, report.secs, args.secs)
}

/// Returns an error if a trial with a report is not as it was meant: packets are lost, or it was stopped.
fn verdict(lost: Option<u64>, measured: f64, meant: Duration) -> anyhow::Result<()> {
    // No packet may be lost in a loop. A lost packet means that the switch has a bug or does not
    // forward such frames.
    let lost = lost.unwrap_or(0);
    ensure!(lost == 0, "{lost} packets of the loop are lost");
    let meant = meant.as_secs_f64();
    ensure!(
        measured >= meant,
        "stopped: {measured:.1} s of {meant} s were measured; the values above are of this \
     time"
    );
    Ok(())
}

fn options(args: &Loop) -> ReflectorOptions {
    let sizes = args.size.clone().unwrap_or_else(|| Sizes::one(if args.segments { SEGMENTS } else { 64 }));
    ReflectorOptions {
        load: match args.load {
            LoadKind::Loop => Load::Loop,
            LoadKind::Flood => Load::Flood,
            LoadKind::OneWay => Load::OneWay,
        },
        touch: args.touch,
        ports: PortOptions { layout: args.ring.into(), segments: args.segments, ..args.ports.options() },
        buffer_len: args.ports.buffer_len,
        sizes,
        seed: args.seed,
        bursts: args.bursts,
        cpu: args.cpu,
        verify: !args.no_verify,
        warm_up: args.warm_up,
        time: args.secs,
        ..ReflectorOptions::new(args.backends())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_in_which_packets_are_lost_or_that_was_stopped_fails() {
        let error = |lost, measured| verdict(lost, measured, Duration::from_secs(2)).map_err(|why| why.to_string());
        assert_eq!([error(None, 2.0), error(Some(0), 2.1)], [Ok(()), Ok(())]);
        assert_eq!(error(Some(3), 2.0), Err("3 packets of the loop are lost".to_owned()));
        let stopped = error(Some(0), 1.96).expect_err("it was stopped");
        assert!(stopped.starts_with("stopped: 2.0 s of 2 s were measured"), "{stopped}");
    }
}
