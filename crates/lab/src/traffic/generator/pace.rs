//! The clock of a port: which packets are due, and what becomes of them.
//!
//! Time is counted in fractions of a cycle since the start of a trial. Packets come due in bursts
//! at a fixed interval. The port's thread calls the clock to ask for the packets that are due. A
//! packet that is late by more than a bound is not sent any more. Such packets are charged as
//! follows:
//!
//! 1. to the port (`refused`), if it was full at the last call: the switch did not take the
//!    packets;
//! 2. to the generator (`missed`), if the port had free buffers, or if this thread did not call for
//!    a long time: it was descheduled.

/// Number of fraction bits of a cycle. At 10 Mpps and 3 GHz the error of the packet interval is a
/// ten-millionth. A day fits into 64 bits for clocks up to 6.5 GHz.
const FRACTION: u32 = 14;

/// A call later than this fraction of the bound means that the thread was descheduled.
const AWAY: u64 = 8;

/// Counters of what became of the packets that came due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PaceCounters {
    /// Packets that were handed out to be sent.
    pub(super) sent: u64,
    /// Packets not sent because the port was full for longer than the bound: the switch did not
    /// take them.
    pub(super) refused: u64,
    /// Packets not sent because the generator was too late or too slow.
    pub(super) missed: u64,
}

/// The bounds: how late a packet may be and still be sent, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    /// The bound for packets during the trial.
    pub(super) bound: u64,
    /// The bound after the end of the trial, for packets that are still to be sent.
    pub(super) tail: u64,
}

/// The clock, which counts by the time-stamp counter. Each burst has a due time. A late call gets
/// all packets that came due since the last call and are not later than the bound. If a port was
/// full for long, older packets are given up.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Number of packets that are due together.
    burst: u64,
    /// Interval between bursts, in fractions of a cycle.
    interval: u64,
    /// The bounds in fractions of a cycle: during the trial, and after its end.
    bound: u64,
    tail: u64,
    start: u64,
    /// The due time of the next burst, in fractions since the start.
    next: u64,
    /// Open packets: packets of due bursts that are not handed out yet.
    open: u64,
    /// The time of the last call.
    asked: u64,
    /// True if at the last call the port had fewer free buffers than it was to send at once.
    full: bool,
    /// Open packets that came due while the thread was descheduled. Neither these packets nor those
    /// that wait behind them are charged to the port.
    descheduled: u64,
    /// The end of the trial, in fractions since the start. No packet comes due after it.
    end: u64,
    pub(super) counters: PaceCounters,
}

impl Pace {
    /// Makes a clock that starts at `now` and runs for a number of cycles. It has an interval
    /// between packets, in cycles, and a number of packets per burst. Late packets are sent up to
    /// the bounds of `patience`.
    pub(super) fn new(now: u64, lasts: u64, interval: f64, burst: u32, patience: Patience) -> Pace {
        let burst = u64::from(burst.max(1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        #[expect(clippy::cast_precision_loss, reason = "a burst is small")]
        let interval = ((interval * burst as f64 * f64::from(1 << FRACTION)).round() as u64).max(1);
        Pace {
            burst,
            interval,
            bound: fractions(patience.bound),
            tail: fractions(patience.tail),
            start: now,
            next: 0,
            open: 0,
            asked: now,
            full: false,
            descheduled: 0,
            end: fractions(lasts),
            counters: PaceCounters::default(),
        }
    }

    /// Returns the number of packets to send now: at most `most`, and at most `free`, the number of
    /// the port's free buffers.
    pub(super) fn due(&mut self, now: u64, free: u64, most: u64) -> u64 {
        let since = self.since(now);
        self.forget(now, since);
        if self.next < self.end.min(since.saturating_add(1)) {
            // Number of bursts that have come due since the last call: at `next`, at each interval
            // after it up to now, and before the end.
            let bursts = (since.min(self.end - 1) - self.next) / self.interval + 1;
            self.next += bursts * self.interval;
            self.open += bursts * self.burst;
            if fractions(now - self.asked) > self.bound / AWAY {
                self.descheduled += bursts * self.burst;
            }
        }
        self.asked = now;
        self.full = free < self.open.min(most);
        let due = self.open.min(free).min(most);
        self.open -= due;
        self.counters.sent += due;
        due
    }

    /// Returns the due times, by the time-stamp counter, of the packets that [`Self::due`] has just
    /// handed out.
    pub(super) fn times(&self, handed_out: u64) -> impl Iterator<Item = u64> + use<> {
        let Pace { burst, interval, start, next, .. } = *self;
        // All open packets belong to bursts before `next`. All packets of the last of these bursts
        // were open.
        let open = self.open + handed_out;
        let bursts = open.div_ceil(burst);
        let mut at = next.saturating_sub(bursts * interval);
        let mut left = open - bursts.saturating_sub(1) * burst;
        std::iter::from_fn(move || {
            if left == 0 {
                (at, left) = (at + interval, burst);
            }
            left -= 1;
            Some(start + (at >> FRACTION))
        })
    }

    /// Gives back packets that were handed out and could not be sent after all.
    pub(super) fn unsent(&mut self, packets: u64) {
        self.open += packets;
        self.counters.sent -= packets;
        self.full |= packets > 0;
    }

    /// Returns whether every packet that was due before the end is sent or too late.
    pub(super) fn over(&mut self, now: u64) -> bool {
        let since = self.since(now);
        self.forget(now, since);
        self.next >= self.end && self.open == 0
    }

    /// Gives up the packets that are late by more than the bound. Gives up all packets once the
    /// bound after the end is over, too.
    fn forget(&mut self, now: u64, since: u64) {
        self.descheduled = self.descheduled.min(self.open);
        let is_past = since >= self.end.saturating_add(self.tail);
        let horizon = if is_past { Some(u64::MAX) } else { since.checked_sub(self.bound) };
        let Some(horizon) = horizon else { return };
        let late = if self.next < self.end.min(horizon) {
            let bursts = (horizon.min(self.end) - self.next).div_ceil(self.interval);
            self.next += bursts * self.interval;
            bursts * self.burst
        } else {
            0
        };
        // Open packets belong to bursts before `next`. From that follows how many of them are later
        // than the bound.
        let in_time = self.next.saturating_sub(horizon) / self.interval * self.burst;
        let old = self.open.saturating_sub(in_time);
        self.open -= old;
        let forgotten = late + old;
        // After a pause of the thread as long as the bound, the packets are not charged to the
        // port.
        let is_ours = !self.full || fractions(now - self.asked) >= self.bound;
        let descheduled = old.min(self.descheduled);
        // The given-up packets that never were open have come due since the last call.
        let ours = if is_ours { forgotten } else { late + descheduled };
        self.descheduled -= descheduled;
        self.counters.missed += ours;
        self.counters.refused += forgotten - ours;
    }

    fn since(&self, now: u64) -> u64 {
        fractions(now.saturating_sub(self.start))
    }
}

/// Converts cycles to fractions of a cycle. A number that does not fit saturates, so a trial ends
/// at that time at the latest.
fn fractions(cycles: u64) -> u64 {
    cycles.min(u64::MAX >> (FRACTION + 1)) << FRACTION
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Uses the same bound during the trial and after it.
    fn patience(bound: u64) -> Patience {
        Patience { bound, tail: bound }
    }

    #[test]
    fn packets_are_due_at_their_times() {
        let mut pace = Pace::new(1000, 1000, 100.0, 1, patience(1000));
        let due: Vec<u64> = (0..12).map(|n| pace.due(1000 + 50 * n, 99, 99)).collect();
        assert_eq!(due, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(pace.due(1900, 99, 99), 4);
        assert!(pace.over(1901));
        assert_eq!(pace.due(9999, 99, 99), 0);
        assert_eq!(pace.counters, PaceCounters { sent: 10, refused: 0, missed: 0 });
        // In bursts, the same number of packets is due, but together.
        let mut pace = Pace::new(0, 1000, 100.0, 4, patience(1000));
        assert_eq!([0, 1, 399, 400, 999].map(|now| pace.due(now, 99, 99)), [4, 0, 0, 4, 4]);
        // Late packets have their own due times.
        let mut pace = Pace::new(1000, 10_000, 100.0, 2, patience(1000));
        let mut times = |now, free| {
            let due = pace.due(now, free, 99);
            pace.times(due).take(usize::try_from(due).expect("few")).collect::<Vec<_>>()
        };
        assert_eq!([times(1250, 3), times(1260, 9)], [vec![1000, 1000, 1200], vec![1200]]);
        assert_eq!([times(1900, 1), times(2000, 9)], [vec![1400], vec![1400, 1600, 1600, 1800, 1800, 2000, 2000]]);
        // Packets that are too late are not handed out.
        assert_eq!(times(3400, 3), [2400, 2400, 2600]);
    }

    #[test]
    fn what_cannot_be_caught_up_with_is_named() {
        // The port takes nothing. Packets wait up to the bound, and then count as refused.
        let mut pace = Pace::new(0, 10_000, 10.0, 1, patience(100));
        for now in 0..5000 {
            assert_eq!(pace.due(now, 0, 99), 0);
        }
        assert!((485..=491).contains(&pace.counters.refused), "{:?}", pace.counters);
        assert_eq!(pace.counters.missed, 0);
        // Then the port takes everything. It gets no more packets at once than come due within the
        // bound.
        let due = pace.due(5000, 999, 999);
        assert!((9..=12).contains(&due), "{due}");
        // If the generator pauses for long, packets that came due meanwhile count as missed.
        pace.due(5001, 999, 999);
        let before = pace.counters;
        let due = pace.due(8001, 999, 999);
        assert!((9..=12).contains(&due), "{due}");
        assert_eq!(pace.counters.missed - before.missed + due, 300);
        assert_eq!(pace.counters.refused, before.refused);
    }

    #[test]
    fn a_generator_that_is_too_slow_blames_no_port() {
        // More packets are due than are sent at once, because the port has only 8 free buffers each
        // time.
        let mut pace = Pace::new(0, 10_000, 1.0, 1, patience(100));
        let sent: u64 = (0..1000).map(|n| pace.due(10 * n, 50, 8)).sum();
        assert!(
            sent == pace.counters.sent && (7900..=8000).contains(&sent) && pace.counters.refused == 0,
            "{:?}",
            pace.counters
        );
        assert!((1850..=2100).contains(&pace.counters.missed), "{:?}", pace.counters);
    }

    #[test]
    fn what_an_absence_has_put_off_is_no_fault_of_the_port() {
        // The port takes each packet at its due time, and no more packets.
        let mut pace = Pace::new(0, 100_000, 10.0, 1, patience(1000));
        (0..1000).for_each(|n| _ = pace.due(10 * n, 1, 99));
        assert_eq!((pace.counters.sent, pace.descheduled), (1000, 0));
        // After a pause of half the bound, all packets are late, but none is lost by that alone.
        (1050..2000).for_each(|n| _ = pace.due(10 * n, 1, 99));
        assert_eq!((pace.counters.refused, pace.counters.missed), (0, 0));
        assert!((48..=51).contains(&pace.descheduled), "{pace:?}");
        // Then the port takes half of the packets. Packets that the pause has delayed are not
        // charged to the port.
        (2000..4000).for_each(|n| _ = pace.due(10 * n, n % 2, 99));
        let PaceCounters { refused, missed, .. } = pace.counters;
        assert!((48..=51).contains(&missed) && pace.descheduled == 0, "{pace:?}");
        assert!((840..=960).contains(&refused), "{pace:?}");
        // Once all packets are sent, none is counted as descheduled.
        pace.due(41_000, 999, 999);
        pace.due(41_001, 999, 999);
        assert!(pace.descheduled == 0 && pace.open == 0, "{pace:?}");
        // The port seems to have free buffers, but then does not take the packets. They still count
        // as descheduled.
        let due = pace.due(41_500, 999, 999);
        pace.unsent(due);
        pace.due(41_501, 0, 999);
        assert_eq!((due, pace.descheduled), (50, 50));
    }

    #[test]
    fn the_end_has_a_bound_of_its_own() {
        let patience = Patience { bound: 1000, tail: 50 };
        let mut pace = Pace::new(0, 10_000, 10.0, 1, patience);
        (0..1000).for_each(|n| _ = pace.due(10 * n, u64::from(n < 950), 99));
        assert_eq!((pace.counters.sent, pace.over(10_049)), (950, false));
        assert!(pace.over(10_050), "{pace:?}");
        assert_eq!(pace.counters, PaceCounters { sent: 950, refused: 50, missed: 0 });
        assert_eq!(pace.due(10_051, 99, 99), 0);
        // After a pause across the end, packets that were due in the pause count as missed,
        // although the port was full before.
        let mut pace = Pace::new(0, 10_000, 10.0, 1, patience);
        (0..=970).for_each(|n| _ = pace.due(10 * n, u64::from(n < 960), 99));
        assert!(pace.over(10_060), "{pace:?}");
        assert_eq!(pace.counters, PaceCounters { sent: 960, refused: 11, missed: 29 });
    }

    #[test]
    fn a_day_comes_to_its_end() {
        let day = 86_400 * 6_500_000_000;
        for lasts in [3 << 46, 1 << 48, day] {
            let mut pace = Pace::new(0, lasts, 1e9, 1, patience(1000));
            [0, lasts / 2].into_iter().for_each(|now| _ = pace.due(now, 99, 99));
            assert!(!pace.over(lasts / 2), "{pace:?}");
            pace.due(lasts, 99, 99);
            assert!(pace.over(lasts), "{pace:?}");
        }
        let mut pace = Pace::new(0, u64::MAX, 1e9, 1, patience(1000));
        pace.due(u64::MAX, 99, 99);
        assert!(pace.over(u64::MAX), "{pace:?}");
    }

    proptest! {
        #[test]
        fn each_packet_that_was_meant_is_sent_refused_or_missed(
            interval in 1.0..2000.0_f64,
            burst in 1..40_u32,
            bound in 1..100_000_u64,
            steps in prop::collection::vec((0..5000_u64, 0..100_u64, 0..5_u64), 1..300),
        ) {
            let lasts = 200_000;
            let mut pace = Pace::new(77, lasts, interval, burst, patience(bound));
            let mut now = 77;
            for (step, free, back) in steps {
                now += step;
                let due = pace.due(now, free, 64);
                prop_assert!(due <= free);
                pace.unsent(back.min(due));
            }
            while !pace.over(now) {
                pace.due(now, 50, 50);
                now += 1000;
            }
            let PaceCounters { sent, refused, missed } = pace.counters;
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let meant = (lasts as f64 / interval / f64::from(burst)).ceil() * f64::from(burst);
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let all = (sent + refused + missed) as f64;
            prop_assert!((all - meant).abs() <= f64::from(burst) + meant / 10_000.0, "{all} of {meant}");
        }
    }
}
