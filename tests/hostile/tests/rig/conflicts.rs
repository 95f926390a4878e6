//! A station of the underlay's network that says all the time that it has the switch's addresses
//! (RFC 5227, RFC 4862).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use straightline_switch::api::EventKind;
use straightline_testing::tunnel::End;
use straightline_testing::{BROADCAST, wait_event, wait_until};
use straightline_wire::{EtherType, IpProtocol, MacAddr, arp, ethernet, icmpv6, ipv6, ndp};

use crate::network::{ATTACKERS_IP, LEFT, LEFT_IP, Network, QUIET_IP, STRANGER};

const LEFT_IP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const TO_ALL: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// Returns an ARP announcement of an address of the switch by this station.
fn claim4(by: MacAddr, ip: Ipv4Addr) -> Vec<u8> {
    let operation = arp::Operation::REPLY;
    let target_mac = BROADCAST;
    let claim = arp::Repr { operation, sender_mac: by, sender_ip: ip, target_mac, target_ip: ip };
    let mut bytes = [&BROADCAST.0[..], &by.0, &[8, 6], &[0; arp::LEN]].concat();
    claim.emit(&mut bytes[14..]).expect("enough space");
    bytes
}

/// Returns an advertisement of the switch's address by this station.
fn claim6(by: MacAddr) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 40 + 32];
    ethernet::Repr { dst: TO_ALL, src: by, ether_type: EtherType::IPV6 }.emit(&mut bytes).expect("a header");
    let header = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 32,
        next_header: IpProtocol::ICMPV6,
        hop_limit: 255,
        src: LEFT_IP6,
        dst: ALL,
    };
    header.emit(&mut bytes[14..]).expect("a header");
    let claim = ndp::Repr {
        kind: ndp::Kind::NeighborAdvertisement,
        flags: ndp::Flags::OVERRIDE,
        target: LEFT_IP6,
        link_address: Some((ndp::OptionType::TARGET_LINK_ADDRESS, by)),
    };
    claim.emit(&mut bytes[54..]).expect("a message");
    icmpv6::fill_checksum(&mut bytes[54..], LEFT_IP6, ALL).expect("a message");
    bytes
}

/// Returns whether a frame on the wire announces the switch's IPv4 or IPv6 address.
fn announces(frame: &[u8]) -> [bool; 2] {
    let ip = LEFT_IP.octets();
    let is_ours = frame[6..12] == LEFT.0;
    let is_arp = frame[12..14] == [8, 6] && frame.get(28..32) == Some(&ip) && frame.get(38..42) == Some(&ip);
    let is_nd = frame[..6] == TO_ALL.0 && frame.get(54) == Some(&136);
    [is_ours && is_arp, is_ours && is_nd]
}

/// Returns the numbers of announcements so far.
fn announcements(scene: &Network) -> [usize; 2] {
    let seen: Vec<_> = scene.seen().iter().map(|frame| announces(frame)).collect();
    [0, 1].map(|at| seen.iter().filter(|frame| frame[at]).count())
}

/// Returns whether an event is about this address.
fn is_conflict(kind: &EventKind, address: IpAddr) -> bool {
    matches!(kind, EventKind::AddressConflict { ip, .. } if *ip == address.to_string())
}

/// Sets a flag when it is dropped, so that a test which fails ends its threads.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn forged_conflicts_cause_one_event_and_few_announcements() {
    let scene = Network::new();
    wait_until("the announcements", || announcements(&scene) == [2, 2]);
    let stop = AtomicBool::new(false);
    // The time is the subject: it limits announcements and events.
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..16).cycle() {
                let station = MacAddr([2, 0, 0, 0, 0xcc, n]);
                scene.inject(claim4(station, LEFT_IP));
                scene.inject(claim6(station));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _stop = SetAtEnd(&stop);
        let claims = || scene.net.switch.source().neighbours().addresses.into_iter().map(|own| own.claims);
        for address in [LEFT_IP.into(), LEFT_IP6.into()] {
            wait_event(&scene.net.switch, "an event", |kind| is_conflict(kind, address));
        }
        wait_until("a flood", || claims().filter(|claims| *claims > 5000).count() == 2);
        // Each of these events is one of a later look at the addresses.
        for address in [ATTACKERS_IP, QUIET_IP] {
            scene.net.inject(End::Right, claim4(STRANGER, address));
            wait_event(&scene.net.switch, "a look", |kind| is_conflict(kind, address.into()));
        }
        wait_until("a defence", || announcements(&scene).iter().all(|count| *count > 2));
        // A conflict is shown as long as it is claimed.
        wait_until("both conflicts are shown", || {
            let own = scene.net.switch.source().neighbours().addresses;
            let in_conflict = own.iter().filter(|own| own.underlay == "left" && own.conflict.is_some()).count();
            if in_conflict == 2 { Ok(()) } else { Err(own) }
        });
        scene.go_on();
    });
    scene.go_on();
    let sent = announcements(&scene);
    let events = scene.net.switch.source().events(0).events;
    // The time is read last, so a pause only raises the bounds.
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a short time");
    // The switch defends an address once in 10 seconds.
    assert!(sent.iter().all(|sent| *sent <= 2 + 2 + seconds / 10), "{sent:?} in {seconds} s");
    // A conflict has the station that was heard first, until that was silent for 30 seconds.
    for address in [LEFT_IP.into(), LEFT_IP6.into()] {
        let told = events.iter().filter(|event| is_conflict(&event.kind, address)).count();
        assert!(told >= 1 && told <= 1 + 2 * (seconds / 30), "{told} events in {seconds} s");
    }
    scene.end();
}
