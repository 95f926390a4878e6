//! Errors that a frontend can cause, with messages for operators.

use crate::features::{list, names, protocol_names};

use super::request::Request;

/// The reason why the session refused a message. A refused message leaves the session unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its one line; the fields are the numbers in that line")]
pub enum ProtocolError {
    /// The header's version is not 1.
    #[error("the message has protocol version {version}; expected 1")]
    Version { version: u32 },
    /// A request has the flag of a reply.
    #[error("request {code} has the reply flag; a frontend sends requests only")]
    ReplyFlag { code: u32 },
    /// The specification has no request of this code.
    #[error("unknown request {code}; known requests are 1 to {}", Request::ALL.len())]
    UnknownRequest { code: u32 },
    /// The payload has the wrong length.
    #[error("{request} has a payload of {got} bytes; expected {want}")]
    PayloadSize { request: Request, got: usize, want: &'static str },
    /// The message carries too few or too many file descriptors.
    #[error("{request} has {got} file descriptors; expected {want}")]
    FdCount { request: Request, got: usize, want: usize },
    /// The request needs a feature that the backend does not offer.
    #[error("{request} needs {feature}, which is not offered here")]
    NotOffered { request: Request, feature: RequiredFeature },
    /// The request needs a feature that the frontend has not acknowledged.
    #[error("{request} needs {feature}, which was offered but not acknowledged")]
    NotNegotiated { request: Request, feature: RequiredFeature },
    /// The request belongs to another kind of device.
    #[error("{request} is for a {device} device; this is a network device")]
    OtherDevice { request: Request, device: &'static str },
    /// The frontend acknowledged features that were not offered.
    #[error("SET_FEATURES acknowledges features that were not offered: {}", list(names(*extra)))]
    FeaturesNotOffered { extra: u64 },
    /// The frontend changed features while a ring runs.
    #[error("SET_FEATURES changes {} while ring {index} runs; stop the rings first", list(names(*changed)))]
    FeaturesWhileRunning { index: usize, changed: u64 },
    /// The frontend acknowledged protocol features that were not offered.
    #[error("SET_PROTOCOL_FEATURES acknowledges features that were not offered: {}", list(protocol_names(*extra)))]
    ProtocolFeaturesNotOffered { extra: u64 },
    /// The frontend changed protocol features while a ring runs.
    #[error("SET_PROTOCOL_FEATURES changes {} while ring {index} runs; stop the rings first", list(protocol_names(*changed)))]
    ProtocolFeaturesWhileRunning { index: usize, changed: u64 },
    /// The device has no ring of this index.
    #[error("{request} for ring {index}; there are {rings} rings")]
    RingIndex { request: Request, index: u64, rings: usize },
    /// The size of a ring is not allowed.
    #[error("ring {index} has a size of {size}; expected {want}")]
    RingSize { index: usize, size: u32, want: &'static str },
    /// The frontend changed a ring that runs.
    #[error("{request} while ring {index} runs; stop it first with GET_VRING_BASE")]
    RingRunning { request: Request, index: usize },
    /// The base of a split ring has more than 16 bits.
    #[error("ring {index} has base {base:#x}; the base of a split ring has 16 bits")]
    RingBase { index: usize, base: u32 },
    /// A part of a ring is not aligned.
    #[error("ring {index} has its {part} at {addr:#x}; expected a multiple of {align}")]
    RingAlignment { index: usize, part: &'static str, addr: u64, align: u64 },
    /// SET_VRING_ADDR has unknown flags, or asks for a log that is not offered.
    #[error("ring {index} has address flags {flags:#x}; expected 0, or 1 if log-all is offered")]
    RingFlags { index: usize, flags: u32 },
    /// The dirty log is empty, has bits for more pages than any guest has, or overflows 64 bits.
    #[error("SET_LOG_BASE gives {size:#x} bytes at {offset:#x}; expected a size of 1 to {max:#x}, and no overflow")]
    LogRange { size: u64, offset: u64, max: u64 },
    /// SET_VRING_ENABLE has a number that is neither 0 nor 1.
    #[error("SET_VRING_ENABLE sets ring {index} to {num}; expected 0 or 1")]
    RingEnable { index: usize, num: u32 },
    /// A memory region has no bytes.
    #[error("memory region at guest address {guest_addr:#x} is empty")]
    RegionEmpty { guest_addr: u64 },
    /// A memory region extends beyond the end of its address space.
    #[error("memory region overflows: {what} {start:#x} + {size:#x} bytes")]
    RegionOverflow { what: &'static str, start: u64, size: u64 },
    /// Two memory regions share addresses.
    #[error(
        "memory regions overlap in {what} addresses: {first:#x} + {first_size:#x} bytes, \
         {second:#x} + {second_size:#x} bytes"
    )]
    RegionOverlap { what: &'static str, first: u64, first_size: u64, second: u64, second_size: u64 },
    /// There are more memory regions than slots.
    #[error("{got} memory regions; at most {max} are taken")]
    TooManyRegions { got: usize, max: usize },
    /// The rings would have more descriptors than the session may keep.
    #[error(
        "{request} for ring {index}: the switch keeps {max} descriptors of this frontend's rings, and has no more for \
         it; set `queues` of the port, or raise `LimitNOFILE=`"
    )]
    TooManyRingFds { request: Request, index: usize, max: usize },
    /// The memory regions would use too much of our address space.
    #[error("memory regions of {total:#x} bytes together; at most {max:#x} are taken")]
    TooMuchMemory { total: u64, max: u64 },
    /// REM_MEM_REG names a region that is not in the table.
    #[error("REM_MEM_REG removes {size:#x} bytes at guest address {guest_addr:#x}, but no such region was added")]
    RegionUnknown { guest_addr: u64, size: u64 },
    /// GET_CONFIG reads beyond the configuration space.
    #[error("GET_CONFIG reads {size} bytes at {offset}; the configuration space has {len}")]
    ConfigRange { offset: u32, size: u32, len: usize },
    /// SET_CONFIG writes to the configuration space, whose fields are all read-only.
    #[error("SET_CONFIG writes at {offset}; the configuration space of this device is read-only")]
    ConfigReadOnly { offset: u32 },
    /// NET_SET_MTU has a value that is not an MTU.
    #[error("NET_SET_MTU sets {mtu}; expected 68 to 65535")]
    Mtu { mtu: u64 },
    /// The in-flight table is for rings that do not exist or have an impossible size.
    #[error("{request} is for {queues} rings of {size} entries; expected 1 to {rings} rings of 1 to 32768 entries")]
    Inflight { request: Request, queues: u16, size: u16, rings: usize },
    /// The device's state is moved while a ring is started ("Suspended device state").
    #[error("{request} while ring {index} is started; stop it first with GET_VRING_BASE")]
    StateWhileRunning { request: Request, index: usize },
    /// SET_DEVICE_STATE_FD has an unknown direction or phase.
    #[error("SET_DEVICE_STATE_FD has direction {direction} and phase {phase}; expected direction 0 or 1, and phase 0")]
    StateTransfer { direction: u32, phase: u32 },
    /// SET_STATUS has a value of more than 8 bits.
    #[error("SET_STATUS sets {status:#x}; the device status has 8 bits")]
    Status { status: u64 },
}

impl ProtocolError {
    /// Returns whether the message broke the protocol itself. Then nothing that follows can be
    /// trusted, and the connection must close. Other errors may be answered with a failure;
    /// [`Session::refuse`](super::Session::refuse) decides when.
    pub fn fatal(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::ReplyFlag { .. } | Self::PayloadSize { .. } | Self::FdCount { .. })
    }
}

/// A feature that a request needs, and the mask that it belongs to.
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

/// The reason why a device is not served although its frontend did nothing wrong. Setting other
/// features ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// SET_FEATURES has not come yet.
    #[error("features not negotiated yet")]
    NoFeatures,
    /// The driver is a legacy driver, or there is no driver yet: firmware runs, or QEMU has set
    /// features before the guest's driver does.
    #[error("legacy driver: VERSION_1 not negotiated")]
    LegacyDriver,
    /// The frontend would have to translate addresses.
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
        assert_eq!(error.to_string(), "SET_FEATURES acknowledges features that were not offered: in-order, host-uso");
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
        assert_eq!(
            ProtocolError::UnknownRequest { code: 99 }.to_string(),
            "unknown request 99; known requests are 1 to 44"
        );
    }
}
