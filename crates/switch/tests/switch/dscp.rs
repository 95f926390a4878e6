//! Packets that are marked with a class of service as they enter by a port.

use straightline_config::{Config, PortRules, PortVlans};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::packets::{Kind, check, finish, partial, segmented};
use straightline_testing::{Rig, bridge, frame, mac, noise, patch, rig, take};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{Dscp, VlanId, ipv4, ipv6};

const MARK: u8 = 46;

fn marked(connect: impl FnOnce(&mut Config)) -> Rig {
    rig(2, |config| {
        connect(config);
        config.ports[0].dscp = Dscp::new(MARK);
    })
}

fn guests(rig: &Rig, offloads: u64) -> [Guest; 2] {
    let features = GuestOptions::default().features;
    let from = GuestOptions { features: features | CSUM | TSO, buffer_len: 12_000, ..GuestOptions::default() };
    let to = GuestOptions { features: features | offloads, buffer_len: 12_000, ..GuestOptions::default() };
    [rig.guest(0, &from), rig.guest(1, &to)]
}

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 =
    f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;

/// Returns the class of service of a frame without tags, whose IPv4 checksum must be right.
fn class(frame: &[u8]) -> u8 {
    if frame[12..14] == [8, 0] {
        let header = ipv4::Header::new_checked(&frame[14..]).expect("IPv4");
        assert!(header.checksum_ok(), "the checksum of the header");
        header.tos()
    } else {
        ipv6::Header::new_checked(&frame[14..]).expect("IPv6").traffic_class()
    }
}

fn send(guest: &mut Guest, header: &NetHeader, frame: &[u8]) {
    assert!(guest.send(header, frame), "a free buffer");
    guest.flush();
}

#[test]
fn packets_in_one_direction_are_marked_and_all_their_checksums_are_right() {
    let rig = marked(|config| config.patches.push(patch(0, 1)));
    let [mut a, mut b] = guests(&rig, 0);
    for kind in Kind::ALL {
        let (header, frame) = partial(kind, mac(2), mac(1), &noise(1, 300));
        let mut finished = frame.clone();
        let plain = finish(header, &mut finished);
        // Whole checksums, and such that the switch finishes.
        for (header, frame) in [(plain, &finished), (header, &frame)] {
            send(&mut a, &header, frame);
            let got = take(&mut b, 1).remove(0).1;
            assert_eq!(class(&got), MARK << 2, "{kind:?}");
            assert!(check(&got, false).payload == noise(1, 300), "{kind:?}");
        }
        // The other direction is as it was.
        send(&mut b, &NetHeader::default(), &finished);
        assert!(take(&mut a, 1).remove(0).1 == finished);
    }
    // What is not IP stays as it is.
    let other = frame(mac(2), mac(1), 100, 7);
    send(&mut a, &NetHeader::default(), &other);
    assert!(take(&mut b, 1).remove(0).1 == other);
    rig.no_drops();
    assert_eq!(rig.port(0).dscp.as_deref(), Some("ef"));
}

#[test]
fn each_segment_of_a_large_packet_is_marked() {
    for offloads in [0, CSUM | TSO] {
        let rig = marked(|config| config.patches.push(patch(0, 1)));
        let [mut a, mut b] = guests(&rig, offloads);
        for kind in [Kind::Tcp4, Kind::Tcp6] {
            let (header, frame) = segmented(kind, mac(2), mac(1), &noise(2, 5000), 1000);
            send(&mut a, &header, &frame);
            let count = if offloads == 0 { 5 } else { 1 };
            for (_, got) in take(&mut b, count) {
                assert_eq!(class(&got), MARK << 2, "{kind:?}, {count} packets");
            }
        }
        rig.no_drops();
    }
}

#[test]
fn packets_behind_a_tag_are_marked_and_their_bits_of_congestion_stay() {
    let id = VlanId::new(10).expect("a VLAN");
    let rig = marked(|config| {
        config.bridges.push(bridge(2));
        let rules = |vlans| PortRules { vlans: Some(vlans), ..PortRules::default() };
        config.ports[0].rules = rules(PortVlans { priority: 5, ..PortVlans::access(id) });
        config.ports[1].rules = rules(PortVlans {
            role: straightline_config::VlanRole::Trunk {
                tpid: straightline_wire::EtherType::VLAN,
                vlans: Box::new(std::iter::once(id).collect()),
                native: None,
            },
            priority: 0,
        });
    });
    let [mut a, mut b] = guests(&rig, 0);
    let (header, mut frame) = partial(Kind::Udp4, mac(2), mac(1), &noise(3, 100));
    let header = finish(header, &mut frame);
    let mut ip = ipv4::Header::new_checked(&mut frame[14..]).expect("IPv4");
    ip.set_tos(0b11);
    ip.fill_checksum();
    send(&mut a, &header, &frame);
    let mut got = take(&mut b, 1).remove(0).1;
    // The tag has the port's priority, and the packet its class of service.
    assert_eq!(got.drain(12..16).collect::<Vec<_>>(), [0x81, 0, 5 << 5, 10]);
    assert_eq!(class(&got), MARK << 2 | 0b11);
    // A guest's own tag: here the other port marks.
    let mut config = rig.switch.config();
    config.ports[0].dscp = None;
    config.ports[1].dscp = "af21".parse().ok();
    let changes = rig.switch.reload(&config).expect("a reload").changes;
    let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["port \"p0\" changed: dscp ef is now none", "port \"p1\" changed: dscp none is now af21"]);
    let (header, mut frame) = partial(Kind::Udp6, mac(1), mac(2), &noise(3, 100));
    let header = finish(header, &mut frame);
    frame.splice(12..12, [0x81, 0, 0, 10]);
    send(&mut b, &header, &frame);
    assert_eq!(class(&take(&mut a, 1).remove(0).1), 18 << 2);
}
