//! A source's memory vanishes in the middle of a turn. Packets of another source are delivered
//! first.

use std::sync::Arc;

use straightline_graph::{EpollWaiter, PortControl};
use straightline_guest::{Guest, GuestOptions};
use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::{arrived, frame, mac, wait_until};
use straightline_virtio::net_header::NetHeader;

#[test]
fn whoever_is_sound_does_not_speak_for_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let drops = [0, 1, 2].map(|_| Arc::<Drops>::default());
    let ports = [0, 1, 2].map(|n: u16| {
        let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        VhostUser::open(config, PortIndex(n), Arc::clone(&drops[usize::from(n)]), &rcu, waiter).expect("a socket")
    });
    let mut guests = [0, 1, 2]
        .map(|n| Guest::connect(&dir.path().join(format!("p{n}")), &GuestOptions::default()).expect("a guest"));
    for (from, guest) in guests.iter_mut().enumerate().take(2) {
        let from = u8::try_from(from).expect("few");
        // Two packets, so that one is left in the ring.
        for _ in 0..2 {
            assert!(guest.send(&NetHeader::default(), &frame(mac(9), mac(from), 1000, from.into())));
        }
        guest.flush();
    }
    wait_until("all links are up", || ports.iter().all(|port| port.status().up));
    let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.to_vec());
    let served = ports.each_ref().map(|port| port.for_worker(0));
    arena.turn(|turn| {
        let mut batches = [Batch::new(), Batch::new()];
        for (port, batch) in served.iter().zip(&mut batches) {
            port.receive(turn, batch, 1);
            assert_eq!(batch.len(), 1);
        }
        rustix::fs::ftruncate(guests[0].file(), 0).expect("it is a file");
        // Polling the ring finds that the memory has vanished.
        served[0].receive(turn, &mut Batch::new(), 1);
        // The packet of the intact source comes first, in a batch of its own.
        served[2].deliver(turn, &batches[1], false);
        served[2].deliver(turn, &batches[0], false);
    });
    assert_eq!(drops[2].count(Reason::MemoryFault), 1);
    let got = arrived(&mut guests[2]);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].1, frame(mac(9), mac(1), 1000, 1));
}
