//! The validity of a trial.

use super::Plan;
use crate::convert::float;
use crate::traffic::generator::{Load, Measured, Rate, StreamCounters};

/// The allowed difference between planned and actual values, as a fraction.
pub(super) const TOLERANCE: f64 = 0.001;

/// A number of packets. If a stream would have received this many with the loss of all streams, but
/// received none, that is no coincidence. For independent losses, the probability is one in ten
/// million.
const EXPECTED: f64 = 16.0;

/// Returns why a trial should not begin: the load is beyond the generator's limit.
pub(super) fn beyond(plan: &Plan, rate: Rate, mean_len: f64) -> Option<String> {
    let (asked, limit) = (rate.pps(mean_len)?, plan.limit_mpps?);
    // Compares packets per second, as searches do, so that a load equal to the limit is not beyond
    // it.
    (asked > limit * 1e6).then(|| {
        format!("{:.3} Mpps are more than the generator makes of these packets: use less than {limit:.3}", asked / 1e6)
    })
}

/// Returns the reason why a finished trial is not valid; `None` if it is valid.
pub(super) fn judge(measured: &Measured, load: Load, mean_len: f64) -> Option<String> {
    let slow = || measured.still_coming.then(|| "packets still came 2 s after the last one was sent".to_owned());
    failed(measured, mean_len).or_else(|| untimely(measured, load, mean_len)).or_else(slow)
}

/// Returns whether a trial is not valid only because the generator was late, and not because of a
/// backend.
pub(super) fn is_by_generator(measured: &Measured, load: Load, mean_len: f64) -> bool {
    failed(measured, mean_len).is_none() && untimely(measured, load, mean_len).is_some()
}

/// Returns the reason if a backend makes the trial invalid.
fn failed(measured: &Measured, mean_len: f64) -> Option<String> {
    let total = measured.total();
    // This fault comes first, because it makes all others irrelevant.
    if total.sent == 0 {
        return Some(format!(
            "nothing could be sent: no port had a free buffer for packets of {mean_len:.0} bytes on average; check \
             that the backend is running, and that its buffers take such packets"
        ));
    }
    // A backend that still sends is slow, and not silent.
    if measured.not_taken && !measured.still_coming {
        return Some(
            "a backend went silent: 2 s after the last packet was sent it had still not taken all packets in its \
             rings"
                .to_owned(),
        );
    }
    if total.received == 0 {
        return Some(format!(
            "nothing has returned of {} packets; check that the switch forwards them to another port of the \
             generator, and that it accepts frames of these lengths",
            total.sent
        ));
    }
    one_way(&measured.streams).or_else(|| corrupted(float(total.corrupt)))
}

/// Returns the reason if packets were not sent as planned.
fn untimely(measured: &Measured, load: Load, mean_len: f64) -> Option<String> {
    let [time, lasted] = measured.seconds;
    if (lasted - time).abs() > time * TOLERANCE {
        return Some(format!("the trial took {lasted:.4} s instead of {time:.4} s: this thread was descheduled"));
    }
    if let Some(meant) = measured.meant {
        // The number of due packets may differ by the bursts at the start and at the end.
        let asked = load.rate.pps(mean_len).unwrap_or(0.0) * time;
        let slack = asked * TOLERANCE + f64::from(load.burst) * 2.0;
        if (float(meant) - asked).abs() > slack {
            return Some(format!("{meant} packets were due instead of {asked:.0}"));
        }
        if float(measured.missed) > asked * TOLERANCE {
            return Some(format!(
                "{} of {meant} packets were not sent in time: the generator was descheduled, or {} is more than it \
                 can send here",
                measured.missed, load.rate
            ));
        }
    }
    None
}

/// Returns the reason if a stream is not forwarded at all. A loss ratio makes sense only for
/// streams that are forwarded.
fn one_way(streams: &[StreamCounters]) -> Option<String> {
    let total = streams.iter().fold(StreamCounters::default(), |all, one| all.and(*one));
    let came = float(total.received) / float(total.sent);
    let is_dead = |one: &StreamCounters| one.received == 0 && float(one.sent) * came >= EXPECTED;
    let (at, dead) = streams.iter().enumerate().find(|(_, one)| is_dead(one))?;
    Some(format!(
        "nothing has returned of {} packets of stream {} of {} (numbered port by port); check that the switch \
         forwards what each port sends",
        dead.sent,
        at + 1,
        streams.len()
    ))
}

/// Returns the reason if packets were corrupted. If a switch copies wrong bytes, its results are
/// not valid.
pub(crate) fn corrupted(count: f64) -> Option<String> {
    (count > 0.0).then(|| format!("{count} of the checked packets came with other bytes than were sent"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LOAD: Load = Load { rate: Rate::Pps(1e6), burst: 32 };

    fn plan(limit_mpps: Option<f64>) -> Plan {
        Plan { burst: 32, warm_up: Duration::ZERO, cpu: None, limit_mpps }
    }

    /// A million packets in a second, and all returned.
    fn good() -> Measured {
        let counters =
            StreamCounters { sent: 1_000_000, received: 1_000_000, bytes: 64_000_000, ..StreamCounters::default() };
        Measured {
            streams: vec![counters],
            meant: Some(1_000_000),
            seconds: [1.0, 1.0],
            arrived: [1_000_000, 64_000_000],
            ..Measured::default()
        }
    }

    fn judged(change: impl FnOnce(&mut Measured)) -> Option<String> {
        let mut measured = good();
        change(&mut measured);
        judge(&measured, LOAD, 64.0)
    }

    #[test]
    fn each_rule_has_its_reason() {
        assert_eq!(judged(|_| {}), None);
        let why = |change: fn(&mut Measured)| judged(change).expect("a rule is broken");
        assert!(why(|m| m.seconds[1] = 1.0011).contains("1.0011"));
        assert!(why(|m| m.seconds[1] = 0.99).contains("0.9900"));
        assert!(why(|m| m.meant = Some(990_000)).contains("990000 packets were due instead of 1000000"));
        assert!(why(|m| m.missed = 1001).contains("1001 of 1000000"));
        assert!(why(|m| m.streams[0] = StreamCounters::default()).contains("nothing could be sent"));
        assert!(why(|m| m.streams[0].received = 0).contains("nothing has returned of 1000000"));
        assert!(why(|m| m.still_coming = true).contains("still came"));
        assert!(why(|m| (m.still_coming, m.not_taken) = (true, true)).contains("still came"));
        assert!(why(|m| (m.not_taken, m.streams[0].received) = (true, 500_000)).contains("went silent"));
        // This fault comes before all others: the received bytes are wrong.
        assert!(why(|m| m.streams[0].corrupt = 7).contains("7 of the checked packets came with other bytes"));
    }

    #[test]
    fn who_was_not_on_time_is_told_from_a_backend_that_fails() {
        let is_by_generator = |change: fn(&mut Measured)| {
            let mut measured = good();
            change(&mut measured);
            super::is_by_generator(&measured, LOAD, 64.0)
        };
        assert!(is_by_generator(|m| m.seconds[1] = 1.0011));
        assert!(is_by_generator(|m| m.meant = Some(990_000)));
        assert!(is_by_generator(|m| m.missed = 1001));
        assert!(!is_by_generator(|_| {}));
        assert!(!is_by_generator(|m| m.still_coming = true));
        // Even if the generator was late too.
        assert!(!is_by_generator(|m| (m.not_taken, m.missed) = (true, 1001)));
        assert!(!is_by_generator(|m| (m.streams[0].received, m.missed) = (0, 1001)));
        assert!(!is_by_generator(|m| (m.streams[0].corrupt, m.missed) = (1, 1001)));
    }

    #[test]
    fn what_the_switch_did_not_take_breaks_no_rule() {
        // Half of it was refused, or lost, or came twice: that is a valid result.
        assert_eq!(judged(|m| (m.refused, m.streams[0].sent, m.streams[0].received) = (500_000, 500_000, 1)), None);
        assert_eq!(judged(|m| (m.missed, m.streams[0].duplicates) = (999, 7)), None);
        assert_eq!(judged(|m| m.meant = None), None);
    }

    #[test]
    fn a_stream_of_which_nothing_comes_is_no_loss() {
        let judged = |streams: &[(u64, u64)]| {
            let counters = |&(sent, received)| StreamCounters { sent, received, ..StreamCounters::default() };
            judged(|m| m.streams = streams.iter().map(counters).collect())
        };
        let why = judged(&[(500_000, 500_000), (500_000, 0)]).expect("a direction is dead");
        assert!(why.contains("500000 packets of stream 2 of 2"), "{why}");
        assert!(judged(&[(500_000, 0), (500_000, 9)]).is_none(), "as likely as not");
        assert!(judged(&[(50_000, 0), (950_000, 900_000), (5000, 1)]).is_some());
        // One direction only; few packets; a high loss of both.
        assert_eq!(judged(&[(1_000_000, 1), (0, 0)]), None);
        assert_eq!(judged(&[(1_000_000, 999_000), (16, 0)]), None);
        assert_eq!(judged(&[(1_000_000, 10), (1_000_000, 1)]), None);
    }

    #[test]
    fn more_than_the_generator_can_do_is_not_begun() {
        assert_eq!(beyond(&plan(None), Rate::Pps(1e9), 64.0), None);
        assert_eq!(beyond(&plan(Some(2.0)), Rate::Max, 64.0), None);
        assert_eq!(beyond(&plan(Some(2.0)), Rate::Pps(2e6), 64.0), None);
        let why = beyond(&plan(Some(2.0)), Rate::Bits(2.0 * 8.0 * 64e6), 64.0);
        assert_eq!(why, None);
        let why = beyond(&plan(Some(2.0)), Rate::Bits(3.0 * 8.0 * 64e6), 64.0).expect("too much");
        assert!(why.contains("3.000 Mpps") && why.contains("less than 2.000"), "{why}");
    }
}
