//! The token bucket: pure, with the time as an argument.

use std::ops::{AddAssign, Neg, SubAssign};

use az::SaturatingAs;

/// Nanoseconds of a second, and parts of a token: a rate of one token a second brings one part a
/// nanosecond. So a bucket never rounds.
const PARTS: i128 = 1_000_000_000;

/// A limit of bytes or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Tokens that come in a second.
    pub per_second: u64,
    /// The most tokens that are kept.
    pub burst: u64,
}

/// The limits of a rate: bytes, packets, or both at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// The limit of bytes.
    pub bytes: Option<Limit>,
    /// The limit of packets.
    pub packets: Option<Limit>,
}

/// Tokens of both limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of Ethernet frames without their check sequences.
    pub bytes: i64,
    /// Packets; a GSO packet counts as its segments.
    pub packets: i64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.bytes += other.bytes;
        self.packets += other.packets;
    }
}

impl SubAssign for Cost {
    fn sub_assign(&mut self, other: Cost) {
        self.bytes -= other.bytes;
        self.packets -= other.packets;
    }
}

impl Neg for Cost {
    type Output = Cost;

    fn neg(self) -> Cost {
        Cost { bytes: -self.bytes, packets: -self.packets }
    }
}

/// The time in which a rate brings a quantum, as a part of a second.
const QUANTA: u64 = 1000;

/// Least and most bytes of a quantum.
const QUANTUM_BYTES: (u64, u64) = (256, 64 << 10);

/// Most packets of a quantum.
const QUANTUM_PACKETS: u64 = 64;

impl RateLimits {
    /// Returns the tokens that are handed out at once: what a millisecond brings, within bounds. 0 for
    /// what has no limit.
    #[must_use]
    pub fn quantum(&self) -> Cost {
        let bound = |limit: Option<Limit>, least: u64, most: u64| {
            let quantum = |limit: Limit| (limit.per_second / QUANTA).clamp(least, most).min(limit.burst).max(1);
            limit.map_or(0, quantum).saturating_as::<i64>()
        };
        Cost {
            bytes: bound(self.bytes, QUANTUM_BYTES.0, QUANTUM_BYTES.1),
            packets: bound(self.packets, 1, QUANTUM_PACKETS),
        }
    }

    /// Returns the tokens that a bucket needs before it can lift this credit above zero, in whole quanta.
    /// It is half a burst at most: a bucket that is full loses tokens.
    #[must_use]
    pub fn wanted(&self, quantum: Cost, credit: Cost) -> Cost {
        let quanta = |limit: Option<Limit>, quantum: i64, credit: i64| {
            let lacking = credit.saturating_neg().max(0) / quantum.max(1) * quantum;
            let most = limit.map_or(0, |limit| limit.burst / 2).saturating_as::<i64>();
            lacking.saturating_add(quantum).min(most).max(quantum)
        };
        Cost {
            bytes: quanta(self.bytes, quantum.bytes, credit.bytes),
            packets: quanta(self.packets, quantum.packets, credit.packets),
        }
    }

    /// Returns whether this credit lets a packet pass.
    #[must_use]
    pub fn lets_pass(&self, credit: Cost) -> bool {
        (self.bytes.is_none() || credit.bytes > 0) && (self.packets.is_none() || credit.packets > 0)
    }
}

/// The tokens of one limit.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    limit: Limit,
    /// In parts of a token.
    balance: i128,
}

impl Tokens {
    fn full(limit: Limit) -> Self {
        Tokens { limit, balance: i128::from(limit.burst) * PARTS }
    }

    fn add(&mut self, parts: i128) {
        self.balance = (self.balance + parts).min(i128::from(self.limit.burst) * PARTS);
    }

    /// Returns the nanoseconds until there are this many tokens.
    fn until(&self, tokens: i64) -> u64 {
        let lacking = i128::from(tokens) * PARTS - self.balance;
        if lacking <= 0 {
            return 0;
        }
        let per_nanosecond = i128::from(self.limit.per_second.max(1));
        ((lacking + per_nanosecond - 1) / per_nanosecond).saturating_as::<u64>()
    }
}

/// A token bucket with one or two limits. Times are nanoseconds of any clock.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    bytes: Option<Tokens>,
    packets: Option<Tokens>,
    /// Time of the last refill.
    at: u64,
}

impl TokenBucket {
    /// Returns a full bucket at the time `now`.
    #[must_use]
    pub fn new(limits: RateLimits, now: u64) -> Self {
        TokenBucket { bytes: limits.bytes.map(Tokens::full), packets: limits.packets.map(Tokens::full), at: now }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> RateLimits {
        RateLimits { bytes: self.bytes.map(|tokens| tokens.limit), packets: self.packets.map(|tokens| tokens.limit) }
    }

    /// Sets other limits. Tokens and debts stay, as far as they fit.
    pub fn set_limits(&mut self, limits: RateLimits, now: u64) {
        self.refill(now);
        let continued = |limit: Option<Limit>, before: Option<Tokens>| {
            let mut tokens = Tokens::full(limit?);
            if let Some(before) = before {
                tokens.balance = before.balance;
                tokens.add(0);
            }
            Some(tokens)
        };
        self.bytes = continued(limits.bytes, self.bytes);
        self.packets = continued(limits.packets, self.packets);
    }

    /// Adds the tokens that have come until `now`. A time before the last one adds nothing.
    pub fn refill(&mut self, now: u64) {
        let passed = i128::from(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        for tokens in [&mut self.bytes, &mut self.packets].into_iter().flatten() {
            tokens.add(i128::from(tokens.limit.per_second) * passed);
        }
    }

    /// Returns the nanoseconds from the last refill until the bucket has this many tokens.
    #[must_use]
    pub fn until(&self, wanted: Cost) -> u64 {
        let bytes = self.bytes.map_or(0, |tokens| tokens.until(wanted.bytes));
        bytes.max(self.packets.map_or(0, |tokens| tokens.until(wanted.packets)))
    }

    /// Returns whether a packet may pass: whether there is more than no credit.
    #[must_use]
    pub fn has_credit(&self) -> bool {
        [self.bytes, self.packets].iter().flatten().all(|tokens| tokens.balance >= PARTS)
    }

    /// Returns whether an expedited packet may pass without credit: whether the debt is less than a burst.
    #[must_use]
    pub fn lends(&self) -> bool {
        let is_below = |tokens: &Tokens| -tokens.balance < i128::from(tokens.limit.burst) * PARTS;
        [self.bytes, self.packets].iter().flatten().all(is_below)
    }

    /// Takes tokens, even if that makes a debt. A negative cost gives tokens back.
    pub fn take(&mut self, cost: Cost) {
        for (tokens, n) in [(&mut self.bytes, cost.bytes), (&mut self.packets, cost.packets)] {
            if let Some(tokens) = tokens {
                tokens.add(-i128::from(n) * PARTS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reference: one limit in seconds and floating-point numbers.
    #[derive(Debug)]
    struct Model {
        limit: Limit,
        balance: f64,
    }

    impl Model {
        fn refill(&mut self, seconds: f64) {
            self.balance = (self.balance + seconds * precise(self.limit.per_second)).min(precise(self.limit.burst));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "values of the tests are far below 2^52")]
    fn precise(n: u64) -> f64 {
        n as f64
    }

    fn limit() -> impl Strategy<Value = Limit> {
        (1_u64..10_000_000_000, 64_u64..100_000_000).prop_map(|(per_second, burst)| Limit { per_second, burst })
    }

    /// Times between two packets, and lengths of packets.
    fn packets() -> impl Strategy<Value = Vec<(u64, i64)>> {
        let gap = prop_oneof![Just(0_u64), 1_u64..2_000_000, 1_u64..5_000_000_000];
        let len = prop_oneof![60_i64..1515, 1515_i64..65_600];
        proptest::collection::vec((gap, len), 1..200)
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_the_model_holds(limit in limit(), packets in packets()) {
            let mut bucket = TokenBucket::new(RateLimits { bytes: Some(limit), packets: None }, 0);
            let mut model = Model { limit, balance: precise(limit.burst) };
            let mut now = 0;
            for (gap, len) in packets {
                now += gap;
                bucket.refill(now);
                model.refill(precise(gap) / 1e9);
                let wait = precise(bucket.until(Cost { bytes: 1, packets: 1 })) / 1e9;
                let expected = ((1.0 - model.balance) / precise(limit.per_second)).max(0.0);
                // Rounded up to a nanosecond; and the model itself rounds.
                prop_assert!((wait - expected).abs() <= 2e-9 + expected * 1e-9 + 1e-3 / precise(limit.per_second), "{wait} {expected}");
                if bucket.until(Cost { bytes: 1, packets: 1 }) == 0 {
                    bucket.take(Cost { bytes: len, packets: 1 });
                    model.balance -= precise(len.unsigned_abs());
                }
            }
        }

        #[test]
        fn no_more_passes_than_rate_burst_and_one_packet(
            bytes in proptest::option::of(limit()),
            in_packets in proptest::option::of(limit()),
            packets in packets(),
        ) {
            let limits = RateLimits { bytes, packets: in_packets };
            let mut bucket = TokenBucket::new(limits, 7);
            let mut now = 7;
            let mut passed = Cost::default();
            let mut longest = 0;
            for (gap, len) in packets {
                now += gap;
                bucket.refill(now);
                longest = longest.max(len);
                if bucket.until(Cost { bytes: 1, packets: 1 }) == 0 {
                    bucket.take(Cost { bytes: len, packets: 1 });
                    passed = Cost { bytes: passed.bytes + len, packets: passed.packets + 1 };
                }
            }
            let most = |limit: Limit, beyond: i64| {
                i128::from(limit.burst) + i128::from(limit.per_second) * i128::from(now - 7) / PARTS + i128::from(beyond)
            };
            prop_assert!(bytes.is_none_or(|limit| i128::from(passed.bytes) <= most(limit, longest)));
            prop_assert!(in_packets.is_none_or(|limit| i128::from(passed.packets) <= most(limit, 1)));
        }

        /// A sender that always has a packet gets the rate: nothing is lost by waiting for the next token.
        #[test]
        fn a_steady_sender_gets_the_rate(limit in limit(), lens in proptest::collection::vec(60_i64..65_600, 1..100)) {
            let mut bucket = TokenBucket::new(RateLimits { bytes: Some(limit), packets: None }, 0);
            bucket.take(Cost { bytes: i64::try_from(limit.burst).unwrap(), packets: 0 });
            let mut now = 0;
            for len in &lens {
                now += bucket.until(Cost { bytes: 1, packets: 1 });
                bucket.refill(now);
                bucket.take(Cost { bytes: *len, packets: 1 });
            }
            // The last packet passes once those before it, and one more token, are paid.
            let before: i64 = lens[..lens.len() - 1].iter().sum();
            let due = (i128::from(before) + 1) * PARTS / i128::from(limit.per_second);
            let late = i128::from(now) - due;
            prop_assert!((0..=i128::try_from(lens.len()).unwrap()).contains(&late), "{late} ns late");
        }

        #[test]
        fn other_limits_keep_debts_and_create_no_tokens(before in limit(), after in limit(), taken in 0_i64..1_000_000_000) {
            let only = |limit| RateLimits { bytes: Some(limit), packets: None };
            let mut bucket = TokenBucket::new(only(before), 0);
            bucket.take(Cost { bytes: taken, packets: 1 });
            let left = i64::try_from(before.burst).unwrap() - taken;
            bucket.set_limits(only(after), 0);
            let expected = left.min(i64::try_from(after.burst).unwrap());
            let [now, later] = [expected, expected + 1].map(|bytes| bucket.until(Cost { bytes, packets: 0 }));
            prop_assert!(now == 0 && later > 0, "{now} {later}");
        }
    }

    #[test]
    fn time_that_goes_back_adds_nothing() {
        let limit = Limit { per_second: 1000, burst: 1000 };
        let mut bucket = TokenBucket::new(RateLimits { bytes: Some(limit), packets: None }, 1_000_000_000);
        bucket.take(Cost { bytes: 1500, packets: 1 });
        bucket.refill(0);
        bucket.refill(1_000_000_000);
        assert_eq!(bucket.until(Cost { bytes: 1, packets: 1 }), 501_000_000);
        bucket.refill(u64::MAX);
        assert_eq!(bucket.until(Cost { bytes: 1000, packets: 1 }), 0);
    }

    #[test]
    fn a_debt_wants_whole_quanta_but_no_more_than_half_a_burst() {
        let bytes = Some(Limit { per_second: 1_000_000, burst: 20_000 });
        let limits = RateLimits { bytes, packets: None };
        let wanted = |bytes| limits.wanted(limits.quantum(), Cost { bytes, packets: 0 });
        // A credit of 0 lets nothing pass, and one of 1 does.
        let debts = [5, 0, -1, -999, -1000, -8999, -9000, -100_000];
        assert_eq!(
            debts.map(|debt| wanted(debt).bytes),
            [1000, 1000, 1000, 1000, 2000, 9000, 10_000, 10_000],
            "a quantum has 1000"
        );
        assert_eq!(wanted(-5000).packets, 0, "what has no limit is not lacking");
    }

    #[test]
    fn a_quantum_is_a_millisecond_within_bounds() {
        let quantum =
            |per_second, burst| RateLimits { bytes: Some(Limit { per_second, burst }), packets: None }.quantum();
        let bytes = [(12_500_000, 65_536), (125_000_000, 500_000), (70_000, 70_000), (125_000_000, 1514)];
        assert_eq!(bytes.map(|(rate, burst)| quantum(rate, burst).bytes), [12_500, 65_536, 256, 1514]);
        let packets =
            |per_second| RateLimits { bytes: None, packets: Some(Limit { per_second, burst: 100 }) }.quantum();
        assert_eq!([1, 10_000, 1_000_000].map(|rate| packets(rate).packets), [1, 10, 64]);
    }
}
