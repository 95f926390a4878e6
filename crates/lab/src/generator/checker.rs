//! What came of that which was sent: loss, duplicates, reordering, wrong copies, latency.

use straightline_wire::{IpProtocol, locate};

use super::latency::Latencies;
use super::tag::{self, Hash, ROUND, Tag};
use crate::endpoints::Received;

/// So many packets behind the newest one of its stream a packet can still be told from its duplicate.
const WINDOW: u64 = 1 << 16;

/// Arrivals of a stream that are remembered, to say by how many packets a late one was overtaken.
const ARRIVALS: u64 = 1024;

/// As far into a packet headers are looked for.
const DEEPEST: usize = 256;

/// Bytes that are copied out at once, to be hashed.
const CHUNK: usize = 32 * ROUND;

/// VXLAN's port and the length of its header (RFC 7348).
const VXLAN: (u16, usize) = (4789, 8);

/// What came of a stream's packets since counting began. Terms are those of RFC 4737, but for `corrupt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Packets that were sent.
    pub sent: u64,
    /// Those that came, duplicates not counted.
    pub received: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets with a number below one that had come (RFC 4737, 3.3), duplicates not counted.
    pub reordered: u64,
    /// The largest reordering extent (RFC 4737, 4.2.2): by how many packets one was overtaken. At most 1024.
    pub extent: u64,
    /// Packets with something else than what was sent behind their tag.
    pub corrupt: u64,
    /// Packets so late that nobody knows whether they had come before: 65536 behind. They count as nothing else, so that
    /// those that had not are lost.
    pub stale: u64,
}

impl StreamCounters {
    /// Packets that have not come, or too late to be known.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Both together.
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

/// One stream as it arrives.
#[derive(Clone, Debug)]
struct Track {
    /// Packets from this number on count; earlier ones belong to what was before.
    from: u64,
    /// The number after the highest that came: RFC 4737's `NextExp`.
    next: u64,
    /// A bit for each number of the window: whether it came.
    seen: Box<[u64]>,
    /// What `next` was after each of the last arrivals.
    maxima: Box<[u64]>,
    arrivals: u64,
    counters: StreamCounters,
}

/// Looks at what comes.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    tracks: Vec<Track>,
    /// Where tags stood, the last one first.
    places: [usize; 4],
    /// Of so many packets one is checked for a wrong copy; 0: of none.
    every: u32,
    countdown: u32,
    pub(super) latencies: Latencies,
    /// Packets of our streams that came for the first time, whatever their numbers, and bytes of their frames.
    pub(super) arrived: [u64; 2],
    /// Frames without a tag of ours.
    pub(super) foreign: u64,
    /// Whether whatever comes counts as a packet of the first stream, and none is looked at.
    pub(super) counts_only: bool,
}

impl Checker {
    /// For so many streams, whose tags are likely to be at these places.
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

    /// StreamCounters from here on: of each stream packets from this number.
    pub(super) fn begin(&mut self, from: impl Iterator<Item = u64>) {
        for (track, from) in self.tracks.iter_mut().zip(from) {
            (track.from, track.counters) = (from, StreamCounters::default());
        }
        self.latencies.clear();
        self.foreign = 0;
    }

    /// What came of the streams, of which this many had been sent altogether.
    pub(super) fn counters(&self, sent: impl Iterator<Item = u64>) -> Vec<StreamCounters> {
        let of =
            |(track, sent): (&Track, u64)| StreamCounters { sent: sent.saturating_sub(track.from), ..track.counters };
        let streams: Vec<StreamCounters> = self.tracks.iter().zip(sent).map(of).collect();
        if self.counts_only {
            // Nobody knows of which stream a packet is.
            return vec![streams.into_iter().fold(StreamCounters::default(), StreamCounters::and)];
        }
        streams
    }

    /// Whether all that counts has come.
    pub(super) fn complete(&self, sent: impl Iterator<Item = u64>) -> bool {
        let of = |(track, sent): (&Track, u64)| (track.counters.received, sent.saturating_sub(track.from));
        let mut streams = self.tracks.iter().zip(sent).map(of);
        if self.counts_only {
            // Nobody knows of which stream a packet is.
            let (received, sent) = streams.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            return received >= sent;
        }
        streams.all(|(received, sent)| received >= sent)
    }

    /// Takes note of a frame that came at `now`; whether it is one of ours. `sent` says how many packets each stream has sent.
    #[inline]
    pub(super) fn note(&mut self, frame: &dyn Received, now: u64, sent: &[u64]) -> bool {
        let bytes = u64::try_from(frame.len()).unwrap_or(0);
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

    /// Finds the tag where the last ones stood, or behind the headers.
    #[inline]
    fn find(&mut self, frame: &dyn Received, sent: &[u64]) -> Option<(usize, Tag)> {
        let mut bytes = [0; tag::LEN];
        for which in 0..self.places.len() {
            let at = self.places[which];
            if at > 0
                && frame.read(at, &mut bytes) == tag::LEN
                && let Some(tag) = known(&bytes, sent)
            {
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

/// A tag that somebody has sent. Another one is none, however right its check looks: one of 65536 is, and where streams have
/// their tags at different places, the real one is still to be found.
#[inline]
fn known(bytes: &[u8; tag::LEN], sent: &[u64]) -> Option<Tag> {
    let tag = Tag::parse(bytes)?;
    sent.get(usize::from(tag.stream)).is_some_and(|sent| tag.sequence < *sent).then_some(tag)
}

/// Looks behind the headers; those of a VXLAN tunnel too.
#[cold]
fn look(frame: &dyn Received, sent: &[u64]) -> Option<(usize, Tag)> {
    let mut head = [0; DEEPEST];
    let read = frame.read(0, &mut head);
    let mut at = 0;
    for _ in 0..2 {
        let rest = head.get(at..read)?;
        let layers = locate(rest).ok()?;
        let payload = usize::from(layers.headers_len());
        let tag = rest.get(payload..payload + tag::LEN).and_then(|bytes| known(bytes.try_into().ok()?, sent));
        if let Some(tag) = tag {
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

/// Whether a frame's bytes from `at` on have this hash.
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

    /// Takes note of a packet's number, which may be one that counts; whether it came for the first time.
    #[inline]
    fn note(&mut self, sequence: u64, bytes: u64, counted: bool) -> bool {
        if sequence >= self.next {
            // In order. Numbers between were not seen yet, nor was this one, 65536 packets ago.
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
        // The ring of maxima is as long as a power of two.
        let at = usize::try_from(self.arrivals % ARRIVALS).unwrap_or(0);
        self.maxima[at] = self.next;
        self.arrivals += 1;
        if counted {
            self.counters.received += 1;
            self.counters.bytes += bytes;
        }
        true
    }

    /// RFC 4737, 4.2.2: the extent is how many arrivals ago a packet with a higher number came, for the first time.
    #[cold]
    fn late(&mut self, sequence: u64, counted: bool) {
        if !counted {
            return;
        }
        self.counters.reordered += 1;
        // What `next` was grows with arrivals: the first that was beyond us is found by halving.
        let (mut low, mut high) = (self.arrivals.saturating_sub(ARRIVALS), self.arrivals);
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

    /// The bits of these numbers are those of others from now on.
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

    /// Where another stream's tag would stand, one packet in 65536 has bytes with a right check.
    #[test]
    fn bytes_that_look_like_a_tag_hide_none() {
        let sent = [0, 200_000];
        let real = Tag { stream: 1, sequence: 123_456, time: 77, hash: Hash::new().finish() }.to_bytes();
        let seeming = Tag {
            stream: 4711,
            // Where it stands in a TCP header, its first byte is that header's length.
            sequence: 5 << 60 | 42,
            time: u64::from_be_bytes([0, 0, real[0], real[1], real[2], real[3], real[4], real[5]]),
            hash: u32::from_be_bytes([real[6], real[7], real[8], real[9]]),
        };
        let mut frame = Came([&[0; 42], &seeming.to_bytes()[..12], &real].concat());
        assert_eq!(frame.0.len(), 54 + tag::LEN);
        for places in [[42, 54], [54, 42], [42, 60]] {
            let mut checker = Checker::new(2, &places, 1);
            if places[1] == 60 {
                // Of an unusual place headers tell.
                frame.0[12..14].copy_from_slice(&[0x08, 0]);
                frame.0[14..34].copy_from_slice(&[0x45, 0, 0, 62, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            }
            checker.begin([0, 123_456].into_iter());
            let is_ours = checker.note(&frame, 99, &sent);
            assert_eq!((is_ours, checker.foreign, checker.arrived[0]), (true, 0, 1), "{places:?}");
            assert_eq!(checker.counters(sent.into_iter())[1].corrupt, 0, "{places:?}");
        }
        // Alone it is none.
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
