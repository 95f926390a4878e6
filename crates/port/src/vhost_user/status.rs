//! What an operator is told of a port: is the link up, if not why, and what was negotiated.

use straightline_virtio::net_control::Receives;

/// The link as of now.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// Whether packets can pass both ways.
    pub up: bool,
    /// Why not, in one sentence; empty when it is up.
    pub reason: String,
    /// What the driver negotiated, by name.
    pub features: Vec<&'static str>,
    /// Memory regions mapped.
    pub regions: usize,
    /// The MAC address that the driver is told by our configuration space, if it reads one there.
    pub mac: Option<[u8; 6]>,
    /// What the driver wants to receive, and which VLANs, where it says so by a control queue that is ours.
    pub receives: Option<(Receives, Vec<u16>)>,
    /// The rings, where they are set up.
    pub ring: Option<RingStatus>,
}

/// A ring as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStatus {
    /// Entries.
    pub size: u16,
    /// Whether it is a packed ring.
    pub packed: bool,
}

/// What control knows, kept where others can read it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) now: LinkStatus,
    /// Why the last link ended, until the next one is up.
    pub(super) fault: Option<String>,
}

impl State {
    pub(super) fn status(&self) -> LinkStatus {
        let mut status = self.now.clone();
        if let Some(fault) = &self.fault
            && !status.up
        {
            status.reason = fault.clone();
        }
        status
    }
}
