//! Frames for the comparison: random, but the same for each seed.

use super::model::{Delivery, Model, Tag};
use super::topology::{CUSTOMER, Mode, PORTS, PROVIDER, VlanPort};

/// A frame, and the port that receives it.
pub(super) struct Sent {
    pub(super) from: usize,
    pub(super) bytes: Vec<u8>,
}

/// Bytes in front of a frame's number.
const MAGIC: [u8; 4] = *b"#vl#";

/// Length of the shortest payload: the magic and the number.
const SHORTEST: usize = 8;

/// Length of the usual longest payload.
pub(super) const MTU: usize = 1500;

/// VLAN identifiers of tags that a port may not know.
const OTHER: [u16; 14] = [1, 2, 10, 20, 30, 31, 34, 36, 40, 100, 200, 300, 301, 4094];

/// Last bytes of reserved addresses: those that bridges treat in ways of their own are frequent.
const RESERVED: [u8; 12] = [0x00, 0x00, 0x01, 0x01, 0x01, 0x02, 0x03, 0x08, 0x0b, 0x0d, 0x0e, 0x0f];

/// Stations behind each port.
const STATIONS: usize = 4;

/// Frames of a batch, which come from one port. OvS keeps up to 100 for each port.
pub(super) const BATCH: usize = 64;

/// Returns the number of a frame, or `None` if it has none.
pub(super) fn number(frame: &[u8]) -> Option<usize> {
    let at = frame.windows(MAGIC.len()).position(|bytes| bytes == MAGIC)?;
    let bytes = frame.get(at + MAGIC.len()..)?.first_chunk()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}

/// Makes `count` frames. No frame is longer inside a bridge or outside than `longest` bytes of payload
/// behind two tags. Each batch comes from one port, and ends with a frame that has an output: all
/// earlier ones are then through.
pub(super) fn generate(seed: u64, count: usize, longest: usize) -> Vec<Sent> {
    let mut generator = Generator { random: Random(seed), number: 0, longest };
    let mut from = 0;
    (0..count)
        .map(|number| {
            if number % BATCH == 0 {
                from = generator.random.below(PORTS.len());
            }
            generator.number = number;
            let is_last = (number + 1) % BATCH == 0 || number + 1 == count;
            let bytes = if is_last { generator.broadcast(&PORTS[from]) } else { generator.frame(from) };
            Sent { from, bytes }
        })
        .collect()
}

/// Returns the outputs of each frame.
pub(super) fn predict(model: &mut Model, frames: &[Sent]) -> Vec<Vec<Delivery>> {
    frames.iter().map(|frame| model.forward(frame.from, &frame.bytes)).collect()
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or_default() % bound
    }

    /// Returns true in `percent` of all calls.
    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// The generator.
struct Generator {
    random: Random,
    /// Number of the next frame.
    number: usize,
    /// Length of the longest payload.
    longest: usize,
}

impl Generator {
    /// Returns a frame that port `from` receives.
    fn frame(&mut self, from: usize) -> Vec<u8> {
        let port = &PORTS[from];
        let mut frame = self.destination(port);
        frame.extend(self.source(from));
        let tags = match self.random.below(100) {
            0..20 => 0,
            20..65 => 1,
            65..92 => 2,
            _ => 3,
        };
        let mut most = tags;
        for nesting in 0..tags {
            let tag = self.tag(port, nesting == 0);
            if nesting == 0 && (tag.tpid != port.tpid() || matches!(port.mode, Mode::Qinq(_))) {
                // The tag stays, and a trunk adds another one.
                most += 1;
            }
            frame.extend(tag.bytes());
        }
        if tags > 0 && self.random.percent(2) {
            // The frame ends inside its outer tag, or without a type behind it.
            frame.truncate(14 + self.random.below(4));
            return frame;
        }
        self.payload(&mut frame, most);
        frame
    }

    /// Returns a broadcast in a VLAN that further ports have.
    fn broadcast(&mut self, port: &VlanPort) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(station(port.bridge, 0xf0, 0));
        if let Mode::Trunk(vlans, _) = port.mode {
            frame.extend(Tag { tpid: port.tpid(), vid: vlans[0], priority: 0, dei: false }.bytes());
        }
        self.payload(&mut frame, 1);
        frame
    }

    fn destination(&mut self, port: &VlanPort) -> Vec<u8> {
        match self.random.below(100) {
            0..60 => {
                let others: Vec<usize> = (0..PORTS.len()).filter(|&at| PORTS[at].bridge == port.bridge).collect();
                let at = self.random.pick(&others);
                station(port.bridge, at, self.random.below(STATIONS)).to_vec()
            }
            60..70 => station(port.bridge, 0xe0, self.random.below(256)).to_vec(),
            70..80 => vec![0xff; 6],
            80..88 => vec![0x01, 0x00, 0x5e, 0x01, self.random.byte(), self.random.byte()],
            88..92 => vec![0x33, 0x33, 0x00, 0x00, self.random.byte(), self.random.byte()],
            92..97 => vec![0x01, 0x80, 0xc2, 0x00, 0x00, self.random.pick(&RESERVED)],
            _ => vec![0x01, 0x80, 0xc2, 0x00, 0x00, 0x10 + (self.random.byte() & 0x3f)],
        }
    }

    fn source(&mut self, from: usize) -> [u8; 6] {
        let nth = self.random.below(STATIONS);
        match self.random.below(100) {
            // A station that has moved here, until its next frame.
            0..6 => station(PORTS[from].bridge, self.random.below(PORTS.len()), nth),
            6 => [0x01, 0x00, 0x5e, 0, 0, 1],
            7 => [0; 6],
            _ => station(PORTS[from].bridge, from, nth),
        }
    }

    fn tag(&mut self, port: &VlanPort, is_outer: bool) -> Tag {
        let usual = if is_outer { port.tpid() } else { CUSTOMER };
        let other = if usual == CUSTOMER { PROVIDER } else { CUSTOMER };
        let tpid = if self.random.percent(75) { usual } else { other };
        let vid = match self.random.below(100) {
            0..60 => self.random.pick(&port.vlans()),
            60..80 => self.random.pick(&OTHER),
            80..90 => 0,
            90..95 => 4095,
            _ => u16::try_from(self.random.below(4096)).unwrap_or_default(),
        };
        Tag { tpid, vid, priority: self.random.byte() & 7, dei: self.random.percent(25) }
    }

    /// Adds a type or a length, and a payload with the frame's number. The frame gets up to `tags`
    /// tags.
    fn payload(&mut self, frame: &mut Vec<u8>, tags: usize) {
        let longest = self.longest - 4 * tags.saturating_sub(2);
        let len = match self.random.below(100) {
            0..20 => SHORTEST,
            20..40 => 46,
            40..60 => longest,
            _ => SHORTEST + self.random.below(longest - SHORTEST + 1),
        };
        let kind = match self.random.below(100) {
            0..40 => 0x88b5,
            40..55 => 0x0800,
            55..65 => 0x86dd,
            65..70 => 0x0806,
            // A TPID that no bridge here has.
            70..73 => 0x9100,
            // A length: LLC.
            _ => u16::try_from(len).unwrap_or_default(),
        };
        frame.extend(kind.to_be_bytes());
        let end = frame.len() + len;
        frame.extend(MAGIC);
        frame.extend(u32::try_from(self.number).unwrap_or_default().to_be_bytes());
        frame.resize_with(end, || self.random.byte());
    }
}

/// Returns the address of a station of a bridge.
fn station(bridge: usize, port: usize, nth: usize) -> [u8; 6] {
    let byte = |value: usize| u8::try_from(value).unwrap_or_default();
    [0x02, 0x31, 0, byte(bridge), byte(port), byte(nth)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_numbers_and_all_forms() {
        let frames = generate(1, 5000, MTU);
        let named = frames.iter().enumerate().filter(|(at, frame)| number(&frame.bytes) == Some(*at)).count();
        let cut = frames.iter().filter(|frame| frame.bytes.len() < 18).count();
        assert_eq!(named + cut, frames.len());
        assert!(cut > 20, "{cut} frames end inside a tag");
        let longest = |tags: usize| frames.iter().filter(|frame| frame.bytes.len() == 14 + 4 * tags + MTU).count();
        assert!((0..3).all(|tags| longest(tags) > 50));
        assert_eq!(longest(3), 0);
        let outputs = predict(&mut Model::new(&[]), &frames);
        assert!(outputs.iter().flatten().all(|(_, bytes)| bytes.len() <= 14 + 8 + MTU));
        assert!(frames.chunks(BATCH).all(|batch| batch.iter().all(|frame| frame.from == batch[0].from)));
    }

    #[test]
    fn a_seed_gives_the_same_frames() {
        let bytes = |seed: u64| generate(seed, 100, MTU).into_iter().map(|frame| frame.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
    }

    #[test]
    fn each_batch_ends_with_an_output() {
        let frames = generate(1, 5000, MTU);
        let outputs = predict(&mut Model::new(&[]), &frames);
        assert!(outputs.chunks(BATCH).all(|batch| batch.last().is_some_and(|last| !last.is_empty())));
    }
}
