//! Numbered packets, and the counting of packets that arrive.

use std::net::Ipv4Addr;

use anyhow::Context;
use straightline_packet::MemorySegment;
use straightline_virtio::net_header::LEN as HEADER;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

use crate::guest::HEADER_LEN;
use crate::guest::Pair;

/// Bytes of Ethernet, IPv4 and UDP headers; the number follows them, in 8 bytes.
const HEADERS: u16 = 14 + 20 + 8;

/// The offset of the number in a buffer: after the virtio-net header and the frame's own.
const NUMBER: u32 = HEADER_LEN + HEADERS as u32;

/// UDP packets from one guest's queue pair to another's, each with its number.
#[derive(Debug)]
pub struct Stream {
    /// Frame length by transmit buffer.
    lens: Vec<u16>,
    next: u64,
}

/// Returns the MAC address of guest 1 or 2. A guest has one for each lane of its stream.
pub fn guest_mac(guest: u8, lane: u16) -> MacAddr {
    let [high, low] = lane.to_be_bytes();
    MacAddr([2, 0, 0, high, low, guest])
}

impl Stream {
    /// Fills every transmit buffer of `guest` with a frame. The frames have these lengths in turn,
    /// each at least 60. Sending writes only a packet's number into its frame.
    ///
    /// # Errors
    /// A length is too short for the headers or too long for a buffer.
    pub fn prepare(guest: &mut Pair, src: MacAddr, dst: MacAddr, lens: &[u16]) -> anyhow::Result<Stream> {
        let level = guest.level();
        let lens: Vec<u16> = lens.iter().copied().cycle().take(guest.spare()).collect();
        for (buffer, &len) in (0..).zip(&lens) {
            let payload_len =
                len.checked_sub(HEADERS + 8).with_context(|| format!("a frame of {len} bytes is too short"))?;
            let frame = Frame {
                src,
                dst,
                tags: [None, None],
                net: Net::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)),
                transport: Transport::Udp { src_port: 1000, dst_port: 2000 },
                payload_len: payload_len + 8,
            };
            let mut bytes = [0; HEADER + HEADERS as usize];
            frame.emit(&mut bytes[HEADER..], Checksum::Zero)?;
            let segment = guest.buffer(buffer).context("a transmit buffer is not in guest memory")?;
            anyhow::ensure!(
                segment.len() as usize >= HEADER + usize::from(len),
                "a frame of {len} bytes does not fit a buffer of {}",
                segment.len()
            );
            segment.write(level, &bytes);
        }
        Ok(Stream { lens, next: 0 })
    }

    /// Sends the next packet; returns `false` if no buffer is free.
    pub fn send(&mut self, guest: &mut Pair) -> bool {
        let level = guest.level();
        let Some((buffer, segment)) = guest.next_buffer() else { return false };
        let Some(&len) = self.lens.get(usize::from(buffer)) else { return false };
        segment.split_at(NUMBER).1.write(level, &self.next.to_be_bytes());
        if !guest.send_next(u32::from(len) + HEADER_LEN) {
            return false;
        }
        self.next += 1;
        true
    }

    /// Returns the number of packets sent.
    pub fn sent(&self) -> u64 {
        self.next
    }
}

/// Counters of packets of a [`Stream`] that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that arrived after a packet with a higher number.
    pub late: u64,
    /// The number after the highest number that arrived.
    expected: u64,
}

impl Sequence {
    /// Counts a packet, given as the parts of its frame.
    pub fn note(&mut self, guest_level: straightline_packet::Level, parts: &[MemorySegment<'_>]) {
        let mut number = [0; 8];
        let Some(first) = parts.first() else { return };
        // The number is in the first buffer: every buffer holds at least the headers and the
        // number.
        first.split_at(HEADERS.into()).1.read(guest_level, &mut number);
        self.note_number(u64::from_be_bytes(number), parts.iter().map(|part| u64::from(part.len())).sum());
    }

    /// Counts a packet by its number and the bytes of its frame.
    pub fn note_number(&mut self, number: u64, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
        if number < self.expected {
            self.late += 1;
        } else {
            self.expected = number.saturating_add(1);
        }
    }

    /// Returns the number of packets of `sent` that have not arrived.
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.packets)
    }
}
