//! Who is to be told when: the rule itself, and what each side writes to say that it wants to be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use straightline_virtio::ring::{First, need_event};

use super::guest::{AVAIL, BUFFERS, Guest, USED, events};

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
    let guest = Guest::new(8);
    let mut device = guest.device(0, events(false));
    let mut driver = guest.driver(events(false));
    let offered = |driver: &mut straightline_virtio::ring::SplitDriver| {
        driver.add(&[(BUFFERS, 64, false)]).expect("room");
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

    let guest = Guest::new(8);
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
        let guest = Guest::new(8);
        let mut device = guest.device(0, events(event_idx));
        let mut driver = guest.driver(events(event_idx));
        let mut used = |driver: &mut straightline_virtio::ring::SplitDriver| {
            driver.add(&[(BUFFERS, 64, false)]).expect("room");
            driver.publish();
            let mut first = [First::default()];
            assert!(device.available(1).expect("good") >= 1);
            device.look(&mut first).expect("good");
            device.take(&first[0]);
            device.give_back(1);
            device.must_notify()
        };
        // What happened before the first decision may have been missed by anybody.
        used(&mut driver);
        assert!(driver.used().is_some());
        assert!(!driver.want_interrupt(false));
        // "The driver MUST set flags to 0" with the event index (2.7.7.1), for a device looks at one of the two only.
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

/// Waits to be told. Nobody who sleeps rightly sleeps that long.
fn sleep(told: &AtomicBool, who: &str) {
    let start = Instant::now();
    while !told.swap(false, Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(10), "the {who} was not woken");
    }
}

fn tell(told: &AtomicBool, who: &std::thread::Thread) {
    told.store(true, Ordering::SeqCst);
    who.unpark();
}

/// Two threads, each of which sleeps whenever it finds nothing: a single lost notification would end it.
#[test]
fn sleepers_are_always_woken() {
    const CHAINS: u32 = 150_000;
    for event_idx in [false, true] {
        let guest = Guest::new(4);
        let (mut device, mut driver) = (guest.device(0, events(event_idx)), guest.driver(events(event_idx)));
        let (kicked, called) = (AtomicBool::new(false), AtomicBool::new(false));
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
                    device.look(firsts).expect("good heads");
                    firsts.iter().for_each(|first| device.take(first));
                    device.give_back(device.outstanding());
                    done += u32::from(available);
                    if device.must_notify() {
                        tell(&called, &driver_thread);
                    }
                }
            });
            let (mut added, mut reaped) = (0, 0);
            while reaped < CHAINS {
                while added < CHAINS && driver.add(&[(BUFFERS, 64, false)]).is_some() {
                    added += 1;
                }
                driver.publish();
                if driver.must_kick() {
                    tell(&kicked, device_thread.thread());
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
