//! `notify.rs` on loom's atomics: a producer and a consumer in every order, and with every stale
//! value that the memory model allows.

use loom::sync::Arc;
use loom::thread;

#[path = "notify.rs"]
#[expect(clippy::duplicate_mod, reason = "the test compiles the same source with other atomics")]
mod notify;

/// Replaces `Area` and the processor's fence: loom cannot watch mapped memory.
mod shared {
    use loom::sync::atomic::AtomicU16;
    pub(super) use loom::sync::atomic::{Ordering, fence};

    pub(super) struct Area(Vec<AtomicU16>);

    impl Area {
        pub(super) fn new(words: &[u16]) -> Self {
            Area(words.iter().map(|&word| AtomicU16::new(word)).collect())
        }

        pub(super) fn read_u16(&self, offset: usize) -> u16 {
            self.0[offset / 2].load(Ordering::Relaxed)
        }

        pub(super) fn write_u16(&self, offset: usize, value: u16) {
            self.0[offset / 2].store(value, Ordering::Relaxed);
        }

        pub(super) fn acquire_u16(&self, offset: usize) -> u16 {
            self.0[offset / 2].load(Ordering::Acquire)
        }

        pub(super) fn release_u16(&self, offset: usize, value: u16) {
            self.0[offset / 2].store(value, Ordering::Release);
        }
    }
}

use super::layout::event;
use super::packed_device::{AVAIL, EVENTS_AT, EVENTS_OFF, EVENTS_ON, RingPosition, USED, is_available};
use notify::SuppressionField;
use shared::Area;

/// Entries that a producer publishes, one by one.
const COUNT: u16 = 2;

/// The words that producer and consumer share.
struct Ring {
    /// A split ring's index, or the flags of a packed ring's descriptors.
    published: Area,
    suppression: Area,
}

/// Checks that no consumer sleeps over entries that it was not notified of.
///
/// The producer publishes entries one by one. `publish` gets the number published before, and
/// returns whether the producer notifies. The consumer takes all entries that it sees and requests
/// a notification, until there is nothing new. `arm` gets the number seen, and returns the number
/// seen afterwards. Then it sleeps, and must have been notified of all that it has not seen.
fn check_no_lost_wakeup(
    ring: fn() -> Ring,
    publish: impl Fn(&Ring, u16) -> bool + Copy + Send + Sync + 'static,
    arm: impl Fn(&Ring, u16) -> u16 + Copy + Send + Sync + 'static,
) {
    loom::model(move || {
        let ring = Arc::new(ring());
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (0..COUNT).filter(|&old| publish(&ring, old)).last().map_or(0, |old| old + 1))
        };
        let mut seen = 0;
        loop {
            match arm(&ring, seen) {
                now if now == seen => break,
                now => seen = now,
            }
        }
        let notified = producer.join().expect("the producer ends");
        assert!(
            seen == COUNT || notified > seen,
            "the consumer sleeps with {seen} of {COUNT} entries, notified of {notified}"
        );
    });
}

fn split(field: SuppressionField, ring: fn() -> Ring, word: fn(u16) -> u16) {
    let publish = move |ring: &Ring, old: u16| {
        ring.published.release_u16(0, old + 1);
        notify::needs_notification(&ring.suppression, field, Some(old), old + 1)
    };
    let arm = move |ring: &Ring, seen| {
        if let SuppressionField::Flags(at, bit) = field {
            // The consumer polled until now.
            ring.suppression.write_u16(at, bit);
        }
        notify::request_notification(&ring.suppression, field, word(seen), || ring.published.acquire_u16(0))
    };
    check_no_lost_wakeup(ring, publish, arm);
}

#[test]
fn split_with_flags() {
    let ring = || Ring { published: Area::new(&[0]), suppression: Area::new(&[1]) };
    split(SuppressionField::Flags(0, 1), ring, |_| 0);
}

#[test]
fn split_with_the_event_index() {
    // The last event index is behind the index: its notification was sent.
    let ring = || Ring { published: Area::new(&[0]), suppression: Area::new(&[u16::MAX]) };
    split(SuppressionField::Event(0), ring, |seen| seen);
}

/// The packed ring is at its last position, so that the published descriptors lie on both sides of
/// the wrap.
const SIZE: u16 = 4;
const START: RingPosition = RingPosition { at: SIZE - 1, wrap: true };

// Cites packed-2.8.21.3.1-1, packed-2.8.22-2.
fn packed(event_idx: bool) {
    let ring = || {
        let used = |wrap| if wrap { AVAIL | USED } else { 0 };
        let flags: Vec<_> = (0..SIZE).map(|at| used(at != START.at)).collect();
        let mut suppression = [0; event::LEN / 2];
        suppression[event::MODE / 2] = EVENTS_OFF;
        Ring { published: Area::new(&flags), suppression: Area::new(&suppression) }
    };
    let flags_at = |position: RingPosition| usize::from(position.at) * 2;
    let publish = move |ring: &Ring, old| {
        let position = START.plus(old, SIZE);
        ring.published.release_u16(flags_at(position), if position.wrap { AVAIL } else { USED });
        notify::needs_notification_packed(&ring.suppression, event_idx.then_some(1), position.plus(1, SIZE), SIZE)
    };
    let arm = move |ring: &Ring, seen| {
        // The consumer polled until now.
        ring.suppression.write_u16(event::MODE, EVENTS_OFF);
        let position = START.plus(seen, SIZE);
        let mode = if event_idx { EVENTS_AT } else { EVENTS_ON };
        notify::request_notification_packed(&ring.suppression, mode, position, || {
            let more = is_available(ring.published.acquire_u16(flags_at(position)), position.wrap);
            seen + u16::from(more)
        })
    };
    check_no_lost_wakeup(ring, publish, arm);
}

#[test]
fn packed_with_flags() {
    packed(false);
}

#[test]
fn packed_with_the_event_index() {
    packed(true);
}
