//! The records that a capture sends to its client.
//!
//! Each record has a header of 32 bytes, and a packet's bytes behind it, padded to a multiple of 8.
//! Numbers are little-endian.
//!
//! ```text
//! 0   4   length of the whole record
//! 4   1   kind
//! 5   1   index of the drop reason, in the list of the answer
//! 6   1   index of the packet in its turn; without meaning for clients
//! 7   1   1 if a dropped packet was on its way in
//! 8   2   interface
//! 10  2   0
//! 12  4   length of the packet when it was seen
//! 16  8   time in nanoseconds since 1970, or the number of packets that the filter has selected
//! 24  8   captured bytes, or the number of packets that did not fit the ring
//! ```

use std::fmt;

use az::SaturatingAs;

/// Bytes of a record's header.
pub const HEADER: usize = 32;

/// Bytes of the longest record. A longer one is not from a switch.
pub const LONGEST: usize = 1 << 19;

const VOID: u8 = 0;
const RECEIVED: u8 = 1;
const DELIVERED: u8 = 2;
const DROPPED: u8 = 3;
const COUNTS: u8 = 4;
const PRESENT: u8 = 5;
const ABSENT: u8 = 6;
const TICK: u8 = 7;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A captured packet.
    Packet(Packet<'a>),
    /// The counts of an interface so far. They replace earlier ones.
    Counts {
        /// The interface: an index into the list of the answer.
        interface: u16,
        /// Packets that the filter has selected.
        selected: u64,
        /// Selected packets that did not fit the ring.
        missed: u64,
    },
    /// A port has come or gone.
    Port {
        /// The interface.
        interface: u16,
        /// Whether the switch has the port now.
        is_present: bool,
    },
    /// All packets that workers have handed over before are sent. With several workers, packets of
    /// the time since the last but one may still come.
    Tick {
        /// The time, in nanoseconds since 1970.
        time: u64,
    },
    /// A record without meaning: a packet that stayed in its source's ring, or a kind of another
    /// version.
    Nothing,
}

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The interface: an index into the list of the answer.
    pub interface: u16,
    /// The place where the packet was seen.
    pub place: Place,
    /// The time, in nanoseconds since 1970.
    pub time: u64,
    /// The length of the packet.
    pub len: u32,
    /// The captured bytes, from the first on.
    pub bytes: &'a [u8],
}

/// The place where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The port has received it.
    Received,
    /// The port has delivered it.
    Delivered,
    /// It was dropped, and the port counts it.
    Dropped {
        /// Index of the reason, in the list of the answer.
        reason: u8,
        /// The port had received the packet. Otherwise the packet was to be delivered by the port.
        on_way_in: bool,
    },
}

impl Place {
    fn bytes(self) -> (u8, u8, u8) {
        match self {
            Place::Received => (RECEIVED, 0, 0),
            Place::Delivered => (DELIVERED, 0, 0),
            Place::Dropped { reason, on_way_in } => (DROPPED, reason, on_way_in.into()),
        }
    }
}

/// Bytes that are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARecord(u32);

impl fmt::Display for NotARecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {} bytes; records have {HEADER} to {LONGEST} bytes, a multiple of 8", self.0)
    }
}

impl std::error::Error for NotARecord {}

impl<'a> Record<'a> {
    /// Reads the record at the beginning of `bytes`. Returns it with its length; `None` if `bytes`
    /// ends before the record does.
    ///
    /// # Errors
    /// The length of the record, or of its packet, is impossible.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, NotARecord> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let len = u32_at(header, 0);
        let wrong = NotARecord(len);
        let whole = usize::try_from(len).map_err(|_| wrong)?;
        if !(HEADER..=LONGEST).contains(&whole) || whole % 8 != 0 {
            return Err(wrong);
        }
        let Some(body) = bytes.get(HEADER..whole) else { return Ok(None) };
        let kind = header[4];
        let interface = u16::from_le_bytes([header[8], header[9]]);
        let time = u64_at(header, 16);
        let place = match kind {
            RECEIVED => Place::Received,
            DELIVERED => Place::Delivered,
            DROPPED => Place::Dropped { reason: header[5], on_way_in: header[7] != 0 },
            COUNTS => {
                return Ok(Some((Record::Counts { interface, selected: time, missed: u64_at(header, 24) }, whole)));
            }
            PRESENT | ABSENT => return Ok(Some((Record::Port { interface, is_present: kind == PRESENT }, whole))),
            TICK => return Ok(Some((Record::Tick { time }, whole))),
            _ => return Ok(Some((Record::Nothing, whole))),
        };
        let captured = usize::try_from(u64_at(header, 24)).ok().and_then(|captured| body.get(..captured));
        let packet = Packet { interface, place, time, len: u32_at(header, 12), bytes: captured.ok_or(wrong)? };
        Ok(Some((Record::Packet(packet), whole)))
    }

    /// Appends the record to `output`.
    pub fn append(&self, output: &mut Vec<u8>) {
        let mut header = [0; HEADER];
        match *self {
            Record::Packet(packet) => {
                let len = record_len(packet.bytes.len());
                let start = output.len();
                output.resize(start + len, 0);
                let header = packet_header(&packet, 0, packet.bytes.len());
                output[start..start + HEADER].copy_from_slice(&header);
                output[start + HEADER..start + HEADER + packet.bytes.len()].copy_from_slice(packet.bytes);
                return;
            }
            Record::Counts { interface, selected, missed } => {
                header[4] = COUNTS;
                put(&mut header, 8, &interface.to_le_bytes());
                put(&mut header, 16, &selected.to_le_bytes());
                put(&mut header, 24, &missed.to_le_bytes());
            }
            Record::Port { interface, is_present } => {
                header[4] = if is_present { PRESENT } else { ABSENT };
                put(&mut header, 8, &interface.to_le_bytes());
            }
            Record::Tick { time } => {
                header[4] = TICK;
                put(&mut header, 16, &time.to_le_bytes());
            }
            Record::Nothing => header[4] = VOID,
        }
        put(&mut header, 0, &narrow(HEADER).to_le_bytes());
        output.extend_from_slice(&header);
    }
}

/// Returns the length of the record of a packet with so many captured bytes.
pub(crate) fn record_len(captured: usize) -> usize {
    HEADER + captured.next_multiple_of(8)
}

/// Returns the header of a packet's record. `packet.bytes` does not matter.
pub(crate) fn packet_header(packet: &Packet<'_>, index: u8, captured: usize) -> [u8; HEADER] {
    let (kind, reason, on_way_in) = packet.place.bytes();
    let mut header = [0; HEADER];
    put(&mut header, 0, &narrow(record_len(captured)).to_le_bytes());
    put(&mut header, 4, &[kind, reason, index, on_way_in]);
    put(&mut header, 8, &packet.interface.to_le_bytes());
    put(&mut header, 12, &packet.len.to_le_bytes());
    put(&mut header, 16, &packet.time.to_le_bytes());
    put(&mut header, 24, &u64::from(narrow(captured)).to_le_bytes());
    header
}

/// The words of a packet's record that change after it was written.
pub(crate) struct Written<'a>(&'a mut [u8]);

impl<'a> Written<'a> {
    /// Splits the first record of `bytes` from the others.
    pub(crate) fn split(bytes: &'a mut [u8]) -> Option<(Self, &'a mut [u8])> {
        let len = usize::try_from(u32_at(bytes.first_chunk::<HEADER>()?, 0)).ok()?;
        let (record, rest) = bytes.split_at_mut_checked(len.max(HEADER))?;
        Some((Written(record), rest))
    }

    /// Returns the index of the packet in its turn.
    pub(crate) fn index(&self) -> usize {
        usize::from(self.0[6])
    }

    /// Returns whether the packet was delivered by the port.
    pub(crate) fn is_delivered(&self) -> bool {
        self.0[4] == DELIVERED
    }

    pub(crate) fn is_void(&self) -> bool {
        self.0[4] == VOID
    }

    /// Takes all meaning from the record.
    pub(crate) fn make_void(&mut self) {
        self.0[4] = VOID;
    }

    pub(crate) fn interface(&self) -> u16 {
        u16::from_le_bytes([self.0[8], self.0[9]])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0
    }

    /// Replaces the time.
    pub(crate) fn change_time(&mut self, change: impl FnOnce(u64) -> u64) {
        if let Some(time) = self.0.get_mut(16..24) {
            let mut word = [0; 8];
            word.copy_from_slice(time);
            time.copy_from_slice(&change(u64::from_le_bytes(word)).to_le_bytes());
        }
    }
}

fn put(header: &mut [u8; HEADER], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn u64_at(header: &[u8; HEADER], at: usize) -> u64 {
    u64::from(u32_at(header, at)) | u64::from(u32_at(header, at + 4)) << 32
}

/// Returns a length of a record as its words have it: at most [`LONGEST`].
fn narrow(len: usize) -> u32 {
    len.saturating_as::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places() -> impl Strategy<Value = Place> {
        prop_oneof![
            Just(Place::Received),
            Just(Place::Delivered),
            (any::<u8>(), any::<bool>()).prop_map(|(reason, on_way_in)| Place::Dropped { reason, on_way_in }),
        ]
    }

    proptest! {
        #[test]
        fn records_survive_the_way(
            (interface, place, time) in (any::<u16>(), places(), any::<u64>()),
            (len, bytes) in (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300)),
            (selected, missed, is_present) in (any::<u64>(), any::<u64>(), any::<bool>()),
        ) {
            let records = [
                Record::Packet(Packet { interface, place, time, len, bytes: &bytes }),
                Record::Counts { interface, selected, missed },
                Record::Port { interface, is_present },
                Record::Tick { time },
                Record::Nothing,
            ];
            let mut output = Vec::new();
            records.iter().for_each(|record| record.append(&mut output));
            let mut rest = &output[..];
            for record in records {
                let (read, len) = Record::parse(rest).unwrap().expect("a whole record");
                prop_assert_eq!(read, record);
                prop_assert!(Record::parse(&rest[..len - 1]).unwrap().is_none(), "a record that is not whole");
                rest = &rest[len..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in 0_u32..300) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_chunk_mut::<4>() {
                *first = len.to_le_bytes();
            }
            if let Ok(Some((_, len))) = Record::parse(&bytes) {
                prop_assert!((HEADER..=bytes.len()).contains(&len));
            }
        }
    }
}
