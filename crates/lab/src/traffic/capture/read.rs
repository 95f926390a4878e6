//! Reads captures: pcap of both byte orders with micro- and nanoseconds, and pcapng.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use az::SaturatingAs;
use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{Block, InterfaceDescriptionBlock, Linktype, PcapError, nom};

/// The size of the largest file that is accepted, in bytes.
const LARGEST: u64 = 1 << 30;

/// The longest frame that is accepted: libpcap's own bound (`MAXIMUM_SNAPLEN`). A greater length
/// means that the file is damaged.
const LONGEST: usize = 1 << 18;

/// The length of pcap's file header.
const PCAP_HEADER: usize = 24;

/// The type of pcapng's first block, and pcap's file types: the first four bytes, from least to
/// highest (draft-ietf-opsawg-pcapng, 4.1; draft-ietf-opsawg-pcap, 4).
const SECTION: u32 = 0x0a0d_0d0a;
const MICROSECONDS: [u32; 2] = [0xa1b2_c3d4, 0xd4c3_b2a1];
const NANOSECONDS: [u32; 2] = [0xa1b2_3c4d, 0x4d3c_b2a1];

/// The content of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// The frames, in the order of the file. There is at least one frame.
    pub frames: Vec<Captured>,
    /// The number of frames that were truncated when they were captured: their ends are not in the
    /// file.
    pub shortened: usize,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The time of the capture, in nanoseconds since 1970.
    pub at: u64,
    /// The frame, without its Ethernet checksum.
    pub bytes: Vec<u8>,
}

impl Capture {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is missing, damaged, truncated or empty, is not a capture, or has frames that are
    /// not Ethernet frames.
    pub fn open(path: &Path) -> anyhow::Result<Capture> {
        let name = || path.display().to_string();
        let size = fs::metadata(path).with_context(name)?.len();
        ensure!(
            size <= LARGEST,
            "{}: a file of {size} bytes is too large: split it into files of up to {LARGEST} bytes",
            name()
        );
        Capture::parse(&fs::read(path).with_context(name)?).with_context(name)
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// The errors of [`Self::open`], except for errors of reading.
    pub fn parse(file: &[u8]) -> anyhow::Result<Capture> {
        ensure!(!file.is_empty(), "the file is empty: use a pcap or pcapng file");
        let first = file.first_chunk().copied().map(u32::from_le_bytes);
        let mut reader = Reader { file, at: 0, capture: Capture::default() };
        match first {
            Some(SECTION) => reader.pcapng()?,
            Some(magic) if MICROSECONDS.contains(&magic) => reader.pcap(1000)?,
            Some(magic) if NANOSECONDS.contains(&magic) => reader.pcap(1)?,
            _ => bail!("the file is neither a pcap nor a pcapng file: use one of these"),
        }
        ensure!(!reader.capture.frames.is_empty(), "the file has no frame");
        Ok(reader.capture)
    }
}

struct Reader<'a> {
    file: &'a [u8],
    /// The offset of the next block.
    at: usize,
    capture: Capture,
}

/// An interface of a pcapng section.
struct Interface {
    ethernet: bool,
    /// The maximum number of bytes captured of a frame; 0: all bytes.
    most: u32,
    /// Number of units of time in a second.
    units: u64,
    /// Seconds that are added to each time.
    offset: i64,
}

type Parsed<'a, T> = nom::IResult<&'a [u8], T, PcapError<&'a [u8]>>;

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.file.get(self.at..).unwrap_or_default()
    }

    /// Moves behind what a parser has found and returns it, or reports where the parser failed.
    fn step<T>(&mut self, what: &str, parsed: Parsed<'a, T>) -> anyhow::Result<T> {
        match parsed {
            Ok((rest, found)) => {
                let next = self.file.len() - rest.len();
                ensure!(next > self.at, "damaged at byte {}: the {what} there has no bytes", self.at);
                self.at = next;
                Ok(found)
            }
            Err(nom::Err::Incomplete(_)) => {
                bail!(
                    "truncated: the {what} at byte {} extends beyond the end of the file, which has {} bytes",
                    self.at,
                    self.file.len()
                )
            }
            Err(nom::Err::Error(_) | nom::Err::Failure(_)) => {
                bail!("damaged at byte {}: expected a {what}", self.at)
            }
        }
    }

    fn frame(&mut self, begins: usize, at: u64, bytes: &[u8], whole: u32) -> anyhow::Result<()> {
        ensure!(
            bytes.len() <= LONGEST,
            "damaged at byte {begins}: the frame has {} bytes; at most {LONGEST} are possible",
            bytes.len()
        );
        self.capture.shortened += usize::from(u64::from(whole) > u64::try_from(bytes.len())?);
        self.capture.frames.push(Captured { at, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Reads a pcap file. Its fractions of a second count units of `nanoseconds` nanoseconds.
    fn pcap(&mut self, nanoseconds: u64) -> anyhow::Result<()> {
        let header = self.step("file header", pcap_parser::parse_pcap_header(self.file))?;
        // The bits above the link type are flags (draft-ietf-opsawg-pcap, 4).
        let link = header.network.0 & 0xffff;
        ensure!(link == Linktype::ETHERNET.0, "the frames have link type {link}: only Ethernet frames (1) can be sent");
        debug_assert_eq!(self.at, PCAP_HEADER);
        let parse =
            if header.is_bigendian() { pcap_parser::parse_pcap_frame_be } else { pcap_parser::parse_pcap_frame };
        while !self.rest().is_empty() {
            let begins = self.at;
            let record = self.step("frame", parse(self.rest()))?;
            let time = u64::from(record.ts_sec) * 1_000_000_000 + u64::from(record.ts_usec) * nanoseconds;
            self.frame(begins, time, record.data, record.origlen)?;
        }
        Ok(())
    }

    fn pcapng(&mut self) -> anyhow::Result<()> {
        let mut big = false;
        let mut interfaces = Vec::new();
        let mut last = 0;
        while let rest @ [_, ..] = self.rest() {
            let begins = self.at;
            let kind = rest.first_chunk().copied().map(u32::from_le_bytes);
            let parsed = match kind {
                Some(SECTION) | None => {
                    pcap_parser::parse_sectionheaderblock(rest).map(|(rest, block)| (rest, Block::SectionHeader(block)))
                }
                Some(_) if big => pcap_parser::parse_block_be(rest),
                Some(_) => pcap_parser::parse_block_le(rest),
            };
            match self.step("block", parsed)? {
                Block::SectionHeader(header) => {
                    ensure!(
                        header.block_len1 == header.block_len2,
                        "damaged at byte {begins}: the two lengths of the block differ"
                    );
                    let version = (header.major_version, header.minor_version);
                    // Version 1.2 is the same as 1.0 (draft-ietf-opsawg-pcapng, 4.1).
                    ensure!(
                        version.0 == 1,
                        "pcapng version {}.{} is not supported: use version 1.0",
                        version.0,
                        version.1
                    );
                    big = header.big_endian();
                    interfaces.clear();
                }
                Block::InterfaceDescription(block) => interfaces.push(Interface::new(begins, &block)?),
                Block::EnhancedPacket(block) => {
                    let interface = Interface::of(&interfaces, block.if_id, begins)?;
                    last = interface.time(block.ts_high, block.ts_low);
                    self.frame(begins, last, block.packet_data(), block.origlen)?;
                }
                Block::SimplePacket(block) => {
                    // A simple packet belongs to the first interface and has no time (4.4). The
                    // reader gives it the time of the previous frame.
                    let interface = Interface::of(&interfaces, 0, begins)?;
                    let most = if interface.most == 0 { u32::MAX } else { interface.most };
                    let len = usize::try_from(block.origlen.min(most))?;
                    let bytes = block.data.get(..len).with_context(|| {
                        format!(
                            "damaged at byte {begins}: a frame of {len} bytes does not fit into a block of {}",
                            block.data.len()
                        )
                    })?;
                    self.frame(begins, last, bytes, block.origlen)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Interface {
    fn new(begins: usize, block: &InterfaceDescriptionBlock<'_>) -> anyhow::Result<Interface> {
        // The unit is a negative power of 10, or of 2 if the highest bit is set
        // (draft-ietf-opsawg-pcapng, 4.2, if_tsresol).
        let power = u32::from(block.if_tsresol & 0x7f);
        let units = if block.if_tsresol & 0x80 == 0 { 10_u64.checked_pow(power) } else { 1_u64.checked_shl(power) };
        let units = units.with_context(|| {
            format!(
                "damaged at byte {begins}: an interface with a clock that is too \
         fine"
            )
        })?;
        let ethernet = block.linktype == Linktype::ETHERNET;
        Ok(Interface { ethernet, most: block.snaplen, units, offset: block.if_tsoffset })
    }

    fn of(all: &[Interface], number: u32, begins: usize) -> anyhow::Result<&Interface> {
        let interface = usize::try_from(number).ok().and_then(|number| all.get(number));
        let interface = interface.with_context(|| {
            format!(
                "damaged at byte {begins}: the frame belongs to interface {number}, which the file does not describe"
            )
        })?;
        ensure!(interface.ethernet, "the frame at byte {begins} is not an Ethernet frame: only those can be sent");
        Ok(interface)
    }

    /// Returns the time in nanoseconds since 1970.
    fn time(&self, high: u32, low: u32) -> u64 {
        let units = i128::from(high) << 32 | i128::from(low);
        let time = units * 1_000_000_000 / i128::from(self.units) + i128::from(self.offset) * 1_000_000_000;
        time.max(0).saturating_as::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use straightline_capture::pcapng::Writer;

    use super::*;

    const FRAMES: [&[u8]; 3] = [&[1; 60], &[2; 61], &[3; 1514]];

    /// A pcap file of either byte order, with times at seconds 7, 8 and 9 and a fraction of 5.
    fn pcap(magic: u32, bytes: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| bytes(*word)).collect::<Vec<u8>>();
        let version = if bytes(1)[0] == 1 { 0x0004_0002 } else { 0x0002_0004 };
        let mut file = words(&[magic, version, 0, 0, 65_535, 1]);
        for (second, frame) in (7..).zip(FRAMES) {
            let len = u32::try_from(frame.len()).expect("small");
            file.extend(words(&[second, 5, len, len + u32::from(second == 9)]));
            file.extend_from_slice(frame);
        }
        file
    }

    fn pcapng() -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::of_frames(&mut file).expect("memory");
        for (at, frame) in (7_000_000_005..).step_by(1_000_000_000).zip(FRAMES) {
            writer.frame(at, frame).expect("memory");
        }
        file
    }

    /// A third-party pcapng file: big-endian, microseconds, a simple packet, a block of unknown
    /// type.
    fn strange() -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let mut file = words(&[SECTION, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28]);
        file.extend(words(&[1, 20, 0x0001_0000, 40, 20]));
        file.extend(words(&[6, 36, 0, 0, 7_000_005, 2, 60, 0x0102_0000, 36]));
        file.extend(words(&[0x77, 16, 1, 16]));
        file.extend(words(&[3, 56, 60]));
        file.extend([9; 40]);
        file.extend(words(&[56]));
        file
    }

    #[test]
    fn each_format_is_read() {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            for file in [pcap(magic, u32::to_le_bytes), pcap(magic, u32::to_be_bytes)] {
                let capture = Capture::parse(&file).expect("a capture");
                assert_eq!(capture.shortened, 1);
                for (second, (frame, wanted)) in (7..).zip(capture.frames.iter().zip(FRAMES)) {
                    assert_eq!((frame.at, &frame.bytes[..]), (second * 1_000_000_000 + 5 * unit, wanted));
                }
            }
        }
        let capture = Capture::parse(&pcapng()).expect("a capture");
        assert_eq!((capture.frames.len(), capture.shortened), (3, 0));
        assert_eq!((capture.frames[2].at, &capture.frames[2].bytes[..]), (9_000_000_005, FRAMES[2]));
        // Sections may follow one another, in any byte order.
        let both = Capture::parse(&[pcapng(), strange()].concat()).expect("a capture");
        assert_eq!((both.frames.len(), both.shortened), (5, 2));
        assert_eq!((both.frames[3].at, &both.frames[3].bytes[..]), (7_000_005_000, &[1, 2][..]));
        assert_eq!((both.frames[4].at, &both.frames[4].bytes[..]), (7_000_005_000, &[9; 40][..]));
    }

    #[test]
    fn what_wireshark_wrote_is_read() {
        let classic = Capture::parse(include_bytes!("../../../tests/captures/wireshark.pcap")).expect("a capture");
        let capture = Capture::parse(include_bytes!("../../../tests/captures/wireshark.pcapng")).expect("a capture");
        assert_eq!(classic, capture);
        let frames: Vec<_> = capture.frames.iter().map(|frame| (frame.at, frame.bytes.len())).collect();
        let first = 1_795_262_400_000_000_000;
        assert_eq!(
            frames,
            [(first, 60), (first + 1_000_250_000, 58), (first + 2_000_500_000, 125), (first + 3_000_750_000, 74)]
        );
        assert_eq!(capture.frames[1].bytes[46..], *b"straightline");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let fault = |file: &[u8]| format!("{:#}", Capture::parse(file).expect_err("no capture"));
        assert!(fault(&[]).contains("empty"));
        assert!(fault(b"PK").contains("neither a pcap nor a pcapng"));
        let file = pcap(0xa1b2_c3d4, u32::to_le_bytes);
        assert!(fault(&file[..10]).contains("truncated: the file header at byte 0"), "{}", fault(&file[..10]));
        assert!(fault(&file[..24]).contains("no frame"));
        let cut = fault(&file[..file.len() - 1]);
        assert!(cut.contains("truncated: the frame at byte 177"), "{cut}");
        let mut radio = file.clone();
        radio[20] = 105;
        assert!(fault(&radio).contains("link type 105"), "{}", fault(&radio));
        let file = strange();
        let changed = |at: usize, byte: u8| {
            let mut file = file.clone();
            file[at] = byte;
            fault(&file)
        };
        assert!(changed(13, 9).contains("version 9.0"), "{}", changed(13, 9));
        assert!(changed(27, 29).contains("damaged at byte 0"), "{}", changed(27, 29));
        assert!(changed(37, 105).contains("byte 48 is not an Ethernet frame"), "{}", changed(37, 105));
        assert!(changed(59, 4).contains("damaged at byte 48") && changed(59, 4).contains("interface 4"));
        assert!(fault(&file[..99]).contains("truncated: the block at byte"), "{}", fault(&file[..99]));
        let absent = Capture::open("/nonexistent/x.pcap".as_ref()).expect_err("it is not there");
        assert!(format!("{absent:#}").contains("/nonexistent/x.pcap"));
    }

    proptest! {
        #[test]
        fn damage_is_never_a_panic(
            which in 0..4_usize,
            cut in 0..2000_usize,
            changes in prop::collection::vec((0..400_usize, any::<u8>()), 0..8),
        ) {
            let mut file = match which {
                0 => pcap(0xa1b2_c3d4, u32::to_le_bytes),
                1 => pcap(0xa1b2_3c4d, u32::to_be_bytes),
                2 => pcapng(),
                _ => [strange(), pcapng()].concat(),
            };
            file.truncate(cut.max(4));
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(at) {
                    *place = byte;
                }
            }
            match Capture::parse(&file) {
                Ok(capture) => prop_assert!(!capture.frames.is_empty()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn what_is_written_is_read(
            frames in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..100)), 1..20),
        ) {
            let mut file = Vec::new();
            let mut writer = Writer::of_frames(&mut file).expect("memory");
            for (at, bytes) in &frames {
                writer.frame(*at, bytes).expect("memory");
            }
            let read = Capture::parse(&file).expect("our own");
            let frames: Vec<Captured> = frames.into_iter().map(|(at, bytes)| Captured { at, bytes }).collect();
            prop_assert_eq!(read, Capture { frames, shortened: 0 });
        }
    }
}
