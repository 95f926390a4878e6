//! Why bytes are not the header that they should be.

/// Why bytes are not the header that they should be, or why a header cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// The header goes on beyond the bytes at hand.
    #[error("the header is truncated")]
    Truncated,
    /// The version field of an IP header is not the one that the Ethernet type promised.
    #[error("wrong IP version")]
    BadVersion,
    /// A header length below the protocol's least.
    #[error("bad header length")]
    BadHeaderLength,
    /// A length field that does not even cover its own header.
    #[error("bad length")]
    BadLength,
    /// An IPv6 extension header where it may not stand.
    #[error("misplaced IPv6 extension header")]
    BadExtension,
    /// More IPv6 extension headers than anybody needs.
    #[error("too many IPv6 extension headers")]
    TooManyExtensions,
    /// The frame carries neither IPv4 nor IPv6.
    #[error("not an IP packet")]
    NotIp,
    /// Building: the caller's buffer is too short.
    #[error("no room for the header")]
    BufferTooSmall,
    /// Building: a value does not fit its field.
    #[error("a value does not fit its field")]
    BadValue,
}
