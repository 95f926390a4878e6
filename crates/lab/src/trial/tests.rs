//! Trials on a machine of a test: its time passes by turns, and what disturbs them is made up. The
//! switch is a port in memory, which returns packets and may have faults.

use std::sync::atomic::Ordering;

use straightline_guest::endpoints::Receiver;
use straightline_report::results::Validity;
use straightline_virtio::net_header::NetHeader;

use super::disturbance::Counters;
use super::machine::moved::MovedMachine;
use super::*;

/// The time and the rate of most trials: 10 000 packets. One packet is a hundredth of a percent.
const TIME: Duration = Duration::from_millis(200);
const RATE: Rate = Rate::Pps(50_000.0);

const MILLISECOND: Duration = Duration::from_millis(1);

fn plan() -> Plan {
    Plan { burst: 1, warm_up: MILLISECOND, cpu: None, limit_mpps: None, counted: None }
}

fn generator(texts: &[&str]) -> Generator<Echo> {
    through(Echo::default(), texts)
}

fn through<P: TestPort>(port: P, texts: &[&str]) -> Generator<P> {
    let specs = texts.iter().map(|text| text.parse().expect(text)).collect();
    Generator::new(vec![(port, specs)], 1).expect("a generator")
}

/// Makes a trial on a machine that nothing disturbs.
fn undisturbed<P: TestPort>(
    generator: &mut Generator<P>,
    others: &mut [&mut dyn Endpoint],
    load: (Rate, Duration),
) -> TrialOutcome {
    run_on(&MovedMachine::new(), None, generator, others, &plan(), load)
}

#[test]
fn a_trial_through_nothing_comes_to_what_was_sent() {
    let mut generator = generator(&["size=imix,dst-port=step:1-9"]);
    let outcome = undisturbed(&mut generator, &mut [], (RATE, TIME));
    let measured = outcome.measured.as_ref().expect("it was made");
    let counters = measured.total();
    assert_eq!(outcome.validity, Validity::Valid);
    assert!(counters.sent.abs_diff(10_000) <= 1 && measured.meant == Some(counters.sent), "{measured:?}");
    assert_eq!((counters.lost(), counters.corrupt, counters.duplicates, measured.missed), (0, 0, 0, 0));
    let mut again = undisturbed(&mut generator, &mut [], (Rate::Max, 10 * MILLISECOND));
    again.limit_mpps = Some(9.0);
    let sample = again.sample();
    assert_eq!(sample.validity, Validity::Valid);
    // A turn of a microsecond takes 64 packets.
    assert!((sample.metrics["mpps"] - 64.0).abs() < 0.1, "{sample:?}");
    assert!(sample.metrics["loss_ratio"].abs() < f64::EPSILON, "{sample:?}");
    assert!((sample.metrics["latency_max_us"] - 1.0).abs() < 0.1, "{sample:?}");
    assert!(!sample.latency.expect("latencies").steps.is_empty());
}

/// A switch in memory, which forwards all packets, or has this fault.
#[derive(Default)]
struct Faulty {
    echo: Echo,
    fault: Fault,
    sent: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// It changes the last byte of this packet.
    Changes(u64),
    /// It drops all packets from this one on.
    DropsFrom(u64),
    /// It has no free buffer from this packet on.
    IsFullFrom(u64),
}

impl TestPort for Faulty {
    fn free_buffers(&mut self) -> usize {
        let is_full = matches!(self.fault, Fault::IsFullFrom(first) if self.sent >= first);
        if is_full { 0 } else { self.echo.free_buffers() }
    }

    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        self.sent += 1;
        match self.fault {
            Fault::Changes(number) if number == self.sent => {
                let mut frame = frame.to_vec();
                patches.iter().for_each(|(at, bytes)| frame[*at..at + bytes.len()].copy_from_slice(bytes));
                *frame.last_mut().expect("a byte") ^= 1;
                // A template of its own: the buffer has other bytes than the next packet expects.
                self.echo.send(usize::MAX, header, &frame, &[])
            }
            Fault::DropsFrom(first) if self.sent >= first => true,
            _ => self.echo.send(template, header, frame, patches),
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.echo.flush()
    }

    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        self.echo.receive(most, each)
    }
}

/// Each disturbance just below its limit and just above it, and beside a fault of the switch.
#[test]
fn each_disturbance_has_its_verdict() {
    const VALID: (&str, &str) = ("valid", "");
    let load = "spoilt-by-load";
    let backend = "spoilt-by-backend";
    let micros = Duration::from_micros;
    let away = |at, lasts| MovedMachine::new().with_pause(at, lasts);
    let beside = |waited: u64| MovedMachine::new().with_counters(Counters::of_a_second(&[[970, waited]], 0));
    let stolen = |ticks| MovedMachine::new().with_counters(Counters::of_a_second(&[[970, 0]], ticks));
    let middle = MILLISECOND + TIME / 2;
    let end = MILLISECOND + TIME - micros(1);
    let rows: [(MovedMachine, Fault, (&str, &str)); 15] = [
        (MovedMachine::new(), Fault::None, VALID),
        // Packets that are due meanwhile are still sent if they are at most a millisecond late. Of
        // 10 000 packets, 10 may be missing.
        (away(middle, micros(900)), Fault::None, VALID),
        (away(middle, micros(1100)), Fault::None, VALID),
        (away(middle, micros(1300)), Fault::None, (load, "packets were not sent in time")),
        (away(middle, micros(50_000)), Fault::None, (load, "packets were not sent in time")),
        // A trial may be a thousandth too long.
        (away(end, micros(190)), Fault::None, VALID),
        (away(end, micros(250)), Fault::None, (load, "instead of 0.2000 s: this thread was descheduled")),
        (beside(20), Fault::None, VALID),
        (beside(21), Fault::None, (load, "waited for its CPU for 2.1 % of the time")),
        (stolen(2), Fault::None, VALID),
        (stolen(3), Fault::None, (load, "took a CPU away for 3.0 % of the time")),
        // The switch's fault comes first, whatever has disturbed the load side.
        (beside(500), Fault::Changes(5000), (backend, "1 of the checked packets came with other bytes")),
        (beside(500), Fault::DropsFrom(0), (backend, "nothing has returned of")),
        (away(middle, micros(50_000)), Fault::DropsFrom(0), (backend, "nothing has returned of")),
        (away(middle, micros(50_000)), Fault::IsFullFrom(0), (backend, "nothing could be sent")),
    ];
    for (number, (machine, fault, (word, part))) in rows.into_iter().enumerate() {
        let mut generator = through(Faulty { fault, ..Faulty::default() }, &["size=64"]);
        let outcome = run_on(&machine, None, &mut generator, &mut [], &plan(), (RATE, TIME));
        let validity = &outcome.validity;
        let why = validity.reason().unwrap_or_default();
        assert!(validity.word() == word && why.contains(part), "{number}: {validity:?}, expected {word}: {part}");
        assert_eq!(&outcome.sample().validity, validity);
        assert_eq!(outcome.to_string().contains("not a valid trial"), word != "valid", "{number}: {outcome}");
    }
}

/// Loss is a result. The samples have the numbers of what was lost, and of what was not taken.
#[test]
fn what_is_lost_is_counted_to_the_packet() {
    // The warm-up has 50 packets.
    for (fault, lost, refused) in [(Fault::DropsFrom(9_051), 1_000, 0), (Fault::IsFullFrom(9_050), 0, 1_000)] {
        let mut generator = through(Faulty { fault, ..Faulty::default() }, &["size=64"]);
        let outcome = undisturbed(&mut generator, &mut [], (RATE, TIME));
        assert_eq!(outcome.validity, Validity::Valid, "{fault:?}");
        let measured = outcome.measured.as_ref().expect("it was made");
        assert!(measured.total().lost().abs_diff(lost) <= 2 && measured.refused.abs_diff(refused) <= 2, "{measured:?}");
        let (sent, missing) = outcome.sent_and_lost();
        assert!(sent.abs_diff(10_000) <= 1 && missing.abs_diff(1_000) <= 2, "{fault:?}: {missing} of {sent}");
        let metrics = outcome.sample().metrics;
        assert!((metrics["loss_ratio"] - 0.1).abs() < 0.001, "{metrics:?}");
    }
}

#[test]
fn what_disturbed_a_trial_is_in_its_sample() {
    let machine = MovedMachine::new().with_counters(Counters::of_a_second(&[[970, 15]], 1));
    let outcome = run_on(&machine, None, &mut generator(&[""]), &mut [], &plan(), (RATE, TIME));
    let metrics = outcome.sample().metrics;
    let parts = ["cpu_waited_ratio", "cpu_stolen_ratio", "cpu_interrupted_ratio"].map(|name| metrics[name]);
    let expected = [0.015, 0.01, 0.05];
    assert!(parts.iter().zip(expected).all(|(part, expected)| (part - expected).abs() < 1e-9), "{metrics:?}");
}

/// An [`Echo`] that holds frames back. In total, no more frames return than `lets` allows.
struct Held<F> {
    echo: Echo,
    came: usize,
    lets: F,
    /// True if the port reports frames that it still holds.
    tells: bool,
}

impl<F: Fn() -> usize + Send> Held<F> {
    fn generator(lets: F, tells: bool) -> Generator<Self> {
        through(Self { echo: Echo::default(), came: 0, lets, tells }, &["size=64"])
    }
}

impl<F: Fn() -> usize + Send> TestPort for Held<F> {
    fn free_buffers(&mut self) -> usize {
        self.echo.free_buffers()
    }

    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        self.echo.send(template, header, frame, patches)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.echo.flush()
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(self.tells && self.echo.free_buffers() < Echo::default().free_buffers())
    }

    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        let count = self.echo.receive(most.min((self.lets)() - self.came), each)?;
        self.came += count;
        Ok(count)
    }
}

/// Everything that is sent returns once the gate is open.
fn gate(open: &AtomicBool) -> impl Fn() -> usize + Send {
    || if open.load(Ordering::Relaxed) { usize::MAX } else { 0 }
}

#[test]
fn what_a_guest_has_not_handed_on_yet_is_not_lost() {
    /// A port whose backend takes nothing until the first call of `is_sending`.
    struct Guest<'a>(&'a AtomicBool);
    impl Endpoint for Guest<'_> {
        fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
            Ok(0)
        }

        fn is_sending(&mut self) -> anyhow::Result<bool> {
            Ok(!self.0.swap(true, Ordering::Relaxed))
        }
    }
    let open = AtomicBool::new(false);
    let mut generator = Held::generator(gate(&open), false);
    let load = (Rate::Pps(10_000.0), 10 * MILLISECOND);
    let outcome = undisturbed(&mut generator, &mut [&mut Guest(&open)], load);
    let counters = outcome.measured.as_ref().expect("it was made").total();
    assert!(counters.sent > 0 && counters.lost() == 0, "{outcome:?}");
}

#[test]
fn a_rate_beyond_the_limit_says_what_would_work() {
    let plan = Plan { limit_mpps: Some(2.0), ..plan() };
    let outcome = run(&mut generator(&[""]), &mut [], &plan, Rate::Pps(3e6), Duration::from_millis(50));
    let why = outcome.validity.reason().expect("invalid");
    assert!(why.contains("3.000 Mpps") && why.contains("2.000"), "{why}");
    assert!(outcome.validity.is_spoilt_by_load() && outcome.sample().validity == outcome.validity, "{outcome:?}");
}

#[test]
fn a_backend_that_goes_makes_it_invalid() {
    struct Broken;
    impl Endpoint for Broken {
        fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
            anyhow::bail!("/tmp/x: the backend has closed the connection")
        }
    }
    let outcome = undisturbed(&mut generator(&[""]), &mut [&mut Broken], (Rate::Max, Duration::from_secs(600)));
    let why = outcome.validity.reason().expect("invalid");
    assert!(why.contains("closed the connection") && outcome.validity.is_spoilt_by_backend(), "{outcome:?}");
}

/// Shorter than usual.
const SHORT: Timing = Timing {
    warm_up: Duration::ZERO,
    time: Duration::from_millis(10),
    quiet: Duration::from_millis(1),
    drain: Duration::from_millis(20),
    counted: None,
};

#[test]
fn a_backend_that_takes_nothing_any_more_has_gone_silent() {
    let mut generator = Held::generator(|| 10, true);
    let load = Load { rate: Rate::Max, burst: 1 };
    let machine = MovedMachine::new();
    let (measured, _, ended) = go(&machine, &mut generator, &mut [], load, &SHORT, &EventLoop::default());
    ended.expect("nobody says that anything is wrong");
    assert_eq!((measured.total().received, measured.still_coming), (10, false), "{measured:?}");
    let validity = validity::measured(&measured, load, 64.0);
    assert!(validity.reason().is_some_and(|why| why.contains("went silent")), "{validity:?}");
}

#[test]
fn a_guest_whose_backend_takes_nothing_any_more_is_seen() {
    struct Guest;
    impl Endpoint for Guest {
        fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
            Ok(0)
        }

        fn is_sending(&mut self) -> anyhow::Result<bool> {
            Ok(true)
        }
    }
    // The generator's packets are taken and disappear; or they arrive, whatever else a guest
    // sends.
    let closed = AtomicBool::new(false);
    let open = AtomicBool::new(true);
    for (open, is_silent) in [(&closed, true), (&open, false)] {
        let mut generator = Held::generator(gate(open), false);
        let load = Load { rate: Rate::Max, burst: 1 };
        let machine = MovedMachine::new();
        let events = EventLoop::default();
        let (measured, _, ended) = go(&machine, &mut generator, &mut [&mut Guest], load, &SHORT, &events);
        ended.expect("nobody says that anything is wrong");
        assert!(measured.total().sent > 0, "{measured:?}");
        assert_eq!(measured.not_taken, is_silent, "{measured:?}");
    }
}

/// Packets that still come when the wait is over make a slow switch, not a silent one.
#[test]
fn a_backend_that_is_slow_is_told_from_a_silent_one() {
    /// A port that returns one packet in 500 calls.
    #[derive(Default)]
    struct Slow {
        echo: Echo,
        calls: u64,
    }
    impl TestPort for Slow {
        fn free_buffers(&mut self) -> usize {
            self.echo.free_buffers()
        }

        fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
            self.echo.send(template, header, frame, patches)
        }

        fn flush(&mut self) -> anyhow::Result<()> {
            self.echo.flush()
        }

        fn receive(&mut self, _: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
            // A packet in each 500 microseconds is never quiet for a millisecond.
            self.calls += 1;
            if self.calls.is_multiple_of(500) { self.echo.receive(1, each) } else { Ok(0) }
        }
    }
    let mut generator = through(Slow::default(), &["size=64"]);
    let load = Load { rate: Rate::Max, burst: 1 };
    let machine = MovedMachine::new();
    let (measured, _, ended) = go(&machine, &mut generator, &mut [], load, &SHORT, &EventLoop::default());
    ended.expect("nobody says that anything is wrong");
    assert_eq!((measured.still_coming, measured.not_taken), (true, false), "{measured:?}");
    let validity = validity::measured(&measured, load, 64.0);
    assert!(validity.reason().is_some_and(|why| why.contains("still came")), "{validity:?}");
}

#[test]
fn an_interrupted_trial_has_what_was_measured_so_far() {
    struct Later<'a>(&'a AtomicBool, u64);
    impl Endpoint for Later<'_> {
        fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
            self.1 += 1;
            self.0.store(self.1 > 100_000, Ordering::Relaxed);
            Ok(0)
        }
    }
    let flag = AtomicBool::new(false);
    let others: &mut [&mut dyn Endpoint] = &mut [&mut Later(&flag, 0)];
    let plan = Plan { warm_up: Duration::ZERO, ..plan() };
    let load = (RATE, Duration::from_secs(600));
    let outcome = run_on(&MovedMachine::new(), Some(&flag), &mut generator(&[""]), others, &plan, load);
    let why = outcome.validity.reason().expect("it has not come to its end");
    // Each of the turns takes a microsecond.
    assert_eq!(why, "interrupted, after 0.1 of 600.0 s");
    assert!(outcome.validity.is_interrupted());
    let sample = outcome.sample();
    assert!(
        (sample.metrics["mpps"] - 0.05).abs() < 0.001 && (sample.metrics["secs"] - 0.1).abs() < 0.001,
        "{sample:?}"
    );
    assert!(outcome.to_string().contains("not a valid trial: interrupted"), "{outcome}");
}

#[test]
fn the_limit_is_a_figure() {
    let limit = |text: &str| limit_on(&MovedMachine::new(), vec![text.parse().expect(text)], 1, None);
    // A turn of a microsecond takes 64 packets.
    assert!((limit("size=64").expect("a limit") - 64.0).abs() < 0.1, "{:?}", limit("size=64"));
    assert!(limit("size=20").is_err());
}
