//! `straightline lab generate`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use straightline_lab::Sizes;
use straightline_lab::endpoints::{PortOptions, VhostPort};
use straightline_lab::generator::{Echo, Generator, Rate, StreamSpec, Sum};
use straightline_lab::results::Sample;
use straightline_lab::trial::{self, Interrupt, Plan};

use super::{Ports, RingKind, expect_backends, seconds, stop_on_signals, time, usage};
use crate::output::{self, Reported};

/// Stands behind the arguments in the long help.
const STREAMS: &str = "\
Streams:
  A list of KEY=VALUE with commas; what is not named is as in this table.

  size=64               frame lengths with all headers, without Ethernet checksum: 64, 64+1518, with weights
                        64:7+570:4, uniform:64-1518, or imix
  protocol=udp          udp or tcp
  checksum=complete     complete; partial: the switch finishes it; zero: none, for UDP over IPv4
  segment=              payload bytes of the segments into which the switch may cut a larger packet, such as
                        1448; needs protocol=tcp,checksum=partial
  weight=1              how often it comes beside the port's other streams, up to 1000
  seed=1                what is drawn by
  src-mac=02:00:00:00:00:01, dst-mac=02:00:00:00:00:02
  svlan=, vlan=         0 to 4095; no tag where there is none
  src-ip=198.18.0.1, dst-ip=198.18.0.2
                        IPv4 or IPv6, both the same
  src-port=1000, dst-port=2000
  vni=                  0 to 16777215: the packet is in VXLAN, whose own fields are these
  outer-src-mac=02:00:00:00:01:01, outer-dst-mac=02:00:00:00:01:02
  outer-src-ip=198.19.0.1, outer-dst-ip=198.19.0.2, outer-src-port=49152

  From src-mac on a field may also change from packet to packet:

  step:FROM-TO          one after the other, and again; step:FROM-TO+BY in larger steps
  repeat:A+B+C          these, and again
  random:FROM-TO        any of them
                        a range of IP addresses may be a prefix, such as 10.0.0.0/24

Examples:
  --stream size=imix,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24
  --stream size=1400,weight=3,vni=step:1-100,outer-src-port=random:49152-65535 --stream protocol=tcp
";

#[derive(Debug, Args)]
#[command(after_long_help = STREAMS)]
pub(crate) struct Generate {
    /// Where a backend listens; one, or two of them: the second one sends the same streams the other way round
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    /// A stream, such as `size=imix,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24`; several are mixed. Default: UDP
    /// in frames of 64 bytes. All keys are in the long help (--help)
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
    let back = if args.one_way { Vec::new() } else { streams.iter().map(StreamSpec::reversed).collect() };
    let sides = || [streams.clone(), back.clone()].into_iter().take(args.backend.len());
    // Into memory: whoever answers at a backend is not to be bothered with what cannot be made.
    usage(Generator::new(sides().map(|streams| (Echo::default(), streams)).collect(), args.check_every).map(drop));
    let interrupted = Arc::new(AtomicBool::new(false));
    stop_on_signals(&interrupted)?;
    let ports = VhostPort::connect_all(&args.backend, &options)?;
    let limit_mpps = trial::limit(streams.clone(), args.check_every, args.cpu)?;
    let mut generator = Generator::new(ports.into_iter().zip(sides()).collect(), args.check_every)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands there for each key where it is not named is what the parser takes for it; keys are those that it knows.
    #[test]
    fn the_help_has_each_key_and_examples_that_are_right() {
        let unknown = "colour=red".parse::<StreamSpec>().expect_err("no key").to_string();
        let keys: Vec<_> = unknown.split_once("there are ").expect("a list").1.split(", ").collect();
        assert!(keys.len() == 20 && keys.contains(&"outer-src-port"), "{unknown}");
        for key in keys {
            let names = |word: &str| word.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
            let word = STREAMS.split_whitespace().find(|word| names(word)).expect(key).trim_end_matches(',');
            if word.ends_with('=') {
                continue;
            }
            let with_vni = if key.starts_with("outer") { ",vni=1" } else { "" };
            format!("{word}{with_vni}").parse::<StreamSpec>().expect(word);
        }
        let examples = STREAMS.split_once("Examples:").expect("some").1.split("--stream").skip(1);
        let streams: Vec<StreamSpec> = examples.map(|text| text.trim().parse().expect(text)).collect();
        assert_eq!(streams.len(), 3);
    }
}
