//! Guests and stations that use up what the switch answers and tells, so that others get none of it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_guest::Guest;
use straightline_testing::{BROADCAST, arrived, frame, mac, pause, send, take, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::vlan::Tag;
use straightline_wire::{EtherType, MacAddr, arp};

use crate::network::{LEFT_IP, Network, STRANGER};

/// Returns an ARP request.
fn question(by: MacAddr, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let operation = arp::Operation::REQUEST;
    let target_mac = MacAddr::default();
    let question = arp::Repr { operation, sender_mac: by, sender_ip: sender, target_mac, target_ip: target };
    let mut bytes = [&BROADCAST.0[..], &by.0, &[8, 6], &[0; arp::LEN]].concat();
    question.emit(&mut bytes[14..]).expect("enough space");
    bytes
}

/// Returns a UDP packet of 1500 bytes in a frame with a tag. Ports of guests take it, and the tunnel
/// of the test does not.
fn long(dst: MacAddr, src: MacAddr) -> Vec<u8> {
    let net = Net::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let transport = Transport::Udp { src_port: 1000, dst_port: 2000 };
    let tag = Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid: 7 };
    let headers = Frame { src, dst, tags: [Some(tag), None], net, transport, payload_len: 1500 - 28 };
    let mut bytes = vec![0; 1518];
    headers.emit(&mut bytes, Checksum::Zero).expect("headers");
    bytes
}

/// Sets a flag when it is dropped, so that a test which fails ends its threads.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `f` while a guest sends these frames as fast as it can.
fn under_a_flood<T>(mut guest: Guest, frames: &[Vec<u8>], f: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut sent = frames.iter().filter(|frame| guest.send(&NetHeader::default(), frame)).count();
                guest.flush();
                sent += arrived(&mut guest).len();
                if sent == 0 {
                    pause();
                }
            }
        });
        let _stop = SetAtEnd(&stop);
        f()
    })
}

/// The guest of one tunnel of IP asks all the time. The guest of another one gets all its answers,
/// whichever tunnel a turn serves first.
#[test]
fn the_questions_of_one_tunnel_leave_others_theirs() {
    questions_of_one_tunnel("x", "y", "g2");
    questions_of_one_tunnel("y", "x", "g1");
}

fn questions_of_one_tunnel(attacker: &str, victim: &str, quiet: &str) {
    let ends = "kind = \"gtpu\"\nunderlay = \"left\"\nremote = \"192.0.2.2\"";
    let more = format!(
        "[port.g1]\n{ends}\nteid = 1\n[port.g2]\n{ends}\nteid = 2\n\
         [patch.x]\nports = [\"x\", \"g1\"]\n[patch.y]\nports = [\"y\", \"g2\"]\n"
    );
    let scene = Network::with(&["x", "y"], &more);
    let attacker = scene.guest(attacker);
    let mut victim = scene.guest(victim);
    let asks: Vec<_> = (2..66).map(|n| question(mac(9), [10, 0, 0, 1].into(), [10, 0, 0, n].into())).collect();
    let refused = || scene.drops("g1", "answer-limit") + scene.drops("g2", "answer-limit");
    under_a_flood(attacker, &asks, || {
        wait_until("a flood", || refused() > 1000);
        // On a busy machine the flood pauses, and questions that come meanwhile show nothing.
        let mut asked = 0;
        while asked < 40 || refused() < 10_000 {
            let n = 2 + u8::try_from(asked % 200).expect("less than 200");
            send(&mut victim, &question(mac(8), [10, 9, 0, 1].into(), [10, 9, 0, n].into()));
            let answer = &take(&mut victim, 1)[0].1;
            assert_eq!((&answer[..6], &answer[28..32]), (&mac(8).0[..], &[10, 9, 0, n][..]));
            asked += 1;
            assert!(asked < 1_000_000, "the flood has ended");
        }
        scene.go_on();
    });
    // The rest of the flood may still be in a ring, so only the counter of the other tunnel stands still.
    assert_eq!(scene.drops(quiet, "answer-limit"), 0, "only the attacker's questions were refused");
    scene.end();
}

/// A guest of a bridge sends packets that are too long for a tunnel, and frames that are no IP
/// packets. Another guest of the bridge is told what fits.
#[test]
fn the_errors_of_one_port_leave_others_theirs() {
    let far = mac(0x77);
    // 1600 bytes of the underlay without 98 of headers leave 1502 inside, or 1498 with a tag.
    let options = format!("01020306{}", "05".repeat(24));
    let more = format!(
        "[port.t9]\nkind = \"geneve\"\nunderlay = \"left\"\nremote = \"2001:db8::2\"\nvni = 9\noptions = \"{options}\"\n\
         [bridge.two]\nports = [\"x\", \"y\", \"t9\"]\nstatic = {{ \"{far}\" = \"t9\" }}\n"
    );
    let scene = Network::with(&["x", "y"], &more);
    let attacker = scene.guest("x");
    let mut victim = scene.guest("y");
    let mut other = frame(far, mac(9), 1518, 1);
    other.splice(12..14, [0x81, 0, 0, 7, 0x88, 0xb5]).for_each(drop);
    other.truncate(1518);
    let refused = || scene.port("t9").tunnel.map_or(0, |tunnel| tunnel.errors_refused);
    under_a_flood(attacker, &[other, long(far, mac(9))], || {
        wait_until("a flood", || refused() > 100);
        for _ in 0..8 {
            send(&mut victim, &long(far, mac(8)));
            let told = &take(&mut victim, 1)[0].1;
            // ICMP: destination unreachable, fragmentation needed.
            assert_eq!((&told[..6], told[27], &told[38..40]), (&mac(8).0[..], 1, &[3, 4][..]));
            assert_eq!(told[44..46], 1498_u16.to_be_bytes());
        }
        scene.go_on();
    });
    scene.end();
}

/// A station of the underlay's network asks for its address all the time. Others get their answers.
#[test]
fn the_questions_of_one_station_leave_others_theirs() {
    let scene = Network::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asks = question(STRANGER, [192, 0, 2, 66].into(), LEFT_IP);
            while !stop.load(Ordering::Relaxed) {
                scene.inject(asks.clone());
            }
        });
        let _stop = SetAtEnd(&stop);
        wait_until("a flood", || scene.drops("left", "answer-limit") > 100);
        for n in 0x30..0x38 {
            scene.inject(question(mac(n), [192, 0, 2, n].into(), LEFT_IP));
        }
        // A station has its counter together with the attacker with a probability of 1 in 1024.
        let answered = |n: &u8| scene.seen().iter().any(|frame| frame[..6] == mac(*n).0 && frame[12..14] == [8, 6]);
        wait_until("their answers", || (0x30..0x38).filter(answered).count() >= 7);
    });
    scene.go_on();
    scene.end();
}
