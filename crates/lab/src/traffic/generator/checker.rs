//! Checks received packets for loss, duplicates, reordering, wrong copies and latency.

use std::ops::Range;

use az::SaturatingAs;
use straightline_guest::endpoints::Received;
use straightline_wire::{IpProtocol, locate};

use super::latency::Latencies;
use super::tag::{self, Hash, ROUND, Tag};

/// Size of a stream's window. A packet whose number is less than this behind the newest one can be
/// told from its duplicate.
const WINDOW: u64 = 1 << 16;

/// Number of remembered arrivals of a stream. They show how many packets overtook a late packet.
const ARRIVALS: u64 = 1024;

/// Number of bytes at the start of a frame in which headers, and a tag after them, are looked for.
const DEEPEST: usize = 256;

/// Number of bytes that are copied out at once for hashing.
const CHUNK: usize = 32 * ROUND;

/// VXLAN's port and the length of its header (RFC 7348).
const VXLAN: (u16, usize) = (4789, 8);

/// Counters of a stream's packets since counting began. The terms are those of RFC 4737; only
/// `corrupt` is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Number of sent packets.
    pub sent: u64,
    /// Number of packets that came, without duplicates.
    pub received: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Number of packets that came again.
    pub duplicates: u64,
    /// Packets that came after a packet with a higher number (RFC 4737, 3.3), without duplicates.
    pub reordered: u64,
    /// The largest reordering extent (RFC 4737, 4.2.2): the number of packets that overtook one
    /// packet. At most 1024.
    pub extent: u64,
    /// Packets whose bytes after the tag differ from the sent bytes.
    pub corrupt: u64,
    /// Packets at least 65536 numbers late. They cannot be told from duplicates, so no other
    /// counter includes them. If such a packet came for the first time, it counts as lost.
    pub stale: u64,
}

impl StreamCounters {
    /// Returns the number of packets that have not come, or came too late.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the sums of two streams' counters.
    #[must_use]
    pub fn and(self, other: StreamCounters) -> StreamCounters {
        StreamCounters {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            bytes: self.bytes + other.bytes,
            duplicates: self.duplicates + other.duplicates,
            reordered: self.reordered + other.reordered,
            extent: self.extent.max(other.extent),
            corrupt: self.corrupt + other.corrupt,
            stale: self.stale + other.stale,
        }
    }
}

/// The receive state of one stream.
#[derive(Clone, Debug)]
struct Track {
    /// The first number that counts. Packets with lower numbers were sent before counting began.
    from: u64,
    /// The number after the highest number that came: RFC 4737's `NextExp`.
    next: u64,
    /// A bit for each number of the window: set if the packet came.
    seen: Box<[u64]>,
    /// For each of the last arrivals, the value of `next` after it.
    maxima: Box<[u64]>,
    arrivals: u64,
    counters: StreamCounters,
}

/// Checks received packets.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    tracks: Vec<Track>,
    /// Offsets at which tags were found, the latest first.
    places: [usize; 4],
    /// One of this many packets is checked for a wrong copy; 0: none.
    every: u32,
    countdown: u32,
    pub(super) latencies: Latencies,
    /// Number of packets of our streams that came for the first time, whatever their numbers, and
    /// the bytes of their frames.
    pub(super) arrived: [u64; 2],
    /// Number of frames without one of our tags.
    pub(super) foreign: u64,
    /// True if every received frame counts as a packet of the first stream, without examination.
    pub(super) counts_only: bool,
}

impl Checker {
    /// Makes a checker for `streams` streams. `places` has likely offsets of their tags.
    pub(super) fn new(streams: usize, places: &[usize], every: u32) -> Checker {
        let mut all = [0; 4];
        all.iter_mut().zip(places.iter().chain(std::iter::repeat(&0))).for_each(|(to, from)| *to = *from);
        Checker {
            tracks: vec![Track::new(); streams],
            places: all,
            every,
            countdown: 1,
            latencies: Latencies::new(),
            arrived: [0; 2],
            foreign: 0,
            counts_only: false,
        }
    }

    /// Starts to count. For each stream, packets from this number on count.
    pub(super) fn begin(&mut self, from: impl Iterator<Item = u64>) {
        for (track, from) in self.tracks.iter_mut().zip(from) {
            (track.from, track.counters) = (from, StreamCounters::default());
        }
        self.latencies.clear();
        self.foreign = 0;
    }

    /// Returns the counters of the streams. `sent` has the total number of packets that each stream
    /// has sent.
    pub(super) fn counters(&self, sent: impl Iterator<Item = u64>) -> Vec<StreamCounters> {
        let of =
            |(track, sent): (&Track, u64)| StreamCounters { sent: sent.saturating_sub(track.from), ..track.counters };
        let streams: Vec<StreamCounters> = self.tracks.iter().zip(sent).map(of).collect();
        if self.counts_only {
            // The stream of a packet is unknown.
            return vec![streams.into_iter().fold(StreamCounters::default(), StreamCounters::and)];
        }
        streams
    }

    /// Returns whether all packets that count have come. `sent` has the total number that each
    /// stream has sent.
    pub(super) fn complete(&self, sent: impl Iterator<Item = u64>) -> bool {
        let counts_of = |(track, sent): (&Track, u64)| (track.counters.received, sent.saturating_sub(track.from));
        let mut streams = self.tracks.iter().zip(sent).map(counts_of);
        if self.counts_only {
            // The stream of a packet is unknown.
            let (received, sent) = streams.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            return received >= sent;
        }
        streams.all(|(received, sent)| received >= sent)
    }

    /// Returns the bytes of a frame in which its tag is expected.
    #[inline]
    pub(super) fn expected(&self) -> Range<usize> {
        let at = self.places[0];
        at.saturating_sub(tag::BEFORE)..at + tag::LEN
    }

    /// Counts a frame that came at `now`. Returns whether it is a packet of our streams. `sent` has
    /// the number of packets that each stream has sent.
    #[inline]
    pub(super) fn note(&mut self, frame: &impl Received, now: u64, sent: &[u64]) -> bool {
        let bytes = frame.len().saturating_as::<u64>();
        if self.counts_only {
            self.arrived = [self.arrived[0] + 1, self.arrived[1] + bytes];
            if let Some(track) = self.tracks.first_mut() {
                (track.counters.received, track.counters.bytes) =
                    (track.counters.received + 1, track.counters.bytes + bytes);
            }
            return true;
        }
        let found = self.find(frame, sent);
        let Some((at, tag, track)) =
            found.and_then(|(at, tag)| Some((at, tag, self.tracks.get_mut(usize::from(tag.stream))?)))
        else {
            self.foreign += 1;
            return false;
        };
        let counted = tag.sequence >= track.from;
        if track.note(tag.sequence, bytes, counted) {
            self.arrived = [self.arrived[0] + 1, self.arrived[1] + bytes];
            if counted {
                self.latencies.note(tag.age(now));
            }
        }
        self.countdown = self.countdown.wrapping_sub(1);
        if self.countdown == 0 {
            self.countdown = self.every;
            if self.every > 0 && counted && !is_intact(frame, at + tag::LEN, tag.hash) {
                track.counters.corrupt += 1;
            }
        }
        true
    }

    /// Finds the tag, at the offsets of the last tags or else after the headers.
    #[inline]
    fn find(&mut self, frame: &impl Received, sent: &[u64]) -> Option<(usize, Tag)> {
        let at = self.places[0];
        match tag_at(frame, at, sent) {
            Some(tag) => Some((at, tag)),
            None => self.find_elsewhere(frame, sent),
        }
    }

    /// Finds the tag at the other offsets of the last tags, or else after the headers.
    fn find_elsewhere(&mut self, frame: &impl Received, sent: &[u64]) -> Option<(usize, Tag)> {
        for which in 1..self.places.len() {
            let at = self.places[which];
            if let Some(tag) = tag_at(frame, at, sent) {
                self.places[..=which].rotate_right(1);
                return Some((at, tag));
            }
        }
        let (at, tag) = look(frame, sent)?;
        self.places.rotate_right(1);
        self.places[0] = at;
        Some((at, tag))
    }
}

/// Returns the tag at this offset. No tag is so close to the start of a frame that the bytes before
/// it are missing.
#[inline]
fn tag_at(frame: &impl Received, at: usize, sent: &[u64]) -> Option<Tag> {
    known(Tag::from_words(frame.words(at.checked_sub(tag::BEFORE)?)?)?, sent)
}

/// Returns the tag with its whole number if a packet with this tag was sent. One of 65536 byte
/// sequences has a right check by chance. If such bytes are taken for a tag, the real tag at another
/// offset is not found.
#[inline]
fn known(tag: Tag, sent: &[u64]) -> Option<Tag> {
    tag.of_sent(*sent.get(usize::from(tag.stream))?)
}

/// Looks for the tag after the headers, including those of a VXLAN tunnel.
#[cold]
fn look(frame: &dyn Received, sent: &[u64]) -> Option<(usize, Tag)> {
    let mut head = [0; DEEPEST];
    let read = frame.read(0, &mut head);
    let mut at = 0;
    for _ in 0..2 {
        let rest = head.get(at..read)?;
        let layers = locate(rest).ok()?;
        let payload = usize::from(layers.headers_len());
        let tag = rest.get(payload..payload + tag::LEN).and_then(|bytes| Tag::parse(bytes.try_into().ok()?));
        if let Some(tag) = tag.and_then(|tag| known(tag, sent)) {
            return Some((at + payload, tag));
        }
        let port = rest.get(usize::from(layers.l4) + 2..)?.first_chunk().copied().map(u16::from_be_bytes);
        if layers.protocol != IpProtocol::UDP || port != Some(VXLAN.0) {
            return None;
        }
        at += payload + VXLAN.1;
    }
    None
}

/// Returns whether the bytes of a frame from `at` on have this hash.
fn is_intact(frame: &dyn Received, mut at: usize, wanted: u32) -> bool {
    let mut hash = Hash::new();
    let mut chunk = [0; CHUNK];
    loop {
        let read = frame.read(at, &mut chunk);
        hash.update(&chunk[..read]);
        at += read;
        if read < CHUNK {
            return hash.finish() == wanted;
        }
    }
}

impl Track {
    fn new() -> Track {
        let words = usize::try_from(WINDOW / 64).unwrap_or(0);
        let arrivals = usize::try_from(ARRIVALS).unwrap_or(0);
        Track {
            from: 0,
            next: 0,
            seen: vec![0; words].into(),
            maxima: vec![0; arrivals].into(),
            arrivals: 0,
            counters: StreamCounters::default(),
        }
    }

    /// Notes the number of a packet. `counted` is true if the packet counts. Returns whether it
    /// came for the first time.
    #[inline]
    fn note(&mut self, sequence: u64, bytes: u64, counted: bool) -> bool {
        if sequence == self.next {
            // The usual case: no number is skipped, so no bit of a skipped number has to be cleared.
            self.set(sequence);
            self.next = sequence + 1;
        } else if sequence > self.next {
            // In order. Skipped numbers have not come yet. This number's bit still belongs to the
            // packet 65536 numbers earlier.
            self.forget(self.next, sequence);
            self.set(sequence);
            self.next = sequence + 1;
        } else if self.next - sequence > WINDOW {
            self.counters.stale += u64::from(counted);
            return false;
        } else if self.has(sequence) {
            self.counters.duplicates += u64::from(counted);
            return false;
        } else {
            self.set(sequence);
            self.late(sequence, counted);
        }
        // The length of the ring of maxima is a power of two.
        let at = usize::try_from(self.arrivals % ARRIVALS).unwrap_or(0);
        self.maxima[at] = self.next;
        self.arrivals += 1;
        if counted {
            self.counters.received += 1;
            self.counters.bytes += bytes;
        }
        true
    }

    /// RFC 4737, 4.2.2: the extent is the number of arrivals since the first packet with a higher
    /// number.
    #[cold]
    fn late(&mut self, sequence: u64, counted: bool) {
        if !counted {
            return;
        }
        self.counters.reordered += 1;
        // `next` grows with each arrival, so a binary search finds the first arrival beyond this
        // number.
        let mut low = self.arrivals.saturating_sub(ARRIVALS);
        let mut high = self.arrivals;
        while low < high {
            let middle = u64::midpoint(low, high);
            let at = usize::try_from(middle % ARRIVALS).unwrap_or(0);
            if self.maxima[at] > sequence {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.counters.extent = self.counters.extent.max(self.arrivals - low);
    }

    #[inline]
    fn place(sequence: u64) -> (usize, u64) {
        (usize::try_from(sequence % WINDOW / 64).unwrap_or(0), 1 << (sequence % 64))
    }

    #[inline]
    fn set(&mut self, sequence: u64) {
        let (word, bit) = Self::place(sequence);
        self.seen[word] |= bit;
    }

    #[inline]
    fn has(&self, sequence: u64) -> bool {
        let (word, bit) = Self::place(sequence);
        self.seen[word] & bit != 0
    }

    /// From now on, these bits belong to the new numbers.
    #[inline]
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for sequence in from..=to {
            let (word, bit) = Self::place(sequence);
            self.seen[word] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use straightline_virtio::net_header::NetHeader;

    use super::*;

    /// Bytes as they came.
    struct Came(Vec<u8>);

    impl Received for Came {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn header(&self) -> NetHeader {
            NetHeader::default()
        }

        fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
            let rest = self.0.get(offset..).unwrap_or_default();
            let len = rest.len().min(bytes.len());
            bytes[..len].copy_from_slice(&rest[..len]);
            len
        }
    }

    #[test]
    fn packets_that_are_only_counted_are_complete_when_all_have_come() {
        let mut checker = Checker::new(2, &[], 0);
        checker.counts_only = true;
        checker.begin([10, 20].into_iter());
        let sent = [12, 23];
        let complete: Vec<bool> = (0..5)
            .map(|_| {
                assert!(checker.note(&Came(vec![0; 60]), 0, &sent));
                checker.complete(sent.into_iter())
            })
            .collect();
        assert_eq!(complete, [false, false, false, false, true]);
        assert_eq!(checker.counters(sent.into_iter()).iter().map(StreamCounters::lost).sum::<u64>(), 0);
    }

    /// One packet in 65536 has bytes with a right check at the offset of another stream's tag.
    #[test]
    fn bytes_that_look_like_a_tag_hide_none() {
        let sent = [0, 200_000];
        let real = Tag { stream: 1, sequence: 123_456, time: 77, hash: Hash::new().finish() }.to_bytes();
        let seeming = Tag {
            stream: 4711,
            // At this offset a TCP header has its header length.
            sequence: 5 << 36 | 42,
            time: u64::from_be_bytes([0, 0, 0, 0, 0, 0, real[0], real[1]]),
            hash: u32::from_be_bytes([real[2], real[3], real[4], real[5]]),
        };
        let mut frame = Came([&[0; 42], &seeming.to_bytes()[..12], &real].concat());
        assert_eq!(frame.0.len(), 54 + tag::LEN);
        for places in [[42, 54], [54, 42], [42, 60]] {
            let mut checker = Checker::new(2, &places, 1);
            if places[1] == 60 {
                // The tag is at neither of the given offsets. It is found after the headers.
                frame.0[12..14].copy_from_slice(&[0x08, 0]);
                frame.0[14..34].copy_from_slice(&[0x45, 0, 0, 62, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            }
            checker.begin([0, 123_456].into_iter());
            let is_ours = checker.note(&frame, 99, &sent);
            assert_eq!((is_ours, checker.foreign, checker.arrived[0]), (true, 0, 1), "{places:?}");
            assert_eq!(checker.counters(sent.into_iter())[1].corrupt, 0, "{places:?}");
        }
        // The same bytes do not count as a tag before such a packet was sent.
        let mut checker = Checker::new(2, &[42], 1);
        frame.0.truncate(64);
        assert!(!checker.note(&frame, 99, &sent));
        assert_eq!(checker.foreign, 1);
    }

    #[test]
    fn what_comes_again_too_late_to_be_known_hides_no_loss() {
        let mut track = Track::new();
        let sent = WINDOW + 1000;
        (0..sent).filter(|sequence| *sequence != WINDOW).for_each(|sequence| _ = track.note(sequence, 60, true));
        track.note(1, 60, true);
        let counters = StreamCounters { sent, ..track.counters };
        assert_eq!((counters.lost(), counters.stale, counters.duplicates), (1, 1, 0));
    }
}
