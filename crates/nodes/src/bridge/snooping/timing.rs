//! The times of a querier, and of what depends on them, in seconds.

/// Time that a member has after a leave, in which the querier asks twice, each time for a second (RFC 3376,
/// 8.8 and 8.9; RFC 3810, 9.8 and 9.9). One more, because a second of the clock may begin at once.
pub(super) const LAST_MEMBER: u32 = 3;

/// A second that does not come.
pub(super) const NEVER: u32 = u32::MAX;

/// The querier's robustness variable if it names none (RFC 3376, 8.1).
const ROBUSTNESS: u32 = 2;

/// Time between two general queries if the querier names none (RFC 3376, 8.2).
const INTERVAL: u32 = 125;

/// Time in which hosts answer (RFC 3376, 8.3).
const RESPONSE: u32 = 10;

/// The longest time that a query can set. A querier that asks less often is believed to be gone.
const LONGEST: u32 = 3600;

/// Times that a general query sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// Time after which a member that reports nothing is forgotten (RFC 3376, 8.4).
    pub(super) membership: u32,
    /// Time after which a querier that asks nothing is forgotten (RFC 3376, 8.5).
    pub(super) querier: u32,
    /// Time in which hosts answer, rounded up, and one second more: a second of the clock may begin at
    /// once.
    pub(super) response: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self::new(RESPONSE * 1000, None)
    }
}

impl Timing {
    /// Returns the times of a query with this response time in milliseconds. Newer versions also name
    /// the robustness and the interval; 0 if they do not.
    ///
    /// Times are never shorter than the defaults: 260 and 255 seconds. A query with small numbers must
    /// not make members expire.
    pub(super) fn new(response_ms: u32, named: Option<(u8, u16)>) -> Self {
        let response = response_ms.div_ceil(1000).min(LONGEST);
        let (robustness, interval) = named.unwrap_or_default();
        let robustness = ROBUSTNESS.max(robustness.into());
        let interval = INTERVAL.max(interval.into());
        let asked = robustness * interval;
        let longer = RESPONSE.max(response);
        Timing {
            membership: (asked + longer).min(LONGEST),
            querier: (asked + longer / 2).min(LONGEST),
            response: response + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_querier_within_limits() {
        let times = |response_ms, named| {
            let Timing { membership, querier, response } = Timing::new(response_ms, named);
            (membership, querier, response)
        };
        assert_eq!(times(10_000, None), (260, 255, 11));
        assert_eq!(times(10_000, Some((0, 0))), (260, 255, 11));
        assert_eq!(times(1, Some((1, 10))), (260, 255, 2), "not shorter");
        assert_eq!(times(20_000, Some((3, 300))), (920, 910, 21));
        assert_eq!(times(8_387_584, Some((7, 31_744))), (3600, 3600, 3601));
    }
}
