//! Notifications: which side is notified when, and the event suppression that each side writes.

use std::sync::{Condvar, Mutex};

use proptest::prelude::*;
use straightline_testing::PATIENCE;
use straightline_testing::guest_ring::{BUFFERS, GuestRing};
use straightline_virtio::ring::{Device, First, Standing, need_event};

use super::layout::{DeviceHalf, DriverHalf, Layout, for_both_layouts};
use super::packed::{DRIVER_SUPPRESSION, Packed};

for_both_layouts!(
    who_sleeps_is_woken_by_the_next_chain,
    who_polls_is_not_told,
    two_rounds_without_a_decision_are_not_nothing,
    a_chain_is_passed_over_as_a_whole,
    sleepers_are_always_woken,
    the_rule_is_exact,
    a_ring_says_whether_its_driver_has_answered,
    without_the_event_index_a_ring_does_not_say_whether_its_driver_waits,
    a_driver_that_polls_asks_for_nothing,
);

proptest! {
    #[test]
    fn need_event_is_that_the_event_is_among_the_new(event: u16, old: u16, count in prop_oneof![0..300_u16, any::<u16>()]) {
        let new = old.wrapping_add(count);
        let among = (0..count).any(|i| old.wrapping_add(i) == event);
        prop_assert_eq!(need_event(event, new, old), among);
    }
}

fn offer(driver: &mut impl DriverHalf) {
    driver.add(&[(BUFFERS, 64, false)]).expect("free descriptors");
    driver.publish();
}

fn serve(device: &mut impl DeviceHalf) {
    let mut first = [First::default()];
    assert_eq!(device.find(&mut first), Ok(1));
    device.take(&first[0]);
    device.give_back(1);
}

fn reap(driver: &mut impl DriverHalf) {
    assert!(driver.used().is_some_and(|used| used.is_ok()));
}

/// Sends one chain there and back.
fn round(device: &mut impl DeviceHalf, driver: &mut impl DriverHalf) {
    offer(driver);
    serve(device);
    reap(driver);
}

/// Rings of all sizes, with and without the event index.
fn rings<L: Layout>() -> impl Iterator<Item = (u16, bool)> {
    L::SIZES.iter().flat_map(|&size| [(size, false), (size, true)])
}

// Cites packed-2.8.10-3, packed-2.8.22-1.
fn who_sleeps_is_woken_by_the_next_chain<L: Layout>() {
    for (size, event_idx) in rings::<L>() {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = L::halves(&guest, event_idx);
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
            reap(&mut driver);
        }
    }
}

// Cites packed-2.8.10-1, packed-2.8.21.2-1.
fn who_polls_is_not_told<L: Layout>() {
    for (size, event_idx) in rings::<L>() {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = L::halves(&guest, event_idx);
        let [on, off] = L::on_and_off(event_idx);
        // Either side may have missed what happened before its first decision.
        assert_eq!(device.arm(0), Ok(false));
        offer(&mut driver);
        assert!(driver.must_kick());
        serve(&mut device);
        device.must_notify();
        reap(&mut driver);
        device.disarm();
        assert!(!driver.want_interrupt(false));
        assert_eq!(L::modes(&guest), [off, off]);
        for _ in 0..3 * size {
            offer(&mut driver);
            assert!(!driver.must_kick());
            serve(&mut device);
            assert!(!device.must_notify());
            reap(&mut driver);
        }
        // Both ask again, and hear of what is there already.
        for _ in 0..size.min(2) {
            offer(&mut driver);
        }
        assert_eq!(device.arm(0), Ok(true));
        for _ in 0..size.min(2) {
            serve(&mut device);
        }
        assert!(driver.want_interrupt(true));
        assert_eq!(L::modes(&guest), [on, on]);
        for _ in 0..size.min(2) {
            reap(&mut driver);
        }
        assert!(driver.used().is_none() && !driver.want_interrupt(true));
        assert_eq!(device.arm(0), Ok(false));
        offer(&mut driver);
        assert!(driver.must_kick());
        assert!(!driver.must_kick(), "nothing new");
        serve(&mut device);
        assert!(device.must_notify());
    }
}

/// After two full rounds every position of a packed ring is the same again. The number of
/// descriptors distinguishes that from no progress.
fn two_rounds_without_a_decision_are_not_nothing<L: Layout>() {
    for (size, event_idx) in rings::<L>() {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = L::halves(&guest, event_idx);
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

fn a_chain_is_passed_over_as_a_whole<L: Layout>() {
    // The event of a packed ring is the chain's first position, which the next used position leaves
    // far behind.
    let guest = GuestRing::new(L::SMALL);
    let (mut device, mut driver) = L::halves(&guest, true);
    for _ in 0..12 {
        assert_eq!(device.arm(0), Ok(false));
        driver.add(&[(BUFFERS, 64, false); 4]).expect("free descriptors");
        driver.publish();
        assert!(driver.must_kick());
        assert!(!driver.want_interrupt(true));
        serve(&mut device);
        assert!(device.must_notify());
        reap(&mut driver);
    }
}

/// The notification of a side that sleeps.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// Waits for a notification.
    fn sleep(&self, who: &str) {
        // The time is the subject: only a lost notification makes a side sleep so long that this fails. The
        // notification itself has to wake it, so nothing asks for it again and again.
        let guard = self.has_rung.lock().expect("no panic");
        let slept = self.rings.wait_timeout_while(guard, PATIENCE, |has_rung| !*has_rung);
        let (mut has_rung, timeout) = slept.expect("no panic");
        assert!(!timeout.timed_out(), "the {who} was not woken");
        *has_rung = false;
    }

    fn ring(&self) {
        *self.has_rung.lock().expect("no panic") = true;
        self.rings.notify_one();
    }
}

/// Two threads, and each sleeps when it finds nothing. A single lost notification would stop the
/// test.
// Cites packed-2.8.21.3.1-1, packed-2.8.22-2.
fn sleepers_are_always_woken<L: Layout>() {
    const CHAINS: usize = 150_000;
    for event_idx in [false, true] {
        let guest = GuestRing::new(L::SMALL);
        let (mut device, mut driver) = L::halves(&guest, event_idx);
        let kick = Bell::default();
        let call = Bell::default();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut done = 0;
                while done < CHAINS {
                    let mut firsts = [First::default(); 4];
                    let found = device.find(&mut firsts).expect("a good driver");
                    if found == 0 {
                        if !device.arm(0).expect("a good driver") {
                            kick.sleep("device");
                        }
                        device.disarm();
                        continue;
                    }
                    firsts[..found].iter().for_each(|first| device.take(first));
                    device.give_back(device.outstanding());
                    done += found;
                    if device.must_notify() {
                        call.ring();
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
                    kick.ring();
                }
                let before = reaped;
                while let Some(used) = driver.used() {
                    used.expect("a good device");
                    reaped += 1;
                }
                if reaped == before {
                    if !driver.want_interrupt(true) {
                        call.sleep("driver");
                    }
                    driver.want_interrupt(false);
                }
            }
        });
    }
}

/// Any event suppression in the ring, written by either side, is compared with another form of the
/// rule.
// Cites packed-2.8.10-1, packed-2.8.10-2, packed-2.8.14-1.
fn the_rule_is_exact<L: Layout>() {
    let rings = prop::sample::select(L::SIZES).prop_flat_map(|size| (Just(size), L::event(size)));
    proptest!(ProptestConfig::with_cases(400), |(
        (size, event) in rings, mode in prop_oneof![6 => Just(2_u16), 1 => any::<u16>()],
        event_idx in prop::bool::weighted(0.8), start in 0..600_u64, count in 0..600_u64,
    )| {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = L::halves(&guest, event_idx);
        // The first decision is always to notify: the predecessor's decisions are not known.
        prop_assert!(device.must_notify());
        for _ in 0..start {
            round(&mut device, &mut driver);
        }
        driver.must_kick();
        device.must_notify();
        L::suppress(&guest, event, mode);
        for _ in 0..count {
            round(&mut device, &mut driver);
        }
        prop_assert_eq!(driver.must_kick(), L::is_kick_due(&guest, event_idx, start, start + count));
        prop_assert_eq!(device.must_notify(), L::is_call_due(&guest, event_idx, Some(start), start + count));
    });
}

/// The event word asks for a used chain exactly while the driver waits and has not looked since.
fn a_ring_says_whether_its_driver_has_answered<L: Layout>() {
    let sizes: Vec<u16> = L::SIZES.iter().copied().filter(|&size| size <= 8).collect();
    proptest!(ProptestConfig::with_cases(400), |(
        size in prop::sample::select(sizes), steps in prop::collection::vec(0..5_u8, 1..200),
        start in prop_oneof![15 => Just(0), 1 => Just(L::BEFORE_WRAP)],
    )| {
        let guest = GuestRing::new(size);
        let (mut device, mut driver) = L::halves(&guest, true);
        for _ in 0..start {
            round(&mut device, &mut driver);
        }
        let mut offered = 0_u64;
        let mut used = 0;
        let mut seen = 0;
        let mut waits_from = None;
        driver.want_interrupt(false);
        let mut before: Option<Standing> = None;
        for step in steps {
            let words_before = L::driver_suppression(&guest);
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
                    reap(&mut driver);
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
            moved |= words_before != L::driver_suppression(&guest);
            let standing = device.standing().expect("it has the event index");
            let is_asked = waits_from.is_some_and(|from| L::is_asked(from, used, size));
            prop_assert_eq!(standing.is_asked, is_asked, "{:?}", standing);
            if let Some(before) = before {
                prop_assert_eq!(moved, before != standing, "{:?}, then {:?}", before, standing);
            }
            before = Some(standing);
        }
    });
}

fn without_the_event_index_a_ring_does_not_say_whether_its_driver_waits<L: Layout>() {
    let guest = GuestRing::new(8);
    assert_eq!(L::halves(&guest, false).0.standing(), None);
}

fn a_driver_that_polls_asks_for_nothing<L: Layout>() {
    let guest = GuestRing::new(8);
    let (mut device, mut driver) = L::halves(&guest, true);
    for _ in 0..30 {
        driver.want_interrupt(false);
        offer(&mut driver);
        serve(&mut device);
        assert!(!device.standing().expect("it has the event index").is_asked);
        reap(&mut driver);
    }
}

/// A driver of a packed ring that asks for a call for each used descriptor does not show which ones
/// it has seen.
#[test]
fn a_driver_that_wants_every_call_asks_for_no_certain_one() {
    let guest = GuestRing::new(8);
    let (mut device, mut driver) = Packed::halves(&guest, true);
    driver.want_interrupt(true);
    guest.write16(DRIVER_SUPPRESSION + 2, 0);
    offer(&mut driver);
    serve(&mut device);
    assert!(!device.standing().expect("it has the event index").is_asked);
}
