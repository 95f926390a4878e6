//! Storing the segments of a packet that is cut, each into a buffer of its own: the loop is compiled for each instruction set.
//!
//! ```text
//! for each segment:   the headers of the packet, as they are, by wide stores
//!                   the fields that are another segment's, by narrow stores over them
//!                   its share of the payload, summed on the way where the checksum is to be finished
//!                   the checksum, over its field
//! ```
//!
//! Headers are not made in memory of ours and then copied: a wide load of what narrow stores have just written waits for
//! them. What is stored twice lies in the buffer, which nobody sees before it is published, and where nothing is read.

use std::ops::Range;

use straightline_simd::{Kernels, Level, Sum, WithKernels};

use crate::copy::{BodyCursor, Scatter, wire_checksum};
use crate::{COPIES, Checksum, GsoSegment, MemorySegment, PacketId, Segmenter, Turn};

impl<'t> Turn<'t> {
    /// Stores the next segments of a packet, one into each of the segments staged at `to`, which have room for it behind the `N`
    /// bytes that stand in front of the headers in `segment`, which [`Segmenter::begin`] made. `from` is where the segment before ended. Finishes checksums on the way
    /// where `finish` says so. Returns the bytes of body copied.
    pub fn store_gso_segments<const N: usize>(
        &mut self,
        id: PacketId,
        segmenter: &mut Segmenter,
        segment: &GsoSegment,
        cursor: &mut BodyCursor,
        to: Range<usize>,
        finish: bool,
    ) -> u32 {
        let (level, front) = (self.level(), segment.front::<N>());
        let (head, body, to) = (self.head(id), self.body(id), self.staged_at(to));
        let store = Store::<N> { front, head, body, segmenter, cursor, to };
        let copied = if finish { level.run(StoreFinished(store)) } else { level.run(StorePartial(store)) };
        self.count_copied(copied);
        copied
    }
}

struct Store<'a, 't, const N: usize> {
    /// The packet's headers, behind the destination's.
    front: &'a [u8],
    head: &'a [u8],
    body: &'a [MemorySegment<'t>],
    segmenter: &'a mut Segmenter,
    cursor: &'a mut BodyCursor,
    to: &'a [MemorySegment<'t>],
}

/// With checksums, and with what others make checksums of: two loops, each of which keeps more in registers.
struct StoreFinished<'a, 't, const N: usize>(Store<'a, 't, N>);
struct StorePartial<'a, 't, const N: usize>(Store<'a, 't, N>);

impl<const N: usize> WithKernels for StoreFinished<'_, '_, N> {
    type Output = u32;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u32 {
        store::<N, true>(kernels, self.0)
    }
}

impl<const N: usize> WithKernels for StorePartial<'_, '_, N> {
    type Output = u32;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u32 {
        store::<N, false>(kernels, self.0)
    }
}

#[inline(always)]
fn store<const N: usize, const FINISH: bool>(kernels: impl Kernels, what: Store<'_, '_, N>) -> u32 {
    // What is behind a reference would be loaded again after each kernel, which might change it for all that the compiler knows.
    let Store { front, head, body, .. } = what;
    let (mut segmenter, mut from) = (what.segmenter.clone(), *what.cursor);
    let (gso, in_front, in_head) = (segmenter.gso(), narrow(N), narrow(head.len()));
    let field = match segmenter.checksum() {
        Checksum::Partial { start, offset } => in_front + u32::from(start + offset),
        Checksum::Complete | Checksum::Verified => return 0,
    };
    let mut bytes = from.rest(body, segmenter.position().saturating_sub(in_head));
    let mut copied = 0;
    for &buffer in what.to {
        let Some(fields) = segmenter.next_fields() else { break };
        store_front::<N>(kernels, buffer, front);
        fields.put(&gso, in_front, &mut { buffer });
        let mut sum = Sum::new();
        if FINISH {
            sum.add_u32(fields.transport_sum);
        } else {
            fields.put_pseudo(&gso, in_front, &mut { buffer });
        }
        let mut rest = buffer.split_at(narrow(front.len())).1;
        let Range { start, end } = fields.payload;
        if start < in_head {
            (rest, sum) = store_own(kernels.level(), rest, &head[start as usize..end.min(in_head) as usize], sum);
        }
        let left = end - start.max(in_head).min(end);
        let (part, behind) = bytes.split_at(left);
        if part.len() == left {
            copied += rest.copy_from(kernels, part, FINISH.then_some(&mut sum));
            bytes = behind;
        } else {
            let range = end - in_head - left..end - in_head;
            let n;
            (n, sum) = store_parts(kernels.level(), (body, &mut from), range, rest, FINISH, sum);
            copied += n;
            bytes = from.rest(body, end - in_head);
        }
        if FINISH {
            buffer.put2(field, wire_checksum(sum).to_be_bytes());
        }
    }
    (*what.segmenter, *what.cursor) = (segmenter, from);
    copied
}

/// Stores headers, the destination's first. That one is mostly there already (see `Turn::store_plain`): where it has a line
/// of its own, it is left alone then.
#[inline(always)]
fn store_front<const N: usize>(kernels: impl Kernels, buffer: MemorySegment<'_>, front: &[u8]) {
    let (header, rest) = front.split_at(N);
    if COPIES && buffer.one_line(narrow(N)) {
        buffer.write_frame(kernels, front);
        return;
    }
    if buffer.read12().is_none_or(|there| there != *header) {
        buffer.write(kernels, header);
    }
    buffer.split_at(narrow(N)).1.write_frame(kernels, rest);
}

/// Stores payload that is in the packet's head: that of the first segment, or of a few short ones. Returns what the buffer has
/// behind it, and the sum with it.
#[cold]
#[inline(never)]
fn store_own<'t>(level: Level, buffer: MemorySegment<'t>, own: &[u8], mut sum: Sum) -> (MemorySegment<'t>, Sum) {
    sum.add_bytes(own);
    (buffer.split_at(narrow(buffer.write_frame(level, own))).1, sum)
}

/// Stores payload that is in several segments. Returns how many bytes, and the sum with them.
#[cold]
#[inline(never)]
fn store_parts(
    level: Level,
    (body, from): (&[MemorySegment<'_>], &mut BodyCursor),
    range: Range<u32>,
    buffer: MemorySegment<'_>,
    finish: bool,
    mut sum: Sum,
) -> (u32, Sum) {
    let to = [buffer];
    let Some(mut to) = Scatter::new(&to) else { return (0, sum) };
    let n = from.store(level, body, range, &mut to, finish.then_some(&mut sum));
    (n, sum)
}

#[expect(clippy::cast_possible_truncation, reason = "lengths within a packet's headers and its slot")]
#[inline(always)]
const fn narrow(n: usize) -> u32 {
    n as u32
}
