//! Messages as bytes: header and payloads.
//!
//! Numbers are in the machine's byte order ("Message Specification"). The only failure here is
//! `None` for bytes of the wrong length. The session checks the values.

use az::SaturatingAs;

use super::request::Request;

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;

/// The longest accepted payload. The longest legal one is a memory table or a configuration space,
/// some 270 bytes. A larger size in a header is an error before anything is allocated.
pub const MAX_PAYLOAD: usize = 4096;

/// The most file descriptors that one message carries: one for each region of a memory table.
pub const MAX_FDS: usize = 8;

/// The protocol version, in the two lowest bits of the flags.
pub const VERSION: u32 = 1;
/// Flag of the backend's replies.
pub const FLAG_REPLY: u32 = 1 << 2;
/// Flag of a request that wants an acknowledgement (REPLY_ACK).
pub const FLAG_NEED_REPLY: u32 = 1 << 3;

/// Code of the backend's request that reports a change of the configuration space ("Back-end
/// message types").
pub const BACKEND_CONFIG_CHANGE: u32 = 2;

/// Bit 8 of the payload of SET_VRING_KICK, CALL and ERR: the message has no file descriptor.
pub const VRING_NOFD: u64 = 1 << 8;
/// Bit 8 of the answer to SET_DEVICE_STATE_FD: the answer has no file descriptor, and the
/// frontend's own is used.
pub const STATE_NOFD: u64 = 1 << 8;
/// Bits 0 to 7 of that answer: 0 for success, other values for a failure.
pub const STATE_ERROR: u64 = 0xff;
/// Flag of SET_VRING_ADDR: writes to the used ring are logged.
pub const VRING_FLAG_LOG: u32 = 1;

/// The header: the three numbers before each payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Request code.
    pub request: u32,
    /// Version and flags.
    pub flags: u32,
    /// Bytes of the payload.
    pub size: u32,
}

impl Header {
    /// Reads a header.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let [r0, r1, r2, r3, f0, f1, f2, f3, s0, s1, s2, s3] = *bytes;
        Self {
            // Cites vhost-user-header-1.
            request: u32::from_ne_bytes([r0, r1, r2, r3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            size: u32::from_ne_bytes([s0, s1, s2, s3]),
        }
    }
}

/// One message: a request of the frontend or a reply of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Request code as received; [`Request::from_code`] names it.
    pub request: u32,
    /// Version and flags as received.
    pub flags: u32,
    /// The payload, at most [`MAX_PAYLOAD`] bytes if it came from a
    /// [`Connection`](super::Connection).
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns a request without flags.
    pub fn request(request: Request, payload: Vec<u8>) -> Self {
        Self { request: request.code(), flags: VERSION, payload }
    }

    /// Returns the backend's reply to the request of this code.
    pub fn reply(code: u32, payload: Vec<u8>) -> Self {
        // Cites vhost-user-header-3.
        Self { request: code, flags: VERSION | FLAG_REPLY, payload }
    }

    /// Returns the message with the flag that asks for an acknowledgement.
    #[must_use]
    pub fn with_need_reply(mut self) -> Self {
        self.flags |= FLAG_NEED_REPLY;
        self
    }

    /// Returns the protocol version in the flags.
    pub fn version(&self) -> u32 {
        self.flags & 0b11
    }

    /// Returns whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & FLAG_REPLY != 0
    }

    /// Returns whether the message asks for an acknowledgement.
    pub fn needs_reply(&self) -> bool {
        self.flags & FLAG_NEED_REPLY != 0
    }

    /// Returns the bytes for the wire.
    ///
    /// # Panics
    /// Panics if the payload has 4 GiB or more. Payloads are our own here, and small.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = u32::try_from(self.payload.len()).expect("a payload of less than 4 GiB");
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.payload.len());
        bytes.extend(self.request.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// Reads a payload that is a single 64-bit integer.
pub fn decode_u64(payload: &[u8]) -> Option<u64> {
    payload.try_into().map(u64::from_ne_bytes).ok()
}

/// "A vring state description": a ring's index and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VringState {
    /// The ring's index, 32 bits wide and not yet checked.
    pub index: u32,
    /// Size, base or on/off.
    pub num: u32,
}

impl VringState {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads a payload of exactly [`Self::LEN`] bytes.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let state = Self { index: fields.u32()?, num: fields.u32()? };
        fields.end(state)
    }

    /// Returns the payload's bytes.
    pub fn encode(self) -> Vec<u8> {
        [self.index.to_ne_bytes(), self.num.to_ne_bytes()].concat()
    }
}

/// "A vring address description"; the names come from the kernel's `struct vhost_vring_addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VringAddr {
    /// The ring's index, 32 bits wide and not yet checked.
    pub index: u32,
    /// [`VRING_FLAG_LOG`] or 0.
    pub flags: u32,
    /// User address of the descriptor table; of the descriptor ring, if packed.
    pub desc: u64,
    /// User address of the used ring; of the device event suppression area, if packed.
    pub used: u64,
    /// User address of the available ring; of the driver event suppression area, if packed.
    pub avail: u64,
    /// Guest address of the used ring in the dirty log.
    pub log: u64,
}

impl VringAddr {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// Reads a payload of exactly [`Self::LEN`] bytes.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let addr = Self {
            index: fields.u32()?,
            flags: fields.u32()?,
            desc: fields.u64()?,
            used: fields.u64()?,
            avail: fields.u64()?,
            log: fields.u64()?,
        };
        fields.end(addr)
    }

    /// Returns the payload's bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        bytes.extend(self.index.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        for number in [self.desc, self.used, self.avail, self.log] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes
    }
}

/// "Log description": the part of the message's file that is the dirty log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSpec {
    /// Bytes.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
}

impl LogSpec {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads a payload of exactly [`Self::LEN`] bytes.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let log = Self { size: fields.u64()?, offset: fields.u64()? };
        fields.end(log)
    }

    /// Returns the payload's bytes.
    pub fn encode(self) -> Vec<u8> {
        [self.size.to_ne_bytes(), self.offset.to_ne_bytes()].concat()
    }
}

/// "Memory region description": a part of guest memory, without its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionSpec {
    /// Guest physical address of the first byte.
    pub guest_addr: u64,
    /// Bytes.
    pub size: u64,
    /// Address of the first byte in the frontend's own process; rings are given in these addresses.
    pub user_addr: u64,
    /// Offset of the region in the file.
    pub mmap_offset: u64,
}

impl RegionSpec {
    /// Bytes on the wire.
    pub const LEN: usize = 32;
    /// Bytes of "Single memory region description": padding, then the region.
    pub const SINGLE_LEN: usize = 8 + Self::LEN;

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            guest_addr: fields.u64()?,
            size: fields.u64()?,
            user_addr: fields.u64()?,
            mmap_offset: fields.u64()?,
        })
    }

    fn write(self, bytes: &mut Vec<u8>) {
        for number in [self.guest_addr, self.size, self.user_addr, self.mmap_offset] {
            bytes.extend(number.to_ne_bytes());
        }
    }

    /// Reads "Single memory region description" (ADD_MEM_REG, REM_MEM_REG).
    pub fn decode_single(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let _padding = fields.u64()?;
        let region = Self::read(&mut fields)?;
        fields.end(region)
    }

    /// Returns the bytes of "Single memory region description".
    pub fn encode_single(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SINGLE_LEN);
        bytes.extend(0_u64.to_ne_bytes());
        self.write(&mut bytes);
        bytes
    }

    /// Reads "Multiple memory regions description" (SET_MEM_TABLE): as many regions as it counts.
    /// Space for more regions behind them is legal: User Mode Linux always sends its complete table
    /// of two.
    pub fn decode_table(payload: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields(payload);
        let count = usize::try_from(fields.u32()?).ok()?;
        let _padding = fields.u32()?;
        // The count is trusted only as far as bytes are there: it does not size the allocation.
        let capacity = fields.0.len() / Self::LEN;
        if count > capacity || fields.0.len() % Self::LEN != 0 {
            return None;
        }
        (0..count).map(|_| Self::read(&mut fields)).collect()
    }

    /// Returns the bytes of "Multiple memory regions description".
    pub fn encode_table(regions: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + regions.len() * Self::LEN);
        bytes.extend(regions.len().saturating_as::<u32>().to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        for region in regions {
            region.write(&mut bytes);
        }
        bytes
    }
}

/// "Inflight description": an in-flight table, and the rings that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InflightSpec {
    /// Bytes of the table.
    pub mmap_size: u64,
    /// Offset of the table in its file.
    pub mmap_offset: u64,
    /// Rings.
    pub queues: u16,
    /// Entries of each.
    pub queue_size: u16,
}

impl InflightSpec {
    /// Bytes on the wire.
    pub const LEN: usize = 20;
    /// Bytes of the description as a C structure with its padding, which QEMU and others send.
    pub const PADDED: usize = 24;

    /// Reads a payload with or without padding.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let mmap_size = fields.u64()?;
        let mmap_offset = fields.u64()?;
        let last = fields.u32()?.to_ne_bytes();
        let [q0, q1, s0, s1] = last;
        let spec = Self {
            mmap_size,
            mmap_offset,
            queues: u16::from_ne_bytes([q0, q1]),
            queue_size: u16::from_ne_bytes([s0, s1]),
        };
        match payload.len() {
            Self::LEN | Self::PADDED => Some(spec),
            _ => None,
        }
    }

    /// Returns the payload's bytes, as a C structure.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::PADDED);
        bytes.extend(self.mmap_size.to_ne_bytes());
        bytes.extend(self.mmap_offset.to_ne_bytes());
        bytes.extend(self.queues.to_ne_bytes());
        bytes.extend(self.queue_size.to_ne_bytes());
        bytes.resize(Self::PADDED, 0);
        bytes
    }
}

/// "Device state transfer parameters": the direction and the phase of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferSpec {
    /// 0: from the backend, which saves; 1: to the backend, which loads.
    pub direction: u32,
    /// 0: the guest and the device are stopped. No other phase is defined yet.
    pub phase: u32,
}

impl TransferSpec {
    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let spec = Self { direction: fields.u32()?, phase: fields.u32()? };
        fields.end(spec)
    }

    /// Returns the payload's bytes.
    pub fn encode(self) -> Vec<u8> {
        [self.direction.to_ne_bytes(), self.phase.to_ne_bytes()].concat()
    }
}

/// "Virtio device config space": a range of bytes, and for a write or an answer their contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigAccess {
    /// First byte.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
    /// 0, or 1 for live migration.
    pub flags: u32,
    /// The contents, which may be missing in a request to read.
    pub bytes: Vec<u8>,
}

impl ConfigAccess {
    /// Bytes before the contents.
    pub const HEADER_LEN: usize = 12;

    /// Reads a payload whose contents are `size` bytes, or none at all.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let offset = fields.u32()?;
        let size = fields.u32()?;
        let flags = fields.u32()?;
        let bytes = fields.0.to_vec();
        let is_complete = u32::try_from(bytes.len()).is_ok_and(|len| len == size);
        (is_complete || bytes.is_empty()).then_some(Self { offset, size, flags, bytes })
    }

    /// Returns the payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEADER_LEN + self.bytes.len());
        for number in [self.offset, self.size, self.flags] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(&self.bytes);
        bytes
    }
}

/// A reader that takes numbers off the front of a payload.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*number))
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*number))
    }

    /// Returns the value, if no bytes are left over.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests;
