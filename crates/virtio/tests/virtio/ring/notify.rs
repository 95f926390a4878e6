//! Notifications of a split ring: the rule itself, and the event suppression that each side writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use straightline_testing::guest_ring::{AVAIL, BUFFERS, GuestRing, USED, events};
use straightline_virtio::ring::{Device, First, Standing, need_event};

proptest! {
    #[test]
    fn need_event_is_that_the_event_is_among_the_new(event: u16, old: u16, count in prop_oneof![0..300_u16, any::<u16>()]) {
        let new = old.wrapping_add(count);
        let among = (0..count).any(|i| old.wrapping_add(i) == event);
        prop_assert_eq!(need_event(event, new, old), among);
    }
}

#[test]
fn polling_asks_for_no_kicks() {
    let guest = GuestRing::new(8);
    let mut device = guest.device(0, events(false));
    let mut driver = guest.driver(events(false));
    let offered = |driver: &mut straightline_virtio::ring::SplitDriver| {
        driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
        driver.publish();
        driver.must_kick()
    };
    device.disarm();
    assert_eq!(guest.read16(USED), 1);
    assert!(!offered(&mut driver));
    assert_eq!(device.arm(0), Ok(true));
    assert_eq!(guest.read16(USED), 0);
    assert!(offered(&mut driver));
    assert!(!driver.must_kick(), "nothing new");

    let guest = GuestRing::new(8);
    let mut device = guest.device(0, events(true));
    let mut driver = guest.driver(events(true));
    assert_eq!(device.arm(0), Ok(false));
    assert_eq!(guest.avail_event(), 0);
    assert!(offered(&mut driver));
    device.disarm();
    assert_eq!(guest.read16(USED), 0, "with the event index the flags stay 0 (2.7.7.1)");
    for _ in 0..5 {
        assert!(!offered(&mut driver));
    }
}

#[test]
fn a_driver_that_polls_wants_no_interrupts() {
    for event_idx in [false, true] {
        let guest = GuestRing::new(8);
        let mut device = guest.device(0, events(event_idx));
        let mut driver = guest.driver(events(event_idx));
        let mut used = |driver: &mut straightline_virtio::ring::SplitDriver| {
            driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
            driver.publish();
            let mut first = [First::default()];
            assert!(device.available(1).expect("good") >= 1);
            device.peek(&mut first).expect("good");
            device.take(&first[0]);
            device.give_back(1);
            device.must_notify()
        };
        // Either side may have missed what happened before the first decision.
        used(&mut driver);
        assert!(driver.used().is_some());
        assert!(!driver.want_interrupt(false));
        // "The driver MUST set flags to 0" with the event index (2.7.7.1), because a device looks
        // at only one of the two.
        assert_eq!(guest.read16(AVAIL), u16::from(!event_idx));
        assert!(!used(&mut driver));
        assert!(!used(&mut driver));
        assert!(driver.want_interrupt(true), "there are two already");
        assert_eq!(guest.read16(AVAIL), 0);
        assert!(driver.used().is_some() && driver.used().is_some() && driver.used().is_none());
        assert!(!driver.want_interrupt(true));
        assert!(used(&mut driver));
    }
}

/// One step of a driver or a device.
#[derive(Clone, Copy, Debug)]
enum Step {
    Offer,
    Serve,
    Look,
    WantInterrupt(bool),
}

proptest! {
    /// The event word asks for a used entry exactly while the driver waits and has not looked
    /// since.
    #[test]
    fn a_ring_says_whether_its_driver_has_answered(
        steps in prop::collection::vec(
            prop_oneof![
                3 => Just(Step::Offer), 3 => Just(Step::Serve), 2 => Just(Step::Look),
                2 => any::<bool>().prop_map(Step::WantInterrupt),
            ],
            1..200,
        ),
        base in prop_oneof![Just(0), Just(65_530_u16)],
    ) {
        let guest = GuestRing::new(4);
        guest.write16(AVAIL + 2, base);
        guest.write16(USED + 2, base);
        let mut device = guest.device(base, events(true));
        let event_at = AVAIL + 4 + 2 * u64::from(guest.size);
        let mut offered = 0_u16;
        let mut used = 0_u16;
        let mut seen = 0_u16;
        let mut waits_from = None;
        guest.write16(event_at, base.wrapping_sub(5));
        let mut before: Option<Standing> = None;
        for step in steps {
            let moved = match step {
                Step::Offer if offered - seen < guest.size => {
                    guest.offer(base.wrapping_add(offered), offered % guest.size);
                    offered += 1;
                    true
                }
                Step::Serve if used < offered => {
                    let mut first = [First::default()];
                    prop_assert!(device.available(1).expect("good") >= 1);
                    device.peek(&mut first).expect("good");
                    device.take(&first[0]);
                    device.give_back(1);
                    used += 1;
                    true
                }
                Step::Look => {
                    seen = used;
                    false
                }
                Step::WantInterrupt(true) => {
                    let moved = waits_from != Some(seen);
                    waits_from = Some(seen);
                    guest.write16(event_at, base.wrapping_add(seen));
                    moved
                }
                Step::WantInterrupt(false) => {
                    let event = base.wrapping_add(seen).wrapping_sub(5);
                    let moved = event != guest.read16(event_at);
                    waits_from = None;
                    guest.write16(event_at, event);
                    moved
                }
                _ => false,
            };
            let standing = device.standing().expect("it has the event index");
            let asked = waits_from.is_some_and(|from| from < used && used - from <= guest.size);
            prop_assert_eq!(standing.is_asked, asked, "{:?}", standing);
            if let Some(before) = before {
                prop_assert_eq!(moved, before != standing, "{:?}, then {:?}", before, standing);
            }
            before = Some(standing);
        }
    }
}

#[test]
fn without_the_event_index_a_ring_does_not_say_whether_its_driver_waits() {
    let guest = GuestRing::new(8);
    assert_eq!(guest.device(0, events(false)).standing(), None);
}

#[test]
fn a_driver_that_polls_asks_for_nothing() {
    let guest = GuestRing::new(8);
    let mut device = guest.device(0, events(true));
    let mut driver = guest.driver(events(true));
    for _ in 0..30 {
        driver.want_interrupt(false);
        driver.add(&[(BUFFERS, 64, false); 1]).expect("free descriptors");
        driver.publish();
        let mut first = [First::default()];
        assert_eq!(device.available(1), Ok(1));
        device.peek(&mut first).expect("good");
        device.take(&first[0]);
        device.give_back(1);
        assert!(!device.standing().expect("it has the event index").is_asked);
        assert!(driver.used().is_some_and(|used| used.is_ok()));
    }
}

/// Waits for a notification. Only a lost notification makes a side sleep that long.
fn sleep(notified: &AtomicBool, who: &str) {
    let start = Instant::now();
    while !notified.swap(false, Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(10), "the {who} was not woken");
    }
}

fn wake(notified: &AtomicBool, who: &std::thread::Thread) {
    notified.store(true, Ordering::SeqCst);
    who.unpark();
}

/// Two threads, and each sleeps when it finds nothing. A single lost notification would stop the
/// test.
#[test]
fn sleepers_are_always_woken() {
    const CHAINS: u32 = 150_000;
    for event_idx in [false, true] {
        let guest = GuestRing::new(4);
        let mut device = guest.device(0, events(event_idx));
        let mut driver = guest.driver(events(event_idx));
        let kicked = AtomicBool::new(false);
        let called = AtomicBool::new(false);
        let driver_thread = std::thread::current();
        std::thread::scope(|s| {
            let device_thread = s.spawn(|| {
                let mut done = 0;
                while done < CHAINS {
                    let available = device.available(4).expect("a good driver");
                    if available == 0 {
                        if !device.arm(0).expect("a good driver") {
                            sleep(&kicked, "device");
                        }
                        device.disarm();
                        continue;
                    }
                    let mut firsts = [First::default(); 4];
                    let firsts = &mut firsts[..available.min(4).into()];
                    device.peek(firsts).expect("good heads");
                    firsts.iter().for_each(|first| device.take(first));
                    device.give_back(device.outstanding());
                    done += u32::from(available);
                    if device.must_notify() {
                        wake(&called, &driver_thread);
                    }
                }
            });
            let mut added = 0;
            let mut reaped = 0;
            while reaped < CHAINS {
                while added < CHAINS && driver.add(&[(BUFFERS, 64, false)]).is_some() {
                    added += 1;
                }
                driver.publish();
                if driver.must_kick() {
                    wake(&kicked, device_thread.thread());
                }
                let before = reaped;
                while let Some(used) = driver.used() {
                    used.expect("a good device");
                    reaped += 1;
                }
                if reaped == before {
                    if !driver.want_interrupt(true) {
                        sleep(&called, "driver");
                    }
                    driver.want_interrupt(false);
                }
            }
        });
    }
}
