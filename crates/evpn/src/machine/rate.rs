//! A token bucket whose clock is an argument.

use std::time::Duration;

use super::settings::Rate;

/// The tokens of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    /// Makes a full bucket.
    pub(crate) fn new(rate: Rate, now: Duration) -> Self {
        Self { rate, tokens: rate.burst.into(), filled: now }
    }

    /// Reserves a token. Returns the time from which it may be used. Nobody else gets it.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        let rate = f64::from(self.rate.per_second.max(1));
        let seconds = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = (self.tokens + seconds * rate).min(self.rate.burst.max(1).into());
        self.filled = now.max(self.filled);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 { now } else { self.filled + Duration::from_secs_f64(-self.tokens / rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let mut bucket = Bucket::new(Rate { per_second: 10, burst: 2 }, Duration::ZERO);
        let at = Duration::from_millis;
        // Two tokens are there at once. Then one comes every 100 ms.
        let times: Vec<Duration> = (0..5).map(|_| bucket.reserve(at(0))).collect();
        assert_eq!(times, [at(0), at(0), at(100), at(200), at(300)]);
        // A clock that goes back gives nothing, and a long time only the burst.
        assert!(bucket.reserve(at(350)) > at(390));
        assert!(bucket.reserve(at(0)) > at(490));
        let times: Vec<Duration> = (0..3).map(|_| bucket.reserve(at(100_000))).collect();
        assert_eq!(times, [at(100_000), at(100_000), at(100_100)]);
    }
}
