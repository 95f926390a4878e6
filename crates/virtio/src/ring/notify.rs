//! Telling the other side, and asking to be told: what two sides of a ring share without a lock.
//!
//! A *giver* (a driver with available chains, a device with used ones) and the *waiter* for them each write, and then
//! look at what the other one writes:
//!
//! ```text
//! giver                            waiter
//! publish index or flags           write the field
//! fence(SeqCst)          (a)       fence(SeqCst)          (b)
//! read the field: tell it?          read index or flags: is there anything?
//! ```
//! The fences are ordered one way or the other. If (a) is first, the waiter sees what was given and does not sleep; if
//! (b) is first, the giver sees the field and tells it (virtio 1.2, 2.7.7.2, 2.7.13.4.1, 2.8.14, 2.8.21.3.1). Without one
//! of them both may have looked too early, and a full ring waits for ever.
//!
//! `notify_loom.rs` builds this file a second time, on loom's atomics, and tries every order.

use super::shared::{Area, Ordering, fence};
use crate::ring::layout::event;
use crate::ring::need_event;
use crate::ring::packed_device::{EVENTS_AT, EVENTS_OFF, RingPosition};

/// Where a split ring's waiter says what it suppression.
#[derive(Clone, Copy, Debug)]
pub(super) enum SuppressionField {
    /// Here is the index of the entry that it wants to be told of (2.7.10).
    Event(usize),
    /// Here are flags, and this bit in them says that it wants to be told of none.
    Flags(usize, u16),
}

impl SuppressionField {
    fn offset(self) -> usize {
        let (SuppressionField::Event(at) | SuppressionField::Flags(at, _)) = self;
        at
    }
}

/// Whether the waiter of a split ring is to be told of entries `old..new`, which were published. Without `old`, nothing
/// is known of what it was told before.
#[inline]
pub(super) fn needs_notification(suppression: &Area, field: SuppressionField, old: Option<u16>, new: u16) -> bool {
    fence(Ordering::SeqCst);
    let word = suppression.read_u16(field.offset());
    match field {
        SuppressionField::Event(_) => old.is_none_or(|old| need_event(word, new, old)),
        SuppressionField::Flags(_, bit) => word & bit == 0,
    }
}

/// The field of a split ring's waiter becomes `word`; then it looks at the giver's index.
#[inline]
pub(super) fn request_notification<R>(
    suppression: &Area,
    field: SuppressionField,
    word: u16,
    look: impl FnOnce() -> R,
) -> R {
    suppression.write_u16(field.offset(), word);
    fence(Ordering::SeqCst);
    look()
}

/// Whether the waiter of a packed ring is to be told of the `count` descriptors before `new`, which were published: at
/// most a round of them. The field is where the waiter is, or at most a round ahead: then it is told once too often at worst.
/// Without a count, the position it asked for says nothing.
#[inline]
pub(super) fn needs_notification_packed(suppression: &Area, count: Option<u16>, new: RingPosition, size: u16) -> bool {
    fence(Ordering::SeqCst);
    match (suppression.read_u16(event::MODE), count) {
        (EVENTS_OFF, _) => false,
        (EVENTS_AT, Some(count)) => {
            let wanted = RingPosition::from_bits(suppression.read_u16(event::POSITION));
            // Places of the round before are counted down from this one's start.
            let wanted = if wanted.wrap == new.wrap { wanted.at } else { wanted.at.wrapping_sub(size) };
            need_event(wanted, new.at, new.at.wrapping_sub(count))
        }
        _ => true,
    }
}

/// The field of a packed ring's waiter becomes `mode`, for the descriptor at `position` where the mode is about one; then it
/// looks at the descriptors.
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
    suppression.release_u16(event::MODE, mode);
    fence(Ordering::SeqCst);
    look()
}
