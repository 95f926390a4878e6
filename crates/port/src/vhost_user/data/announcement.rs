//! The packet that announces a guest that has just migrated here. It is a RARP request in the
//! guest's name, so that bridges learn the new place.
//!
//! A frontend asks for it (SEND_RARP) where the guest's driver does not announce itself. The packet
//! enters the next turn as if the guest had sent it.

use std::sync::atomic::{AtomicU64, Ordering};

use straightline_packet::{PacketId, PortIndex, Turn};

/// Bytes of the packet: the shortest Ethernet frame without its check sequence.
pub(crate) const LEN: usize = 60;

/// A flag beside the address: an announcement is due.
const PENDING: u64 = 1 << 63;

/// The announcement that is due, if any: one address.
#[derive(Debug, Default)]
pub(crate) struct Announcement(AtomicU64);

impl Announcement {
    /// Requests one announcement. If another one is requested before the next turn, only the later
    /// one is sent.
    pub(crate) fn ask(&self, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        self.0.store(PENDING | u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Takes the announcement as a packet from `port`. It stays due if the turn is full.
    #[cold]
    pub(crate) fn take(&self, port: PortIndex, turn: &mut Turn<'_>) -> Option<PacketId> {
        let due = self.0.load(Ordering::Acquire);
        let [_, _, mac @ ..] = due.to_be_bytes();
        let id = turn.accept_owned(port, &frame(mac))?;
        // An announcement that was requested in between stays due.
        let _ = self.0.compare_exchange(due, 0, Ordering::AcqRel, Ordering::Relaxed);
        Some(id)
    }
}

/// Builds a reverse request (RFC 903, in the form of RFC 826) in which an address asks about
/// itself, to the broadcast address.
fn frame(mac: [u8; 6]) -> [u8; LEN] {
    let mut frame = [0; LEN];
    // Cites vhost-user-send-rarp-1.
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // RARP; Ethernet and IPv4 with addresses of 6 and 4 bytes; opcode "request reverse".
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    // The guest's address as sender and as target. The IP addresses are not known and stay zero.
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

#[cfg(test)]
mod tests {
    use straightline_packet::{Arena, Rcu, Settings};

    use super::*;

    // Cites vhost-user-send-rarp-1.
    #[test]
    fn it_is_the_frame_that_qemu_sends() {
        // Captured from QEMU's `announce-self` for 52:54:00:12:34:56.
        let mut expected = vec![0xff; 6];
        let mac = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];
        expected.extend(mac);
        expected.extend([0x80, 0x35, 0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x03]);
        expected.extend(mac);
        expected.extend([0; 4]);
        expected.extend(mac);
        expected.resize(60, 0);
        assert_eq!(frame(mac).to_vec(), expected);
    }

    #[test]
    fn each_is_taken_once_and_none_is_lost_to_a_full_turn() {
        let rcu = Rcu::new();
        let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
        let announcement = Announcement::default();
        assert!(!announcement.is_due());
        announcement.ask([0; 6]);
        announcement.ask([2, 0, 0, 0, 0, 7]);
        arena.turn(|turn| {
            while turn.free_slots() > 0 {
                turn.accept_owned(PortIndex(0), &[0; LEN]).expect("room");
            }
            assert!(announcement.take(PortIndex(3), turn).is_none());
        });
        assert!(announcement.is_due());
        arena.turn(|turn| {
            let id = announcement.take(PortIndex(3), turn).expect("room");
            assert_eq!((turn.port(id), turn.head(id)), (PortIndex(3), &frame([2, 0, 0, 0, 0, 7])[..]));
        });
        assert!(!announcement.is_due());
    }
}
