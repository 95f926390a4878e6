//! The one copy: a packet's bytes, from its head and from its source's memory, into the buffers of its
//! destination, with the checksum in the same pass where one is due.

use std::ops::Range;

use straightline_simd::{Kernels, Level, Sum, WithKernels};

use crate::{Checksum, PacketId, Piece, Segment, Turn};

/// A destination's buffers, filled from the front.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a, 't> {
    now: Segment<'t>,
    rest: &'a [Segment<'t>],
}

impl<'a, 't> Scatter<'a, 't> {
    /// To fill `segments`, the first one first. `None` where there are none.
    #[inline]
    pub fn new(segments: &'a [Segment<'t>]) -> Option<Self> {
        segments.split_first().map(|(&now, rest)| Scatter { now, rest })
    }

    /// The next piece that is not full, if any is left.
    #[inline]
    fn advance(&mut self) -> bool {
        while self.now.is_empty() {
            let Some((&now, rest)) = self.rest.split_first() else { return false };
            (self.now, self.rest) = (now, rest);
        }
        true
    }

    /// The one buffer that has room for `front` and for `more` bytes behind it.
    #[inline]
    fn only(&self, front: &[u8], more: &Range<u32>) -> Option<Segment<'t>> {
        (self.now.len() as usize >= front.len() + (more.end - more.start) as usize).then_some(self.now)
    }

    /// Leaves out the next `n` bytes.
    #[inline]
    pub fn skip(&mut self, mut n: u32) {
        while n > 0 && self.advance() {
            let step = n.min(self.now.len());
            self.now = self.now.split_at(step).1;
            n -= step;
        }
    }

    /// Stores bytes of ours; returns how many there was room for.
    #[inline]
    pub fn put(&mut self, level: Level, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.advance() {
            let n = self.now.write_frame(level, &bytes[done..]);
            self.now = self.now.split_at(n.try_into().unwrap_or(u32::MAX)).1;
            done += n;
        }
        done
    }

    /// Stores a header, one of 12 bytes only where it is not there already. A driver's buffers come back with the header
    /// of their last packet, mostly the same: a line that is not written need not be fetched for writing, nor by the
    /// driver afterwards.
    #[inline]
    fn put_header(&mut self, level: Level, header: &[u8]) {
        if self.advance()
            && let Ok(wanted) = <&[u8; 12]>::try_from(header)
            && let Some(there) = self.now.read12()
        {
            if there != *wanted {
                self.now.write(level, header);
            }
            self.now = self.now.split_at(12).1;
        } else {
            self.put(level, header);
        }
    }

    /// Stores bytes of a segment and sums what is stored; returns how many there was room for.
    #[inline]
    pub fn put_segment(&mut self, level: Level, mut from: Segment<'_>, mut sum: Option<&mut Sum>) -> u32 {
        let mut done = 0;
        while !from.is_empty() && self.advance() {
            let n = self.now.copy_from(level, from, sum.as_deref_mut());
            self.now = self.now.split_at(n).1;
            from = from.split_at(n).1;
            done += n;
        }
        done
    }
}

/// A checksum to be finished while it is delivered: both are places in the bytes that go in front.
#[derive(Clone, Copy)]
struct Finish {
    /// Where summing starts.
    from: usize,
    /// Where the 16-bit field is. It holds the pseudo header's sum.
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

/// Stores `front`, then `own`, then `range` of `body`; returns the bytes of body copied. With `finish`, what is
/// stored of the front has the finished checksum, while `front` itself is as it was afterwards.
fn store<const N: usize>(
    level: Level,
    front: &mut [u8],
    finish: Option<Finish>,
    own: &[u8],
    body: &[Segment<'_>],
    range: Range<u32>,
    to: Scatter<'_, '_>,
) -> u32 {
    let mut at_front = to;
    let mut at_rest = to;
    let Some(finish) = finish else {
        put_front::<N>(&mut at_front, level, front);
        at_front.put(level, own);
        return store_body(level, body, range, &mut at_front, None);
    };
    at_rest.skip(front.len().try_into().unwrap_or(u32::MAX));
    at_rest.put(level, own);
    let mut sum = Sum::new();
    sum.add_bytes(&front[finish.from..]);
    sum.add_bytes(own);
    let copied = store_body(level, body, range, &mut at_rest, Some(&mut sum));
    let value = sent(sum);
    let field = finish.field..finish.field + 2;
    let pseudo = [front[field.start], front[field.start + 1]];
    front[field.clone()].copy_from_slice(&value.to_be_bytes());
    put_front::<N>(&mut at_front, level, front);
    front[field].copy_from_slice(&pseudo);
    copied
}

/// The checksum as it is sent. One of 0 is sent as its twin: for UDP, 0 would mean "none" (RFC 768); for TCP both are the
/// same.
#[inline]
fn sent(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        value => value,
    }
}

/// Stores the `N` bytes of the destination's header, and what follows them.
#[inline]
fn put_front<const N: usize>(to: &mut Scatter<'_, '_>, level: Level, front: &[u8]) {
    let (header, rest) = front.split_at(N);
    to.put_header(level, header);
    to.put(level, rest);
}

fn store_body(
    level: Level,
    body: &[Segment<'_>],
    range: Range<u32>,
    to: &mut Scatter<'_, '_>,
    mut sum: Option<&mut Sum>,
) -> u32 {
    let (mut skip, mut left, mut copied) = (range.start, range.end - range.start, 0);
    for segment in body {
        if left == 0 {
            break;
        }
        let (skipped, rest) = segment.split_at(skip);
        skip -= skipped.len();
        let piece = rest.split_at(left).0;
        left -= piece.len();
        copied += to.put_segment(level, piece, sum.as_deref_mut());
    }
    copied
}

impl<'t> Turn<'t> {
    /// Stores a whole packet, with the `N` bytes in front of its head, into the segments staged at `to`; finishes
    /// its checksum on the way where `finish` says so. The destination was reserved large enough. Returns the bytes
    /// of body copied.
    #[inline]
    pub fn store<const N: usize>(&mut self, id: PacketId, to: Range<usize>, finish: bool) -> u32 {
        let level = self.level();
        let checksum = if finish { self.offload(id).checksum } else { Checksum::Complete };
        let range = 0..self.body_len(id);
        let (front, body, to) = self.parts::<N>(id, to);
        let Some(mut to) = Scatter::new(to) else { return 0 };
        if body.is_empty() && !finish {
            put_front::<N>(&mut to, level, front);
            return 0;
        }
        let copied = store::<N>(level, front, Finish::of(checksum, N), &[], body, range, to);
        self.count_copied(copied);
        copied
    }

    /// Stores a whole packet of which nothing is left to be done, behind `header`, into `to`.
    /// The header is written only where it is not there already, as drivers mostly leave it. The destination was
    /// reserved large enough. Returns the bytes of body copied.
    #[inline(always)]
    pub fn store_plain(&self, kernels: impl Kernels, id: PacketId, to: Segment<'_>, header: &[u8; 12]) -> u32 {
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

    /// Stores one piece of a packet that is cut into segments: its `N` bytes in front and its headers, then its
    /// share of the payload, which is looked for from where the piece before ended.
    pub fn store_piece<const N: usize>(
        &mut self,
        id: PacketId,
        piece: &Piece,
        from: &mut BodyPlace,
        to: Range<usize>,
        finish: bool,
    ) -> u32 {
        let level = self.level();
        let Some(mut at_front) = Scatter::new(self.staged_at(to)) else { return 0 };
        let (front, range, head) = (piece.front::<N>(), piece.payload(), self.head(id));
        let in_head = u32::try_from(head.len()).unwrap_or(u32::MAX);
        let own = &head[range.start.min(in_head) as usize..range.end.min(in_head) as usize];
        let in_body = range.start.saturating_sub(in_head)..range.end.saturating_sub(in_head);
        let finish = if finish { Finish::of(piece.checksum(), N) } else { None };
        let mut sum = finish.map(|_| {
            let mut sum = Sum::new();
            sum.add_u16(piece.transport_sum());
            sum.add_bytes(own);
            sum
        });
        if let (Some(buffer), Some(payload)) = (at_front.only(front, &in_body), from.only(self.body(id), &in_body))
            && own.is_empty()
        {
            let copied = payload.len();
            let field = finish.map_or(0, |finish| finish.field);
            level.run(Simple::<N> { buffer, front, payload, sum, field });
            self.count_copied(copied);
            return copied;
        }
        // The headers go last: they have just been made, by stores that a load of many bytes would wait for.
        let (mut at_rest, mut at_field) = (at_front, at_front);
        at_rest.skip(front.len().try_into().unwrap_or(u32::MAX));
        at_rest.put(level, own);
        let copied = from.store(level, self.body(id), in_body, &mut at_rest, sum.as_mut());
        put_front::<N>(&mut at_front, level, front);
        if let (Some(sum), Some(finish)) = (sum, finish) {
            at_field.skip(finish.field.try_into().unwrap_or(u32::MAX));
            at_field.put(level, &sent(sum).to_be_bytes());
        }
        self.count_copied(copied);
        copied
    }
}

impl<'t> Turn<'t> {
    /// Stores packets that are one: `front` has its headers and the `N` bytes in front of them, what follows is the
    /// payload of each. Returns the bytes of bodies copied.
    pub fn store_run<const N: usize>(&mut self, ids: &[PacketId], front: &Piece, to: Range<usize>) -> u32 {
        let level = self.level();
        let Some(mut to) = Scatter::new(self.staged_at(to)) else { return 0 };
        put_front::<N>(&mut to, level, front.front::<N>());
        let mut copied = 0;
        for &id in ids {
            to.put(level, self.head(id).get(front.headers().len()..).unwrap_or_default());
            copied += store_body(level, self.body(id), 0..self.body_len(id), &mut to, None);
        }
        self.count_copied(copied);
        copied
    }
}

/// A piece whose payload lies in one place and goes into one buffer, as nearly all do: copied by a loop that is compiled for
/// the instruction set.
struct Simple<'a, 't, const N: usize> {
    buffer: Segment<'t>,
    front: &'a [u8],
    payload: Segment<'t>,
    sum: Option<Sum>,
    /// Where the checksum goes.
    field: usize,
}

impl<const N: usize> WithKernels for Simple<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(mut self, kernels: K) {
        let place = |at: usize| self.buffer.split_at(at.try_into().unwrap_or(u32::MAX)).1;
        place(self.front.len()).copy_from(kernels, self.payload, self.sum.as_mut());
        // The headers go last: they have just been made, by stores that a load of many bytes would wait for.
        let (header, rest) = self.front.split_at(N);
        if self.buffer.read12().is_none_or(|there| there != *header) {
            self.buffer.write(kernels, header);
        }
        place(N).write_frame(kernels, rest);
        if let Some(sum) = self.sum {
            place(self.field).write_frame(kernels, &sent(sum).to_be_bytes());
        }
    }
}

/// Where in a body the next bytes of it are: the pieces of a packet come one after the other, and a body that consists of
/// many segments is not gone through again for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyPlace {
    /// A segment, and where it begins in the body.
    segment: usize,
    start: u32,
}

impl BodyPlace {
    /// The bytes, where they all lie in the segment that comes next.
    #[inline]
    fn only<'t>(&mut self, body: &[Segment<'t>], range: &Range<u32>) -> Option<Segment<'t>> {
        self.go_to(body, range.start);
        let rest = body.get(self.segment)?.split_at(range.start - self.start).1;
        let bytes = rest.split_at(range.end - range.start).0;
        (bytes.len() == range.end - range.start).then_some(bytes)
    }

    /// Goes on to the segment that has the byte at `at`, or back to the first and on from there.
    #[inline]
    fn go_to(&mut self, body: &[Segment<'_>], at: u32) {
        if at < self.start {
            *self = BodyPlace::default();
        }
        while let Some(segment) = body.get(self.segment)
            && segment.len() <= at - self.start
        {
            self.start += segment.len();
            self.segment += 1;
        }
    }

    /// As [`store_body`].
    fn store(
        &mut self,
        level: Level,
        body: &[Segment<'_>],
        range: Range<u32>,
        to: &mut Scatter<'_, '_>,
        sum: Option<&mut Sum>,
    ) -> u32 {
        self.go_to(body, range.start);
        let rest = body.get(self.segment..).unwrap_or_default();
        store_body(level, rest, range.start - self.start..range.end - self.start, to, sum)
    }
}
