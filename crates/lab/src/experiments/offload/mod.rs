//! The cost of checksums and segmentation, done by the sender, by the switch or by nobody, and by
//! instruction set: `docs/experiments/offload.md`.
//!
//! | file | holds |
//! |---|---|
//! | `stream` | the packets to send, and the check of received ones |
//! | `guests` | two guests that send and receive |

mod guests;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use straightline_graph::Clock;
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::{EventLoop, PortOptions, VhostPort};
use straightline_packet::Level;
use straightline_switch::Switch;
use straightline_switch::api::{Link, Runtime, Source};
use straightline_virtio::features as f;

use super::bench::{of_switch, sockets};
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::convert::float;
use crate::rounds::{Measured, Shown, Stop as _};
use crate::testbed::patched;
pub(super) use guests::{Guests, Side, Window};
pub(super) use stream::{Proof, Stream, longest, window};

/// Time limit for a link to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The packets that guests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// TCP in frames of 1514 bytes.
    Frames,
    /// Large TCP packets of 64 294 bytes. Each makes 44 such frames.
    Segments,
    /// Frames that average 256 bytes.
    Mix,
    /// TCP in frames of 60 bytes: 64 with the Ethernet checksum.
    Small,
}

impl Workload {
    /// The loads of this experiment.
    const ALL: [Workload; 3] = [Workload::Frames, Workload::Segments, Workload::Mix];

    fn name(self) -> &'static str {
        match self {
            Workload::Frames => "frames",
            Workload::Segments => "segments",
            Workload::Mix => "mix",
            Workload::Small => "small",
        }
    }
}

/// The party that completes checksums and segments large packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffloadCase {
    /// Nobody: the receiver accepts packets as they were sent, with partial checksums and
    /// unsegmented.
    Passed,
    /// The switch, because the receiver accepts finished packets only.
    Switch,
    /// The sending guest.
    Guest,
    /// Nobody: packets already have their checksums, like packets that a router forwards.
    Nobody,
    /// The switch, which finishes packets for a wire. Behind the wire, a receiver of `segments`
    /// accepts packets that the switch has coalesced again.
    Coalesced,
}

impl OffloadCase {
    fn name(self) -> &'static str {
        match self {
            OffloadCase::Passed => "passed",
            OffloadCase::Switch => "switch",
            OffloadCase::Guest => "guest",
            OffloadCase::Nobody => "nobody",
            OffloadCase::Coalesced => "coalesced",
        }
    }

    /// Returns the ring layout, with the reason why the negotiated features differ between cases.
    pub(super) fn negotiates(self, load: Workload) -> &'static str {
        match (self, load == Workload::Segments) {
            (OffloadCase::Passed, false) => "split, checksums passed",
            (OffloadCase::Passed, true) => "split, segments passed",
            (OffloadCase::Switch, false) => "split, checksums left to the switch",
            (OffloadCase::Switch, true) => "split, segments left to the switch",
            (OffloadCase::Guest | OffloadCase::Nobody, _) => "split, nothing left to others",
            (OffloadCase::Coalesced, false) => "split, checksums left to the switch",
            (OffloadCase::Coalesced, true) => "split, segments left to the switch, and coalesced packets passed",
        }
    }

    /// Returns whether the sender leaves checksums and segmentation to others.
    fn leaves(self) -> bool {
        matches!(self, OffloadCase::Passed | OffloadCase::Switch | OffloadCase::Coalesced)
    }

    /// Returns the features that both guests negotiate.
    pub(super) fn features(self, load: Workload) -> u64 {
        let (sums, segments) = match self {
            OffloadCase::Coalesced if load != Workload::Segments => (f::VIRTIO_NET_F_CSUM, 0),
            OffloadCase::Passed | OffloadCase::Coalesced => (
                f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM,
                f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO4,
            ),
            OffloadCase::Switch => (f::VIRTIO_NET_F_CSUM, f::VIRTIO_NET_F_HOST_TSO4),
            OffloadCase::Guest | OffloadCase::Nobody => (0, 0),
        };
        // For single frames, no guest accepts large packets: the switch would coalesce frames,
        // which is another experiment.
        if load == Workload::Segments { sums | segments } else { sums }
    }
}

/// The instruction sets to compare.
const SETS: [&str; 5] = ["scalar", "sse2", "avx2", "avx512", "neon"];

/// Work of the switch on the bytes of packets, by instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchWork {
    /// It copies and sums in one pass, and segments large packets.
    Checksums,
    /// It copies only, since the packets have their checksums. What `Checksums` costs more is the cost
    /// of the sums.
    Copies,
}

impl SwitchWork {
    const ALL: [SwitchWork; 2] = [SwitchWork::Checksums, SwitchWork::Copies];

    fn name(self) -> &'static str {
        match self {
            SwitchWork::Checksums => "copy and checksum",
            SwitchWork::Copies => "copy",
        }
    }

    /// Returns the party that completes checksums.
    fn party(self) -> OffloadCase {
        match self {
            SwitchWork::Checksums => OffloadCase::Switch,
            SwitchWork::Copies => OffloadCase::Nobody,
        }
    }
}

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let loads: &[Workload] = if quick { &[Workload::Frames] } else { &Workload::ALL };
    let by_set = loads.iter().flat_map(|&load| {
        let works: &[SwitchWork] = if load == Workload::Segments { &SwitchWork::ALL[..1] } else { &SwitchWork::ALL };
        works.iter().map(move |&work| cell_by_set(load, work))
    });
    let cells = Workload::ALL.into_iter().map(cell_by_party).chain(by_set).collect();
    Plan {
        name: "offload",
        shown: vec![
            Shown { metric: "payload_gbit_per_s", title: "Gbit/s of payload, both directions together" },
            Shown { metric: "gbit_per_s", title: "Gbit/s of frames, both directions together" },
            Shown::SWITCH_CYCLES,
            Shown { metric: "switch_cycles_per_byte", title: "Cycles of the switch per byte of payload" },
            Shown { metric: "guest_cycles_per_byte", title: "Cycles of both guests per byte of payload" },
            Shown { metric: "switch_busy_percent", title: "Part of time in which the switch had packets" },
            Shown { metric: "core_gbit_per_s", title: "Gbit/s of frames for which the switch's core has the cycles" },
        ],
        cells,
        left_out: absent_sets()
            .map(|set| format!("checksums by {set}: this machine does not have this instruction set"))
            .collect(),
    }
}

/// Makes a cell that compares the parties that do the work.
fn cell_by_party(load: Workload) -> Cell {
    let mut all = vec![OffloadCase::Passed, OffloadCase::Switch, OffloadCase::Guest];
    if load == Workload::Mix {
        all.push(OffloadCase::Nobody);
    }
    let variant =
        |who: OffloadCase| Variant::new(who.name(), move |settings: &Settings| trial(settings, load, who, None));
    Cell::new([("load", &load.name())], all.into_iter().map(variant))
}

/// Makes a cell that compares the instruction sets by which the switch does its work.
fn cell_by_set(load: Workload, work: SwitchWork) -> Cell {
    let variant = |level: Level| {
        Variant::new(level.name(), move |settings: &Settings| trial(settings, load, work.party(), Some(level)))
    };
    Cell::new([("load", &load.name()), ("work", &work.name())], sets().map(variant))
}

/// Returns the instruction sets of this machine by which sums differ, narrowest first.
fn sets() -> impl Iterator<Item = Level> {
    Level::supported().filter(|level| SETS.contains(&level.name()))
}

/// Returns the names of the sets that this machine lacks.
fn absent_sets() -> impl Iterator<Item = &'static str> {
    let all: &[&str] = if cfg!(target_arch = "aarch64") { &["neon"] } else { &["avx2", "avx512"] };
    all.iter().copied().filter(|set| sets().all(|level| level.name() != *set))
}

/// Makes a trial. The switch uses the instruction set `level`, or the usual one.
fn trial(settings: &Settings, load: Workload, who: OffloadCase, level: Option<Level>) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = sockets(folder.path());
    let mut config = patched(settings.cpus[1], &sockets[..2]);
    config.switch.simd = level;
    let switch = Switch::start(&config)?;
    let measured = connect(load, who, &sockets).and_then(|sides| {
        let features = f::names(sides[0].port.features()).collect();
        let measured = measure(settings, load, sides, switch.source())?;
        Ok(Measured { negotiated: Some((who.negotiates(load), features)), ..measured })
    });
    switch.stop();
    measured
}

/// Connects two guests to a switch.
fn connect(load: Workload, who: OffloadCase, sockets: &[PathBuf]) -> anyhow::Result<[Side; 2]> {
    let options = PortOptions {
        longest: u32::try_from(stream::longest(load, who)?)?,
        offloads: who.features(load),
        ..PortOptions::default()
    };
    let side = |from: u8, socket| {
        let port = VhostPort::connect(socket, &options)?;
        anyhow::Ok(Side::new(port, Stream::new(load, who, from)?, Proof::new(load, who, 3 - from)?))
    };
    Ok([side(1, &sockets[0])?, side(2, &sockets[1])?])
}

fn measure(settings: &Settings, load: Workload, sides: [Side; 2], source: Arc<dyn Source>) -> anyhow::Result<Measured> {
    // Packets sent before the link is up may be dropped.
    links_are_up(settings, &Clock::real(), || source.ports().ports.iter().all(|port| port.link != Link::Down))?;
    let most = u64::try_from(stream::window(load)?)?;
    let mut guests = Guests::new(sides, most, source, settings);
    EventLoop { cpu: Some(settings.cpus[0]), ..EventLoop::default() }.run(&mut [&mut guests]).1?;
    let (window, checked) = guests.end()?;
    let [before, after] = &window.edges[..] else { anyhow::bail!("the switch's counters were not read") };
    let measured = metrics(&window, before, after, checked)?;
    Ok(Measured { validity: window.validity, ..measured })
}

/// Waits until this is so: the switch's links are up.
///
/// # Errors
/// It is not so in time, or the run is stopped.
pub(super) fn links_are_up(settings: &Settings, clock: &Clock, mut are_up: impl FnMut() -> bool) -> anyhow::Result<()> {
    let end = clock.now() + settings.counted.map_or(PATIENCE, |counted| counted.patience);
    while !are_up() {
        ensure!(clock.now() < end && !settings.is_stopped(), "the switch's links do not come up");
        clock.sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn metrics(window: &Window, before: &Runtime, after: &Runtime, checked: u64) -> anyhow::Result<Measured> {
    let [a, b] = window.got;
    let (packets, bytes, payload) =
        (float(a.packets + b.packets), float(a.frame_bytes + b.frame_bytes), float(a.payload + b.payload));
    let [sent, sent_payload] = window.sent.map(float);
    // Received bytes equal sent bytes, except if large packets are segmented: then each segment has
    // headers of its own.
    let sent_bytes = sent_payload + sent * float(stream::HEADERS as u64);
    let mut measured = of_switch(before, after, sent_bytes / sent.max(1.0))?;
    let switch: f64 = measured.cycles.values().sum();
    let hertz = hertz();
    let gbit = |bytes: f64| bytes * 8.0 / 1e9;
    measured.note([
        ("gbit_per_s", gbit(bytes / window.secs)),
        ("payload_gbit_per_s", gbit(payload / window.secs)),
        ("frame_bytes", bytes / packets),
        ("switch_cycles_per_byte", switch * sent / sent_payload.max(1.0)),
        ("switch_busy_percent", 100.0 * switch * sent / (hertz * window.secs)),
        ("core_gbit_per_s", gbit(hertz * sent_bytes / (switch * sent).max(1.0))),
        ("guest_cycles_per_byte", float(window.cycles) / float(window.payload.max(1))),
        ("checked_packets", float(checked)),
    ]);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by_packets, labels, names, settings};
    use straightline_testing::wait_until;

    use super::*;
    use crate::traffic::Counted;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let parties = ["load=frames", "load=segments", "load=mix"];
        let work = |load: &str| ["copy and checksum", "copy"].map(|work| format!("load={load} work={work}"));
        assert_eq!(labels(&quick), [&parties.map(str::to_owned)[..], &work("frames")].concat());
        let all = ["passed", "switch", "guest", "nobody"];
        assert_eq!(names(&quick)[..3], [&all[..3], &all[..3], &all]);
        let sets = &names(&quick)[3];
        assert_eq!(sets[0], "scalar");
        assert_eq!(sets.len() + quick.left_out.len(), if cfg!(target_arch = "x86_64") { 4 } else { 2 });
        let whole = labels(&plan(&settings(), false));
        let by_set = [&work("frames")[..], &work("segments")[..1], &work("mix")].concat();
        assert_eq!(whole, [&parties.map(str::to_owned)[..], &by_set].concat());
    }

    /// Each set makes the sums that the other guest expects, of frames and of large packets.
    #[test]
    fn each_set_makes_the_same_sums() {
        let settings = by_packets();
        let by_set = plan(&settings, false).cells.into_iter().filter(|cell| cell.axes.contains_key("work"));
        for cell in by_set {
            for variant in &cell.variants {
                let measured = variant.measure(&settings).expect("a trial");
                assert!(measured.metrics["checked_packets"] > 0.0, "{} {}", cell.label(), variant.name);
            }
        }
    }

    /// Only the pauses of the wait take time. The test ends each of them.
    #[test]
    fn links_that_do_not_come_up_are_said() {
        let clock = Clock::moved();
        let waits = |settings: &Settings, up_at: Duration| {
            let began = clock.now();
            let result = std::thread::scope(|scope| {
                let waiting = std::thread::Builder::new()
                    .name("links".to_owned())
                    .spawn_scoped(scope, || links_are_up(settings, &clock, || clock.since(began) >= up_at))
                    .expect("a thread");
                wait_until("the wait ends", || {
                    // Only while the thread waits: another move would be none of its pauses.
                    for _ in (0..1000).filter(|_| clock.waits("links")) {
                        clock.advance(Duration::from_millis(1));
                    }
                    waiting.is_finished()
                });
                waiting.join().expect("no panic")
            });
            (result.map_err(|why| why.to_string()), clock.since(began))
        };
        let settings = settings();
        let said = Err("the switch's links do not come up".to_owned());
        assert_eq!(waits(&settings, Duration::from_millis(5)).0, Ok(()));
        let (late, waited) = waits(&settings, Duration::MAX);
        assert_eq!((late, waited >= PATIENCE), (said.clone(), true));
        // The clock stands still, so only the stop ends this one.
        settings.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(links_are_up(&settings, &clock, || false).map_err(|why| why.to_string()), said);
    }

    #[test]
    fn what_a_stop_interrupts_has_the_figures_until_then() {
        // Only the stop can end this trial.
        let counted = Some(Counted { packets: u64::MAX, patience: straightline_testing::PATIENCE });
        let settings = Settings { time: Duration::from_secs(3600), counted, ..by_packets() };
        let folder = tempfile::tempdir().expect("a folder");
        let sockets = sockets(folder.path());
        let switch = Switch::start(&patched(settings.cpus[1], &sockets[..2])).expect("a switch");
        let source = switch.source();
        let measured = std::thread::scope(|scope| {
            let sides = connect(Workload::Frames, OffloadCase::Switch, &sockets).expect("two guests");
            let trial = scope.spawn(|| measure(&settings, Workload::Frames, sides, switch.source()));
            // More than are under way: some of them have been received.
            let passed = || source.runtime().nodes.iter().map(|node| node.packets).max().unwrap_or(0);
            straightline_testing::wait_until("packets pass", || trial.is_finished() || passed() > 20_000);
            settings.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            trial.join().expect("no panic")
        });
        switch.stop();
        let measured = measured.expect("values so far");
        let why = measured.validity.reason().expect("it is not whole");
        assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 3600.0 s"), "{why}");
        assert!(measured.metrics["gbit_per_s"] > 0.0 && measured.metrics["checked_packets"] > 0.0, "{measured:?}");
    }

    #[test]
    fn packets_that_are_not_what_they_should_be_do_not_count() {
        let settings = by_packets();
        let folder = tempfile::tempdir().expect("a folder");
        let sockets = sockets(folder.path());
        let switch = Switch::start(&patched(settings.cpus[1], &sockets[..2])).expect("a switch");
        let mut sides = connect(Workload::Frames, OffloadCase::Switch, &sockets).expect("two guests");
        // A check that expects unfinished checksums, although this receiver did not negotiate them.
        sides[1].proof = Proof::new(Workload::Frames, OffloadCase::Passed, 1).expect("a proof");
        let why = measure(&settings, Workload::Frames, sides, switch.source()).expect_err("the sums were made");
        switch.stop();
        let why = format!("{why:#}");
        assert!(
            why.starts_with("not a valid trial") && why.contains("packet 0") && why.contains("virtio-net"),
            "{why}"
        );
    }
}
