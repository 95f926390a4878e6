//! Notifications of a packed ring: which side is notified when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use straightline_testing::guest_ring::{BUFFERS, GuestRing};
use straightline_virtio::ring::{Device, First, PackedDevice, PackedDriver, Standing};

use super::common::{DEVICE_SUPPRESSION, DRIVER_SUPPRESSION, halves, is_notified};

const SIZES: [u16; 7] = [1, 2, 3, 5, 8, 255, 256];

fn offer(driver: &mut PackedDriver) {
    driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
    driver.publish();
}

fn serve(device: &mut PackedDevice) {
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    device.take(&first[0]);
    device.give_back(1);
}

/// Sends one chain there and back.
fn round(device: &mut PackedDevice, driver: &mut PackedDriver) {
    offer(driver);
    serve(device);
    assert!(driver.used().is_some_and(|used| used.is_ok()));
}

// Cites packed-2.8.10-3, packed-2.8.22-1.
#[test]
fn who_sleeps_is_woken_by_the_next_chain() {
    for (size, event_idx) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = halves(&guest, event_idx);
        for n in 0..5 * u32::from(size) {
            // A few chains without a decision, so that the last decision is not always one chain
            // ago.
            if n.is_multiple_of(4) {
                for _ in 0..n % 13 {
                    device.disarm();
                    assert!(!driver.want_interrupt(false));
                    round(&mut device, &mut driver);
                }
            }
            assert_eq!(device.arm(0), Ok(false));
            offer(&mut driver);
            assert!(driver.must_kick(), "size {size}, {n}: the device sleeps");
            assert!(!driver.must_kick(), "nothing new");
            assert!(device.arm(0).is_ok_and(|there| there));
            assert!(!driver.want_interrupt(true));
            serve(&mut device);
            assert!(device.must_notify(), "size {size}, {n}: the driver sleeps");
            assert!(!device.must_notify(), "nothing new");
            assert!(driver.want_interrupt(true));
            assert!(driver.used().is_some_and(|used| used.is_ok()));
        }
    }
}

// Cites packed-2.8.10-1, packed-2.8.21.2-1.
#[test]
fn who_polls_is_not_told() {
    for (size, event_idx) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = halves(&guest, event_idx);
        device.disarm();
        driver.want_interrupt(false);
        assert_eq!((guest.read16(DEVICE_SUPPRESSION + 2), guest.read16(DRIVER_SUPPRESSION + 2)), (1, 1));
        for _ in 0..3 * size {
            offer(&mut driver);
            assert!(!driver.must_kick());
            serve(&mut device);
            assert!(!device.must_notify());
            assert!(driver.used().is_some_and(|used| used.is_ok()));
        }
    }
}

/// After two full rounds every position is the same again. The number of descriptors distinguishes
/// that from no progress.
#[test]
fn two_rounds_without_a_decision_are_not_nothing() {
    for (size, event_idx) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = halves(&guest, event_idx);
        round(&mut device, &mut driver);
        device.must_notify();
        driver.must_kick();
        for n in 1..=2 * size {
            if n == 2 * size {
                assert_eq!(device.arm(0), Ok(false));
                assert!(!driver.want_interrupt(true));
            }
            round(&mut device, &mut driver);
        }
        assert!(driver.must_kick(), "size {size}");
        assert!(device.must_notify(), "size {size}");
    }
}

#[test]
fn a_chain_is_passed_over_as_a_whole() {
    // The event is the chain's first position, which the next used position leaves far behind.
    let guest = GuestRing::new(5);
    let (mut device, mut driver) = halves(&guest, true);
    for _ in 0..12 {
        assert_eq!(device.arm(0), Ok(false));
        driver.add(&[(BUFFERS, 64, false); 4]).expect("free descriptors");
        driver.publish();
        assert!(driver.must_kick());
        assert!(!driver.want_interrupt(true));
        serve(&mut device);
        assert!(device.must_notify());
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
// Cites packed-2.8.21.3.1-1, packed-2.8.22-2.
#[test]
fn sleepers_are_always_woken() {
    const CHAINS: usize = 100_000;
    for event_idx in [false, true] {
        let guest = GuestRing::new(5);
        let (mut device, mut driver) = halves(&guest, event_idx);
        let kicked = AtomicBool::new(false);
        let called = AtomicBool::new(false);
        let driver_thread = std::thread::current();
        std::thread::scope(|s| {
            let device_thread = s.spawn(|| {
                let mut done = 0;
                while done < CHAINS {
                    let mut firsts = [First::default(); 3];
                    let found = device.find(&mut firsts).expect("a good driver");
                    if found == 0 {
                        if !device.arm(0).expect("a good driver") {
                            sleep(&kicked, "device");
                        }
                        device.disarm();
                        continue;
                    }
                    firsts[..found].iter().for_each(|first| device.take(first));
                    device.give_back(device.outstanding());
                    done += found;
                    if device.must_notify() {
                        wake(&called, &driver_thread);
                    }
                }
            });
            let mut added = 0;
            let mut reaped = 0;
            while reaped < CHAINS {
                while added < CHAINS && driver.add(&[(BUFFERS, 64, false); 3][..1 + added % 3]).is_some() {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any event suppression in the ring, written by either side, is compared with another form of
    /// the rule.
    // Cites packed-2.8.10-1, packed-2.8.10-2, packed-2.8.14-1.
    #[test]
    fn the_rule_is_exact(
        size in prop::sample::select(SIZES.to_vec()), at: prop::sample::Index, wrap: bool,
        mode in prop_oneof![6 => Just(2_u16), 1 => any::<u16>()], event_idx in prop::bool::weighted(0.8),
        start in 0..600_u64, count in 0..600_u64,
    ) {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = halves(&guest, event_idx);
        // The first decision is always to notify: the predecessor's decisions are not known.
        prop_assert!(device.must_notify());
        for _ in 0..start {
            round(&mut device, &mut driver);
        }
        driver.must_kick();
        device.must_notify();
        let at = u16::try_from(at.index(size.into())).expect("less than the size");
        for suppression in [DRIVER_SUPPRESSION, DEVICE_SUPPRESSION] {
            guest.write16(suppression, at | u16::from(wrap) << 15);
            guest.write16(suppression + 2, mode);
        }
        for _ in 0..count {
            round(&mut device, &mut driver);
        }
        prop_assert_eq!(driver.must_kick(), is_notified(&guest, DEVICE_SUPPRESSION, event_idx, start, start + count));
        prop_assert_eq!(device.must_notify(), is_notified(&guest, DRIVER_SUPPRESSION, event_idx, start, start + count));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The event word asks for a used descriptor exactly while the driver waits and has not looked
    /// since.
    #[test]
    fn a_ring_says_whether_its_driver_has_answered(
        size in prop::sample::select(vec![1_u16, 2, 3, 5, 8]),
        steps in prop::collection::vec(0..5_u8, 1..200),
    ) {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = halves(&guest, true);
        let mut offered = 0_u64;
        let mut used = 0;
        let mut seen = 0;
        let mut waits_from = None;
        driver.want_interrupt(false);
        let mut before: Option<Standing> = None;
        for step in steps {
            let event_before = (guest.read16(DRIVER_SUPPRESSION), guest.read16(DRIVER_SUPPRESSION + 2));
            let mut moved = false;
            match step {
                0 if offered - seen < u64::from(size) => {
                    offer(&mut driver);
                    offered += 1;
                    moved = true;
                }
                1 if used < offered => {
                    serve(&mut device);
                    used += 1;
                    moved = true;
                }
                2 if seen < used => {
                    prop_assert!(driver.used().is_some_and(|used| used.is_ok()));
                    seen += 1;
                }
                3 => {
                    driver.want_interrupt(true);
                    waits_from = Some(seen);
                }
                4 => {
                    driver.want_interrupt(false);
                    waits_from = None;
                }
                _ => {}
            }
            moved |= event_before != (guest.read16(DRIVER_SUPPRESSION), guest.read16(DRIVER_SUPPRESSION + 2));
            let standing = device.standing().expect("it has the event index");
            // A position distinguishes two rounds, no more.
            let rounds = 2 * u64::from(size);
            let asked = waits_from.is_some_and(|from| (1..=u64::from(size)).contains(&((used - from) % rounds)));
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
    assert_eq!(halves(&guest, false).0.standing(), None);
}

/// A driver that asks for a call for each used descriptor does not show which ones it has seen.
#[test]
fn a_driver_that_wants_every_call_asks_for_no_certain_one() {
    let guest = GuestRing::new(8);
    let (mut device, mut driver) = halves(&guest, true);
    driver.want_interrupt(true);
    guest.write16(DRIVER_SUPPRESSION + 2, 0);
    offer(&mut driver);
    serve(&mut device);
    assert!(!device.standing().expect("it has the event index").is_asked);
}
