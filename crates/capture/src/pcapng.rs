//! Writes capture files: pcapng with one section (draft-ietf-opsawg-pcapng).
//!
//! | block | holds |
//! |---|---|
//! | section header | byte order, version, the program |
//! | interface description | one for each port: name, kind, nanoseconds, the most bytes of a packet, the filter |
//! | enhanced packet | a packet with its direction, and the drop reason as a comment |
//! | interface statistics | one for each port, at the end: packets selected and missed |
//!
//! Numbers are little-endian, as the section header says.

use std::io::{self, Write};

use az::SaturatingAs;

/// The link type of Ethernet.
const ETHERNET: u32 = 1;

// Types of blocks (section 4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

// Codes of options (sections 3.5 and 4). Their meaning depends on the block, except for the first.
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_FILTER: u16 = 11;
const EPB_FLAGS: u16 = 2;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFDROP: u16 = 5;
const ISB_FILTERACCEPT: u16 = 6;
const ISB_USRDELIV: u16 = 8;

/// The program that a file names.
const PROGRAM: &str = concat!("straightline ", env!("CARGO_PKG_VERSION"));

/// An interface of a capture file: a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The port's name; empty for none.
    pub name: String,
    /// The port's kind, in words; empty for none.
    pub description: String,
}

/// The direction of a packet, as the port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Nothing is known.
    Unknown,
    /// The port has received the packet.
    Inbound,
    /// The port has delivered the packet.
    Outbound,
}

/// The counts of an interface at the end of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that the filter has selected.
    pub selected: u64,
    /// Selected packets that did not fit the ring.
    pub missed: u64,
    /// Packets in the file.
    pub written: u64,
}

/// Writes a capture file, from its header on.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    /// The block that is being made.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a file with these interfaces. No packet will have more than `snaplen` bytes. Readers
    /// see `filter`.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(to: W, interfaces: &[Interface], snaplen: u32, filter: Option<&str>) -> io::Result<Self> {
        let mut writer = Writer { to, block: Vec::with_capacity(4096) };
        writer.begin(SECTION);
        // The byte order, version 1.0, and an unknown length of the section.
        writer.words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        writer.option(USER_APPLICATION, PROGRAM.as_bytes());
        writer.end()?;
        for interface in interfaces {
            writer.begin(INTERFACE);
            writer.words(&[ETHERNET, snaplen]);
            for (code, text) in [(IF_NAME, &interface.name), (IF_DESCRIPTION, &interface.description)] {
                if !text.is_empty() {
                    writer.option(code, text.as_bytes());
                }
            }
            // Units of 10^-9 seconds.
            writer.option(IF_TSRESOL, &[9]);
            if let Some(filter) = filter {
                // 0: the filter is text in the words of libpcap.
                writer.option(IF_FILTER, &[&[0], filter.as_bytes()].concat());
            }
            writer.end()?;
        }
        Ok(writer)
    }

    /// Starts a file of whole frames, with one interface that has no name.
    ///
    /// # Errors
    /// Writing failed.
    pub fn of_frames(to: W) -> io::Result<Self> {
        // The length of packets has no limit.
        Self::new(to, &[Interface::default()], 0, None)
    }

    /// Writes a whole frame of the first interface, with its time in nanoseconds since 1970.
    ///
    /// # Errors
    /// Writing failed, or the frame has 4 GiB or more.
    pub fn frame(&mut self, time: u64, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.packet(0, time, len, bytes, Direction::Unknown, None)
    }

    /// Writes a packet of `len` bytes that begins with `bytes`, with its time in nanoseconds since
    /// 1970.
    ///
    /// # Errors
    /// Writing failed.
    pub fn packet(
        &mut self,
        interface: u32,
        time: u64,
        len: u32,
        bytes: &[u8],
        direction: Direction,
        comment: Option<&str>,
    ) -> io::Result<()> {
        let captured = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let [high, low] = halves(time);
        self.begin(PACKET);
        self.words(&[interface, high, low, captured, len]);
        self.bytes(bytes);
        let flags: u32 = match direction {
            Direction::Unknown => 0,
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        self.option(EPB_FLAGS, &flags.to_le_bytes());
        if let Some(comment) = comment {
            self.option(COMMENT, comment.as_bytes());
        }
        self.end()
    }

    /// Returns the file. Each call of the writer writes whole blocks there.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Writes the statistics of each interface, at the end of the file. The capture began at `from`
    /// and ended at `to`, in nanoseconds since 1970.
    ///
    /// # Errors
    /// Writing failed.
    pub fn statistics(&mut self, statistics: &[Statistics], from: u64, to: u64) -> io::Result<()> {
        for (interface, statistics) in (0..).zip(statistics) {
            let [high, low] = halves(to);
            self.begin(STATISTICS);
            self.words(&[interface, high, low]);
            for (code, time) in [(ISB_STARTTIME, from), (ISB_ENDTIME, to)] {
                let [high, low] = halves(time);
                self.option(code, &[high.to_le_bytes(), low.to_le_bytes()].concat());
            }
            self.option(ISB_IFDROP, &statistics.missed.to_le_bytes());
            self.option(ISB_FILTERACCEPT, &statistics.selected.to_le_bytes());
            self.option(ISB_USRDELIV, &statistics.written.to_le_bytes());
            self.end()?;
        }
        self.to.flush()
    }

    /// Begins a block (section 3.1): its type, and a length that is not known yet.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.words(&[kind, 0]);
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.block.extend_from_slice(&word.to_le_bytes()));
    }

    /// Adds bytes, padded to a multiple of four.
    fn bytes(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Adds an option (section 3.5). A longer value than an option can have is cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let len = value.len().saturating_as::<u16>();
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&len.to_le_bytes());
        self.bytes(&value[..usize::from(len)]);
    }

    /// Writes the block. All of our blocks have options, so each has their end.
    fn end(&mut self) -> io::Result<()> {
        self.words(&[0]);
        let len = u32::try_from(self.block.len() + 4).map_err(io::Error::other)?;
        self.words(&[len]);
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.to.write_all(&self.block)
    }
}

/// Returns the upper and the lower half of a time.
fn halves(time: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = time.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use pcap_parser::{Block, OptionCode, parse_block_le, parse_sectionheaderblock};
    use proptest::prelude::*;

    use super::*;

    const TIME: u64 = 1_700_000_000_123_456_789;

    fn interfaces(names: &[&str]) -> Vec<Interface> {
        names.iter().map(|name| Interface { name: (*name).to_owned(), description: "tap".to_owned() }).collect()
    }

    /// Reads the blocks behind the section header with another implementation.
    fn blocks(file: &[u8]) -> Vec<Block<'_>> {
        let (mut rest, header) = parse_sectionheaderblock(file).expect("a section header");
        assert_eq!(
            header.options.iter().find(|o| o.code == OptionCode(4)).map(|o| o.as_bytes().unwrap()),
            Some(PROGRAM.as_bytes())
        );
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            let (behind, block) = parse_block_le(rest).expect("a block");
            blocks.push(block);
            rest = behind;
        }
        blocks
    }

    #[test]
    fn another_implementation_reads_all_blocks() {
        let mut writer = Writer::new(Vec::new(), &interfaces(&["vm1", "uplink"]), 96, Some("arp")).unwrap();
        writer.packet(1, TIME, 1500, &[7; 61], Direction::Outbound, Some("dropped: no-buffer")).unwrap();
        let statistics = [Statistics { selected: 5, missed: 2, written: 3 }, Statistics::default()];
        writer.statistics(&statistics, TIME - 1, TIME + 1).unwrap();
        let file = writer.to;
        let blocks = blocks(&file);
        assert_eq!(blocks.len(), 5);
        let Block::InterfaceDescription(second) = &blocks[1] else { panic!("{blocks:?}") };
        assert_eq!((second.snaplen, second.if_tsresol), (96, 9));
        assert_eq!(second.if_name().unwrap().unwrap(), "uplink");
        let Block::EnhancedPacket(packet) = &blocks[2] else { panic!("{blocks:?}") };
        assert_eq!((packet.if_id, packet.origlen, packet.caplen), (1, 1500, 61));
        assert_eq!(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low), TIME);
        assert_eq!(packet.data[..61], [7; 61]);
        let option =
            |code| packet.options.iter().find(|o| o.code == OptionCode(code)).map(|o| o.as_bytes().unwrap().to_vec());
        assert_eq!(option(2), Some(vec![2, 0, 0, 0]));
        assert_eq!(option(1), Some(b"dropped: no-buffer".to_vec()));
        let Block::InterfaceStatistics(end) = &blocks[3] else { panic!("{blocks:?}") };
        let count = |code| end.options.iter().find(|o| o.code == OptionCode(code)).map(|o| o.as_bytes().unwrap()[0]);
        assert_eq!((count(5), count(6), count(8)), (Some(2), Some(5), Some(3)));
    }

    proptest! {
        #[test]
        fn packets_of_any_length_are_read_back(
            packets in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..70), any::<u64>(), "[a-z ]{0,9}"), 0..20),
        ) {
            let mut writer = Writer::new(Vec::new(), &interfaces(&["p"]), 1 << 18, None).unwrap();
            for (bytes, time, comment) in &packets {
                writer.packet(0, *time, 70, bytes, Direction::Inbound, Some(comment)).unwrap();
            }
            let file = writer.to;
            let read = blocks(&file);
            prop_assert_eq!(read.len(), packets.len() + 1);
            for (block, (bytes, time, comment)) in read[1..].iter().zip(&packets) {
                let Block::EnhancedPacket(packet) = block else { panic!("{block:?}") };
                prop_assert_eq!(&packet.data[..packet.caplen as usize], &bytes[..]);
                prop_assert_eq!(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low), *time);
                let read = packet.options.iter().find(|o| o.code == OptionCode(1)).map(|o| o.as_bytes().unwrap());
                prop_assert_eq!(read, Some(comment.as_bytes()));
            }
        }
    }
}
