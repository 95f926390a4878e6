//! Trials in which packets pass a guest: generator, switch, guest, switch, generator.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{bail, ensure};
use straightline_virtio::features as f;

use super::bench::{Ask, of_switch};
use super::harness::Measured;
use crate::forward::{self, Forwarder};
use crate::generator::Rate;
use crate::poller::Options;
use crate::scenario::{Parties, Scenario, limit};
use crate::tester::VhostPort;
use crate::trial::Plan;

/// All that there is room for, through a guest that hands on packets as they are, and touches of them what `options` say.
/// Generator and guest share this thread.
pub(super) fn measure(options: &Options, sockets: &[PathBuf], runtime: &Ask<'_>) -> anyhow::Result<Measured> {
    let limit_mpps = Some(limit(&options.sizes, options.cpu)?);
    let how = forward::Options { touch: options.touch, ports: options.port(), ..forward::Options::default() };
    let mut parties = connect(options, sockets, |ports| forward::guest(ports, &how))?;
    if !options.verify {
        parties.count_only();
    }
    let plan = Plan { burst: 1, warm_up: Duration::ZERO, cpu: options.cpu, limit_mpps };
    let never = AtomicBool::new(false);
    let stop = options.stop.as_deref().unwrap_or(&never);
    // Trials have an end of their own for what is under way: so the figures are read in silence. What came of the first does
    // not matter.
    parties.run(&plan, stop, Rate::Max, options.warm_up);
    let before = runtime()?;
    let sample = parties.run(&plan, stop, Rate::Max, options.time).sample;
    let after = runtime()?;
    let features = f::names(parties.features).collect();
    parties.stop();
    if let Some(why) = sample.invalid {
        bail!("not a valid trial: {why}");
    }
    let figure = |name: &str| sample.metrics.get(name).copied().unwrap_or(0.0);
    for wrong in ["corrupt", "duplicates", "foreign"] {
        let count = figure(wrong);
        ensure!(count < 0.5, "not a valid trial: {count} packets of those that came were {wrong}");
    }
    ensure!(figure("mpps") > 0.0, "not a valid trial: nothing has come back while it was measured");
    // Gbit are 125 Mbyte.
    let mut measured = of_switch(&before, &after, figure("gbit_per_s") * 125.0 / figure("mpps"))?;
    let names = [
        "mpps",
        "gbit_per_s",
        "loss_ratio",
        "guest_cycles_per_packet",
        "generator_cycles_per_packet",
        "generator_limit_mpps",
    ];
    measured.note(names.into_iter().filter_map(|name| Some((name, *sample.metrics.get(name)?))));
    Ok(Measured { negotiated: Some((options.layout.name(), features)), ..measured })
}

fn connect(
    options: &Options,
    sockets: &[PathBuf],
    guest: impl FnOnce(Vec<VhostPort>) -> anyhow::Result<Box<dyn Forwarder>>,
) -> anyhow::Result<Parties> {
    Parties::connect(Scenario::Pvp, sockets, &options.port(), &options.sizes, guest)
}
