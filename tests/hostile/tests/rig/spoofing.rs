//! A guest that claims the addresses of others on its bridge, at a port with `source-check =
//! "mac"`.

use std::net::{Ipv4Addr, Ipv6Addr};

use hostile::scene::{Scene, measure_gap};
use straightline_config::{BridgeConfig, IpPrefix, Mac, MacPrefix, SourceCheckConfig, StaticEntry};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::packets::NEEDS_CSUM;
use straightline_testing::{Rig, Victims, bridge, frame, mac, nothing, rig, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::ndp::{Kind, OptionType};
use straightline_wire::{IpProtocol, MacAddr, arp, ipv6, ndp};

use crate::once_control::Commander;

/// The attacker's own address.
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// The address that the attacker claims; it is a victim's.
const VICTIM: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xe1]);
const BYSTANDER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// IP addresses of the attacker, and of another station.
const OWN_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const OTHER_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_IP6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 9);
const OTHER_IP6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);

const TAG: [u8; 4] = [0x81, 0, 0, 5];
const SERVICE_TAG: [u8; 4] = [0x88, 0xa8, 0, 6];
const SNAP: [u8; 8] = [0, 64, 0xaa, 0xaa, 3, 0, 0, 0];

/// Ports 0 (the attacker's), 1 (a bystander's, which receives its false packets), 2 and 3 (the
/// victims') on one bridge and one worker.
struct Lan {
    rig: Rig,
    attacker: Guest,
    bystander: Guest,
    victims: Victims,
}

impl Lan {
    fn new(check: Option<SourceCheckConfig>, change: impl FnOnce(&mut BridgeConfig)) -> Lan {
        let rig = rig(4, |config| {
            config.ports[0].source_check = check;
            let mut lan = bridge(4);
            change(&mut lan);
            config.bridges.push(lan);
        });
        let options = GuestOptions::default();
        let features = options.features | f::VIRTIO_NET_F_CSUM;
        let mut attacker = rig.guest(0, &GuestOptions { features, ..options.clone() });
        let mut bystander = rig.guest(1, &options);
        // The bridge learns the port of each station.
        let mut station = rig.guest(3, &options);
        let mut source = rig.guest(2, &options);
        send(&mut station, &frame(BYSTANDER, VICTIM, 60, 1));
        take(&mut bystander, 1);
        take(&mut attacker, 1);
        take(&mut source, 1);
        send(&mut bystander, &frame(VICTIM, BYSTANDER, 60, 1));
        take(&mut station, 1);
        drop((source, station));
        [2, 3].into_iter().for_each(|port| rig.wait_down(port, "waiting for a frontend"));
        let victims = Victims::start(&rig, 2, 3);
        Lan { rig, attacker, bystander, victims }
    }

    /// Starts a switch that checks the attacker's MAC address.
    fn checked() -> Lan {
        Lan::new(Some(check(None)), |_| ())
    }

    /// Asserts that the packets are dropped as spoofed, and that a true packet passes. Also asserts
    /// that all stations stay on their ports, and that no other packet is lost.
    fn drops(&mut self, what: &str, attacks: &[(NetHeader, Vec<u8>)]) {
        let before = self.rig.drops(0, "spoofed");
        for (header, attack) in attacks {
            wait_until("a transmit buffer is free", || {
                self.attacker.flush();
                self.attacker.send(header, attack)
            });
            self.attacker.flush();
        }
        let dropped = u64::try_from(attacks.len()).expect("few");
        wait_until(&format!("{what}: dropped"), || self.rig.drops(0, "spoofed") >= before + dropped);
        assert_eq!(self.rig.drops(0, "spoofed"), before + dropped, "{what}");
        self.passes(what, &frame(BYSTANDER, OWN, 700, before));
        self.nothing_moved(what);
    }

    fn passes(&mut self, what: &str, truth: &[u8]) {
        send(&mut self.attacker, truth);
        assert!(take(&mut self.bystander, 1)[0].1 == truth, "{what}");
    }

    fn nothing_moved(&mut self, what: &str) {
        assert_eq!(self.port_of(VICTIM).as_deref(), Some("p3"), "{what}");
        assert_eq!(self.port_of(BYSTANDER).as_deref(), Some("p1"), "{what}");
        self.victims.go_on();
        nothing(&self.rig.switch, &mut self.attacker);
    }

    fn port_of(&self, mac: MacAddr) -> Option<String> {
        let entries = self.rig.switch.source().fdb().entries;
        entries.into_iter().find(|entry| entry.mac == mac.to_string()).map(|entry| entry.port)
    }

    fn end(self) {
        for port in 1..4 {
            assert!(self.rig.port(port).drops.is_empty(), "{:?}", self.rig.port(port).drops);
        }
        self.victims.finish();
    }
}

/// Returns a check of the attacker's own MAC address, and of IP addresses if there are any.
fn check(ips: Option<Vec<IpPrefix>>) -> SourceCheckConfig {
    SourceCheckConfig { macs: vec![MacPrefix::exact(OWN)], ips }
}

/// Returns the frames with an empty virtio-net header.
fn plain(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(NetHeader, Vec<u8>)> {
    frames.into_iter().map(|frame| (NetHeader::default(), frame)).collect()
}

/// Returns a frame from the attacker's own address to the bystander. `before` precedes the Ethernet
/// type.
fn to_bystander(before: &[u8], payload: &[u8]) -> Vec<u8> {
    [&BYSTANDER.0, &OWN.0, before, payload].concat()
}

/// Returns an ARP message with its Ethernet type.
fn arp(operation: u16, sender_mac: MacAddr, sender_ip: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![8, 6];
    bytes.resize(2 + arp::LEN, 0);
    let operation = arp::Operation(operation);
    let target_mac = BYSTANDER;
    let target_ip = Ipv4Addr::new(10, 0, 0, 2);
    arp::Repr { operation, sender_mac, sender_ip, target_mac, target_ip }.emit(&mut bytes[2..]).expect("enough space");
    bytes.resize(2 + 46, 0);
    bytes
}

/// Returns an IPv6 packet with its Ethernet type.
fn packet(src: Ipv6Addr, next_header: IpProtocol, parts: &[&[u8]]) -> Vec<u8> {
    let rest = parts.concat();
    let payload_len = u16::try_from(rest.len()).expect("short");
    let dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let repr = ipv6::Repr { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit: 255, src, dst };
    let mut bytes = vec![0x86, 0xdd];
    bytes.resize(2 + ipv6::LEN, 0);
    repr.emit(&mut bytes[2..]).expect("enough space");
    bytes.extend(rest);
    bytes
}

/// Returns a message of neighbour discovery.
fn message(kind: Kind, target: Ipv6Addr, option: OptionType, mac: MacAddr) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    let len = ndp::Repr { kind, flags: ndp::Flags::NONE, target, link_address: Some((option, mac)) }
        .emit(&mut bytes)
        .expect("enough space");
    bytes.truncate(len);
    bytes
}

fn advertisement(mac: MacAddr) -> Vec<u8> {
    message(Kind::NeighborAdvertisement, OTHER_IP6, OptionType::TARGET_LINK_ADDRESS, mac)
}

/// Returns destination options of 8 bytes, and `units` times 8 more.
fn options(next_header: IpProtocol, units: u8) -> Vec<u8> {
    let mut bytes = vec![0; 8 + 8 * usize::from(units)];
    bytes[..2].copy_from_slice(&[next_header.0, units]);
    bytes
}

fn fragment(next_header: IpProtocol, more: bool) -> [u8; 8] {
    [next_header.0, 0, 0, u8::from(more), 0, 0, 0, 7]
}

#[test]
fn by_the_source_of_a_frame() {
    let mut lan = Lan::checked();
    let tagged = |tags: &[[u8; 4]]| {
        let mut frame = frame(BYSTANDER, VICTIM, 100, 1);
        frame.splice(12..12, tags.concat());
        frame
    };
    let attacks = [tagged(&[]), tagged(&[TAG]), tagged(&[SERVICE_TAG, TAG])];
    lan.drops("the source", &plain(attacks));
    // Addresses other than the attacker's own, each followed by a true packet.
    let attacks = (10..60).map(|n| frame(VICTIM, mac(n), 60, 1));
    lan.drops("invented sources", &plain(attacks));
    assert_eq!(lan.rig.port(0).addresses.map(|addresses| addresses.learned), Some(1), "only its own is learned");
    lan.end();
}

#[test]
fn by_arp() {
    let mut lan = Lan::checked();
    for before in [&[][..], &TAG, &[SERVICE_TAG, TAG].concat(), &[TAG; 4].concat(), &SNAP, &[&TAG[..], &SNAP].concat()]
    {
        let attacks = [1, 2, 3, 4].map(|operation| to_bystander(before, &arp(operation, VICTIM, OTHER_IP)));
        lan.drops("ARP", &plain(attacks));
        lan.passes("true ARP", &to_bystander(before, &arp(2, OWN, OWN_IP)));
    }
    let mut reverse = arp(3, VICTIM, Ipv4Addr::UNSPECIFIED);
    reverse[..2].copy_from_slice(&[0x80, 0x35]);
    lan.drops("RARP", &plain([to_bystander(&[], &reverse)]));
    lan.end();
}

#[test]
fn by_neighbour_discovery() {
    let mut lan = Lan::checked();
    let kinds = [
        Kind::RouterSolicitation,
        Kind::RouterAdvertisement,
        Kind::NeighborSolicitation,
        Kind::NeighborAdvertisement,
        Kind::Redirect,
    ];
    let sent_by = |mac| {
        let messages = kinds.into_iter().flat_map(move |kind| {
            let options = [OptionType::SOURCE_LINK_ADDRESS, OptionType::TARGET_LINK_ADDRESS];
            options.map(|option| message(kind, OTHER_IP6, option, mac))
        });
        messages.map(|message| packet(OWN_IP6, IpProtocol::ICMPV6, &[&message])).collect::<Vec<_>>()
    };
    for before in [&[][..], &TAG, &[SERVICE_TAG, TAG].concat(), &SNAP] {
        lan.drops("neighbour discovery", &plain(sent_by(VICTIM).iter().map(|packet| to_bystander(before, packet))));
        sent_by(OWN).iter().for_each(|packet| lan.passes("true messages", &to_bystander(before, packet)));
    }
    lan.end();
}

/// Claims behind extension headers that end beyond the bytes that are first copied into a slot, and
/// beyond a whole slot.
#[test]
fn by_what_stands_deep_in_a_packet() {
    let mut lan = Lan::checked();
    let deep = |units, mac| {
        let parts = [options(IpProtocol::ICMPV6, units), advertisement(mac)].concat();
        to_bystander(&[], &packet(OWN_IP6, IpProtocol::DESTINATION_OPTIONS, &[&parts]))
    };
    // The last byte of the address is the 254th, the 262nd, and so on.
    for units in [0, 20, 21, 22, 23, 24, 25, 40, 52] {
        lan.drops("deep", &plain([deep(units, VICTIM)]));
        lan.passes("deep and true", &deep(units, OWN));
    }
    for units in [53, 80] {
        lan.drops("deeper than a head", &plain([deep(units, VICTIM), deep(units, OWN)]));
    }
    lan.end();
}

/// Claims in fragments. Receivers should ignore fragments of neighbour discovery (RFC 6980), but
/// not all do.
#[test]
fn by_fragments() {
    let mut lan = Lan::checked();
    for mac in [VICTIM, OWN] {
        let message = advertisement(mac);
        let sent_by = |parts: &[&[u8]]| to_bystander(&[], &packet(OWN_IP6, IpProtocol::FRAGMENT, parts));
        let attacks = [
            sent_by(&[&fragment(IpProtocol::ICMPV6, true), &message[..24]]),
            sent_by(&[&fragment(IpProtocol::ICMPV6, false), &message]),
            sent_by(&[
                &fragment(IpProtocol::DESTINATION_OPTIONS, true),
                &options(IpProtocol::ICMPV6, 0),
                &message[..24],
            ]),
            sent_by(&[&fragment(IpProtocol::DESTINATION_OPTIONS, true), &options(IpProtocol::ICMPV6, 0)]),
            sent_by(&[&fragment(IpProtocol::FRAGMENT, false), &fragment(IpProtocol::ICMPV6, false), &message]),
        ];
        lan.drops("fragments", &plain(attacks));
        lan.passes("a fragment of UDP", &sent_by(&[&fragment(IpProtocol::UDP, true), &[9; 64]]));
    }
    lan.end();
}

/// Claims written by a checksum. The receiver accepts no partial checksums, so the switch writes
/// the sum at the position that the attacker names.
#[test]
fn by_a_checksum_over_what_was_compared() {
    let mut lan = Lan::checked();
    let with = |csum_start, field, frame: Vec<u8>| {
        (NetHeader { flags: NEEDS_CSUM, csum_start, csum_offset: field - csum_start, ..NetHeader::default() }, frame)
    };
    let truth = to_bystander(&[], &arp(2, OWN, OWN_IP));
    let neighbour = to_bystander(&[], &packet(OWN_IP6, IpProtocol::ICMPV6, &[&advertisement(OWN)]));
    // This frame becomes ARP when the sum is written over its type.
    let mut hidden = to_bystander(&SNAP, &arp(2, VICTIM, OTHER_IP));
    hidden[20..22].copy_from_slice(&[0x88, 0xb5]);
    let echo = [128, 0, 0, 0].into_iter().chain([1; 28]).collect::<Vec<_>>();
    let echo = to_bystander(&[], &packet(OWN_IP6, IpProtocol::ICMPV6, &[&echo]));
    let attacks = [
        with(14, 22, truth.clone()),
        with(14, 26, truth.clone()),
        with(14, 20, hidden),
        with(14, 80, neighbour),
        with(14, 54, echo),
    ];
    lan.drops("checksums", &attacks);
    lan.passes("true ARP", &truth);
    lan.end();
}

/// Claims of another station's IP address with the attacker's own MAC address. Only a list of IP
/// addresses finds them.
#[test]
fn by_ip_addresses() {
    let listed = vec![IpPrefix::exact(OWN_IP.into())];
    let mut lan = Lan::new(Some(check(Some(listed))), |_| ());
    let solicits = |src, target| {
        packet(
            src,
            IpProtocol::ICMPV6,
            &[&message(Kind::NeighborSolicitation, target, OptionType::SOURCE_LINK_ADDRESS, OWN)],
        )
    };
    let advertises = |src, target| {
        packet(
            src,
            IpProtocol::ICMPV6,
            &[&message(Kind::NeighborAdvertisement, target, OptionType::TARGET_LINK_ADDRESS, OWN)],
        )
    };
    let attacks = [
        arp(1, OWN, OTHER_IP),
        arp(2, OWN, OTHER_IP),
        packet(OTHER_IP6, IpProtocol::UDP, &[&[0; 8]]),
        solicits(OTHER_IP6, OWN_IP6),
        solicits(Ipv6Addr::UNSPECIFIED, OTHER_IP6),
        advertises(OWN_IP6, OTHER_IP6),
    ];
    for before in [&[][..], &TAG, &SNAP] {
        lan.drops("IP addresses", &plain(attacks.iter().map(|attack| to_bystander(before, attack))));
    }
    // The attacker's own addresses pass. So does the link-local address that is derived from its
    // MAC address.
    for truth in [arp(2, OWN, OWN_IP), solicits(OWN_IP6, OTHER_IP6), advertises(OWN_IP6, OWN_IP6)] {
        lan.passes("its own", &to_bystander(&[], &truth));
    }
    lan.end();
}

/// The attacker's frontend announces another station's address.
#[test]
fn by_an_announcement() {
    let mut lan = Lan::checked();
    let before = lan.rig.drops(0, "spoofed");
    lan.attacker.client().send_rarp(VICTIM.0).expect("an announcement");
    lan.rig.wait_drops(0, "spoofed", before + 1);
    lan.nothing_moved("an announcement");
    lan.end();
}

/// An address that a guest sets by its control queue gives it no permission.
#[test]
fn by_an_address_that_the_guest_sets() {
    let mut scene = Scene::new();
    let mut config = scene.rig.switch.config();
    config.ports[0].source_check = Some(check(None));
    scene.rig.switch.reload(&config).expect("a reload");
    let (mut guest, mut commander) = Commander::new(&scene, 1);
    // VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET (virtio 1.2, 5.1.6.5.2).
    let command = [&[1, 1][..], &VICTIM.0].concat();
    assert_eq!(commander.send(&guest, &command), 0);
    wait_until("it is shown", || {
        scene.rig.port(0).rx_mode.and_then(|mode| mode.mac).is_some_and(|mac| mac == VICTIM.to_string())
    });
    send(&mut guest, &frame(BYSTANDER, VICTIM, 60, 1));
    scene.rig.wait_drops(0, "spoofed", 1);
    send(&mut guest, &frame(BYSTANDER, OWN, 60, 1));
    assert_eq!(take(&mut scene.good, 1).len(), 1);
    scene.victims.go_on();
    drop(guest);
    scene.end();
}

/// A static entry keeps its station on its port, without a source check.
#[test]
fn a_static_entry_is_not_moved() {
    let mut lan = Lan::new(None, |lan| {
        lan.statics =
            vec![StaticEntry { mac: Mac::new(VICTIM.0).expect("a station"), port: "p3".to_owned(), vlan: None }];
    });
    for n in 0..50 {
        let claim = frame(BYSTANDER, VICTIM, 60, n);
        lan.passes("from a false source", &claim);
    }
    lan.nothing_moved("a static entry");
    lan.end();
}

/// Claims of every kind, as fast as the attacker can send them.
#[test]
fn a_flood_of_claims() {
    let mut lan = Lan::checked();
    let attacks = [
        frame(BYSTANDER, VICTIM, 60, 1),
        to_bystander(&[TAG; 4].concat(), &arp(2, VICTIM, OTHER_IP)),
        to_bystander(&SNAP, &packet(OWN_IP6, IpProtocol::ICMPV6, &[&advertisement(VICTIM)])),
        to_bystander(
            &[],
            &packet(
                OWN_IP6,
                IpProtocol::DESTINATION_OPTIONS,
                &[&options(IpProtocol::ICMPV6, 27), &advertisement(VICTIM)],
            ),
        ),
    ];
    let attacks = plain((0..hostile::repeats(500, 50_000)).flat_map(|_| attacks.clone()));
    let Lan { rig, attacker, victims, .. } = &mut lan;
    measure_gap(victims, "a flood of false claims", || {
        for (header, attack) in &attacks {
            wait_until("a transmit buffer is free", || {
                attacker.flush();
                attacker.send(header, attack)
            });
        }
        attacker.flush();
        let all = u64::try_from(attacks.len()).expect("a number");
        wait_until("all are dropped", || rig.drops(0, "spoofed") == all);
    });
    lan.nothing_moved("a flood");
    lan.end();
}
