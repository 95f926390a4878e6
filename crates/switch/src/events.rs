//! The events of a switch: the last ones are kept, and each is told to those who follow.
//!
//! Control code adds an event where it happens. Nothing here is for a worker, which must not take a
//! lock: a control thread compares what workers have counted ([`watcher`](crate::watcher)).

mod limits;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::SystemTime;

use rustix::event::{EventfdFlags, eventfd};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use crate::api::{ErrorCode, Event, EventKind, Events, MAX_FILL, Readiness, Refusal, Stream, since_epoch};
use limits::Limits;

/// The maximum number of kept events.
const MAX_EVENTS: usize = 4096;

/// The maximum number of bytes of kept events, as JSON.
const MAX_BYTES: usize = 1 << 20;

/// The events so far.
#[derive(Clone, Debug)]
pub(crate) struct EventLog {
    kept: Arc<Mutex<Kept>>,
    clock: Clock,
}

/// An event without its number.
#[derive(Clone, Debug, PartialEq)]
struct Happening {
    time: SystemTime,
    kind: EventKind,
    message: String,
}

#[derive(Debug, Default)]
struct Kept {
    /// The number of the newest event.
    last: u64,
    /// The events with the highest numbers, oldest first, each with its length as JSON.
    events: VecDeque<(Event, usize)>,
    bytes: usize,
    followers: Vec<Weak<OwnedFd>>,
    limits: Limits,
}

impl EventLog {
    /// Returns no events, whose times are those of this clock.
    pub(crate) fn new(clock: Clock) -> Self {
        EventLog { kept: Arc::default(), clock }
    }

    /// Adds an event, and tells the followers.
    pub(crate) fn add(&self, kind: EventKind, message: impl Into<String>) {
        let happening = Happening { time: self.clock.time_of_day(), kind, message: message.into() };
        self.lock().push(happening, 0);
    }

    /// Adds an event that a guest or the network can cause as often as it likes. If too many come from
    /// this source, they wait, and the last one is added with their number.
    pub(crate) fn add_limited(&self, source: &str, kind: EventKind, message: String) {
        self.add_limited_at(source, self.clock.time_of_day(), kind, message);
    }

    /// Adds an event of this time, as [`Self::add_limited`] does.
    pub(crate) fn add_limited_at(&self, source: &str, time: SystemTime, kind: EventKind, message: String) {
        let mut kept = self.lock();
        if let Some(happening) = kept.limits.admit(source, Happening { time, kind, message }, self.clock.now()) {
            kept.push(happening, 0);
        }
    }

    /// Adds the events that have waited for long enough.
    pub(crate) fn add_due(&self) {
        let mut kept = self.lock();
        for (happening, skipped) in kept.limits.due(self.clock.now()) {
            kept.push(happening, skipped);
        }
    }

    /// Returns the kept events after this number. Forgotten ones are counted in a first event.
    pub(crate) fn events(&self, since: u64) -> Events {
        let kept = self.lock();
        Events { last: kept.last, events: kept.after(since, self.clock.time_of_day()).collect() }
    }

    /// Returns the kept events after this number and all further ones as a stream, and the number of
    /// the newest event.
    pub(crate) fn follow(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Refusal::new(ErrorCode::Busy, format!("events: no descriptor is free: {error}")))?;
        let wakes = Arc::new(wakes);
        let mut kept = self.lock();
        kept.followers.push(Arc::downgrade(&wakes));
        let answer = Events { last: kept.last, events: Vec::new() };
        wake(&wakes);
        let since = since.min(kept.last);
        Ok((answer, Box::new(Follower { log: self.clone(), wakes, since })))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }
}

impl Kept {
    fn push(&mut self, happening: Happening, skipped: u64) {
        self.last += 1;
        let Happening { time, kind, message } = happening;
        let event = Event { seq: self.last, time: since_epoch(time), message, skipped, kind };
        let length = serde_json::to_string(&event).map_or(MAX_BYTES, |json| json.len());
        self.bytes += length;
        self.events.push_back((event, length));
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some((_, length)) = self.events.pop_front() else { break };
            self.bytes -= length;
        }
        self.followers.retain(|follower| {
            let Some(follower) = follower.upgrade() else { return false };
            wake(&follower);
            true
        });
    }

    /// Returns the events after this number. `now` is the time of a first event that counts forgotten ones.
    fn after(&self, since: u64, now: SystemTime) -> impl Iterator<Item = Event> {
        let oldest = self.events.front().map_or(self.last + 1, |(event, _)| event.seq);
        let count = oldest.saturating_sub(1).saturating_sub(since);
        let lost = (count > 0).then(|| Event {
            seq: oldest - 1,
            time: since_epoch(now),
            message: format!("{count} events before are not kept any more"),
            skipped: 0,
            kind: EventKind::Lost { count },
        });
        let after = self.events.partition_point(|(event, _)| event.seq <= since);
        lost.into_iter().chain(self.events.range(after..).map(|(event, _)| event.clone()))
    }
}

/// The stream of one follower.
struct Follower {
    log: EventLog,
    wakes: Arc<OwnedFd>,
    /// The number of the last event that the client got.
    since: u64,
}

impl Stream for Follower {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::Descriptor(self.wakes.as_fd())
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        // This is done before the look at the events, so that no later event is missed.
        let _ = rustix::io::read(&*self.wakes, &mut [0; 8]);
        let kept = self.log.lock();
        for event in kept.after(self.since, self.log.clock.time_of_day()) {
            if output.len() >= MAX_FILL {
                wake(&self.wakes);
                break;
            }
            self.since = event.seq;
            if serde_json::to_writer(&mut *output, &event).is_ok() {
                output.push(b'\n');
            }
        }
        true
    }
}

/// Makes an eventfd readable.
fn wake(fd: &OwnedFd) {
    // It refuses a write only if it is readable already.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(log: &EventLog, port: &str) {
        log.add(EventKind::LinkUp { port: port.to_owned() }, format!("link up of {port}"));
    }

    fn lines(stream: &mut dyn Stream) -> Vec<Event> {
        let mut output = Vec::new();
        assert!(stream.fill(&mut output));
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn is_ready(stream: &dyn Stream) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Readiness::Descriptor(fd) = stream.readiness() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn events_are_numbered_and_kept() {
        let log = EventLog::new(Clock::moved());
        assert_eq!(log.events(0), Events::default());
        (1..=3).for_each(|n| up(&log, &format!("p{n}")));
        let events = log.events(1);
        assert_eq!(events.last, 3);
        assert_eq!(events.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(events.events[0].kind, EventKind::LinkUp { port: "p2".to_owned() });
        assert_eq!(log.events(99).events, []);
    }

    #[test]
    fn the_number_and_the_size_of_kept_events_are_bounded() {
        let log = EventLog::new(Clock::moved());
        (0..MAX_EVENTS + 10).for_each(|_| up(&log, "p"));
        let events = log.events(4).events;
        assert_eq!((events.len(), events[0].seq), (MAX_EVENTS + 1, 10));
        assert_eq!(events[0].kind, EventKind::Lost { count: 6 });
        (0..20).for_each(|_| log.add(EventKind::Other, "x".repeat(MAX_BYTES / 10)));
        assert!(log.lock().bytes <= MAX_BYTES);
        assert_eq!(log.events(0).events.len(), 1 + 9);
        log.add(EventKind::Other, "x".repeat(2 * MAX_BYTES));
        let events = log.events(0);
        assert_eq!(events.events[0].kind, EventKind::Lost { count: events.last });
        assert_eq!((events.events.len(), log.lock().bytes), (1, 0));
    }

    #[test]
    fn a_follower_gets_kept_and_new_events_and_the_number_of_lost_ones() {
        let log = EventLog::new(Clock::moved());
        up(&log, "a");
        up(&log, "b");
        let (answer, mut stream) = log.follow(1).unwrap();
        assert_eq!((answer.last, answer.events), (2, vec![]));
        assert!(is_ready(&*stream));
        assert_eq!(lines(&mut *stream).iter().map(|event| event.seq).collect::<Vec<_>>(), [2]);
        assert!(!is_ready(&*stream) && lines(&mut *stream).is_empty());
        (0..MAX_EVENTS + 5).for_each(|_| up(&log, "c"));
        let mut got = Vec::new();
        while is_ready(&*stream) {
            got.extend(lines(&mut *stream));
        }
        assert_eq!(got[0].kind, EventKind::Lost { count: 5 });
        assert_eq!((got.len(), got.last().unwrap().seq), (MAX_EVENTS + 1, log.lock().last));
        drop(stream);
        up(&log, "d");
        assert!(log.lock().followers.is_empty());
    }
}
