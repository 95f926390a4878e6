//! Event suppression: the decision to notify the other side, and the request to be notified.
//!
//! Two sides of a ring share this without a lock. A *producer* is a driver with available chains or
//! a device with used ones. A *consumer* waits for them. Each side first writes, and then reads
//! what the other one writes:
//!
//! ```text
//! producer                         consumer
//! publish index or flags           write event suppression
//! fence(SeqCst)          (a)       fence(SeqCst)          (b)
//! read event suppression           read index or flags
//! notify if it is asked for        sleep if there is nothing new
//! ```
//!
//! All SeqCst fences have one total order, so either (a) comes before (b) or (b) before (a):
//!
//! 1. If (a) is first, the consumer's read sees what was published. It does not sleep.
//! 2. If (b) is first, the producer's read sees the event suppression. It notifies.
//!
//! Virtio requires both fences (1.2: 2.7.7.2, 2.7.13.4.1, 2.8.14, 2.8.21.3.1). If one of them is
//! missing, a store may still wait in the store buffer while the load behind it is done. Then both
//! sides may read too early, and a full ring waits for ever.
//!
//! `notify_loom.rs` builds this file a second time, on loom's atomics, and tries every order.

use super::shared::{Area, Ordering, fence};
use crate::ring::layout::event;
use crate::ring::need_event;
use crate::ring::packed_device::{EVENTS_AT, EVENTS_OFF, RingPosition};

/// The field in which the consumer of a split ring keeps its event suppression.
#[derive(Clone, Copy, Debug)]
pub(super) enum SuppressionField {
    /// The event index at this offset: the entry for which it asks for a notification (2.7.10).
    Event(usize),
    /// Flags at this offset, and the bit in them that suppresses all notifications.
    Flags(usize, u16),
}

impl SuppressionField {
    fn offset(self) -> usize {
        let (SuppressionField::Event(at) | SuppressionField::Flags(at, _)) = self;
        at
    }
}

/// Returns whether the consumer of a split ring asked for a notification of entries `old..new`,
/// which were published. Without `old`, the entries of the last notification are not known, so with
/// the event index the answer is yes.
#[inline]
pub(super) fn needs_notification(suppression: &Area, field: SuppressionField, old: Option<u16>, new: u16) -> bool {
    // (a): the published index comes before this read of the event suppression.
    fence(Ordering::SeqCst);
    let word = suppression.read_u16(field.offset());
    match field {
        SuppressionField::Event(_) => old.is_none_or(|old| need_event(word, new, old)),
        SuppressionField::Flags(_, bit) => word & bit == 0,
    }
}

/// Requests a notification in a split ring by writing `word` into the consumer's field, and then
/// looks at the producer's index.
#[inline]
pub(super) fn request_notification<R>(
    suppression: &Area,
    field: SuppressionField,
    word: u16,
    look: impl FnOnce() -> R,
) -> R {
    suppression.write_u16(field.offset(), word);
    // (b): the event suppression comes before this look at the index.
    fence(Ordering::SeqCst);
    look()
}

/// Returns whether the consumer of a packed ring asked for a notification of the `count`
/// descriptors before `new`, which were published: at most one round. The requested position is the
/// consumer's own position, or at most a round ahead of it. In the worst case the consumer gets one
/// notification too many. Without a count, the position has no meaning.
#[inline]
pub(super) fn needs_notification_packed(suppression: &Area, count: Option<u16>, new: RingPosition, size: u16) -> bool {
    // Cites packed-2.8.21.3.1-1.
    // (a): the published descriptors come before this read of the event suppression.
    fence(Ordering::SeqCst);
    match (suppression.read_u16(event::MODE), count) {
        // Cites packed-2.8.10-1.
        (EVENTS_OFF, _) => false,
        // Cites packed-2.8.10-2.
        (EVENTS_AT, Some(count)) => {
            let event = RingPosition::from_bits(suppression.read_u16(event::POSITION));
            // A position of the previous round is counted down from the start of this round.
            let event = if event.wrap == new.wrap { event.at } else { event.at.wrapping_sub(size) };
            need_event(event, new.at, new.at.wrapping_sub(count))
        }
        _ => true,
    }
}

/// Requests a notification in a packed ring, and then looks at the descriptors. The request writes
/// `mode` into the consumer's structure, and `position` too if the mode needs one.
#[inline]
pub(super) fn request_notification_packed<R>(
    suppression: &Area,
    mode: u16,
    position: RingPosition,
    look: impl FnOnce() -> R,
) -> R {
    if mode == EVENTS_AT {
        suppression.write_u16(event::POSITION, position.bits());
    }
    // Release: a producer that reads this mode sees the position that belongs to it.
    suppression.release_u16(event::MODE, mode);
    // Cites packed-2.8.22-2.
    // (b): the event suppression comes before this look at the descriptors.
    fence(Ordering::SeqCst);
    look()
}
