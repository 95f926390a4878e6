//! What a frontend can do wrong, in words for an operator.

use crate::features::{list, names, protocol_names};

use super::request::Request;

/// A message that the session refused. The session's state is as before the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its one line; the fields are the numbers in that line")]
pub enum ProtocolError {
    /// The header's version is not 1.
    #[error("protocol version {version}; the only one is 1")]
    Version { version: u32 },
    /// A request has the flag of a reply.
    #[error("request {code} came with the reply flag; a frontend sends requests only")]
    ReplyFlag { code: u32 },
    /// No such request in the specification.
    #[error("unknown request {code}; known are 1 to {}", Request::ALL.len())]
    UnknownRequest { code: u32 },
    /// The payload has the wrong length.
    #[error("{request} with a payload of {got} bytes; right is {want}")]
    PayloadSize { request: Request, got: usize, want: &'static str },
    /// Too few or too many file descriptors came along.
    #[error("{request} with {got} file descriptors; right is {want}")]
    FdCount { request: Request, got: usize, want: usize },
    /// The request belongs to a feature that is not offered here.
    #[error("{request} needs {feature}, which is not offered here")]
    NotOffered { request: Request, feature: RequiredFeature },
    /// The request belongs to a feature that the frontend did not acknowledge.
    #[error("{request} needs {feature}, which was offered but not acknowledged")]
    NotNegotiated { request: Request, feature: RequiredFeature },
    /// The request belongs to another kind of device.
    #[error("{request} is for a {device} device; this is a network device")]
    OtherDevice { request: Request, device: &'static str },
    /// Features were acknowledged that were not offered.
    #[error("SET_FEATURES with features that were not offered: {}", list(names(*extra)))]
    FeaturesNotOffered { extra: u64 },
    /// Features were changed under running rings.
    #[error("SET_FEATURES changes {} while ring {index} runs; stop the rings first", list(names(*changed)))]
    FeaturesWhileRunning { index: usize, changed: u64 },
    /// Protocol features were acknowledged that were not offered.
    #[error("SET_PROTOCOL_FEATURES with features that were not offered: {}", list(protocol_names(*extra)))]
    ProtocolFeaturesNotOffered { extra: u64 },
    /// Protocol features were changed under running rings.
    #[error("SET_PROTOCOL_FEATURES changes {} while ring {index} runs; stop the rings first", list(protocol_names(*changed)))]
    ProtocolFeaturesWhileRunning { index: usize, changed: u64 },
    /// There is no such ring.
    #[error("{request} for ring {index}; there are {rings} rings")]
    RingIndex { request: Request, index: u64, rings: usize },
    /// A ring's size is not allowed.
    #[error("ring {index} with a size of {size}; right is {want}")]
    RingSize { index: usize, size: u32, want: &'static str },
    /// A ring's size or base was changed under it.
    #[error("{request} while ring {index} runs; stop it first with GET_VRING_BASE")]
    RingRunning { request: Request, index: usize },
    /// A split ring's position has more than 16 bits.
    #[error("ring {index} with base {base:#x}; a split ring's has 16 bits")]
    RingBase { index: usize, base: u32 },
    /// A ring's part is not aligned.
    #[error("ring {index} with its {part} at {addr:#x}; it must be a multiple of {align}")]
    RingAlignment { index: usize, part: &'static str, addr: u64, align: u64 },
    /// Flags of SET_VRING_ADDR that we do not know, or a log that is not offered.
    #[error("ring {index} with address flags {flags:#x}; right is 0, or 1 where log-all is offered")]
    RingFlags { index: usize, flags: u32 },
    /// A dirty log of no bytes, of more than any guest has pages, or over the end of the numbers.
    #[error("SET_LOG_BASE of {size:#x} bytes at {offset:#x}; right is a size of 1 to {max:#x}, and no overflow")]
    LogRange { size: u64, offset: u64, max: u64 },
    /// SET_VRING_ENABLE with a number that is neither on nor off.
    #[error("SET_VRING_ENABLE of ring {index} with {num}; right is 0 or 1")]
    RingEnable { index: usize, num: u32 },
    /// A memory region of no bytes.
    #[error("memory region at guest address {guest_addr:#x} is empty")]
    RegionEmpty { guest_addr: u64 },
    /// A memory region that runs over the end of its address space.
    #[error("memory region overflows: {what} {start:#x} + {size:#x} bytes")]
    RegionOverflow { what: &'static str, start: u64, size: u64 },
    /// Two memory regions share addresses.
    #[error(
        "memory regions overlap in {what} addresses: {first:#x} + {first_size:#x} bytes, \
         {second:#x} + {second_size:#x} bytes"
    )]
    RegionOverlap { what: &'static str, first: u64, first_size: u64, second: u64, second_size: u64 },
    /// More memory regions than slots.
    #[error("{got} memory regions; at most {max} are taken")]
    TooManyRegions { got: usize, max: usize },
    /// Memory regions that use up too much of our address space.
    #[error("memory regions of {total:#x} bytes together; at most {max:#x} are taken")]
    TooMuchMemory { total: u64, max: u64 },
    /// REM_MEM_REG of a region that is not in the table.
    #[error("REM_MEM_REG of {size:#x} bytes at guest address {guest_addr:#x}; no such region was added")]
    RegionUnknown { guest_addr: u64, size: u64 },
    /// GET_CONFIG beyond the configuration space.
    #[error("GET_CONFIG of {size} bytes at {offset}; the configuration space has {len}")]
    ConfigRange { offset: u32, size: u32, len: usize },
    /// SET_CONFIG: all our fields are read-only.
    #[error("SET_CONFIG at {offset}; the configuration space of this device is read-only")]
    ConfigReadOnly { offset: u32 },
    /// NET_SET_MTU with a value that is no MTU.
    #[error("NET_SET_MTU with {mtu}; right is 68 to 65535")]
    Mtu { mtu: u64 },
    /// A table of buffers in flight for rings that there are not, or cannot be.
    #[error("{request} for {queues} rings of {size} entries; there are {rings} rings, of 1 to 32768 entries")]
    Inflight { request: Request, queues: u16, size: u16, rings: usize },
    /// A device's state is that of a device at rest ("Suspended device state").
    #[error("{request} while ring {index} is started; stop it first with GET_VRING_BASE")]
    StateWhileRunning { request: Request, index: usize },
    /// SET_DEVICE_STATE_FD in a way that there is not.
    #[error("SET_DEVICE_STATE_FD in direction {direction} and phase {phase}; right are 0 or 1, and phase 0")]
    StateTransfer { direction: u32, phase: u32 },
    /// SET_STATUS with more than a byte.
    #[error("SET_STATUS with {status:#x}; the device status has 8 bits")]
    Status { status: u64 },
}

impl ProtocolError {
    /// Whether the message broke the protocol itself, so that nothing that follows can be trusted: the connection
    /// must close. The others may be answered with a failure; [`Session::refuse`](super::Session::refuse) knows when.
    pub fn fatal(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::ReplyFlag { .. } | Self::PayloadSize { .. } | Self::FdCount { .. })
    }
}

/// A feature that a request needs, with the mask that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredFeature {
    /// A bit of GET_FEATURES.
    Feature(u64),
    /// A bit of GET_PROTOCOL_FEATURES.
    Protocol(u64),
}

impl std::fmt::Display for RequiredFeature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Feature(bit) => write!(f, "the feature {}", list(names(bit))),
            Self::Protocol(bit) => write!(f, "the protocol feature {}", list(protocol_names(bit))),
        }
    }
}

/// Why a device is not served although its frontend did nothing wrong. It passes when other features are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// SET_FEATURES has not come yet.
    #[error("features not negotiated yet")]
    NoFeatures,
    /// A legacy driver, or no driver yet (firmware; QEMU sets features before the guest's driver does).
    #[error("legacy driver: VERSION_1 not negotiated")]
    LegacyDriver,
    /// Addresses would have to be translated by the frontend.
    #[error("IOMMU (ACCESS_PLATFORM) negotiated: address translation by the frontend is not supported")]
    Iommu,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::*;

    #[test]
    fn errors_say_what_was_wrong_and_what_is_right() {
        let error = ProtocolError::FeaturesNotOffered { extra: VIRTIO_NET_F_HOST_USO | VIRTIO_F_IN_ORDER };
        assert_eq!(error.to_string(), "SET_FEATURES with features that were not offered: in-order, host-uso");
        let error = ProtocolError::NotOffered {
            request: Request::GetInflightFd,
            feature: RequiredFeature::Protocol(VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD),
        };
        assert_eq!(
            error.to_string(),
            "GET_INFLIGHT_FD needs the protocol feature inflight-shmfd, which is not offered here"
        );
        let error = ProtocolError::RingIndex { request: Request::SetVringNum, index: 0x1_0001, rings: 2 };
        assert_eq!(error.to_string(), "SET_VRING_NUM for ring 65537; there are 2 rings");
        assert_eq!(ProtocolError::UnknownRequest { code: 99 }.to_string(), "unknown request 99; known are 1 to 44");
    }
}
