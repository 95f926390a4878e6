//! Frames with a number, with bytes that follow from the number, and the check of returned frames.

use std::net::Ipv4Addr;

use anyhow::Context;
use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::Memory;
use straightline_packet::Level;
use straightline_report::random::Random;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp;

use crate::trial::validity;

/// Length of the headers of Ethernet, IPv4, and UDP or TCP.
const UDP: usize = 14 + 20 + 8;
const TCP: usize = 14 + 20 + 20;

/// The offset of TCP's checksum in a frame.
const CHECKSUM: usize = 14 + 20 + 16;

/// Payload of each segment of a large packet. With IP and TCP headers, a segment has 1500 bytes.
const SEGMENT: u16 = 1460;

const NUMBER: usize = 8;

/// Returns the length of the shortest frame that has space for its number.
pub(super) fn shortest(segments: bool) -> u32 {
    if segments { 62 } else { 50 }
}

/// Length of the longest frame: the maximum of IPv4's length field, and an Ethernet header.
pub(super) const LONGEST: u32 = 14 + 65_535;

/// The frames of a trial.
#[derive(Debug)]
pub(super) struct Frames {
    lens: Vec<u32>,
    segments: bool,
    /// Bytes without a period. Each frame holds a part of them.
    noise: Vec<u8>,
    level: Level,
}

/// The frames that have returned: how many in total, and which numbers.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) packets: usize,
    numbers: Vec<bool>,
}

impl Frames {
    pub(super) fn new(lens: Vec<u32>, segments: bool, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let noise = (0..1 << 17).map(|_| random.next().to_le_bytes()[0]).collect();
        Frames { lens, segments, noise, level: Level::detect() }
    }

    /// Returns the header and the frame of this number.
    fn make(&self, number: usize) -> anyhow::Result<(NetHeader, Vec<u8>)> {
        let len = *self.lens.get(number).context("no such frame")? as usize;
        let headers = if self.segments { TCP } else { UDP };
        let mut bytes = vec![0; len];
        let mac = |n: usize| MacAddr([2, 0, 0, 0, 0, u8::try_from(n).unwrap_or(0)]);
        let address = |n: usize| Ipv4Addr::new(198, 18, 0, u8::try_from(n).unwrap_or(0));
        // The first half of the frames goes in one direction, and the second half in the other
        // direction.
        let from = 1 + number * 2 / self.lens.len().max(1);
        let src_port = 1000;
        let dst_port = 2000;
        let frame = Frame {
            src: mac(from),
            dst: mac(3 - from),
            tags: [None, None],
            net: Net::v4(address(from), address(3 - from)),
            transport: if self.segments {
                Transport::Tcp { src_port, dst_port, seq: 1, ack: 1, flags: tcp::Flags::ACK, window: 1000 }
            } else {
                Transport::Udp { src_port, dst_port }
            },
            payload_len: u16::try_from(len - headers)?,
        };
        let header = if self.segments {
            frame.emit(&mut bytes, Checksum::Partial)?;
            // NEEDS_CSUM, and TCPV4 if there is more than one segment (virtio 1.2, 5.1.6.2).
            let cut = len - headers > usize::from(SEGMENT);
            let (gso_type, gso_size) = if cut { (1, SEGMENT) } else { (0, 0) };
            let hdr_len = u16::try_from(TCP)?;
            NetHeader { flags: 1, gso_type, hdr_len, gso_size, csum_start: 34, csum_offset: 16, num_buffers: 0 }
        } else {
            frame.emit(&mut bytes, Checksum::Zero)?;
            NetHeader::default()
        };
        let payload = &mut bytes[headers..];
        payload[..NUMBER].copy_from_slice(&u64::try_from(number)?.to_be_bytes());
        let start = number * 61 % (1 << 16);
        let rest = &mut payload[NUMBER..];
        rest.copy_from_slice(self.noise.get(start..start + rest.len()).context("too little noise")?);
        Ok((header, bytes))
    }

    /// Writes to buffers, up to the length of the longest frame. The kernel places a page on the
    /// NUMA node of the CPU that first writes to it.
    pub(super) fn claim(&self, memory: &Memory, buffers: &[u64]) {
        let len = HEADER_LEN + self.lens.iter().copied().max().unwrap_or(0);
        let nothing = vec![0; len as usize];
        for buffer in buffers.iter().filter_map(|&addr| memory.buffer(addr, len)) {
            buffer.write(self.level, &nothing);
        }
    }

    /// Fills a buffer with a frame, and returns its address and the bytes to send.
    pub(super) fn fill(&self, memory: &Memory, addr: u64, number: usize) -> anyhow::Result<(u64, u32)> {
        let (header, frame) = self.make(number)?;
        let len = HEADER_LEN + u32::try_from(frame.len())?;
        let buffer = memory.buffer(addr, len).filter(|b| b.len() == len).context("a buffer is not in guest memory")?;
        buffer.write(self.level, &header.to_bytes());
        buffer.split_at(HEADER_LEN).1.write(self.level, &frame);
        Ok((addr, len))
    }

    /// Compares a received packet of `len` bytes, header included, with the sent packet.
    pub(super) fn find(&self, memory: &Memory, addr: u64, len: u32, found: &mut Found) -> anyhow::Result<()> {
        let mut bytes = vec![0; len as usize];
        let read = memory.buffer(addr, len).map_or(0, |buffer| buffer.read(self.level, &mut bytes));
        let at = HEADER + if self.segments { TCP } else { UDP };
        let number = bytes.get(at..at + NUMBER).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
        let number = number.filter(|_| read == bytes.len()).context("a received packet is too short for its number")?;
        let number = usize::try_from(number)?;
        let (_, mut frame) = self.make(number).context("a received packet was never sent")?;
        if let (true, Some(theirs)) = (self.segments, bytes.get(HEADER + CHECKSUM..HEADER + CHECKSUM + 2)) {
            // The checksum is not compared: the switch may finish it. A switch may also write the
            // sum of the pseudo header in another form, as DPDK does.
            frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(theirs);
        }
        if let Some(wrong) = (0..frame.len().max(bytes.len() - HEADER)).find(|&n| frame.get(n) != bytes.get(HEADER + n))
        {
            anyhow::bail!("packet {number} ({} bytes) returned with other bytes from byte {wrong} on", frame.len());
        }
        found.packets += 1;
        found.numbers.resize(self.lens.len(), false);
        found.numbers[number] = true;
        Ok(())
    }

    /// Returns the number of frames that have not returned. Each frame was sent once, and `probes`
    /// of them once more. More duplicates are an error.
    pub(super) fn lost(&self, found: &Found, probes: usize) -> anyhow::Result<usize> {
        let missing = self.missing(found);
        let different = self.lens.len() - missing;
        validity::returned_once((found.packets - different).saturating_sub(probes)).demand()?;
        Ok(missing)
    }

    /// Returns the number of frames that have not returned so far.
    pub(super) fn missing(&self, found: &Found) -> usize {
        self.lens.len() - found.numbers.iter().filter(|&&n| n).count()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::options::ReflectorOptions;
    use super::*;

    #[test]
    fn the_shortest_and_the_longest_are_made() {
        for segments in [false, true] {
            let lens = vec![shortest(segments), LONGEST];
            let frames = Frames::new(lens.clone(), segments, 1);
            for (number, len) in lens.into_iter().enumerate() {
                assert_eq!(frames.make(number).expect("a frame").1.len(), len as usize);
            }
        }
    }

    #[test]
    fn what_comes_back_is_compared_to_the_last_byte() {
        for segments in [false, true] {
            let options = ReflectorOptions::new([PathBuf::new(), PathBuf::new()]);
            let memory = Memory::new(&options.port(), 2).expect("memory");
            let frames = Frames::new(vec![64, 1518], segments, 1);
            let addr = memory.buffers()[5];
            for number in 0..2 {
                let (_, len) = frames.fill(&memory, addr, number).expect("a buffer");
                let mut found = Found::default();
                frames.find(&memory, addr, len, &mut found).expect("as it was sent");
                assert_eq!(frames.lost(&found, 0).expect("once"), 1);
                frames.find(&memory, addr, len, &mut found).expect("as it was sent");
                assert!(
                    frames.lost(&found, 0).expect_err("twice").to_string().contains("1 packets have returned twice")
                );
                assert_eq!(frames.lost(&found, 1).expect("a probe may"), 1);
                let shorter = frames.find(&memory, addr, len - 1, &mut found).expect_err("a byte is missing");
                assert!(shorter.to_string().contains(&format!("other bytes from byte {}", len - 13)), "{shorter}");
                let last = memory.buffer(addr + u64::from(len) - 1, 1).expect("the last byte");
                let mut byte = [0];
                last.read(Level::Scalar, &mut byte);
                last.write(Level::Scalar, &[!byte[0]]);
                let changed = frames.find(&memory, addr, len, &mut found).expect_err("a byte is another");
                assert!(changed.to_string().contains(&format!("other bytes from byte {}", len - 13)), "{changed}");
            }
            let find = |addr, len| frames.find(&memory, addr, len, &mut Found::default()).expect_err("not ours");
            assert!(find(addr, 20).to_string().contains("too short"));
            assert!(find(memory.buffers()[6], 100).to_string().contains("other bytes from byte 0"));
        }
    }
}
