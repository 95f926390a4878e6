//! Names of rings in messages.

/// Returns whether the guest transmits by this ring. Receive and transmit rings alternate (virtio
/// 1.2, 5.1.2).
pub(crate) fn is_transmit(index: u16) -> bool {
    index % 2 == 1
}

/// A stand-in for the index of the control ring, which depends on the negotiated features.
pub(crate) const CONTROL_RING: u16 = u16::MAX;

/// Returns the name of a ring in messages.
pub(crate) fn ring_name(index: u16) -> String {
    let kind = if is_transmit(index) { "transmit ring" } else { "receive ring" };
    match index / 2 {
        _ if index == CONTROL_RING => "control ring".to_owned(),
        0 => kind.to_owned(),
        pair => format!("{kind} {pair}"),
    }
}
