//! Memory that vanishes in the middle of a turn, of a source whose packets are not the first to be delivered.

use std::sync::Arc;

use straightline_lab::{Guest, GuestOptions};
use straightline_packet::{Arena, Drops, Frame, Gate, PortIndex, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_port::{Port, Sleeper};
use straightline_virtio::net_header::NetHeader;

use crate::common::{arrived, frame, mac, wait_until};

#[test]
fn whoever_is_sound_does_not_speak_for_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let gate = Gate::new();
    let drops = [0, 1, 2].map(|_| Arc::<Drops>::default());
    let ports = [0, 1, 2].map(|n: u16| {
        let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
        let sleeper = Arc::new(Sleeper::new().expect("epoll"));
        VhostUser::open(config, PortIndex(n), Arc::clone(&drops[usize::from(n)]), &gate, sleeper).expect("a socket")
    });
    let mut guests = [0, 1, 2]
        .map(|n| Guest::connect(&dir.path().join(format!("p{n}")), &GuestOptions::default()).expect("a guest"));
    for (from, guest) in guests.iter_mut().enumerate().take(2) {
        let from = u8::try_from(from).expect("few");
        // Two, so that one is left in the ring.
        for _ in 0..2 {
            assert!(guest.send(&NetHeader::default(), &frame(mac(9), mac(from), 1000, from.into())));
        }
        guest.flush();
    }
    wait_until("all links are up", || ports.iter().all(|port| port.status().up));
    let mut arena = Arena::new(gate.member(), Settings::default(), drops.to_vec());
    arena.turn(|turn| {
        let mut frames = [Frame::new(), Frame::new()];
        for (port, frame) in ports.iter().zip(&mut frames) {
            port.receive(turn, frame, 1);
            assert_eq!(frame.len(), 1);
        }
        rustix::fs::ftruncate(guests[0].file(), 0).expect("it is a file");
        // Whoever looks at its ring finds that it has gone.
        ports[0].receive(turn, &mut Frame::new(), 1);
        // The packet of the one that is sound comes first, in a frame of its own.
        ports[2].deliver(turn, &frames[1], false);
        ports[2].deliver(turn, &frames[0], false);
    });
    assert_eq!(drops[2].count(Reason::MemoryFault), 1);
    let got = arrived(&mut guests[2]);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].1, frame(mac(9), mac(1), 1000, 1));
}
