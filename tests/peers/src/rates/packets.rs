//! Trials with embedded guests.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use straightline_guest::{Guest, GuestOptions, Pair};
use straightline_lab::rounds::Measured;
use straightline_report::results::Sample;
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use super::options::{OneRate, PortsLoad, RateCell, Size};
use crate::compare::guest_output;
use crate::lab::Lab;
use crate::machine::{Machine, two_cpus};
use crate::measure::{self, Candidate, OurSwitch, SwitchKind, output_of};
use crate::proc::{self, PATIENCE, Proc};
use crate::switch::{PortStatus, RateStatus};

/// Time before a trial is measured: the burst has passed.
const WARM_UP: Duration = Duration::from_secs(1);

/// Ports of [`RateCell::Ports`].
const PORTS: usize = 100;

/// Runs a trial.
pub(super) fn trial(machine: &Machine, secs: u32, switch: &Candidate, cell: &RateCell) -> Result<Measured> {
    let SwitchKind::Ours(ours) = &switch.kind else { bail!("{} has no such limits", switch.name) };
    let lab = Lab::new(machine, "rates")?;
    match cell {
        RateCell::Share { rate, packed, size } => share(&lab, secs, ours, rate, *packed, *size),
        RateCell::Delay { rate, limited } => delay(&lab, secs, ours, rate, *limited),
        RateCell::Ports { load } => ports(&lab, secs, ours, *load),
        RateCell::Tcp { .. } => bail!("embedded guests have no TCP"),
    }
}

/// Returns the limit of the port `a`, and the time at which the switch said it.
fn limit(lab: &Lab, ours: &OurSwitch) -> Result<(RateStatus, Instant)> {
    #[derive(Deserialize)]
    struct Answer {
        ports: Vec<PortStatus>,
    }
    let begin = Instant::now();
    let text = output_of(Command::new(&ours.program).args(["ports", "--json", "--api"]).arg(lab.socket("api")))?;
    let at = begin + begin.elapsed() / 2;
    let answer: Answer = serde_json::from_str(&text).with_context(|| format!("`ports --json` wrote {text}"))?;
    let port = answer.ports.into_iter().find(|port| port.name == "a").context("`ports` does not list port a")?;
    Ok((port.rate_in.context("port a has no limit")?, at))
}

/// A guest floods the limited port `a` without pause. The switch counts the packets that pass.
fn share(lab: &Lab, secs: u32, ours: &OurSwitch, rate: &OneRate, packed: bool, size: Size) -> Result<Measured> {
    let switch = ours.with("a", &format!("rate-in = {:?}", rate.text)).start(lab, "sleep")?;
    let mut command = Command::new(&ours.program);
    command.args(["lab", "loop", "--json", "--load", "one-way", "--backend"]).arg(lab.socket("a"));
    command.arg("--backend").arg(lab.socket("b")).args(["--cpu", &two_cpus()?.0.to_string()]);
    command.args(["--ring", if packed { "packed" } else { "split" }]);
    match size {
        Size::Shortest => command.args(["--size", "64"]),
        Size::Longest => command.args(["--size", "1514"]),
        Size::Segments => command.args(["--segments", "--queue-size", "256", "--bursts", "2"]),
    };
    // The guest begins earlier, and ends later.
    let time = Duration::from_secs(secs.into()) + WARM_UP;
    command.args(["--secs", &time.as_secs_f64().to_string(), "--warm-up", &WARM_UP.as_secs_f64().to_string()]);
    let mut guest = Proc::start("guest", command, &lab.log("guest"))?;
    proc::until("packets pass", || Ok((limit(lab, ours)?.0.passed_packets > 0).then_some(())))?;
    proc::pause(WARM_UP)?;
    let (before, begin) = limit(lab, ours)?;
    proc::pause(Duration::from_secs(secs.into()))?;
    let (after, end) = limit(lab, ours)?;
    let status = guest.wait_end_within(time + PATIENCE)?;
    ensure!(status.success(), "the guest ended with {status}: {}", guest.texts().1.trim());
    ensure!(after.dropped == 0, "{} packets were dropped: they should wait", after.dropped);
    measure::end(switch)?;
    let passed = if rate.in_packets {
        after.passed_packets - before.passed_packets
    } else {
        8 * (after.passed_bytes - before.passed_bytes)
    };
    let per_second = to_f64(passed) / (end - begin).as_secs_f64();
    let share = per_second / f64::from(rate.per_second);
    let metrics = [("share".to_owned(), share)].into();
    Ok(Measured { metrics, summary: format!("{share:.4} of {}", rate.text), ..Measured::default() })
}

/// Both guests send at 90 % of a rate, evenly. The generator measures the delay of each packet.
fn delay(lab: &Lab, secs: u32, ours: &OurSwitch, rate: &OneRate, limited: bool) -> Result<Measured> {
    // Frames of 1514 bytes a second, of both ports together.
    let mpps = 2.0 * 0.9 * f64::from(rate.per_second) / (8.0 * 1514.0) / 1e6;
    let limited = limited.then(|| ours.with("port", &format!("rate-in = {:?}", rate.text)));
    let switch = limited.as_ref().unwrap_or(ours).start(lab, "sleep")?;
    let mut command = Command::new(&ours.program);
    command.args(["lab", "patch-external", "--json", "--rounds", "1", "--size", "1514", "--backend"]);
    command.arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--rate", &format!("{mpps:.6}mpps"), "--warm-up", "1", "--secs", &secs.to_string()]);
    command.args(["--cpu", &two_cpus()?.0.to_string()]);
    let out = guest_output(lab, command, Duration::from_secs(secs.into()) + PATIENCE)?;
    measure::end(switch)?;
    let line: Sample = serde_json::from_str(&out).with_context(|| format!("the generator wrote {out}"))?;
    line.validity.clone().demand()?;
    let mut metrics = line.metrics.clone();
    metrics.retain(|name, _| name.starts_with("latency_") || name == "mpps");
    let delay = |name: &str| metrics.get(&format!("latency_{name}_us")).copied().unwrap_or_default();
    let summary = format!("{:.1} us, p99 {:.1} us", delay("p50"), delay("p99"));
    Ok(Measured { metrics, summary, ..Measured::default() })
}

/// [`PORTS`] ports have guests, with this load.
fn ports(lab: &Lab, secs: u32, ours: &OurSwitch, load: PortsLoad) -> Result<Measured> {
    // The least rate: a ring of packets lasts for five seconds.
    const LIMIT: &str = "rate-in = \"600 kbit/s\"\n";
    const MOST_SECS: u32 = 4;
    const FRAME: [u8; 1514] = [0x02; 1514];
    let wait = load.waits();
    let (header, frame) = if load.is_long() { segmented() } else { (NetHeader::default(), FRAME.to_vec()) };
    let options = if load.is_long() {
        let features = GuestOptions::default().features | CSUM_AND_TSO;
        GuestOptions { features, ring_size: 16, buffer_len: 65_600, ..GuestOptions::default() }
    } else {
        GuestOptions::default()
    };
    ensure!(!wait || secs <= MOST_SECS, "the packets last for {MOST_SECS} s: use --secs {MOST_SECS} or less");
    let configuration = |limit: &str| -> Result<String> {
        let mut text = format!("[switch]\napi = {:?}\nworkers = [{}]\n", lab.socket("api"), two_cpus()?.1);
        for at in 0..PORTS {
            let socket = lab.socket(&format!("p{at}"));
            write!(text, "[port.p{at}]\nkind = \"vhost-user\"\nsocket = {socket:?}\n{limit}")?;
        }
        for at in (0..PORTS).step_by(2) {
            write!(text, "[patch.j{at}]\nports = [\"p{at}\", \"p{}\"]\n", at + 1)?;
        }
        Ok(text)
    };
    let switch = ours.run(lab, Command::new(&ours.program), &configuration("")?)?;
    let connect = |at: usize| Guest::connect(&lab.socket(&format!("p{at}")), &options);
    let mut guests: Vec<Guest> = (0..PORTS).map(connect).collect::<Result<_>>()?;
    let mut pairs: Vec<_> = guests.iter_mut().flat_map(Guest::pairs).collect();
    proc::pause(WARM_UP)?;
    // All buffers were used once: no page of them is new.
    for _ in 0..3 {
        pairs.iter_mut().for_each(|pair| fill(pair, &header, &frame));
        proc::pause(Duration::from_millis(100))?;
        pairs.iter_mut().for_each(|pair| _ = pair.receive(usize::MAX, |_, _| ()));
    }
    if wait {
        ours.reload(lab, &configuration(LIMIT)?)?;
        pairs.iter_mut().for_each(|pair| fill(pair, &header, &frame));
        // The bursts pass.
        proc::pause(Duration::from_millis(300))?;
    }
    let time = Duration::from_secs(secs.into());
    let begin = Instant::now();
    let before = cpu_ns(switch.id())?;
    if load == PortsLoad::Paced {
        // A port sends every 20 ms, one after the other.
        let interval = Duration::from_micros(200);
        let mut due = begin;
        for at in (0..PORTS).cycle().take_while(|_| begin.elapsed() < time) {
            due += interval;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            pairs[at].flush();
            pairs[at].send(&header, &frame);
            pairs[at].flush();
        }
    } else if load.is_kicked() {
        while begin.elapsed() < time {
            pairs[0].kick_anyway();
        }
    } else {
        proc::pause(time)?;
    }
    let spent = cpu_ns(switch.id())? - before;
    let percent = to_f64(spent) / 1e7 / begin.elapsed().as_secs_f64();
    for (at, pair) in pairs.iter_mut().enumerate().filter(|_| wait) {
        pair.flush();
        ensure!(pair.spare() < usize::from(pair.size()), "port {at} has no packets left: use fewer --secs");
    }
    measure::end(switch)?;
    let metrics = [("switch_cpu_percent".to_owned(), percent)].into();
    Ok(Measured { metrics, summary: format!("{percent:.2} % of a CPU"), ..Measured::default() })
}

const CSUM_AND_TSO: u64 =
    f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO4;

/// Returns a TCP packet of 64 KiB that is still to be segmented.
fn segmented() -> (NetHeader, Vec<u8>) {
    const LEN: u16 = 65_054;
    const MSS: u16 = 1448;
    let mut frame = vec![0; LEN.into()];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    // Nobody looks at the checksum of the IPv4 header.
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6]);
    frame[16..18].copy_from_slice(&(LEN - 14).to_be_bytes());
    frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    // Offset of the data, and ACK.
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
    let header = NetHeader {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: MSS,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    (header, frame)
}

/// Sends a frame by all free buffers.
fn fill(pair: &mut Pair, header: &NetHeader, frame: &[u8]) {
    pair.flush();
    while pair.send(header, frame) {}
    pair.flush();
}

/// Returns the CPU time of a process in nanoseconds, without threads that have ended.
fn cpu_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("/proc has no schedstat")?;
    }
    Ok(sum)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a trial are far below 2^52")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
