//! A switch with many ports: the time to start it, the time of a reload that moves one port, and the
//! memory of a port.
//!
//! `cargo bench -p straightline-switch --bench scale`; without `--bench`, few ports. No guest is
//! connected, and one worker sleeps. The ports are connected in four ways:
//!
//! - `unconnected`: a port joins a bridge of its own.
//! - `bridge`: all ports are in one bridge, and a port leaves it for another one.
//! - `bridges`: ten ports in each bridge, and a port moves from one to the next.
//! - `patches`: two ports in each patch, and two patches exchange a port.
//!
//! A line has the median of the rounds. The memory is the growth of the process's resident memory by
//! the first start, divided by the ports. The allocator keeps memory after a stop, so each way has a
//! process of its own.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use straightline_config::{BridgeConfig, Config, PatchConfig, PortConfig, WhenFull};
use straightline_switch::{Switch, raise_descriptor_limit};

/// A change of a configuration.
type Change = fn(&mut Config);

/// The argument that names the way of a process.
const SHAPE: &str = "--shape";

const SHAPES: [(&str, Change, Change); 4] = [
    ("unconnected", |_| {}, |config| config.bridges.push(bridge("b", config.ports[..1].iter()))),
    (
        "bridge",
        |config| config.bridges.push(bridge("b", config.ports.iter())),
        |config| {
            config.bridges[0].ports.remove(0);
            config.bridges.push(bridge("c", config.ports[..1].iter()));
        },
    ),
    (
        "bridges",
        |config| {
            let bridges = config.ports.chunks(10).enumerate().map(|(n, ports)| bridge(&format!("b{n}"), ports.iter()));
            config.bridges = bridges.collect();
        },
        |config| {
            let moved = config.bridges[0].ports.remove(0);
            config.bridges[1].ports.push(moved);
        },
    ),
    (
        "patches",
        |config| {
            let patches = config.ports.chunks_exact(2).map(|ports| PatchConfig {
                name: ports[0].name.clone(),
                ports: [ports[0].name.clone(), ports[1].name.clone()],
                full: WhenFull::Drop,
            });
            config.patches = patches.collect();
        },
        |config| {
            let ports = [&config.patches[1].ports[1], &config.patches[0].ports[1]].map(Clone::clone);
            let [first, second] = ports;
            config.patches[0].ports[1] = first;
            config.patches[1].ports[1] = second;
        },
    ),
];

fn bridge<'a>(name: &str, ports: impl Iterator<Item = &'a PortConfig>) -> BridgeConfig {
    BridgeConfig::new(name, ports.map(|port| port.name.clone()).collect())
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> anyhow::Result<()> {
    let args: Vec<_> = env::args().skip(1).collect();
    let (ports, rounds) = if args.iter().any(|arg| arg == "--bench") { (1000, 5) } else { (20, 1) };
    let Some(shape) = args.iter().position(|arg| arg == SHAPE).and_then(|at| args.get(at + 1)) else {
        writeln!(io::stdout(), "{ports} ports   start ms   reload ms   KiB a port")?;
        for (name, ..) in SHAPES {
            let status = Command::new(env::current_exe()?).args(&args).args([SHAPE, name]).status()?;
            ensure!(status.success(), "{name}: {status}");
        }
        return Ok(());
    };
    raise_descriptor_limit()?;
    let folder = tempfile::tempdir()?;
    for (name, connect, change) in SHAPES.into_iter().filter(|(name, ..)| name == shape) {
        let (starts, reloads, memory) = measure(folder.path(), ports, rounds, connect, change)?;
        let [start, reload] = [starts, reloads].map(|mut times| median(&mut times).as_secs_f64() * 1e3);
        writeln!(io::stdout(), "{name:<12} {start:>8.0} {reload:>11.0} {memory:>12}")?;
    }
    Ok(())
}

/// Returns the times of starts and of reloads, and the memory of a port.
fn measure(
    folder: &Path,
    ports: usize,
    rounds: usize,
    connect: Change,
    change: Change,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>, usize)> {
    let mut starts = Vec::new();
    let mut reloads = Vec::new();
    let mut memory = None;
    for _ in 0..rounds {
        let port = |n| PortConfig::vhost_user(format!("p{n}"), folder.join(format!("p{n}")));
        let mut config = Config { ports: (0..ports).map(port).collect(), ..Config::default() };
        connect(&mut config);
        let before = resident_kib();
        let began = Instant::now();
        let switch = Switch::start(&config)?;
        starts.push(began.elapsed());
        memory.get_or_insert_with(|| resident_kib().saturating_sub(before) / ports);
        change(&mut config);
        let began = Instant::now();
        switch.reload(&config)?;
        reloads.push(began.elapsed());
        switch.stop();
    }
    Ok((starts, reloads, memory.unwrap_or(0)))
}
