//! A bucket that several meters share.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use straightline_packet::IgnorePoison;

use super::bucket::{Cost, RateLimits, TokenBucket};

/// A token bucket that several meters share, on any workers. Each takes a quantum at a time; those that
/// wait are served in turn, so all of them get the same (deficit round robin).
#[derive(Debug)]
pub struct RateBucket(Mutex<Shared>);

#[derive(Debug)]
struct Shared {
    bucket: TokenBucket,
    quantum: Cost,
    /// The members, by their numbers. Those of members that have left are free.
    members: Vec<Option<Member>>,
    /// Members that wait for a quantum, in turn.
    waiting: VecDeque<usize>,
}

/// A member that waits, or has got a quantum that it has not taken up yet.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Credit while the member waits. A debt is paid by several quanta.
    credit: Cost,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The member has its credit itself.
    #[default]
    Passes,
    Waits,
    /// The credit has become positive.
    Served,
}

impl RateBucket {
    /// Returns a full bucket at the time `now`.
    #[must_use]
    pub fn new(limits: RateLimits, now: u64) -> Self {
        let bucket = TokenBucket::new(limits, now);
        RateBucket(Mutex::new(Shared {
            bucket,
            quantum: limits.quantum(),
            members: Vec::new(),
            waiting: VecDeque::new(),
        }))
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> RateLimits {
        self.lock().bucket.limits()
    }

    /// Takes over the tokens and debts of the bucket before it. No meter may use either.
    pub fn continue_from(&self, before: &RateBucket, now: u64) {
        let mut bucket = before.lock().bucket;
        let mut shared = self.lock();
        bucket.set_limits(shared.bucket.limits(), now);
        shared.bucket = bucket;
    }

    /// Returns the number of members.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.lock().members.iter().flatten().count() as u64
    }

    /// A worker waits for the lock for the time of some additions, once for each quantum.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().ignore_poison()
    }

    /// Adds a member. Returns its number.
    pub(super) fn join(&self) -> usize {
        let mut shared = self.lock();
        let free = shared.members.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            shared.members.push(None);
            shared.members.len() - 1
        });
        shared.members[at] = Some(Member::default());
        // A turn does not allocate for a member that waits.
        let most = shared.members.len();
        shared.waiting.reserve(most);
        at
    }

    /// Removes a member. Its credit or debt becomes the bucket's.
    pub(super) fn leave(&self, member: usize, credit: Cost) {
        let mut shared = self.lock();
        let Some(gone) = shared.members.get_mut(member).and_then(Option::take) else { return };
        let credit = if gone.state == State::Passes { credit } else { gone.credit };
        shared.waiting.retain(|&other| other != member);
        shared.give(credit);
    }

    /// Asks for credit at the time `now`. On success `credit` is positive. Otherwise returns the time
    /// at which to ask again.
    pub(super) fn ask(&self, member: usize, credit: &mut Cost, now: u64) -> Result<(), u64> {
        let mut shared = self.lock();
        let limits = shared.bucket.limits();
        shared.bucket.refill(now);
        if let Some(Some(own)) = shared.members.get_mut(member)
            && own.state == State::Passes
        {
            if limits.lets_pass(*credit) {
                return Ok(());
            }
            *own = Member { credit: *credit, state: State::Waits };
            shared.waiting.push_back(member);
        }
        shared.serve(limits);
        let Shared { bucket, quantum, members, .. } = &mut *shared;
        match members.get_mut(member) {
            Some(Some(own)) if own.state == State::Served => {
                own.state = State::Passes;
                *credit = own.credit;
                Ok(())
            }
            Some(Some(own)) => {
                let wanted = limits.wanted(*quantum, own.credit);
                Err(now.saturating_add(bucket.until(wanted).max(1)))
            }
            _ => Err(u64::MAX),
        }
    }

    /// Lends the tokens of a packet at the time `now`. Returns false if a burst is lent already. The debt is
    /// the bucket's: no member gets a quantum until it is paid.
    pub(super) fn lend(&self, cost: Cost, now: u64) -> bool {
        let mut shared = self.lock();
        shared.bucket.refill(now);
        let lends = shared.bucket.lends();
        if lends {
            shared.bucket.take(cost);
        }
        lends
    }

    /// Returns the tokens that were lent to a packet that did not pass.
    pub(super) fn return_loan(&self, cost: Cost) {
        self.lock().give(cost);
    }

    /// Returns the tokens of a packet that did not pass.
    pub(super) fn refund(&self, member: usize, credit: &mut Cost, cost: Cost) {
        let mut shared = self.lock();
        let limits = shared.bucket.limits();
        let Some(Some(own)) = shared.members.get_mut(member) else { return };
        let has_credit = own.state == State::Passes;
        let target = if has_credit { credit } else { &mut own.credit };
        *target += cost;
        if own.state == State::Waits && limits.lets_pass(own.credit) {
            own.state = State::Served;
            shared.waiting.retain(|&other| other != member);
        }
    }

    /// Returns credit that is not used now.
    pub(super) fn give_back(&self, credit: &mut Cost) {
        let unused = Cost { bytes: credit.bytes.max(0), packets: credit.packets.max(0) };
        *credit -= unused;
        self.lock().give(unused);
    }
}

impl Shared {
    fn give(&mut self, credit: Cost) {
        self.bucket.take(-credit);
    }

    /// Serves members that wait while there are tokens for a quantum. The time is bounded: a bucket has
    /// at most 256 quanta of its smallest burst, or a few of a larger one, and a member with a debt of one
    /// packet takes as many at most.
    fn serve(&mut self, limits: RateLimits) {
        while self.bucket.until(self.quantum) == 0
            && let Some(member) = self.waiting.pop_front()
        {
            let Some(own) = self.members.get_mut(member).and_then(Option::as_mut) else { continue };
            // Unused credit of one limit stays; it never exceeds a quantum.
            let top_up = |credit: i64, quantum: i64| (quantum - credit).clamp(0, quantum);
            let quantum = Cost {
                bytes: top_up(own.credit.bytes, self.quantum.bytes),
                packets: top_up(own.credit.packets, self.quantum.packets),
            };
            own.credit += quantum;
            self.bucket.take(quantum);
            if limits.lets_pass(own.credit) {
                own.state = State::Served;
            } else {
                self.waiting.push_back(member);
            }
        }
    }
}
