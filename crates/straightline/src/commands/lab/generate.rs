//! `straightline lab generate`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use clap::error::ErrorKind;
use straightline_guest::endpoints::{AnyPort, Interface, PortOptions};
use straightline_lab::traffic::Sizes;
use straightline_lab::traffic::generator::{Echo, Generator, Rate, StreamSpec};
use straightline_lab::trial::{self, Plan};
use straightline_report::results::Sample;

use super::{Ports, RingKind, seconds, stop_on_signals, time, usage, wrong_usage};
use crate::output::{self, Reported};

/// Printed after the arguments in the long help.
const STREAMS: &str = "\
Streams:
  A list of KEY=VALUE, separated by commas. Keys that are left out have the values of this table.

  size=64               frame lengths with all headers, without the frame check sequence: 64, 64+1518, with
                        weights 60:7+566:4, uniform:60-1514, or imix: 60:7+566:4+1514:1
  protocol=udp          udp or tcp
  checksum=complete     complete; partial: the switch completes it; zero: none, for UDP over IPv4
  segment=              payload bytes of the segments into which the switch may segment a larger packet, such as
                        1448; needs protocol=tcp,checksum=partial
  weight=1              share of this stream among the port's streams, up to 1000
  seed=1                random seed for lengths and fields
  src-mac=02:00:00:00:00:01, dst-mac=02:00:00:00:00:02
  svlan=, vlan=         0 to 4095; no tag if left out
  src-ip=198.18.0.1, dst-ip=198.18.0.2
                        IPv4 or IPv6, the same version in both
  src-port=1000, dst-port=2000
  vni=                  0 to 16777215: encapsulates the packet in VXLAN, with these outer fields
  outer-src-mac=02:00:00:00:01:01, outer-dst-mac=02:00:00:00:01:02
  outer-src-ip=198.19.0.1, outer-dst-ip=198.19.0.2, outer-src-port=49152

  The fields from src-mac on may change from packet to packet:

  step:FROM-TO          each value in order, then from the start; step:FROM-TO+BY uses larger steps
  repeat:A+B+C          these values in order, then from the start
  random:FROM-TO        a random value of the range
                        a range of IP addresses may be a prefix, such as 10.0.0.0/24

Examples:
  --stream size=64+1518,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24
  --stream size=1400,weight=3,vni=step:1-100,outer-src-port=random:49152-65535 --stream protocol=tcp
";

#[derive(Debug, Args)]
#[command(after_long_help = STREAMS)]
pub(crate) struct Generate {
    /// Socket on which a backend listens. One or two ports are used: those of the backends, then
    /// those of the interfaces. The second port sends the same streams in the other direction
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// Interface to send and receive on, such as `af-xdp:eth1`; the kinds are `tap`, `af-packet`,
    /// `af-xdp`
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) interface: Vec<Interface>,
    /// Stream, such as `size=imix,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24`;
    /// several streams are interleaved. Default: UDP in frames of 64 bytes. The long help (--help)
    /// lists all keys
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Vec<StreamSpec>,
    /// Send from the first port only
    #[arg(long)]
    pub(crate) one_way: bool,
    /// Rate of all ports together: `max`, or a rate such as `500kpps`, `1.5mpps`, `10gbit`
    #[arg(long, value_name = "RATE", default_value = "max")]
    pub(crate) rate: Rate,
    /// Number of packets that each port sends together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: u32,
    /// Compare one of every N received packets with the sent packet, byte by byte; 0: none
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) check_every: u32,
    /// Ring layout
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: RingKind,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Pin the thread to this CPU
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
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

pub(crate) fn execute(args: &Generate) -> anyhow::Result<()> {
    let count = args.backend.len() + args.interface.len();
    if ![1, 2].contains(&count) {
        let why = format!("--backend and --interface together must be given 1 or 2 times, not {count}");
        wrong_usage(ErrorKind::WrongNumberOfValues, &why);
    }
    let streams = match args.stream.as_slice() {
        [] => vec![StreamSpec::new(Sizes::one(64))],
        given => given.to_vec(),
    };
    let options = options(args, &streams);
    usage(options.check());
    let back = if args.one_way { Vec::new() } else { streams.iter().map(StreamSpec::reversed).collect() };
    let sides = || [streams.clone(), back.clone()].into_iter().take(count);
    // The check builds the streams on ports in memory. So streams that cannot be built are refused
    // before a backend is contacted.
    usage(Generator::new(sides().map(|streams| (Echo::default(), streams)).collect(), args.check_every).map(drop));
    let interrupted = Arc::new(AtomicBool::new(false));
    stop_on_signals(&interrupted)?;
    let mtu = streams.iter().filter_map(StreamSpec::mtu).max().unwrap_or(0);
    let wires = AnyPort::open_all(&args.interface, options.longest, mtu)?;
    let mut ports = AnyPort::connect_all(&args.backend, &options)?;
    ports.extend(wires);
    ports.iter().filter_map(AnyPort::description).for_each(|port| output::message("note", &port));
    let limit_mpps = trial::limit(streams.clone(), args.check_every, args.cpu)?;
    let mut generator = Generator::new(ports.into_iter().zip(sides()).collect(), args.check_every)?;
    let plan =
        Plan { burst: args.burst, warm_up: args.warm_up, cpu: args.cpu, limit_mpps: Some(limit_mpps), counted: None };
    let outcome = trial::run_until(Some(&interrupted), &mut generator, &mut [], &plan, (args.rate, args.secs));
    if args.json {
        let sample = Sample { scenario: "generate".to_owned(), round: 1, ..outcome.sample() };
        output::answer(&format!("{}\n", serde_json::to_string(&sample)?))?;
    } else {
        output::answer(&outcome.to_string())?;
    }
    match outcome.validity.reason() {
        Some(why) if args.json => Err(anyhow::anyhow!("not a valid trial: {why}")),
        // Prints the reason after the metrics.
        Some(_) => Err(Reported.into()),
        None => Ok(()),
    }
}

fn options(args: &Generate, streams: &[StreamSpec]) -> PortOptions {
    PortOptions {
        layout: args.ring.into(),
        longest: streams.iter().map(|stream| stream.sizes.longest()).max().unwrap_or(1518),
        offloads: streams.iter().fold(0, |all, stream| all | stream.offloads()),
        ..args.ports.options()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help shows the keys that the parser knows, and the parser's default for each key.
    #[test]
    fn the_help_has_each_key_and_examples_that_are_right() {
        let unknown = "colour=red".parse::<StreamSpec>().expect_err("no key").to_string();
        let keys: Vec<_> = unknown.split_once("the keys are ").expect("a list").1.split(", ").collect();
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
