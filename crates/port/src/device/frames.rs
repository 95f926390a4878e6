//! Delivery into frames of one size: for port kinds whose peer takes finished packets.
//!
//! Such a peer knows no offloads. A partial checksum is finished in the copy. A GSO packet is
//! segmented in the copy, and each of its segments gets a finished checksum. A packet that is
//! longer than a frame takes several frames, if the peer allows that.
//!
//! ```text
//! for each packet:
//!     drop it if the peer cannot take it
//!     stop if the sink has too few free frames for it, and has packets that it can send before
//!     take frames; copy the packet into them; push their descriptors
//! ```
//!
//! Nothing is visible to the peer until the caller publishes the frames. Before that, it checks
//! whether memory of a source has vanished, and delivers the packets again without that source.

use az::SaturatingAs;
use straightline_packet::{
    BodyCursor, Checksum, DropTally, GsoSegment, MemorySegment, PacketId, PortIndex, Reason, Segmenter, Turn,
};

/// The frames of a destination.
pub(crate) trait FrameSink<'t> {
    /// Returns the bytes of a frame.
    fn frame_size(&self) -> u32;

    /// Returns the most frames that one packet may take.
    fn most_frames(&self) -> usize;

    /// Returns the number of free frames.
    fn free(&self) -> usize;

    /// Returns whether packets were pushed that the peer does not see yet.
    fn has_pushed(&self) -> bool;

    /// Takes a free frame.
    fn take(&mut self) -> Option<MemorySegment<'t>>;

    /// Makes a packet of `len` bytes of the next `frames` taken frames. Returns `false` if the
    /// destination does not work any more.
    fn push(&mut self, frames: usize, len: u32) -> bool;

    /// Puts frames back that were taken and not pushed.
    fn put_back(&mut self);
}

/// The counts of a delivery. The caller adds them to its counters when the packets are visible,
/// because a delivery may have to be done again.
pub(crate) struct Tally {
    /// The packets of the batch that were dealt with, from the first on.
    pub(crate) done: usize,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) body: u64,
    pub(crate) drops: DropTally,
}

/// The settings of a delivery.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The port that counts drops.
    pub(crate) port: PortIndex,
    /// Bytes of the longest packet.
    pub(crate) max_len: u32,
    /// Packets whose source has vanished are dropped.
    pub(crate) without_vanished: bool,
}

/// Copies packets into frames, until all are dealt with or the sink has too few free frames.
/// `segment` is memory for headers of GSO segments.
pub(crate) fn fill<'t>(
    sink: &mut impl FrameSink<'t>,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    limits: Limits,
    segment: &mut GsoSegment,
) -> Tally {
    let mut tally = Tally { done: 0, packets: 0, bytes: 0, body: 0, drops: DropTally::default() };
    for &id in ids {
        match segmenter(turn, id, limits) {
            Err(reason) => tally.drops.drop_at(turn, limits.port, &[id], reason),
            Ok(None) => {
                let needed = frames_of(sink, turn.len(id));
                if needed > sink.free() && sink.has_pushed() {
                    break;
                }
                match whole(sink, turn, id, needed) {
                    Ok(body) => {
                        tally.packets += 1;
                        tally.bytes += u64::from(turn.len(id));
                        tally.body += u64::from(body);
                    }
                    Err(reason) => tally.drops.drop_at(turn, limits.port, &[id], reason),
                }
            }
            Ok(Some(mut plan)) => {
                let count = plan.left().saturating_as::<usize>();
                let needed = frames_of(sink, plan.len_of(0)).saturating_mul(count);
                if needed > sink.free() && sink.has_pushed() {
                    break;
                }
                let all = plan.left();
                let delivered = segments(sink, turn, id, &mut plan, segment, &mut tally);
                turn.note_segmented(limits.port, id, all.saturating_sub(plan.left()));
                if let Err((reason, dropped)) = delivered {
                    tally.drops.drop_segments_at(turn, limits.port, id, reason, dropped);
                }
            }
        }
        tally.done += 1;
    }
    tally
}

/// Returns how a packet is segmented, or `None` if it is a single segment. Returns an error if the
/// packet is not for this destination at all.
fn segmenter(turn: &Turn<'_>, id: PacketId, limits: Limits) -> Result<Option<Segmenter>, Reason> {
    if limits.without_vanished && turn.poisoned(id) {
        return Err(Reason::MemoryFault);
    }
    let len = turn.len(id);
    let fits = |len: u32| turn.fits(id, len, limits.max_len);
    match turn.offload(id).gso {
        None if !fits(len) => Err(Reason::TooBig),
        None => Ok(None),
        Some(gso) if !fits(u32::from(gso.header_len) + u32::from(gso.size)) => Err(Reason::TooBig),
        Some(gso) => Segmenter::new(gso, len).map(Some).ok_or(Reason::SegmentHeaders),
    }
}

/// Returns the number of frames that `len` bytes take.
fn frames_of<'t>(sink: &impl FrameSink<'t>, len: u32) -> usize {
    len.div_ceil(sink.frame_size()).try_into().unwrap_or(usize::MAX)
}

/// Takes frames for a packet and stages them.
#[inline]
fn stage<'t>(sink: &mut impl FrameSink<'t>, turn: &mut Turn<'t>, frames: usize) -> Result<(), Reason> {
    if frames > sink.most_frames() {
        return Err(Reason::TooBig);
    }
    if frames > sink.free() {
        return Err(Reason::NoBuffer);
    }
    for _ in 0..frames {
        turn.stage(sink.take().ok_or(Reason::NoBuffer)?);
    }
    Ok(())
}

/// Delivers a packet as one. Returns the number of its body's bytes.
#[inline]
fn whole<'t>(sink: &mut impl FrameSink<'t>, turn: &mut Turn<'t>, id: PacketId, frames: usize) -> Result<u32, Reason> {
    let mark = turn.mark();
    let staged = stage(sink, turn, frames);
    if staged.is_ok() {
        let is_partial = matches!(turn.offload(id).checksum, Checksum::Partial { .. });
        turn.store::<0>(id, mark..turn.mark(), is_partial);
    }
    turn.unstage(mark);
    staged?;
    if sink.push(frames, turn.len(id)) { Ok(turn.body_len(id)) } else { Err(Reason::LinkDown) }
}

/// Delivers a packet segment by segment. If the frames do not suffice for all segments, returns the
/// reason, and the number of the last ones that are to be dropped.
#[inline(never)]
fn segments<'t>(
    sink: &mut impl FrameSink<'t>,
    turn: &mut Turn<'t>,
    id: PacketId,
    plan: &mut Segmenter,
    segment: &mut GsoSegment,
    tally: &mut Tally,
) -> Result<(), (Reason, u32)> {
    let mut cursor = BodyCursor::default();
    // All segments are as long as the first, except the last, which may be shorter.
    let longest = plan.len_of(0);
    if !plan.begin(turn.head(id), segment) {
        return Err((Reason::SegmentHeaders, 1));
    }
    let delivered = if longest <= sink.frame_size() {
        in_single_frames(sink, turn, id, plan, (segment, &mut cursor), tally)
    } else {
        in_several_frames(sink, turn, id, plan, (segment, &mut cursor), tally)
    };
    delivered.map_err(|reason| (reason, plan.left()))
}

/// Delivers segments that fit into a frame each. All of them are stored by one loop.
fn in_single_frames<'t>(
    sink: &mut impl FrameSink<'t>,
    turn: &mut Turn<'t>,
    id: PacketId,
    plan: &mut Segmenter,
    (segment, cursor): (&mut GsoSegment, &mut BodyCursor),
    tally: &mut Tally,
) -> Result<(), Reason> {
    let mark = turn.mark();
    let count = plan.left().saturating_as::<usize>().min(sink.free());
    for _ in 0..count {
        let Some(frame) = sink.take() else { break };
        turn.stage(frame);
    }
    let lengths = plan.clone();
    let staged = mark..turn.mark();
    let body = turn.store_gso_segments::<0>(id, plan, segment, cursor, staged.clone(), true);
    turn.unstage(mark);
    tally.body += u64::from(body);
    for nth in 0..u32::try_from(staged.len()).unwrap_or(0) {
        let len = lengths.len_of(nth);
        if !sink.push(1, len) {
            return Err(Reason::LinkDown);
        }
        tally.packets += 1;
        tally.bytes += u64::from(len);
    }
    if plan.left() > 0 { Err(Reason::NoBuffer) } else { Ok(()) }
}

/// Delivers segments that take several frames each.
fn in_several_frames<'t>(
    sink: &mut impl FrameSink<'t>,
    turn: &mut Turn<'t>,
    id: PacketId,
    plan: &mut Segmenter,
    (segment, cursor): (&mut GsoSegment, &mut BodyCursor),
    tally: &mut Tally,
) -> Result<(), Reason> {
    while plan.left() > 0 {
        let mark = turn.mark();
        let len = plan.len_of(0);
        let frames = frames_of(sink, len);
        let staged = stage(sink, turn, frames);
        let made = staged.is_ok() && plan.next(turn.head(id), segment);
        let body = if made { turn.store_gso_segment::<0>(id, segment, cursor, mark..turn.mark(), true) } else { 0 };
        turn.unstage(mark);
        staged?;
        if !made {
            sink.put_back();
            return Err(Reason::SegmentHeaders);
        }
        if !sink.push(frames, len) {
            return Err(Reason::LinkDown);
        }
        tally.packets += 1;
        tally.bytes += u64::from(len);
        tally.body += u64::from(body);
    }
    Ok(())
}
