//! Trials of a paced port: few packets, each at its own time, and the time that each takes.
//!
//! The switch has two patches on one worker. The generator has the ports of the first one. A guest
//! on the ports of the second one is quiet, or sends without pause.

use anyhow::Context;
use straightline_guest::endpoints::Endpoint;
use straightline_switch::Switch;
use straightline_virtio::features as f;

use super::bench::{TrafficPath, options, sockets};
use super::pvp::connect;
use super::settings::Settings;
use crate::guests::forward::{self, Mode};
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::rounds::Measured;
use crate::testbed::patched;
use crate::traffic::generator::Rate;
use crate::trial::Plan;

/// The rate of the paced ports together. The switch is idle when most packets come.
const RATE: Rate = Rate::Pps(100_000.0);

/// Measures the latencies of the paced ports. The guest on the other ports has this `mode`.
/// `beside` takes turns with the generator.
///
/// # Errors
/// The switch cannot start, or a resource is not available.
pub(super) fn measure(
    settings: &Settings,
    size: u32,
    mode: Mode,
    beside: Option<&mut dyn Endpoint>,
) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = sockets(folder.path());
    let switch = Switch::start(&patched(settings.cpus[1], &sockets))?;
    let options = ReflectorOptions { sizes: Sizes::one(size), ..options(settings, TrafficPath::Pvp, &sockets) };
    let how = forward::ForwardOptions {
        mode,
        size: u16::try_from(size)?,
        ports: options.port(),
        ..forward::ForwardOptions::default()
    };
    // The generator has the first and the last of these sockets, which are those of the first patch.
    let [one, other, first, second] = sockets;
    let path = [one, first, second, other];
    let mut endpoints = connect(&options, &path, |ports| forward::guest(ports, &how))?;
    let features = endpoints.features.map(f::names).into_iter().flatten().collect();
    let counted = settings.counted;
    let plan = Plan { burst: 1, warm_up: settings.warm_up, cpu: options.cpu, limit_mpps: None, counted };
    let sample = endpoints.run_beside(beside, &plan, &settings.stop, RATE, settings.time).sample;
    endpoints.stop();
    switch.stop();
    let mut measured = Measured::default();
    let is_shown = |name: &str| name.starts_with("latency_") || name == "loss_ratio";
    measured.metrics.extend(sample.metrics.into_iter().filter(|(name, _)| is_shown(name)));
    Ok(Measured { negotiated: Some((options.ports.layout.name(), features)), validity: sample.validity, ..measured })
}

#[cfg(test)]
mod tests {
    use straightline_report::results::Validity;

    use super::super::tests::by_packets;
    use super::*;
    use crate::testbed::neighbour::NeighbourTurns;

    #[test]
    fn packets_of_the_paced_ports_are_timed_whoever_floods() {
        let settings = by_packets();
        for mode in [Mode::RxOnly, Mode::FlowGen] {
            let mut neighbour = NeighbourTurns::new(1 << 20);
            let measured = measure(&settings, 64, mode, Some(&mut neighbour)).expect("a trial");
            assert_eq!(measured.validity, Validity::Valid);
            assert!(measured.metrics["latency_p50_us"] > 0.0, "{measured:?}");
            assert!(measured.metrics["latency_p99_9_us"] >= measured.metrics["latency_p50_us"], "{measured:?}");
            assert!(neighbour.stop().expect("a proof").ns_per_line.is_some());
        }
    }
}
