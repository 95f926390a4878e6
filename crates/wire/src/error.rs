//! Errors of checked views and of builders.

/// Error of a check of a header's bytes, or of building a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// The header is longer than the bytes given.
    #[error("the header is truncated")]
    Truncated,
    /// The version field is not that of the protocol. For IP, it contradicts the Ethernet type.
    #[error("the version is not that of the protocol")]
    BadVersion,
    /// A flag has a value that the protocol forbids, or that makes the other fields meaningless.
    #[error("a flag has a forbidden value")]
    BadFlags,
    /// The header length is below the protocol's minimum.
    #[error("the header length is below the protocol's minimum")]
    BadHeaderLength,
    /// A length field does not cover its own header.
    #[error("a length field does not cover its own header")]
    BadLength,
    /// An IPv6 extension header is in a place where RFC 8200 does not allow it.
    #[error("misplaced IPv6 extension header")]
    BadExtension,
    /// There are more IPv6 extension headers than [`MAX_EXTENSIONS`](crate::ipv6::MAX_EXTENSIONS).
    #[error("too many IPv6 extension headers")]
    TooManyExtensions,
    /// There are more priority tags than [`MAX_PRIORITY_TAGS`](crate::vlan::MAX_PRIORITY_TAGS).
    #[error("too many priority tags")]
    TooManyTags,
    /// The frame carries neither IPv4 nor IPv6.
    #[error("not an IP packet")]
    NotIp,
    /// The caller's buffer is too short for the header to build.
    #[error("the buffer is too short for the header")]
    BufferTooSmall,
    /// A value is out of range: it does not fit its field, or the protocol reserves it.
    #[error("a value is out of range")]
    BadValue,
}
