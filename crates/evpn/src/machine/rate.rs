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

    /// Takes a token, or returns the time of the next one.
    pub(crate) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let rate = f64::from(self.rate.per_second.max(1));
        let seconds = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = (self.tokens + seconds * rate).min(self.rate.burst.max(1).into());
        self.filled = now.max(self.filled);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A millisecond more than needed, so that the token is there then.
        Err(self.filled + Duration::from_secs_f64((1.0 - self.tokens) / rate) + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let mut bucket = Bucket::new(Rate { per_second: 10, burst: 2 }, Duration::ZERO);
        let at = Duration::from_millis;
        assert_eq!(bucket.take(at(0)), Ok(()));
        assert_eq!(bucket.take(at(0)), Ok(()));
        let next = bucket.take(at(0)).expect_err("it is empty");
        assert!(next >= at(100) && next <= at(102), "{next:?}");
        assert_eq!(bucket.take(next), Ok(()));
        // A clock that goes back gives nothing, and a long time only the burst.
        assert!(bucket.take(at(0)).is_err());
        for _ in 0..2 {
            assert_eq!(bucket.take(at(100_000)), Ok(()));
        }
        assert!(bucket.take(at(100_000)).is_err());
    }
}
