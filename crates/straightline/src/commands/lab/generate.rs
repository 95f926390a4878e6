//! `straightline lab generate`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use straightline_lab::Sizes;
use straightline_lab::generator::{Generator, Rate, StreamSpec, Sum};
use straightline_lab::results::Sample;
use straightline_lab::tester::{PortOptions, VhostPort};
use straightline_lab::trial::{self, Interrupt, Plan};

use super::{Ports, RingKind, expect_backends, seconds, stop_on_signals, time, usage};
use crate::output::{self, Reported};

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Where a backend listens; one, or two of them: the second one sends the same streams the other way round
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// A stream, such as `size=imix,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24`; several are mixed.
    /// Default: UDP in frames of 64 bytes
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Vec<StreamSpec>,
    /// Only the first backend's port sends
    #[arg(long)]
    pub(crate) one_way: bool,
    /// By all ports together: `max`, or such as `500kpps`, `1.5mpps`, `10gbit`
    #[arg(long, value_name = "RATE", default_value = "max")]
    pub(crate) rate: Rate,
    /// Packets that each port sends together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: u32,
    /// Of so many packets one is checked for a wrong copy; 0: none is
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) check_every: u32,
    /// The layout of the rings
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Runs on this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
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

pub(crate) fn execute(args: &Generate) -> anyhow::Result<()> {
    expect_backends(&args.backend, &[1, 2]);
    let streams = match args.stream.as_slice() {
        [] => vec![StreamSpec::new(Sizes::one(64))],
        given => given.to_vec(),
    };
    let options = options(args, &streams);
    usage(options.check());
    let interrupted = Arc::new(AtomicBool::new(false));
    stop_on_signals(&interrupted)?;
    let ports = VhostPort::connect_all(&args.backend, &options)?;
    let limit_mpps = trial::limit(streams.clone(), args.check_every, args.cpu)?;
    let back = if args.one_way { Vec::new() } else { streams.iter().map(StreamSpec::reversed).collect() };
    let sides = ports.into_iter().zip([streams, back]).collect();
    let mut generator = Generator::new(sides, args.check_every)?;
    let plan = Plan { burst: args.burst, warm_up: args.warm_up, cpu: args.cpu, limit_mpps: Some(limit_mpps) };
    let outcome = trial::run(&mut generator, &mut [&mut Interrupt(&interrupted)], &plan, args.rate, args.secs);
    if args.json {
        let sample = Sample { scenario: "generate".to_owned(), round: 1, ..outcome.sample() };
        output::answer(&format!("{}\n", serde_json::to_string(&sample)?))?;
    } else {
        output::answer(&outcome.to_string())?;
    }
    match outcome.invalid {
        Some(why) if args.json => Err(anyhow::anyhow!("not a valid trial: {why}")),
        // It stands behind the figures.
        Some(_) => Err(Reported.into()),
        None => Ok(()),
    }
}

fn options(args: &Generate, streams: &[StreamSpec]) -> PortOptions {
    PortOptions {
        layout: args.ring.into(),
        longest: streams.iter().map(|stream| stream.sizes.longest()).max().unwrap_or(1518),
        segments: streams.iter().any(|stream| stream.checksum == Sum::Partial),
        ..args.ports.options()
    }
}
