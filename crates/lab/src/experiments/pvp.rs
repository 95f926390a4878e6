//! Trials in which packets pass a guest: generator, switch, guest, switch, generator.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use az::SaturatingAs;
use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::{PortOptions, VhostPort};
use straightline_switch::Switch;
use straightline_virtio::features as f;

use super::bench::{Ask, TrafficPath, of_switch, options, sockets};
use super::settings::Settings;
use crate::guests::forward::{self, Forwarder};
use crate::guests::reflector::ReflectorOptions;
use crate::rounds::Measured;
use crate::testbed::{Endpoints, Scenario, limit, patched};
use crate::traffic::generator::Rate;
use crate::trial::{Plan, validity};

/// Duration of a trial that traces packet addresses. Some thousands of packets are enough.
const TRACED: Duration = Duration::from_millis(5);

/// Measures at maximum rate. The packets pass a guest that forwards them unchanged, and touches
/// them by the policy of `options`. Generator and guest share this thread.
pub(super) fn measure(options: &ReflectorOptions, sockets: &[PathBuf], runtime: &Ask<'_>) -> anyhow::Result<Measured> {
    let limit_mpps = Some(limit(&options.sizes, options.seed, options.cpu)?);
    let how =
        forward::ForwardOptions { touch: options.touch, ports: options.port(), ..forward::ForwardOptions::default() };
    let mut endpoints = connect(options, sockets, |ports| forward::guest(ports, &how))?;
    if !options.verify {
        endpoints.count_only();
    }
    let counted = options.counted;
    let plan = Plan { burst: 1, warm_up: Duration::ZERO, cpu: options.cpu, limit_mpps, counted };
    let never = AtomicBool::new(false);
    let stop = options.stop.as_deref().unwrap_or(&never);
    // A trial ends only when no packet is under way. So the counters are read while nothing moves.
    // A first trial comes before the first reading; its results are not used, so its time always ends it.
    endpoints.run(&Plan { counted: None, ..plan }, stop, Rate::Max, options.warm_up);
    let before = runtime()?;
    let sample = endpoints.run(&plan, stop, Rate::Max, options.time).sample;
    let after = runtime()?;
    let features = endpoints.features.map(f::names).into_iter().flatten().collect();
    endpoints.stop();
    let validity = sample.validity;
    // An interrupted trial has the metrics of the time before the interruption.
    if !validity.is_interrupted() {
        validity.clone().demand()?;
    }
    let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or(0.0);
    validity::no_faults(metric).demand()?;
    // 1 Gbit is 125 Mbyte.
    let mut measured = of_switch(&before, &after, metric("gbit_per_s") * 125.0 / metric("mpps"))?;
    let names = [
        "mpps",
        "gbit_per_s",
        "loss_ratio",
        "guest_cycles_per_packet",
        "generator_cycles_per_packet",
        "generator_limit_mpps",
    ];
    measured.note(names.into_iter().filter_map(|name| Some((name, *sample.metrics.get(name)?))));
    Ok(Measured { negotiated: Some((options.ports.layout.name(), features)), validity, ..measured })
}

/// Returns the number of cache lines of guest memory per packet, header included, and the number of
/// these that the guest touches. They are counted from the addresses of the buffers in which
/// packets come. This is extra work for each packet, so it has a trial of its own.
///
/// # Errors
/// No packet has come to the guest.
pub(super) fn trace(settings: &Settings, choose: impl FnOnce(&mut ReflectorOptions)) -> anyhow::Result<[f64; 2]> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = sockets(folder.path());
    let switch = Switch::start(&patched(settings.cpus[1], &sockets))?;
    let mut options = options(settings, TrafficPath::Pvp, &sockets);
    choose(&mut options);
    let mut endpoints = connect(&options, &sockets, |ports| Ok(forward::traced(ports, options.touch)))?;
    let counted = settings.counted;
    let plan = Plan { burst: 1, warm_up: Duration::ZERO, cpu: options.cpu, limit_mpps: None, counted };
    let sample = endpoints.run(&plan, &settings.stop, Rate::Max, TRACED).sample;
    let notes = endpoints.guest_notes();
    endpoints.stop();
    switch.stop();
    let [packets, lines, touched] = ["packets", "lines", "touched lines"].map(|wanted| {
        let count = notes.iter().find(|(name, _)| *name == wanted).map_or(0, |&(_, count)| count);
        f64::from(count.saturating_as::<u32>())
    });
    validity::traced(packets, &sample.validity).demand()?;
    Ok([lines / packets, touched / packets])
}

/// Connects generator and guest. The options determine the guest's buffers and the offset of
/// packets in them. The generator stands for physical ports, which always have the same buffers. (A
/// tag is in the one cache line of a short frame, or in two lines.)
pub(super) fn connect(
    options: &ReflectorOptions,
    sockets: &[PathBuf],
    guest: impl FnOnce(Vec<VhostPort>) -> anyhow::Result<Box<dyn Forwarder>>,
) -> anyhow::Result<Endpoints> {
    let inner = options.port();
    let PortOptions { buffer_len, header_offset, .. } = PortOptions::default();
    // One buffer for each frame, as in a network card.
    let buffer_len = buffer_len.max(inner.longest + HEADER_LEN + 1);
    let outer = PortOptions { buffer_len, header_offset, ..inner.clone() };
    let load = (&options.sizes, options.seed);
    Endpoints::connect(Scenario::Pvp, Vec::new(), sockets, [&outer, &inner], load, guest)
}
