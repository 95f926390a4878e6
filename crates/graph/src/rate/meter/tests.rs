use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_packet::{Arena, Checksum, Gso, GsoKind, Offload, PortIndex, Rcu, Settings};
use straightline_wire::Dscp;

use super::*;
use crate::rate::{Limit, TokenBucket};

const SECOND: u64 = 1_000_000_000;

fn only_bytes(per_second: u64, burst: u64) -> RateLimits {
    RateLimits { bytes: Some(Limit { per_second, burst }), packets: None }
}

fn meters(limits: RateLimits, count: usize) -> Vec<Meter> {
    let bucket = Arc::new(RateBucket::new(limits, 0));
    (0..count).map(|_| Meter::new(Arc::clone(&bucket), Arc::default())).collect()
}

/// Senders that always have packets of `len` bytes: gives each a look whenever it is ready, until `end`.
/// Returns what each has sent.
fn run(meters: &mut [Meter], len: usize, end: u64) -> Vec<u64> {
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let frame = vec![0; len];
    let mut now = 0;
    while now < end {
        arena.turn(|turn| {
            for meter in &mut *meters {
                if !meter.is_ready(now) {
                    continue;
                }
                let ids: Vec<_> =
                    (0..meter.estimate(8)).map_while(|_| turn.accept_owned(PortIndex(0), &frame)).collect();
                meter.admit(turn.packets(), &ids, now);
                meter.settle(turn);
            }
        });
        let next = meters.iter().filter_map(Meter::waits_until).min().filter(|at| *at > now);
        now = next.unwrap_or(now + 1000);
    }
    meters.iter().map(|meter| meter.stats.bytes.get()).collect()
}

#[test]
fn a_steady_sender_gets_its_rate() {
    for rate in [75_000, 12_500_000, 125_000_000] {
        let limits = only_bytes(rate, (rate / 250).max(65_536));
        let sent = run(&mut meters(limits, 1), 250, SECOND / 2)[0];
        let burst = limits.bytes.unwrap().burst;
        let expected = burst + rate / 2;
        assert!(sent <= expected + 250 && sent * 100 >= expected * 99, "{sent} of {expected} at {rate}");
    }
}

#[test]
fn members_get_the_same_and_together_the_rate() {
    let rate = 12_500_000;
    let sent = run(&mut meters(only_bytes(rate, 65_536), 5), 250, SECOND / 2);
    let all: u64 = sent.iter().sum();
    let expected = 65_536 + rate / 2;
    assert!(all <= expected + 5 * 250 && all * 100 >= expected * 98, "{all} of {expected}");
    let quantum = only_bytes(rate, 65_536).quantum().bytes.unsigned_abs();
    let [least, most] = [sent.iter().min().unwrap(), sent.iter().max().unwrap()];
    assert!(most - least <= 2 * quantum, "{sent:?}");
}

#[test]
fn a_member_that_leaves_returns_its_credit_and_its_debt() {
    let bucket = Arc::new(RateBucket::new(only_bytes(1_000_000, 10_000), 0));
    let mut credit = Cost::default();
    let first = bucket.join();
    assert_eq!(bucket.ask(first, &mut credit, 0), Ok(()));
    assert_eq!(credit.bytes, 1000);
    bucket.leave(first, Cost { bytes: 1000, packets: 0 });
    let second = bucket.join();
    // All ten quanta are there.
    for _ in 0..10 {
        let mut credit = Cost::default();
        assert_eq!(bucket.ask(second, &mut credit, 0), Ok(()));
    }
    let mut credit = Cost::default();
    let ready_at = bucket.ask(second, &mut credit, 0).unwrap_err();
    assert_eq!(ready_at, SECOND / 1000);
    bucket.leave(second, Cost::default());
    let third = bucket.join();
    bucket.leave(third, Cost { bytes: -5000, packets: 0 });
    let fourth = bucket.join();
    let mut credit = Cost::default();
    assert_eq!(bucket.ask(fourth, &mut credit, 0), Err(6 * SECOND / 1000));
}

#[test]
fn a_member_that_vanished_holds_up_nobody() {
    let mut meters = meters(only_bytes(1_000_000, 2000), 3);
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    arena.turn(|turn| {
        let ids: Vec<_> = (0..24).filter_map(|_| turn.accept_owned(PortIndex(0), &[0; 250])).collect();
        let passed: Vec<_> = meters.iter_mut().map(|meter| meter.admit(turn.packets(), &ids, 0)).collect();
        assert_eq!(passed, [8, 0, 0], "the first takes all, the others wait");
        // One waiting member never comes again, another one is gone.
        drop(meters.remove(1));
        meters.swap(0, 1);
        meters.truncate(1);
        assert!(!meters[0].is_ready(1));
        let later = meters[0].waits_until().unwrap().max(SECOND);
        assert!(meters[0].is_ready(later));
    });
}

#[test]
fn a_packet_that_stays_in_its_ring_costs_nothing() {
    let bucket = Arc::new(RateBucket::new(only_bytes(1_000_000, 1000), 0));
    let mut meter = Meter::new(Arc::clone(&bucket), Arc::default());
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    for _ in 0..100 {
        arena.turn(|turn| {
            let id = turn.accept_owned(PortIndex(0), &[0; 250]).unwrap();
            assert!(meter.is_ready(0));
            assert_eq!(meter.admit(turn.packets(), &[id], 0), 1);
            turn.leave(id);
            meter.settle(turn);
        });
    }
    assert_eq!((meter.stats.bytes.get(), meter.stats.packets.get()), (0, 0));
    assert_eq!(run(&mut [meter], 250, 1)[0], 1000);
}

#[test]
fn a_gso_packet_costs_what_its_segments_cost() {
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    arena.turn(|turn| {
        let id = turn.accept_owned(PortIndex(0), &[0; 254]).unwrap();
        assert_eq!(cost(turn.packets(), id), Cost { bytes: 254, packets: 1 });
        let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 100, l3: 14, l4: 34, header_len: 54, outer: None };
        turn.set_offload(id, Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) });
        assert_eq!(cost(turn.packets(), id), Cost { bytes: 2 * (100 + 54), packets: 2 });
    });
}

#[test]
fn policing_drops_what_is_beyond_the_rate() {
    let mut meter =
        meters(RateLimits { bytes: None, packets: Some(Limit { per_second: 1000, burst: 10 }) }, 1).remove(0);
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let mut passes = |now| {
        arena.turn(|turn| {
            let mut batch = Batch::new();
            (0..25).for_each(|_| batch.push(turn.accept_owned(PortIndex(0), &[0; 60]).unwrap()));
            let beyond = meter.police(turn.packets(), &mut batch, now);
            meter.settle_policed(turn, beyond.len());
            (batch.len(), beyond.len())
        })
    };
    assert_eq!(passes(0), (10, 15));
    assert_eq!(passes(0), (0, 25));
    assert_eq!(passes(SECOND / 250), (4, 21));
    assert_eq!((meter.stats.packets.get(), meter.stats.dropped.get()), (14, 61));
    assert_eq!(meter.stats.waits.get(), 0, "nothing waits");
}

/// Returns an IPv4 packet of this class of service in a frame of `len` bytes.
fn of_class(dscp: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    let net = u16::try_from(len - 14).unwrap();
    frame[12..16].copy_from_slice(&[8, 0, 0x45, dscp << 2]);
    frame[16..18].copy_from_slice(&net.to_be_bytes());
    frame
}

fn expedited() -> DscpSet {
    Dscp::new(46).into_iter().collect()
}

/// Polices batches of packets of two classes: at each time, lengths of packets, and whether each is
/// expedited. Returns for each batch which of them passed.
fn police(meter: &mut Meter, batches: &[(u64, Vec<(usize, bool)>)]) -> Vec<Vec<bool>> {
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let mut each = |now: u64, packets: &[(usize, bool)]| {
        arena.turn(|turn| {
            let mut batch = Batch::new();
            for &(len, is_expedited) in packets {
                let frame = of_class(if is_expedited { 46 } else { 0 }, len);
                batch.push(turn.accept_owned(PortIndex(0), &frame).unwrap());
            }
            let all = batch.clone();
            let beyond = meter.police(turn.packets(), &mut batch, now);
            meter.settle_policed(turn, beyond.len());
            all.ids().iter().map(|id| batch.ids().contains(id)).collect()
        })
    };
    batches.iter().map(|(now, packets)| each(*now, packets)).collect()
}

#[test]
fn expedited_packets_pass_before_others_and_others_wait_for_their_debt() {
    let limits = only_bytes(500_000, 500);
    let mut meter = meters(limits, 1).remove(0).expediting(expedited());
    let second_half = |passed: &[bool]| passed[2..].to_vec();
    let batch = vec![(250, false), (250, false), (250, true), (250, true)];
    let passed = police(&mut meter, &[(0, batch.clone()), (0, batch.clone()), (0, batch)]);
    assert_eq!(passed[0], [false, false, true, true], "the burst is for expedited packets");
    assert_eq!(second_half(&passed[1]), [true, true], "they borrow a burst");
    assert_eq!(passed[2], [false; 4], "and no more");
    // A millisecond pays the debt, and one byte more lets another packet pass.
    let passed = police(&mut meter, &[(SECOND / 1000, vec![(250, false)]), (2 * SECOND / 1000, vec![(250, false)])]);
    assert_eq!(passed, [[false], [true]]);
    assert_eq!((meter.stats.bytes.get(), meter.stats.dropped.get()), (1250, 9));
}

#[test]
fn nobody_is_expedited_by_a_meter_that_is_not_told_so() {
    let mut meter = meters(only_bytes(500_000, 500), 1).remove(0);
    let passed = police(&mut meter, &[(0, vec![(250, false), (250, false), (250, true)]), (0, vec![(250, true)])]);
    assert_eq!(passed, [vec![true, true, false], vec![false]]);
}

/// A worker looks seldom at many slow ports: each waits until its debt is paid, and they wait together.
#[test]
fn slow_ports_wake_a_worker_seldom() {
    // A packet has five segments, and a quantum is one of them.
    let limits = RateLimits { bytes: None, packets: Some(Limit { per_second: 250, burst: 64 }) };
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 40, l3: 14, l4: 34, header_len: 54, outer: None };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
    let mut slow: Vec<Meter> = (0..100).flat_map(|_| meters(limits, 1)).collect();
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let mut now = 0;
    let mut looks = 0;
    let mut wakes = 0;
    while now < 2 * SECOND {
        for meter in &mut slow {
            if meter.waits_until().is_some_and(|at| at > now) {
                continue;
            }
            arena.turn(|turn| {
                let id = turn.accept_owned(PortIndex(0), &[0; 254]).unwrap();
                turn.set_offload(id, offload);
                if meter.is_ready(now) {
                    meter.admit(turn.packets(), &[id], now);
                    meter.settle(turn);
                }
            });
            // The bursts pass in the first second.
            looks += u32::from(now >= SECOND);
        }
        wakes += u32::from(now >= SECOND);
        now = slow.iter().filter_map(Meter::waits_until).min().filter(|at| *at > now).unwrap_or(now + 1000);
    }
    // 50 packets a second each: a look for each of them, at 500 times.
    assert!((4800..=5500).contains(&looks) && wakes <= 510, "{looks} looks, {wakes} wake-ups");
}

/// An event of a shared bucket.
#[derive(Clone, Debug)]
enum Event {
    Pass {
        nanoseconds: u64,
    },
    /// A member has a packet of this length.
    Packet {
        member: usize,
        len: i64,
        stays: bool,
    },
    /// An expedited packet of this length finds no credit.
    Expedited {
        len: i64,
        stays: bool,
    },
    /// A member has no more packets.
    Idle {
        member: usize,
    },
    Leave {
        member: usize,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let member = 0_usize..4;
    let event = prop_oneof![
        2 => (1_u64..3_000_000).prop_map(|nanoseconds| Event::Pass { nanoseconds }),
        6 => (member.clone(), 60_i64..66_000, proptest::bool::weighted(0.1))
            .prop_map(|(member, len, stays)| Event::Packet { member, len, stays }),
        1 => (60_i64..66_000, proptest::bool::weighted(0.1)).prop_map(|(len, stays)| Event::Expedited { len, stays }),
        1 => member.clone().prop_map(|member| Event::Idle { member }),
        1 => member.prop_map(|member| Event::Leave { member }),
    ];
    proptest::collection::vec(event, 1..300)
}

proptest! {
    /// Whatever members do, they pass no more than the rate, the burst, what is lent, and a packet each. No
    /// token is lost: once all have left, the bucket has what did not pass.
    #[test]
    fn tokens_are_neither_made_nor_lost(
        per_second in 1_000_000_u64..1_000_000_000,
        burst in 1514_u64..1_000_000,
        events in events(),
    ) {
        let limits = only_bytes(per_second, burst);
        let bucket = Arc::new(RateBucket::new(limits, 0));
        let mut members: BTreeMap<usize, (usize, Cost)> = BTreeMap::new();
        let mut now = 0;
        let mut passed = 0;
        let mut longest = 0;
        let mut lent = 0;
        for event in events {
            match event {
                Event::Pass { nanoseconds } => now += nanoseconds,
                Event::Packet { member, len, stays } => {
                    let (number, credit) = members.entry(member).or_insert_with(|| (bucket.join(), Cost::default()));
                    if bucket.ask(*number, credit, now).is_ok() {
                        prop_assert!(limits.lets_pass(*credit));
                        credit.bytes -= len;
                        passed += i128::from(len);
                        longest = longest.max(len);
                        if stays {
                            bucket.refund(*number, credit, Cost { bytes: len, packets: 1 });
                            passed -= i128::from(len);
                        }
                    }
                }
                Event::Expedited { len, stays } => {
                    let cost = Cost { bytes: len, packets: 1 };
                    if bucket.lend(cost, now) {
                        if stays {
                            bucket.return_loan(cost);
                        } else {
                            passed += i128::from(len);
                            longest = longest.max(len);
                            lent = i128::from(burst) + i128::from(longest);
                        }
                    }
                }
                Event::Idle { member } => {
                    if let Some((number, credit)) = members.get_mut(&member)
                        && bucket.ask(*number, credit, now).is_ok()
                    {
                        bucket.give_back(credit);
                    }
                }
                Event::Leave { member } => {
                    if let Some((number, credit)) = members.remove(&member) {
                        bucket.leave(number, credit);
                    }
                }
            }
            let most = i128::from(burst) + i128::from(per_second) * i128::from(now) / 1_000_000_000;
            prop_assert!(passed <= most + lent + 4 * i128::from(longest), "{passed} of {most}");
        }
        for (number, credit) in members.into_values() {
            bucket.leave(number, credit);
        }
        // A whole burst passes once the debts are paid, and not a quantum more.
        now += 60 * SECOND;
        let number = bucket.join();
        let mut taken = 0;
        let mut credit = Cost::default();
        while bucket.ask(number, &mut credit, now).is_ok() {
            taken += std::mem::take(&mut credit).bytes;
        }
        let quantum = limits.quantum().bytes;
        prop_assert!((i64::try_from(burst).unwrap() - quantum + 1..=i64::try_from(burst).unwrap()).contains(&taken), "{taken} of {burst}");
    }

    /// Expedited packets that are within the rate by themselves all pass, whatever others send, by this
    /// meter or by others of the same bucket. All together keep the rate, a burst, and what is lent.
    #[test]
    fn expedited_packets_within_the_rate_lose_nothing(
        per_second in 100_000_u64..4_000_000,
        bursts in 4_u64..200,
        others in 0_usize..4,
        steps in proptest::collection::vec(
            (0_u64..2_000_000, proptest::collection::vec((60_usize..251, any::<bool>()), 0..12)), 1..100),
    ) {
        let burst = bursts * 250;
        let limits = only_bytes(per_second, burst);
        // The reference: a bucket that only expedited packets take from.
        let mut alone = TokenBucket::new(limits, 0);
        let mut now = 0;
        let mut meters = meters(limits, 1 + others);
        let first = meters.remove(0).expediting(expedited());
        meters.insert(0, first);
        for (gap, packets) in steps {
            now += gap;
            alone.refill(now);
            let conforms = |&(len, is_expedited): &(usize, bool)| {
                let passes = !is_expedited || alone.has_credit();
                if is_expedited && passes {
                    alone.take(Cost { bytes: i64::try_from(len).unwrap(), packets: 1 });
                }
                passes
            };
            // The others always have more than the rate.
            let packets: Vec<_> = packets.into_iter().filter(conforms).chain([(250, false); 36]).collect();
            for meter in &mut meters[1..] {
                police(meter, &[(now, vec![(250, false); 36])]);
            }
            let passed = police(&mut meters[0], &[(now, packets.clone())]).remove(0);
            for (packet, passes) in packets.iter().zip(passed) {
                prop_assert!(!packet.1 || passes, "lost {packet:?} at {now}");
            }
        }
        let passed: u64 = meters.iter().map(|meter| meter.stats.bytes.get()).sum();
        let most = 2 * u128::from(burst) + u128::from(per_second) * u128::from(now) / u128::from(SECOND);
        let packets = 250 * (2 + others as u128);
        prop_assert!(u128::from(passed) <= most + packets, "{passed} of {most}");
    }
}
