//! The one copy of a packet: from its head and its source's memory into its destination's buffers.
//!
//! ```text
//! slot:          | header | head ----- |                      header: the destination's, in the headroom
//! source:                              | body ---- | body - |
//! destination:   | buffer ------ | buffer ---- | buffer --- |
//! ```
//!
//! A checksum that has to be finished is summed in the same pass. Its field lies in the head, so
//! the order is:
//!
//! 1. Leave space for header and head; copy the body behind that space, and sum the stored bytes.
//! 2. Put the finished checksum into the head, and store header and head.
//! 3. Put the pseudo header's sum back into the head. A flood delivers the packet to other ports,
//!    and each of them finishes the checksum itself.
//!
//! A finished checksum is verified in the same pass where packets are coalesced, by the sum of the
//! stored bytes.
//!
//! A guest may write its buffers during the copy. So the kernel loads each byte once, and sums the
//! bytes that it stores. It never sums a second read.

use std::ops::Range;

use az::SaturatingAs;
use straightline_simd::{Kernels, Level, Sum, WithKernels};

use crate::{Checksum, GsoSegment, MemorySegment, PacketId, Run, Turn};

/// The buffers of a destination, filled from the front.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a, 't> {
    /// Free part of the present buffer.
    now: MemorySegment<'t>,
    /// Buffers behind the present one.
    rest: &'a [MemorySegment<'t>],
}

impl<'a, 't> Scatter<'a, 't> {
    /// Creates a scatter that fills `segments` in their order. `None` if there are none.
    #[inline]
    pub fn new(segments: &'a [MemorySegment<'t>]) -> Option<Self> {
        segments.split_first().map(|(&now, rest)| Scatter { now, rest })
    }

    /// Moves on to the next buffer that is not full. Returns `false` if there is none.
    #[inline(always)]
    fn advance(&mut self) -> bool {
        while self.now.is_empty() {
            let Some((&now, rest)) = self.rest.split_first() else { return false };
            (self.now, self.rest) = (now, rest);
        }
        true
    }

    /// Leaves the next `n` bytes as they are.
    #[inline(always)]
    pub fn skip(&mut self, mut n: u32) {
        while n > 0 && self.advance() {
            let step = n.min(self.now.len());
            self.now = self.now.split_at(step).1;
            n -= step;
        }
    }

    /// Stores bytes of the switch, as many as fit. Returns their number.
    #[inline(always)]
    pub fn put(&mut self, kernels: impl Kernels, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.advance() {
            let n = self.now.write_frame(kernels, &bytes[done..]);
            self.now = self.now.split_at(n.try_into().unwrap_or(u32::MAX)).1;
            done += n;
        }
        done
    }

    /// Stores a header. A header of 12 bytes is written only if the buffer does not have it
    /// already.
    ///
    /// A driver's buffers come back with the header of their last packet, which mostly equals the
    /// new header. A cache line that is not written need not be fetched for writing, and the driver
    /// need not fetch it again.
    #[inline(always)]
    fn put_header(&mut self, kernels: impl Kernels, header: &[u8]) {
        if self.advance()
            && let Ok(wanted) = <&[u8; 12]>::try_from(header)
            && let Some(there) = self.now.read12()
        {
            if there != *wanted {
                self.now.write(kernels, header);
            }
            self.now = self.now.split_at(12).1;
        } else {
            self.put(kernels, header);
        }
    }

    /// Stores the bytes of a memory segment, as many as fit, and sums what is stored. Returns their
    /// number.
    #[inline(always)]
    pub fn put_segment(
        &mut self,
        kernels: impl Kernels,
        mut from: MemorySegment<'_>,
        mut sum: Option<&mut Sum>,
    ) -> u32 {
        let mut done = 0;
        while !from.is_empty() && self.advance() {
            let n = self.now.copy_from(kernels, from, sum.as_deref_mut());
            self.now = self.now.split_at(n).1;
            from = from.split_at(n).1;
            done += n;
        }
        done
    }
}

/// A checksum to be finished in the copy. Both fields are indexes into the header and head, which
/// are stored together.
#[derive(Clone, Copy)]
struct Finish {
    /// Index of the first byte that is summed.
    from: usize,
    /// Index of the 16-bit checksum field. It holds the pseudo header's sum.
    field: usize,
}

impl Finish {
    fn of(checksum: Checksum, front: usize) -> Option<Self> {
        match checksum {
            Checksum::Partial { start, offset } => {
                let from = front + usize::from(start);
                Some(Finish { from, field: from + usize::from(offset) })
            }
            Checksum::Complete | Checksum::Verified => None,
        }
    }
}

/// Stores `front`, the destination's header with the head, and `body` behind it. With `finish`, the
/// stored bytes have the finished checksum. `front` itself is unchanged afterwards. Returns the
/// number of body bytes copied.
#[inline(always)]
fn store<const N: usize>(
    kernels: impl Kernels,
    front: &mut [u8],
    finish: Option<Finish>,
    body: &[MemorySegment<'_>],
    to: Scatter<'_, '_>,
) -> u32 {
    let mut at_front = to;
    let mut at_rest = to;
    let mut copied = 0;
    let Some(finish) = finish else {
        put_front::<N>(&mut at_front, kernels, front);
        for &segment in body {
            copied += at_front.put_segment(kernels, segment, None);
        }
        return copied;
    };
    at_rest.skip(front.len().try_into().unwrap_or(u32::MAX));
    let mut sum = Sum::new();
    sum.add_bytes(&front[finish.from..]);
    for &segment in body {
        copied += at_rest.put_segment(kernels, segment, Some(&mut sum));
    }
    let value = wire_checksum(sum);
    let field = finish.field..finish.field + 2;
    let pseudo = [front[field.start], front[field.start + 1]];
    front[field.clone()].copy_from_slice(&value.to_be_bytes());
    put_front::<N>(&mut at_front, kernels, front);
    front[field].copy_from_slice(&pseudo);
    copied
}

/// Returns the checksum as it is sent. The value 0 is sent as 0xffff: in UDP, 0 would mean "no
/// checksum" (RFC 768). In TCP both values are equivalent.
#[inline]
pub(crate) fn wire_checksum(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        value => value,
    }
}

/// Stores the `N` bytes of the destination's header, and the bytes behind them.
#[inline(always)]
fn put_front<const N: usize>(to: &mut Scatter<'_, '_>, kernels: impl Kernels, front: &[u8]) {
    let (header, rest) = front.split_at(N);
    to.put_header(kernels, header);
    to.put(kernels, rest);
}

/// Stores a range of the body, and sums it. Returns the number of bytes.
fn store_body(
    level: Level,
    body: &[MemorySegment<'_>],
    range: Range<u32>,
    to: &mut Scatter<'_, '_>,
    mut sum: Option<&mut Sum>,
) -> u32 {
    let mut skip = range.start;
    let mut left = range.end - range.start;
    let mut copied = 0;
    for segment in body {
        if left == 0 {
            break;
        }
        let (skipped, rest) = segment.split_at(skip);
        skip -= skipped.len();
        let part = rest.split_at(left).0;
        left -= part.len();
        copied += to.put_segment(level, part, sum.as_deref_mut());
    }
    copied
}

impl Turn<'_> {
    /// Copies the first bytes of a packet, head and body, into memory of the switch: as many as both
    /// have. Returns their number. Each byte of the body is loaded once. A guest may change the body
    /// at any time, so the copy may differ from what is delivered.
    pub fn copy_out(&self, id: PacketId, into: &mut [u8]) -> usize {
        let head = self.head(id);
        let mut copied = head.len().min(into.len());
        into[..copied].copy_from_slice(&head[..copied]);
        for segment in self.body(id) {
            copied += segment.read(self.level(), &mut into[copied..]);
        }
        copied
    }
}

impl<'t> Turn<'t> {
    /// Stores an unsegmented packet, with the `N` bytes in front of its head, into the segments
    /// staged at `to`, which must have enough space. With `finish`, a partial checksum is finished
    /// in the copy. Returns the number of body bytes copied.
    #[inline]
    pub fn store<const N: usize>(&mut self, id: PacketId, to: Range<usize>, finish: bool) -> u32 {
        let level = self.level();
        let checksum = if finish { self.offload(id).checksum } else { Checksum::Complete };
        let (front, body, to) = self.parts::<N>(id, to);
        let Some(mut to) = Scatter::new(to) else { return 0 };
        if body.is_empty() && !finish {
            put_front::<N>(&mut to, level, front);
            return 0;
        }
        let copied = level.run(StorePacket::<N> { front, finish: Finish::of(checksum, N), body, to });
        self.count_copied(copied);
        copied
    }

    /// Stores an unsegmented packet as it is into `to`, behind `header`. The buffer must have
    /// enough space. The header is written only if it differs from the buffer's contents, which is
    /// rare. Returns the number of body bytes copied.
    #[inline(always)]
    pub fn store_plain(&self, kernels: impl Kernels, id: PacketId, to: MemorySegment<'_>, header: &[u8; 12]) -> u32 {
        if to.read12() != Some(*header) {
            to.write(kernels, header);
        }
        let frame = to.split_at(12).1;
        let head = frame.write_frame(kernels, self.head(id));
        let mut rest = frame.split_at(head.try_into().unwrap_or(u32::MAX)).1;
        let mut copied = 0;
        for &segment in self.body(id) {
            let n = rest.copy_from(kernels, segment, None);
            rest = rest.split_at(n).1;
            copied += n;
        }
        copied
    }

    /// Stores one GSO segment of a packet into several buffers. It stores the `N` bytes in front of
    /// the headers, the headers, and the segment's payload, in this order. `from` is where the
    /// previous segment's payload ended; the search for the payload begins there. If each segment
    /// fits into one buffer, [`Self::store_gso_segments`] is faster. Returns the number of body
    /// bytes copied.
    pub fn store_gso_segment<const N: usize>(
        &mut self,
        id: PacketId,
        segment: &GsoSegment,
        from: &mut BodyCursor,
        to: Range<usize>,
        finish: bool,
    ) -> u32 {
        let level = self.level();
        let Some(mut at_front) = Scatter::new(self.staged_at(to)) else { return 0 };
        let front = segment.front::<N>();
        let range = segment.payload();
        let head = self.head(id);
        let in_head = head.len().saturating_as::<u32>();
        let own = &head[range.start.min(in_head) as usize..range.end.min(in_head) as usize];
        let in_body = range.start.saturating_sub(in_head)..range.end.saturating_sub(in_head);
        let finish = if finish { Finish::of(segment.checksum(), N) } else { None };
        let mut sum = finish.map(|_| {
            let mut sum = Sum::new();
            sum.add_u32(segment.transport_sum());
            sum.add_bytes(own);
            sum
        });
        // The headers are stored last. Narrow stores have just made them, and a wide load of the
        // same bytes would wait until these stores have reached the cache.
        let mut at_rest = at_front;
        let mut at_field = at_front;
        at_rest.skip(front.len().try_into().unwrap_or(u32::MAX));
        at_rest.put(level, own);
        let copied = from.store(level, self.body(id), in_body, &mut at_rest, sum.as_mut());
        put_front::<N>(&mut at_front, level, front);
        if let (Some(sum), Some(finish)) = (sum, finish) {
            at_field.skip(finish.field.try_into().unwrap_or(u32::MAX));
            at_field.put(level, &wire_checksum(sum).to_be_bytes());
        }
        self.count_copied(copied);
        copied
    }
}

/// A packet of a run has a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongChecksum;

impl<'t> Turn<'t> {
    /// Stores coalesced packets as one: the headers in `front` with the `N` bytes in front of them,
    /// then the payload of each packet. Finished checksums are verified in the copy. Returns the
    /// number of body bytes copied.
    ///
    /// # Errors
    /// [`WrongChecksum`] at the first packet whose finished checksum does not match the stored
    /// bytes. The buffers are then partly written and must not be published.
    pub fn store_run<const N: usize>(
        &mut self,
        ids: &[PacketId],
        run: &Run,
        front: &GsoSegment,
        to: Range<usize>,
    ) -> Result<u32, WrongChecksum> {
        let Some(to) = Scatter::new(self.staged_at(to)) else { return Ok(0) };
        let level = self.level();
        let store = StoreRun::<N> { turn: self, ids, run, front: front.front::<N>(), to };
        let (copied, is_right) =
            if run.is_finished() { level.run(StoreFinished(store)) } else { level.run(StorePartial(store)) };
        self.count_copied(copied);
        if is_right { Ok(copied) } else { Err(WrongChecksum) }
    }
}

/// The arguments of [`store`], which is compiled for each instruction set.
struct StorePacket<'a, 't, const N: usize> {
    front: &'a mut [u8],
    finish: Option<Finish>,
    body: &'a [MemorySegment<'t>],
    to: Scatter<'a, 't>,
}

impl<const N: usize> WithKernels for StorePacket<'_, '_, N> {
    type Output = u32;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u32 {
        store::<N>(kernels, self.front, self.finish, self.body, self.to)
    }
}

/// The arguments of [`store_run`].
struct StoreRun<'a, 't, const N: usize> {
    turn: &'a Turn<'t>,
    ids: &'a [PacketId],
    run: &'a Run,
    front: &'a [u8],
    to: Scatter<'a, 't>,
}

/// Stores packets with finished checksums, and verifies these.
struct StoreFinished<'a, 't, const N: usize>(StoreRun<'a, 't, N>);
/// Stores packets with partial checksums.
struct StorePartial<'a, 't, const N: usize>(StoreRun<'a, 't, N>);

impl<const N: usize> WithKernels for StoreFinished<'_, '_, N> {
    type Output = (u32, bool);

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> (u32, bool) {
        store_run::<N, true>(kernels, self.0)
    }
}

impl<const N: usize> WithKernels for StorePartial<'_, '_, N> {
    type Output = (u32, bool);

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> (u32, bool) {
        store_run::<N, false>(kernels, self.0)
    }
}

/// Stores the packets of a run as one. Returns the number of body bytes copied, and whether all
/// checksums are right. It stops at the first that is wrong. The head, which has the checksum, is
/// the switch's own, and the sum covers the stored bytes.
#[inline(always)]
fn store_run<const N: usize, const VERIFY: bool>(kernels: impl Kernels, what: StoreRun<'_, '_, N>) -> (u32, bool) {
    let StoreRun { turn, ids, run, front, mut to } = what;
    put_front::<N>(&mut to, kernels, front);
    let mut copied = 0;
    for &id in ids {
        let Some((headers, own)) = turn.head(id).split_at_checked(front.len() - N) else { return (copied, false) };
        let mut sum = VERIFY.then(|| run.header_sum(headers, turn.len(id)));
        to.put(kernels, own);
        if let Some(sum) = &mut sum {
            kernels.sum(own, sum);
        }
        for &segment in turn.body(id) {
            copied += to.put_segment(kernels, segment, sum.as_mut());
        }
        if sum.is_some_and(|sum| sum.fold() != 0xffff) {
            return (copied, false);
        }
    }
    (copied, true)
}

/// A position in a body. The GSO segments of a packet are made in order. With the cursor, a body of
/// many memory segments is not searched from its beginning for each GSO segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyCursor {
    /// Index of a memory segment of the body.
    segment: usize,
    /// Offset of this memory segment in the body.
    start: u32,
}

impl BodyCursor {
    /// Returns the bytes from offset `at` on that lie in the same memory segment. Empty at the end
    /// of the body.
    pub(crate) fn rest<'t>(&mut self, body: &[MemorySegment<'t>], at: u32) -> MemorySegment<'t> {
        self.go_to(body, at);
        body.get(self.segment).map_or(MemorySegment::EMPTY, |segment| segment.split_at(at - self.start).1)
    }

    /// Moves to the memory segment that has the byte at offset `at`: forward, or from the beginning
    /// if `at` lies before the present one.
    #[inline]
    fn go_to(&mut self, body: &[MemorySegment<'_>], at: u32) {
        if at < self.start {
            *self = BodyCursor::default();
        }
        while let Some(segment) = body.get(self.segment)
            && segment.len() <= at - self.start
        {
            self.start += segment.len();
            self.segment += 1;
        }
    }

    /// Stores a range of the body as [`store_body`] does.
    pub(crate) fn store(
        &mut self,
        level: Level,
        body: &[MemorySegment<'_>],
        range: Range<u32>,
        to: &mut Scatter<'_, '_>,
        sum: Option<&mut Sum>,
    ) -> u32 {
        self.go_to(body, range.start);
        let rest = body.get(self.segment..).unwrap_or_default();
        store_body(level, rest, range.start - self.start..range.end - self.start, to, sum)
    }
}
