//! Two ends and a switch in one process: the first thing that a new user runs.
//!
//! The ends are guests, or network namespaces of this machine. Each end sends numbered packets of
//! mixed sizes to the other. It never has more packets under way than the other end has buffers. So
//! a lost packet is a bug of the switch.
//!
//! | file | holds |
//! |---|---|
//! | `guests` | two embedded guests |
//! | `tunnel` | the same with a tunnel between them, over a wire |
//! | `host` | two network namespaces, each with a tap of the switch |

mod guests;
mod host;
#[cfg(test)]
mod tests;
mod tunnel;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use straightline_config::{Config, PatchConfig, PortConfig, WhenFull};
use straightline_graph::Clock;
use straightline_guest::Sequence;
use straightline_guest::endpoints::{Endpoint, EventLoop};
use straightline_switch::Switch;
use straightline_switch::api::{Runtime, Source};
use straightline_wire::imix;

use crate::convert::float;
use crate::guests::forward::Wire;
use crate::testbed::tunnel::Encapsulation;
use crate::traffic::Sizes;

/// Frame lengths, in the order of sending.
const IMIX: [u16; imix::FRAMES] = imix::order();

/// Packets sent or received in one call.
const BURST: usize = 32;

/// Time after which a packet that has not arrived counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Options of the demo.
#[derive(Clone, Copy, Debug)]
pub struct DemoOptions {
    /// Seconds that the demo runs.
    pub secs: u64,
    /// True if the ends are network namespaces, and not guests.
    pub host: bool,
    /// The tunnel between the two guests, if there is one.
    pub tunnel: Option<Encapsulation>,
    /// True if the caller prints the summary; the demo then prints no table.
    pub json: bool,
}

/// Results of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Million packets delivered per second, both directions together.
    pub mpps: f64,
    /// Gigabits of delivered frames per second.
    pub gbit_per_s: f64,
    /// The switch's cycles per packet, by node.
    pub cycles_per_packet: BTreeMap<String, f64>,
    /// Number of sent packets that did not arrive.
    pub lost: u64,
    /// Number of packets that arrived after a packet that was sent later.
    pub late: u64,
    /// Seconds of traffic.
    pub secs: f64,
}

#[derive(Debug, Default)]
struct Live {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

/// Two ends that send packets to each other. Direction 0 leads from the first end to the second,
/// direction 1 back.
trait Ends: Send {
    /// Describes the ends, in words that continue a line.
    fn title(&self) -> String;

    /// Returns the most packets that are under way in one direction: fewer than the receiving end
    /// has buffers.
    fn window(&self) -> u64;

    /// Sends the next packets of a direction, at most `most`. Returns their number.
    ///
    /// # Errors
    /// The system's error.
    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize>;

    /// Counts packets of a direction that have arrived.
    ///
    /// # Errors
    /// The system's error.
    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()>;
}

/// One direction of traffic.
struct Direction {
    sent: u64,
    arrived: Sequence,
    given_up: u64,
    /// Number of arrived packets at the last check, and the time since which this number has not
    /// changed.
    heard: (u64, Instant),
}

impl Direction {
    fn new(clock: &Clock) -> Direction {
        Direction { sent: 0, arrived: Sequence::default(), given_up: 0, heard: (0, clock.now()) }
    }

    fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.arrived.packets + self.given_up)
    }
}

/// Runs the demo to its end.
///
/// # Errors
/// Sockets, memory or threads are not available, or the right to make network namespaces.
pub fn run(options: DemoOptions) -> anyhow::Result<Summary> {
    if options.host {
        let (switch, ends) = host::start()?;
        return show(options, switch, ends, None);
    }
    if let Some(encapsulation) = options.tunnel {
        let (_folder, switch, ends, wire) = tunnel::start(encapsulation)?;
        return show(options, switch, ends, Some(wire));
    }
    // The folder stays until the end.
    let (_folder, switch, ends) = guests::start()?;
    show(options, switch, ends, None)
}

/// Returns the configuration of a switch with these two ports, joined by a patch.
fn config(ports: [PortConfig; 2]) -> Config {
    let patch =
        PatchConfig { name: "demo".to_owned(), ports: ports.clone().map(|port| port.name), full: WhenFull::Drop };
    Config { ports: ports.into_iter().collect(), patches: vec![patch], ..Config::default() }
}

/// Runs the traffic and shows its counters.
fn show(
    options: DemoOptions,
    switch: Switch,
    ends: impl Ends + 'static,
    wire: Option<Wire>,
) -> anyhow::Result<Summary> {
    let live = Arc::new(Live::default());
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let title = ends.title();
    let traffic = {
        let live = Arc::clone(&live);
        let stop = Arc::clone(&stop);
        std::thread::Builder::new().name("ends".to_owned()).spawn(move || carry(ends, wire, live, &stop))?
    };
    let shown = watch(options, &title, start, &live, &*switch.source());
    stop.store(true, Ordering::Relaxed);
    let ended = traffic.join().map_err(|_| anyhow::anyhow!("the thread of the ends panicked"))?;
    shown?;
    let Ended { lost, late, secs } = ended?;
    let runtime = switch.source().runtime();
    switch.stop();
    let [packets, bytes] = [&live.packets, &live.bytes].map(|n| float(n.load(Ordering::Relaxed)));
    let summary = Summary {
        mpps: packets / secs / 1e6,
        gbit_per_s: bytes * 8.0 / secs / 1e9,
        cycles_per_packet: cycles(&runtime),
        lost,
        late,
        secs,
    };
    if !options.json {
        conclude(&summary, &runtime)?;
    }
    Ok(summary)
}

fn cycles(runtime: &Runtime) -> BTreeMap<String, f64> {
    runtime.nodes.iter().map(|node| (node.name.clone(), (node.cycles_per_packet * 10.0).round() / 10.0)).collect()
}

struct Ended {
    lost: u64,
    late: u64,
    secs: f64,
}

/// Traffic between both ends, as an endpoint. With the switch's worker there are only two threads,
/// which every machine can run.
struct Traffic<E> {
    clock: Clock,
    ends: E,
    directions: [Direction; 2],
    live: Arc<Live>,
    /// True if nothing more is sent.
    is_ending: bool,
}

/// Runs both ends, and the wire between them if there is one, on one thread.
fn carry(ends: impl Ends, wire: Option<Wire>, live: Arc<Live>, stop: &AtomicBool) -> anyhow::Result<Ended> {
    let mut wire = wire;
    let mut traffic = Traffic::new(Clock::real(), ends, live);
    let mut run = |events: EventLoop<'_>, traffic: &mut dyn Endpoint| {
        let mut endpoints = vec![traffic];
        endpoints.extend(wire.as_mut().map(|wire| wire as &mut dyn Endpoint));
        events.run(&mut endpoints).1
    };
    let start = Instant::now();
    run(EventLoop { stop: Some(stop), ..EventLoop::default() }, &mut traffic)?;
    let secs = start.elapsed().as_secs_f64();
    // Packets still under way get time to arrive.
    traffic.is_ending = true;
    let deadline = Some(Instant::now() + PATIENCE);
    run(EventLoop { deadline, ..EventLoop::default() }, &mut traffic)?;
    traffic.publish();
    let [lost, late] = traffic.lost_and_late();
    Ok(Ended { lost, late, secs })
}

impl<E: Ends> Endpoint for Traffic<E> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let mut moved = 0;
        for (which, direction) in self.directions.iter_mut().enumerate() {
            let free = if self.is_ending { 0 } else { self.ends.window().saturating_sub(direction.under_way()) };
            let sent = self.ends.send(which, usize::try_from(free).unwrap_or(BURST).min(BURST))?;
            direction.sent += u64::try_from(sent)?;
            let before = direction.arrived.packets;
            self.ends.receive(which, &mut direction.arrived)?;
            moved += sent + usize::try_from(direction.arrived.packets - before)?;
        }
        Ok(moved)
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.publish();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_ending && self.directions.iter().all(|direction| direction.under_way() == 0)
    }
}

impl<E> Traffic<E> {
    fn new(clock: Clock, ends: E, live: Arc<Live>) -> Traffic<E> {
        let directions = [0, 1].map(|_| Direction::new(&clock));
        Traffic { clock, ends, directions, live, is_ending: false }
    }

    /// Returns the number of packets that did not arrive, and of those that arrived after a later one.
    fn lost_and_late(&self) -> [u64; 2] {
        let lost = self.directions.iter().map(|direction| direction.arrived.lost(direction.sent)).sum();
        [lost, self.directions.iter().map(|direction| direction.arrived.late).sum()]
    }

    /// Shows the counters to the thread that prints. Packets that never came are counted as lost,
    /// so that traffic goes on.
    fn publish(&mut self) {
        let mut packets = 0;
        let mut bytes = 0;
        for direction in &mut self.directions {
            let total = direction.arrived.packets;
            packets += total;
            bytes += direction.arrived.bytes;
            if total != direction.heard.0 {
                direction.heard = (total, self.clock.now());
            } else if self.clock.since(direction.heard.1) > PATIENCE {
                direction.given_up += direction.under_way();
            }
        }
        self.live.packets.store(packets, Ordering::Relaxed);
        self.live.bytes.store(bytes, Ordering::Relaxed);
        let lost = self.directions.iter().map(|direction| direction.given_up).sum();
        self.live.lost.store(lost, Ordering::Relaxed);
    }
}

/// Prints one line a second until the time is up.
fn watch(options: DemoOptions, title: &str, start: Instant, live: &Live, source: &dyn Source) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let end = start + Duration::from_secs(options.secs);
    let mut last = (start, 0, 0);
    if !options.json {
        let sizes = Sizes::imix();
        writeln!(out, "{title}, UDP in both directions, IMIX (frames of {sizes} bytes), for {} s", options.secs)?;
        writeln!(out, "    s      Mpps    Gbit/s   lost  worker")?;
    }
    for second in 1..=options.secs {
        let until = (start + Duration::from_secs(second)).min(end);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        if options.json {
            continue;
        }
        let packets = live.packets.load(Ordering::Relaxed);
        let bytes = live.bytes.load(Ordering::Relaxed);
        let secs = last.0.elapsed().as_secs_f64();
        let mpps = float(packets - last.1) / secs / 1e6;
        let gbit = float(bytes - last.2) * 8.0 / secs / 1e9;
        let lost = live.lost.load(Ordering::Relaxed);
        let worker = source.runtime().workers.first().map_or_else(String::new, |w| {
            let all = (w.busy_s + w.empty_poll_s + w.idle_s + w.unexplained_s).max(f64::MIN_POSITIVE);
            let percent = |part: f64| part / all * 100.0;
            format!(
                "busy {:.0} %, polling {:.0} %, asleep {:.0} %",
                percent(w.busy_s),
                percent(w.empty_poll_s),
                percent(w.idle_s)
            )
        });
        writeln!(out, "{second:>5} {mpps:>9.3} {gbit:>9.2} {lost:>6}  {worker}")?;
        out.flush()?;
        last = (Instant::now(), packets, bytes);
    }
    Ok(())
}

fn conclude(summary: &Summary, runtime: &Runtime) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out)?;
    writeln!(out, "{}", straightline_switch::api::table::runtime(runtime))?;
    writeln!(
        out,
        "{:.3} Mpps, {:.2} Gbit/s, {} lost, {} out of order",
        summary.mpps, summary.gbit_per_s, summary.lost, summary.late
    )?;
    Ok(())
}
