//! The history of a port's link: its changes, and the reasons why it was down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// The number of reasons that are kept.
const MOST_REASONS: usize = 10;

/// The number of notes that are kept.
const MOST_NOTES: usize = 10;

/// The number of the newest note of all links of this process.
static NEWEST_NOTE: AtomicU64 = AtomicU64::new(0);

/// The history of a link since the port was made.
#[derive(Clone, Debug)]
pub struct LinkHistory {
    /// The time when the link last changed. At first, the time when the port was made.
    pub since: Instant,
    /// The number of times that the link came up or went down.
    pub changes: u64,
    /// The last reasons why the link was down, with their times, newest last.
    pub reasons: VecDeque<(SystemTime, String)>,
    /// The last notes, newest last.
    pub notes: VecDeque<LinkNote>,
    is_up: bool,
}

/// Something that happened to a link.
#[derive(Clone, Debug)]
pub struct LinkNote {
    /// The note's number. A later note of any link of this process has a higher one.
    pub number: u64,
    /// The time.
    pub time: SystemTime,
    /// The event.
    pub event: LinkEvent,
}

/// The kinds of things that happen to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link came up.
    Up,
    /// The link went down, for this reason.
    Down(String),
    /// The frontend or the interface did something wrong, or the link could not be set up.
    Fault(String),
}

/// Returns the number of the newest note of all links of this process. While it stays the same, no
/// link has changed.
#[must_use]
pub fn newest_link_note() -> u64 {
    NEWEST_NOTE.load(Ordering::Relaxed)
}

impl LinkHistory {
    /// Returns the history of a link that is down and never was up.
    pub(crate) fn new(now: Instant) -> Self {
        LinkHistory { since: now, changes: 0, reasons: VecDeque::new(), notes: VecDeque::new(), is_up: false }
    }

    /// Records the link as it is now. A change to down is kept with its reason. Reasons that follow
    /// while the link stays down are not kept: a frontend that sets up a link causes many.
    pub(crate) fn note(&mut self, is_up: bool, reason: &str, now: Instant, time: SystemTime) {
        if is_up == self.is_up {
            return;
        }
        (self.is_up, self.since) = (is_up, now);
        self.changes += 1;
        if is_up {
            self.add(LinkEvent::Up, time);
        } else {
            self.add(LinkEvent::Down(reason.to_owned()), time);
            self.keep(reason, time);
        }
    }

    /// Records a failure of a frontend whose link is not up. A repeated failure replaces the
    /// previous one.
    pub(crate) fn note_failure(&mut self, reason: &str, time: SystemTime) {
        if self.is_up {
            return;
        }
        self.note_fault(reason, time);
        match self.reasons.back_mut() {
            Some((last, same)) if same == reason => *last = time,
            _ => self.keep(reason, time),
        }
    }

    /// Records a fault, which may be about to end the link. A repeated fault is one.
    pub(crate) fn note_fault(&mut self, reason: &str, time: SystemTime) {
        let fault = LinkEvent::Fault(reason.to_owned());
        if self.notes.back().is_none_or(|last| last.event != fault) {
            self.add(fault, time);
        }
    }

    fn add(&mut self, event: LinkEvent, time: SystemTime) {
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        let number = NEWEST_NOTE.fetch_add(1, Ordering::Relaxed) + 1;
        self.notes.push_back(LinkNote { number, time, event });
    }

    fn keep(&mut self, reason: &str, time: SystemTime) {
        if self.reasons.len() == MOST_REASONS {
            self.reasons.pop_front();
        }
        self.reasons.push_back((time, reason.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Clock;

    /// Returns a history, and a function for the moment after so many seconds.
    fn history() -> (LinkHistory, impl Fn(u64) -> (Instant, SystemTime)) {
        let now = Clock::moved().now();
        let time = SystemTime::UNIX_EPOCH;
        (LinkHistory::new(now), move |s| (now + Duration::from_secs(s), time + Duration::from_secs(s)))
    }

    #[test]
    fn a_change_counts_and_what_stays_does_not() {
        let (mut history, at) = history();
        for (second, is_up, reason) in [(1, false, "a"), (2, true, ""), (3, true, ""), (4, false, "b"), (5, false, "c")]
        {
            let (now, time) = at(second);
            history.note(is_up, reason, now, time);
        }
        assert_eq!((history.changes, history.since), (2, at(4).0));
        assert_eq!(history.reasons, [(at(4).1, "b".to_owned())]);
    }

    #[test]
    fn notes_are_numbered_and_bounded_and_a_repeated_fault_is_one() {
        let (mut history, at) = history();
        let before = newest_link_note();
        history.note_failure("refused", at(1).1);
        history.note_failure("refused", at(2).1);
        history.note(true, "", at(3).0, at(3).1);
        history.note_failure("not while it is up", at(4).1);
        history.note_fault("a loop", at(4).1);
        history.note(false, "a loop", at(5).0, at(5).1);
        let text = |text: &str| text.to_owned();
        let expected = [
            LinkEvent::Fault(text("refused")),
            LinkEvent::Up,
            LinkEvent::Fault(text("a loop")),
            LinkEvent::Down(text("a loop")),
        ];
        assert!(history.notes.iter().map(|note| &note.event).eq(&expected), "{history:?}");
        assert_eq!(history.notes[3].time, at(5).1);
        assert!(history.notes[0].number > before && history.notes.iter().is_sorted_by_key(|note| note.number));
        assert!(newest_link_note() >= history.notes[3].number);
        for second in 0..100 {
            history.note(second % 2 == 0, "", at(second).0, at(second).1);
        }
        assert_eq!(history.notes.len(), MOST_NOTES);
    }

    #[test]
    fn reasons_are_bounded_and_a_repeated_failure_is_one() {
        let (mut history, at) = history();
        for second in 0..100 {
            history.note_failure("refused", at(second).1);
        }
        assert_eq!(history.reasons, [(at(99).1, "refused".to_owned())]);
        for second in 100..200 {
            history.note_failure(&format!("refused {second}"), at(second).1);
        }
        let kept: Vec<_> = (190..200).map(|second| (at(second).1, format!("refused {second}"))).collect();
        assert_eq!(history.reasons, kept);
        // Each change to down is kept, even for the same reason.
        for second in 200..220 {
            let (now, time) = at(second);
            history.note(second % 2 == 0, "closed", now, time);
        }
        assert_eq!((history.reasons.len(), history.changes), (MOST_REASONS, 20));
        assert!(history.reasons.iter().all(|(_, reason)| reason == "closed"));
    }
}
