//! Names of rings, as messages say them.

/// Whether a ring is one that its guest transmits by: receive and transmit rings take turns (virtio 1.2, 5.1.2).
pub(crate) fn is_transmit(index: u16) -> bool {
    index % 2 == 1
}

/// Stands for the control ring's index, which depends on what was negotiated.
pub(crate) const CONTROL_RING: u16 = u16::MAX;

/// What messages call a ring.
pub(crate) fn ring_name(index: u16) -> String {
    let kind = if is_transmit(index) { "transmit ring" } else { "receive ring" };
    match index / 2 {
        _ if index == CONTROL_RING => "control ring".to_owned(),
        0 => kind.to_owned(),
        pair => format!("{kind} {pair}"),
    }
}
