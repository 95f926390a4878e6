//! `straightline lab loop`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use straightline_lab::forward::Touch;
use straightline_lab::reflector::{self, Load, Options, Sizes};

use super::{OnOff, Ports, RingKind, seconds, stop_on_signals, time, usage, wrong_backends};
use crate::output;

/// A frame with as much payload as 45 segments of 1448 bytes have.
const SEGMENTS: u32 = 54 + 45 * 1448;

#[derive(Debug, Args)]
pub(crate) struct Loop {
    /// Where a backend listens; two of them, between which the switch hands on packets
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// What the guest does: `loop` sends what it receives by the other port, `flood` sends without pause and drops, `one-way`
    /// does that from the first port to the second
    #[arg(long, value_name = "loop|flood|one-way", default_value = "loop")]
    pub(crate) load: LoadKind,
    /// What it does with the bytes of each packet: `none`, `header` (reads the first ones), `read` (all), `edit` (reads all, and
    /// writes them as they were)
    #[arg(long, value_name = "none|header|read|edit", default_value = "none")]
    pub(crate) touch: Touch,
    /// The layout of the rings
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Frame lengths without Ethernet checksum: `64`, `64,1518`, with weights `64:7,570:4`, `uniform:64-1518`, or `imix`;
    /// default: 64, with --segments 65214
    #[arg(long, visible_alias = "sizes", value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// What mixed lengths are drawn by
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Sends TCP segments that the switch may pass or cut: checksum and segmentation are negotiated both ways
    #[arg(long)]
    pub(crate) segments: bool,
    /// Bursts of 32 packets sent into each port at first; default: 16, or as many as a ring holds
    #[arg(long, value_name = "N")]
    pub(crate) bursts: Option<u16>,
    /// Runs on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Does not compare what comes back with what was sent: for switches that copy nothing
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Seconds before it is measured
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) warm_up: Duration,
    /// Seconds that it is measured
    #[arg(long, value_name = "S", default_value = "5", value_parser = time)]
    pub(crate) secs: Duration,
    /// Prints one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Loop {
    /// Both backends. Where there are not two it is wrong usage, and ends the program.
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
    let report = reflector::run(&Options { stop: Some(stop), may_end_early: true, ..options })?;
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        output::answer(&report.to_string())?;
    }
    // Nobody is to have dropped any: the switch has a bug, or does not take such frames.
    let lost = report.lost.unwrap_or(0);
    ensure!(lost == 0, "{lost} packets that were to go in a circle are lost");
    let (measured, meant) = (report.secs, args.secs.as_secs_f64());
    ensure!(measured >= meant, "stopped: {measured:.1} s of {meant} s were measured; what stands above is theirs");
    Ok(())
}

fn options(args: &Loop) -> Options {
    let sizes = args.size.clone().unwrap_or_else(|| Sizes::one(if args.segments { SEGMENTS } else { 64 }));
    Options {
        load: match args.load {
            LoadKind::Loop => Load::Loop,
            LoadKind::Flood => Load::Flood,
            LoadKind::OneWay => Load::OneWay,
        },
        touch: args.touch,
        layout: args.ring.into(),
        mergeable: args.ports.mrg == OnOff::On,
        in_order: args.ports.in_order,
        queue_size: args.ports.queue_size,
        buffer_len: args.ports.buffer_len,
        header_offset: args.ports.header_offset,
        sizes,
        seed: args.seed,
        segments: args.segments,
        bursts: args.bursts,
        cpu: args.cpu,
        huge_pages: args.ports.hugepages,
        verify: !args.no_verify,
        warm_up: args.warm_up,
        time: args.secs,
        ..Options::new(args.backends())
    }
}
