//! Stores the GSO segments of a packet, each into a buffer of its own.
//!
//! This is the common way to deliver an unsegmented packet to a guest that does not take
//! unsegmented packets. The loop is compiled for each instruction set:
//!
//! ```text
//! for each buffer:
//!     1. store the destination's header and the packet's headers, as they are
//!     2. store the fields that differ in this segment over them
//!     3. copy this segment's part of the payload, and sum it if the checksum is to be finished
//!     4. store the checksum, or the pseudo header's sum, into its field
//! ```
//!
//! 1. The headers are stored from one array by wide stores, and steps 2 and 4 follow with narrow
//!    stores into the buffer. Changing the array before storing it would be slower: a wide load of
//!    bytes that narrow stores have just written waits for these stores.
//! 2. Some bytes of a buffer are stored twice. A driver may not look at a buffer before it is
//!    published. A driver that writes there earlier corrupts only its own packet. From a buffer,
//!    only the old header is read, for a comparison.
//! 3. Payload comes from one memory segment for most GSO segments. Two rarer cases have cold
//!    functions of their own: payload in the head (the first segment's payload), and payload in
//!    several memory segments. So the loop keeps its values in registers.
//! 4. Outer headers of a tunnel are the same in all segments of one length. So they are among the
//!    headers of step 1, and only the last segment may need others, which are stored at the end.
//! 5. Packets with and without finished checksums have a loop each, because each loop needs fewer
//!    registers than one loop for both.

use std::ops::Range;

use straightline_simd::{Kernels, Level, Sum, WithKernels};

use crate::copy::{BodyCursor, Scatter, wire_checksum};
use crate::{COPIES, Checksum, GsoSegment, MAX_HEADERS, MemorySegment, Outer, PacketId, Segmenter, Turn};

impl<'t> Turn<'t> {
    /// Stores the next GSO segments of a packet, one into each of the buffers staged at `to`. Each
    /// buffer must have enough space.
    ///
    /// [`Segmenter::begin`] has filled `segment`: it has the packet's headers, with the `N` bytes
    /// of the destination's header in front of them. `cursor` is the end of the last segment's
    /// payload in the body. With `finish`, checksums are finished in the copy. Returns the number
    /// of body bytes copied.
    pub fn store_gso_segments<const N: usize>(
        &mut self,
        id: PacketId,
        segmenter: &mut Segmenter,
        segment: &GsoSegment,
        cursor: &mut BodyCursor,
        to: Range<usize>,
        finish: bool,
    ) -> u32 {
        let level = self.level();
        let front = segment.front::<N>();
        let head = self.head(id);
        let body = self.body(id);
        let to = self.staged_at(to);
        let left = segmenter.left();
        let store = Store::<N> { front, head, body, segmenter: &mut *segmenter, cursor, to };
        let copied = if finish { level.run(StoreFinished(store)) } else { level.run(StorePartial(store)) };
        if let Some((outer, len)) = segmenter.last_outer()
            && let Some(&last) = left.checked_sub(1).and_then(|last| to.get(last as usize))
        {
            store_outer(level, segmenter, (outer, len), segment.headers(), last.split_at(narrow(N)).1);
        }
        self.count_copied(copied);
        copied
    }
}

/// Stores the outer headers of the last segment over those of the first segment, which the loop has
/// stored there. The last segment is shorter. So the loop need not know about outer headers.
#[cold]
#[inline(never)]
fn store_outer(
    level: Level,
    segmenter: &Segmenter,
    (outer, len): (Outer, u32),
    headers: &[u8],
    buffer: MemorySegment<'_>,
) {
    let mut copy = [0; MAX_HEADERS];
    let copy = &mut copy[..headers.len()];
    copy.copy_from_slice(headers);
    segmenter.rewrite_outer(outer, len, copy);
    let outer = usize::from(outer.l3)..usize::from(segmenter.gso().l3);
    buffer.split_at(narrow(outer.start)).1.write_frame(level, &copy[outer]);
}

/// The arguments of [`store`].
struct Store<'a, 't, const N: usize> {
    /// The destination's header, with the packet's headers behind it.
    front: &'a [u8],
    head: &'a [u8],
    body: &'a [MemorySegment<'t>],
    segmenter: &'a mut Segmenter,
    cursor: &'a mut BodyCursor,
    to: &'a [MemorySegment<'t>],
}

/// Stores segments with finished checksums.
struct StoreFinished<'a, 't, const N: usize>(Store<'a, 't, N>);
/// Stores segments with the pseudo header's sum in the checksum field.
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
    // Local copies: the compiler would load values behind a reference again after each kernel,
    // because a kernel might have changed them.
    let Store { front, head, body, .. } = what;
    let mut segmenter = what.segmenter.clone();
    let mut from = *what.cursor;
    let gso = segmenter.gso();
    let in_front = narrow(N);
    let in_head = narrow(head.len());
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

/// Stores the destination's header and the packet's headers. The buffer mostly has the
/// destination's header already (see `Turn::store_plain`). If the destination's header has a cache
/// line of its own, it is written only where it differs.
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

/// Stores payload that lies in the packet's head: the payload of the first segment, or of a few
/// short ones. Returns the free rest of the buffer, and the sum with the payload.
#[cold]
#[inline(never)]
fn store_own<'t>(level: Level, buffer: MemorySegment<'t>, own: &[u8], mut sum: Sum) -> (MemorySegment<'t>, Sum) {
    sum.add_bytes(own);
    (buffer.split_at(narrow(buffer.write_frame(level, own))).1, sum)
}

/// Stores payload that lies in several memory segments. Returns the number of bytes, and the sum
/// with them.
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
