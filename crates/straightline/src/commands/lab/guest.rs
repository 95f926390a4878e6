//! `straightline lab guest`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use straightline_guest::endpoints::{EventLoop, PortOptions};
use straightline_lab::guests::forward::{self, ForwardOptions, Mode, Spread, Touch};

use super::{Noisy, Ports, RingKind, expect_backends, stop_on_signals, time, usage};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Guest {
    /// Socket on which a backend listens; one or two
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// Forward mode; each has the name of testpmd's mode and does the same
    #[arg(long, value_name = "MODE", default_value = "io")]
    pub(crate) mode: Mode,
    /// Bytes of each received packet that the guest reads or writes in addition to the forward
    /// mode: `none`, `header`, `read` (all bytes), `edit` (all bytes; those after the Ethernet
    /// header are inverted); not for `txonly` and `flowgen`
    #[arg(long, value_name = "POLICY", default_value = "none")]
    pub(crate) touch: Touch,
    /// Ring layout
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Negotiate checksum offload and TCP segmentation in both directions
    #[arg(long)]
    pub(crate) segments: bool,
    /// Longest frame that is forwarded; if it needs several buffers, every packet costs more.
    /// Default: 1518, with --segments 65549
    #[arg(long, value_name = "N")]
    pub(crate) longest: Option<u32>,
    /// Length of the frames that the guest itself generates, without the Ethernet checksum
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) size: u16,
    /// Number of flows of `flowgen`
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) flows: u16,
    /// Difference of these flows: `destinations`, or `prefixes` (a bit of each address and of a port; the
    /// second port then sends one flow)
    #[arg(long, value_name = "KIND", default_value = "destinations")]
    pub(crate) spread: Spread,
    #[command(flatten)]
    pub(crate) noisy: Noisy,
    /// Pin the thread to this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Seconds after which the guest ends; default: it ends with Ctrl-C
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn execute(args: &Guest) -> anyhow::Result<()> {
    expect_backends(&args.backend, &[1, 2]);
    let options = options(args);
    usage(options.check());
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    let deadline = args.secs.and_then(|secs| Instant::now().checked_add(secs));
    let events = EventLoop { cpu: args.cpu, stop: Some(&stop), deadline, ..EventLoop::default() };
    let (report, ended) = forward::run(&args.backend, &options, &events)?;
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        output::answer(&report.to_string())?;
    }
    ended
}

fn options(args: &Guest) -> ForwardOptions {
    ForwardOptions {
        mode: args.mode,
        touch: args.touch,
        size: args.size,
        flows: args.flows,
        spread: args.spread,
        noise: args.noisy.noise(),
        ports: PortOptions {
            layout: args.ring.into(),
            longest: args.longest.unwrap_or(if args.segments { 65_549 } else { 1518 }),
            segments: args.segments,
            ..args.ports.options()
        },
    }
}
