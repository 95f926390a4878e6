//! Packets of so many buffers that a few of them use up the descriptors of a turn.

use std::sync::atomic::{AtomicBool, Ordering};

use hostile::attacker::{Attacker, Layout};
use straightline_guest::{GuestOptions, Ring};
use straightline_testing::{frame, mac, patch, rig, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::ring::Descriptor;

/// Entries of the attacker's ring, and buffers of each of its packets. Eight of the packets fill a
/// turn.
const SIZE: u16 = 1024;

/// Turns without packets after which a port is quiet, several times over.
const QUIET_TURNS: u64 = 1000;

/// Ends the attack, also if the test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes all entries of the attacker's ring refer to one table, whose buffers have a byte each.
fn fill(attacker: &Attacker) {
    let data = attacker.buffer_address(Ring::Transmit, 100);
    let buffer = |n| Descriptor { addr: data, len: if n == 0 { 12 } else { 1 }, flags: 0, next: 0 };
    let chain: Vec<_> = (0..SIZE).map(buffer).collect();
    let table = attacker.table(attacker.buffer_address(Ring::Transmit, 0).next_multiple_of(16), &chain);
    attacker.publish_all(Ring::Transmit, &vec![&[table][..]; usize::from(SIZE)]);
}

/// The attacker's ring is full all the time. Each packet of a port that was quiet passes.
#[test]
fn packets_of_many_buffers_do_not_starve_a_quiet_port() {
    let rig = rig(4, |config| config.patches.extend([patch(0, 1), patch(2, 3)]));
    let features = GuestOptions::default().features | f::VIRTIO_F_INDIRECT_DESC;
    let options = GuestOptions { features, ring_size: SIZE, withhold: true, ..GuestOptions::default() };
    let attacker = Attacker::connect(rig.socket(0), Layout::Split, &options);
    let _sink = rig.guest(1, &GuestOptions::default());
    let mut quiet = rig.guest(2, &GuestOptions::default());
    let mut receiver = rig.guest(3, &GuestOptions::default());
    rig.wait_up(2);
    fill(&attacker);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                attacker.publish_index(Ring::Transmit, attacker.used_index(Ring::Transmit).wrapping_add(SIZE));
            }
        });
        let _stop = SetAtEnd(stop);
        let calls = |name: &str| {
            let nodes = rig.switch.source().runtime().nodes;
            nodes.into_iter().find(|node| node.name == name).map_or(0, |node| node.calls)
        };
        for n in (0_u64..).take(hostile::repeats(20, 1000)) {
            let before = calls("p0-rx");
            wait_until("the port is quiet", || calls("p0-rx") > before + QUIET_TURNS);
            let packet = frame(mac(3), mac(2), 60, n);
            send(&mut quiet, &packet);
            assert_eq!(take(&mut receiver, 1)[0].1, packet);
        }
    });
}
