//! Tests of the generator on ports that lose, repeat, delay and corrupt the packets that a test
//! names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::{Endpoint, Received, Receiver, TestPort};
use straightline_virtio::net_header::NetHeader;

use super::tag::Tag;
use super::*;

/// The fault that happens to a packet.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Pass,
    Lose,
    Twice,
    /// This many packets overtake the packet.
    Late(usize),
    /// This bit of the body is flipped, counted from the end.
    Body(usize),
    /// This bit of the tag is flipped.
    Tag(usize),
    /// The packet's addresses are swapped, as by a guest that forwards.
    Swap,
    /// It gets a VLAN tag.
    Push,
}

#[derive(Debug)]
struct Packet {
    number: u64,
    bytes: Vec<u8>,
    fault: Fault,
}

impl Received for Packet {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn header(&self) -> NetHeader {
        NetHeader::default()
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// Flips a bit of a tag. If the check is still right, as in one of 65536 cases, flips the next one
/// too.
fn spoil(payload: &mut [u8], first: usize) {
    for bit in first.. {
        payload[bit / 8] ^= 1 << (bit % 8);
        if Tag::parse(payload[..tag::LEN].try_into().expect("a tag")).is_none() {
            return;
        }
    }
}

/// A port whose frames return with the faults of `faults`, packet by packet, and without faults
/// afterwards.
#[derive(Debug, Default)]
struct Fake {
    faults: VecDeque<Fault>,
    free: usize,
    sent: u64,
    line: VecDeque<Packet>,
    held: Vec<(usize, Packet)>,
    /// The streams and numbers of packets sent so far, with their faults.
    log: Vec<(u64, Fault)>,
    /// The place at which each template was patched.
    patched: BTreeMap<usize, (usize, usize)>,
    gone: bool,
    /// A foreign frame comes after each such number of calls of `receive`.
    chatters: Option<u64>,
    /// The range of calls of `receive` after which no buffer is free.
    full: std::ops::Range<u64>,
    /// The range of calls of `receive` during which the backend takes no packet and returns no
    /// packet.
    stands_still: std::ops::Range<u64>,
    calls: u64,
    /// The virtio-net headers of sent packets.
    headers: Vec<Vec<u8>>,
}

impl Fake {
    fn new(faults: Vec<Fault>) -> Fake {
        Fake { faults: faults.into(), free: 1000, ..Fake::default() }
    }

    fn forward(&mut self, packet: Packet) {
        self.line.push_back(packet);
        self.held.iter_mut().for_each(|held| held.0 = held.0.saturating_sub(1));
        let (now, later) = std::mem::take(&mut self.held).into_iter().partition(|held| held.0 == 0);
        self.held = later;
        let now: Vec<(usize, Packet)> = now;
        now.into_iter().for_each(|(_, packet)| self.forward(packet));
    }
}

impl TestPort for Fake {
    fn free_buffers(&mut self) -> usize {
        if self.full.contains(&self.calls) {
            return 0;
        }
        self.free.saturating_sub(self.line.len())
    }

    fn send(&mut self, template: usize, _: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        let mut bytes = frame.to_vec();
        for (at, patch) in patches {
            bytes[*at..*at + patch.len()].copy_from_slice(patch);
            let place = (*at, patch.len());
            assert_eq!(*self.patched.entry(template).or_insert(place), place, "a patch moved");
        }
        self.headers.push(bytes[..42].to_vec());
        let number = self.sent;
        self.sent += 1;
        let fault = self.faults.pop_front().unwrap_or(Fault::Pass);
        let len = bytes.len();
        match fault {
            Fault::Pass | Fault::Twice | Fault::Late(_) => {}
            Fault::Lose => return true,
            Fault::Body(bit) => bytes[len - 1 - bit / 8] ^= 1 << (bit % 8),
            Fault::Tag(bit) => spoil(&mut bytes[42..], bit),
            Fault::Swap => bytes[..12].rotate_left(6),
            Fault::Push => drop(bytes.splice(12..12, [0x81, 0, 0, 5])),
        }
        let packet = |bytes: Vec<u8>| Packet { number, bytes, fault };
        match fault {
            Fault::Late(by) => self.held.push((by, packet(bytes))),
            Fault::Twice => {
                self.forward(packet(bytes.clone()));
                self.forward(packet(bytes));
            }
            _ => self.forward(packet(bytes)),
        }
        true
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(!self.line.is_empty())
    }

    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        anyhow::ensure!(!self.gone, "the backend has closed the connection");
        self.calls += 1;
        if self.stands_still.contains(&self.calls) {
            return Ok(0);
        }
        if self.line.is_empty() {
            self.line.extend(self.held.drain(..).map(|(_, packet)| packet));
        }
        let count = self.line.len().min(most);
        for packet in self.line.drain(..count) {
            each.frame(&packet);
            self.log.push((packet.number, packet.fault));
        }
        if self.chatters.is_some_and(|calls| self.calls.is_multiple_of(calls)) {
            each.frame(&Packet { number: 0, bytes: vec![0; 60], fault: Fault::Pass });
            return Ok(count + 1);
        }
        Ok(count)
    }
}

const TIMING: Timing = Timing {
    warm_up: Duration::ZERO,
    time: Duration::from_millis(1),
    quiet: Duration::from_micros(100),
    drain: Duration::from_millis(10),
    counted: None,
};

/// Runs a trial in turns of a microsecond, from the start to the end.
fn run<P: TestPort>(generator: &mut Generator<P>, load: Load, timing: &Timing) -> Measured {
    let mut now = 5_000_000_000_000;
    generator.begin(load, timing, now);
    while !generator.is_over() {
        generator.turn(now).expect("a turn");
        now += cycles(1e-6);
    }
    generator.measured()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
fn cycles(seconds: f64) -> u64 {
    (seconds * hertz()) as u64
}

fn load(rate: &str) -> Load {
    Load { rate: rate.parse().expect("a rate"), burst: 1 }
}

fn streams(texts: &[&str]) -> Vec<StreamSpec> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

/// Computes the counters from all arrivals, literally by their definitions (RFC 4737).
fn literally(sent: u64, log: &[(u64, Fault)]) -> (StreamCounters, u64) {
    let mut counters = StreamCounters { sent, ..StreamCounters::default() };
    let mut foreign = 0;
    let mut order: Vec<u64> = Vec::new();
    for (number, fault) in log {
        if matches!(fault, Fault::Tag(_)) {
            foreign += 1;
            continue;
        }
        counters.corrupt += u64::from(matches!(fault, Fault::Body(_)));
        if order.contains(number) {
            counters.duplicates += 1;
            continue;
        }
        if let Some(overtaker) = order.iter().position(|earlier| earlier > number) {
            counters.reordered += 1;
            counters.extent = counters.extent.max(u64::try_from(order.len() - overtaker).expect("small"));
        }
        order.push(*number);
        counters.received += 1;
        counters.bytes += 200 + if matches!(fault, Fault::Push) { 4 } else { 0 };
    }
    (counters, foreign)
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        10 => Just(Fault::Pass),
        1 => Just(Fault::Lose),
        1 => Just(Fault::Twice),
        1 => (1..30_usize).prop_map(Fault::Late),
        1 => (0..(200 - 60) * 8_usize).prop_map(Fault::Body),
        1 => (0..14 * 8_usize).prop_map(Fault::Tag),
        1 => Just(Fault::Swap),
        1 => Just(Fault::Push),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_counted_is_what_was_done(faults in prop::collection::vec(fault(), 0..400)) {
        let specs = streams(&["size=200,src-port=step:1-9,dst-ip=random:10.0.0.0/24"]);
        let mut generator = Generator::new(vec![(Fake::new(faults), specs)], 1).expect("a generator");
        let measured = run(&mut generator, load("500kpps"), &TIMING);
        let fake = generator.into_ports().next().expect("a port");
        let (counters, foreign) = literally(fake.sent, &fake.log);
        prop_assert_eq!(measured.total(), counters);
        prop_assert_eq!(measured.foreign, foreign);
        prop_assert_eq!(measured.meant, Some(fake.sent));
    }
}

#[test]
fn streams_are_counted_each_for_itself_by_their_weights() {
    let specs = streams(&["size=64,weight=3", "size=imix,vlan=7", "size=uniform:114-200,vni=step:1-9"]);
    let ports = vec![(Fake::new(Vec::new()), specs.clone()), (Fake::new(Vec::new()), vec![specs[0].reversed()])];
    let fault = Generator::new(ports, 1).expect_err("60 bytes have no room for a VLAN tag");
    assert!(format!("{fault:#}").contains("`size=60:7+566:4+1514:1,vlan=7`"), "{fault:#}");
    let specs = streams(&["size=64,weight=3", "size=64+1000,vlan=7", "size=uniform:114-200,vni=step:1-9"]);
    let faults = vec![Fault::Lose; 10];
    let ports = vec![(Fake::new(faults), specs.clone()), (Fake::new(Vec::new()), vec![specs[0].reversed()])];
    let mut generator = Generator::new(ports, 1).expect("a generator");
    let measured = run(&mut generator, load("4.999mpps"), &TIMING);
    let sent: Vec<u64> = measured.streams.iter().map(|counters| counters.sent).collect();
    assert_eq!(sent, [1500, 500, 500, 2500]);
    let lost: Vec<u64> = measured.streams.iter().map(StreamCounters::lost).collect();
    assert_eq!((lost.iter().sum::<u64>(), lost[0], lost[3]), (10, 6, 0));
    assert_eq!((measured.total().corrupt, measured.foreign), (0, 0));
}

#[test]
fn who_only_counts_takes_whatever_comes() {
    for counts_only in [false, true] {
        let ports = vec![(Fake::new(vec![Fault::Tag(0); 1000]), streams(&["size=200", "size=200"]))];
        let mut generator = Generator::new(ports, 1).expect("a generator");
        if counts_only {
            generator.count_only();
        }
        let measured = run(&mut generator, load("500kpps"), &TIMING);
        let total = measured.total();
        let (received, foreign) = if counts_only { (total.sent, 0) } else { (0, total.sent) };
        assert_eq!((total.received, total.bytes, measured.foreign), (received, 200 * received, foreign));
        // Every stream has received packets.
        assert_eq!(measured.streams.len(), if counts_only { 1 } else { 2 });
    }
}

#[test]
fn warm_up_and_what_comes_late_of_it_do_not_count() {
    // All packets of the warm-up are lost, duplicated or late; none of the packets that count is.
    let faults = (0..500).map(|n| [Fault::Lose, Fault::Twice, Fault::Late(20)][n % 3]).chain([Fault::Lose]).collect();
    let mut generator = Generator::new(vec![(Fake::new(faults), streams(&["size=200"]))], 1).expect("a generator");
    let timing = Timing { warm_up: Duration::from_millis(1), ..TIMING };
    let measured = run(&mut generator, load("499.5kpps"), &timing);
    let counters = measured.total();
    assert_eq!((counters.sent, counters.lost(), counters.duplicates, counters.reordered), (500, 1, 0, 0));
    assert_eq!(measured.meant, Some(500));
    assert!((measured.seconds[1] / measured.seconds[0] - 1.0).abs() < 0.01, "{:?}", measured.seconds);
}

#[test]
fn what_comes_again_is_no_throughput() {
    let twice = Fake::new(vec![Fault::Twice; 600]);
    let mut generator = Generator::new(vec![(twice, streams(&["size=200"]))], 1).expect("a generator");
    let measured = run(&mut generator, load("500kpps"), &TIMING);
    let counters = measured.total();
    assert!(counters.sent > 400 && counters.duplicates == counters.sent, "{counters:?}");
    assert!(measured.arrived[0] <= counters.sent && measured.arrived[1] <= 200 * counters.sent, "{measured:?}");
}

#[test]
fn frames_of_others_do_not_prolong_a_trial() {
    // A foreign frame comes every 50 us, and 100 us without a packet of ours end the trial.
    let fake = Fake { chatters: Some(50), ..Fake::new(vec![Fault::Lose]) };
    let mut generator = Generator::new(vec![(fake, streams(&["size=200"]))], 1).expect("a generator");
    let measured = run(&mut generator, load("500kpps"), &TIMING);
    assert_eq!((measured.total().lost(), measured.still_coming), (1, false), "{measured:?}");
    assert!(measured.foreign > 0);
}

#[test]
fn what_a_backend_has_not_taken_is_waited_for() {
    // A turn takes 1 us. The port pauses for 2 ms, twenty times the silence that ends a trial, or
    // forever.
    for (end, lost) in [(2900, false), (u64::MAX, true)] {
        let fake = Fake { stands_still: 900..end, ..Fake::new(Vec::new()) };
        let mut generator = Generator::new(vec![(fake, streams(&["size=200"]))], 1).expect("a generator");
        let measured = run(&mut generator, load("500kpps"), &TIMING);
        assert!(measured.total().sent > 400, "{measured:?}");
        assert_eq!((measured.total().lost() > 0, measured.not_taken), (lost, lost), "{end}: {measured:?}");
        assert!(!measured.still_coming, "{end}: {measured:?}");
    }
}

#[test]
fn a_trial_that_ends_in_its_warm_up_has_nothing_of_the_one_before() {
    let mut generator = Generator::new(vec![(Fake::new(Vec::new()), streams(&["size=200"]))], 1).expect("a generator");
    assert!(run(&mut generator, load("500kpps"), &TIMING).total().sent > 0);
    let later = 6_000_000_000_000;
    generator.begin(load("1mpps"), &Timing { warm_up: Duration::from_secs(1), ..TIMING }, later);
    (0..10).for_each(|turn| _ = generator.turn(later + turn * cycles(1e-6)).expect("a turn"));
    let measured = generator.measured();
    assert_eq!((measured.total(), measured.foreign, measured.arrived), (StreamCounters::default(), 0, [0, 0]));
    assert!(measured.latency_metrics().is_empty() && measured.seconds[1].abs() < f64::EPSILON, "{measured:?}");
}

#[test]
fn the_rate_is_kept_and_what_was_not_taken_is_said() {
    for (rate, meant) in [("1mpps", 1000), ("123kpps", 123), ("160mbit", 100)] {
        let mut generator =
            Generator::new(vec![(Fake::new(Vec::new()), streams(&["size=200"]))], 0).expect("a generator");
        let measured = run(&mut generator, load(rate), &TIMING);
        assert!(measured.total().sent.abs_diff(meant) <= 1, "{rate}: {measured:?}");
        assert_eq!((measured.refused, measured.missed), (0, 0));
    }
    let closed = Fake { free: 0, ..Fake::new(Vec::new()) };
    let mut generator = Generator::new(vec![(closed, streams(&["size=200"]))], 0).expect("a generator");
    let measured = run(&mut generator, load("1mpps"), &TIMING);
    assert_eq!((measured.total().sent, measured.missed), (0, 0));
    assert!(measured.refused.abs_diff(1000) <= 1, "{measured:?}");
}

#[test]
fn a_port_that_stays_full_does_not_prolong_a_trial() {
    // The port takes nothing from the middle of the 200 ms on. A trial may last a thousandth longer
    // than planned.
    let fake = Fake { full: 100_000..u64::MAX, ..Fake::new(Vec::new()) };
    let mut generator = Generator::new(vec![(fake, streams(&["size=200"]))], 0).expect("a generator");
    let measured = run(&mut generator, load("50kpps"), &Timing { time: Duration::from_millis(200), ..TIMING });
    let [time, lasted] = measured.seconds;
    assert!(lasted < time * 1.0008, "{lasted} of {time}");
    assert!(measured.refused > 4000 && measured.missed == 0, "{measured:?}");
}

#[test]
fn latency_begins_when_a_packet_is_due() {
    // The port is full for 40 us, which the generator can catch up with. It forwards at once.
    for (burst, median) in [(1, 5.0), (4, 5.0)] {
        let fake = Fake { full: 500..540, ..Fake::new(Vec::new()) };
        let mut generator = Generator::new(vec![(fake, streams(&["size=200"]))], 0).expect("a generator");
        let measured = run(&mut generator, Load { burst, ..load("1mpps") }, &TIMING);
        assert_eq!((measured.total().lost(), measured.refused, measured.missed), (0, 0, 0), "{measured:?}");
        let latencies = measured.latency_metrics();
        let us = |name: &str| latencies.iter().find(|(known, _)| *known == name).expect("a figure").1;
        assert!(us("latency_p50_us") < median && (35.0..45.0).contains(&us("latency_max_us")), "{latencies:?}");
    }
}

#[test]
fn bursts_come_together() {
    let mut generator = Generator::new(vec![(Fake::new(Vec::new()), streams(&[""]))], 0).expect("a generator");
    let mut now = 7;
    generator.begin(Load { burst: 32, ..load("319.9kpps") }, &TIMING, now);
    let mut together = BTreeSet::new();
    while !generator.is_over() {
        let before: u64 = generator.measured().total().sent;
        generator.turn(now).expect("a turn");
        together.insert(generator.measured().total().sent - before);
        now += cycles(1e-6);
    }
    assert_eq!(together, [0, 32].into());
    assert_eq!(generator.measured().total().sent, 320);
}

#[test]
fn the_same_seed_sends_the_same() {
    let sent = |seed: &str| {
        let text = format!("size=imix,src-port=random:1-60000,dst-ip=random:10.0.0.0/8,checksum=zero,seed={seed}");
        let fake = Fake::new(Vec::new());
        let mut generator = Generator::new(vec![(fake, streams(&[&text]))], 0).expect("a generator");
        generator.begin(load("1mpps"), &TIMING, 1);
        let mut all = Vec::new();
        for turn in 0..50 {
            generator.turn(1 + turn * cycles(1e-6)).expect("a turn");
        }
        for fake in generator.into_ports() {
            all.extend(fake.headers);
        }
        all
    };
    // The number of packets that fit depends on the clock's frequency.
    let once = sent("1");
    let again = sent("1");
    let other = sent("2");
    assert!(once.len() > 20 && again.len() > 20);
    assert_eq!(once[..20], again[..20]);
    assert_ne!(once[..20], other[..20]);
}

#[test]
fn a_port_that_breaks_ends_the_trial() {
    let gone = Fake { gone: true, ..Fake::new(Vec::new()) };
    let mut generator = Generator::new(vec![(gone, streams(&[""]))], 0).expect("a generator");
    generator.begin(load("max"), &TIMING, 1);
    assert!(generator.turn(1).expect_err("it is gone").to_string().contains("closed"));
    let nothing: Vec<(Fake, Vec<StreamSpec>)> = vec![(Fake::default(), Vec::new())];
    assert!(Generator::new(nothing, 0).expect_err("no stream").to_string().contains("no stream"));
}

#[test]
fn an_echo_returns_all_and_holds_its_templates() {
    let specs = streams(&["size=imix,src-ip=step:10.0.0.1-10.0.0.200", "size=uniform:200-900,protocol=tcp"]);
    let mut generator = Generator::new(vec![(Echo::default(), specs)], 1).expect("a generator");
    let measured = run(&mut generator, load("max"), &TIMING);
    let counters = measured.total();
    assert!(counters.sent > 50_000, "{counters:?}");
    assert_eq!((counters.lost(), counters.corrupt, counters.reordered, measured.foreign), (0, 0, 0, 0));
    assert_eq!((measured.meant, measured.still_coming), (None, false));
}
