//! Packet sockets on interfaces of this machine.

use straightline_testing::host::{Host, af_packet};
use straightline_testing::packets::{Kind, NEEDS_CSUM, partial, segmented};
use straightline_testing::{self as testing, Rig, mac, noise, rig};
use straightline_virtio::net_header::NetHeader;

use crate::tap::{attach, bursts_pass, large_packets_pass, options, packets_pass_unchanged, take_some};

/// Two guests, each with one end of a veth pair, and a Linux bridge that joins the other ends.
fn bridged(host: &Host, queues: u16) -> Rig {
    host.ip("link add br0 type bridge mcast_snooping 0");
    host.ip("link set br0 up");
    for (ours, theirs) in [("va0", "va1"), ("vb0", "vb1")] {
        host.ip(&format!("link add {ours} type veth peer name {theirs}"));
        host.ip(&format!("link set {theirs} master br0 up"));
        host.ip(&format!("link set {ours} up"));
    }
    let rig = rig(2, |config| {
        attach(config, 0, af_packet("va0", queues));
        attach(config, 1, af_packet("vb0", queues));
    });
    // A bridge port forwards nothing before its link is up.
    testing::wait_until("the bridge forwards", || {
        let ports = host.run("bridge", "link show");
        ports.matches("state forwarding").count() == 2
    });
    rig
}

#[test]
fn packets_pass_a_veth_pair_unchanged() {
    let Some(host) = Host::new("packets_pass_a_veth_pair_unchanged") else { return };
    let rig = bridged(&host, 1);
    packets_pass_unchanged(&rig);
    bursts_pass(&rig);
    let device = rig.port(2).device.expect("a device");
    assert_eq!((device.interface.as_str(), device.driver.as_str(), device.mtu), ("va0", "veth", 1500));
    assert_eq!(device.kernel_drops.get("tp_drops"), Some(&0));
}

#[test]
fn large_packets_and_checksums_pass_packet_sockets_as_they_are() {
    let Some(host) = Host::new("large_packets_and_checksums_pass_packet_sockets_as_they_are") else { return };
    large_packets_pass(&bridged(&host, 1));
}

#[test]
fn flows_are_distributed_to_several_sockets() {
    let Some(host) = Host::new("flows_are_distributed_to_several_sockets") else { return };
    let rig = bridged(&host, 2);
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    for flow in 0..64_u16 {
        let (mut header, mut frame) = partial(Kind::Udp4, mac(2), mac(1), &noise(flow.into(), 100));
        // The ports are summed over, so the checksum is left to be finished.
        frame[34..36].copy_from_slice(&(1000 + flow).to_be_bytes());
        header.num_buffers = 0;
        assert!(a.send(&header, &frame));
        a.flush();
        let (told, bytes) = take_some(&mut b);
        assert!(bytes == frame && told.flags == NEEDS_CSUM, "flow {flow}");
    }
    rig.no_drops();
    let queues = rig.port(3).queues;
    let received: Vec<_> = queues.iter().map(|queue| queue.rx.packets).collect();
    assert!(received.len() == 2 && received.iter().all(|&packets| packets > 0), "{received:?}");
    assert_eq!(received.iter().sum::<u64>(), 64);
}

/// The kernel takes the outer tag out of a packet that it receives, and passes it beside the data.
#[test]
fn vlan_tags_are_put_back() {
    let Some(host) = Host::new("vlan_tags_are_put_back") else { return };
    let rig = bridged(&host, 1);
    tagged_packets_pass(&rig);
}

/// Sends packets with one tag and with two from one guest to the other.
pub(crate) fn tagged_packets_pass(rig: &Rig) {
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    let one: &[u8] = &[0x81, 0, 0xa0, 5];
    let two: &[u8] = &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5];
    for tags in [one, two] {
        // A plain packet of the longest length. A packet socket sends none that is longer because of
        // two tags.
        let plain = testing::frame(mac(2), mac(1), if tags == one { 1514 } else { 1514 - tags.len() }, 1);
        let shift = u16::try_from(tags.len()).expect("short");
        let moved = |(header, frame): (NetHeader, Vec<u8>)| {
            let tagged = [&frame[..12], tags, &frame[12..]].concat();
            (NetHeader { csum_start: header.csum_start + shift, hdr_len: header.hdr_len + shift, ..header }, tagged)
        };
        let (_, tagged) = moved((NetHeader::default(), plain));
        for (header, frame) in [
            (NetHeader::default(), tagged),
            moved(partial(Kind::Udp4, mac(2), mac(1), &noise(2, 300))),
            moved(partial(Kind::Tcp6, mac(2), mac(1), &noise(3, 1000))),
            moved(segmented(Kind::Tcp4, mac(2), mac(1), &noise(4, 20_000), 1400)),
        ] {
            assert!(a.send(&header, &frame));
            a.flush();
            let (told, bytes) = take_some(&mut b);
            assert!(bytes == frame, "{} bytes with tags {tags:?}", frame.len());
            assert_eq!((told.flags, told.gso_type, told.gso_size), (header.flags, header.gso_type, header.gso_size));
            if header.flags == NEEDS_CSUM {
                assert_eq!((told.csum_start, told.csum_offset), (header.csum_start, header.csum_offset));
            }
        }
    }
    rig.no_drops();
}

#[test]
fn an_interface_that_goes_and_comes_back_is_used_again() {
    let Some(host) = Host::new("an_interface_that_goes_and_comes_back_is_used_again") else { return };
    let rig = rig(1, |config| attach(config, 0, af_packet("va0", 1)));
    rig.wait_down(1, "interface va0 does not exist");
    host.ip("link add va0 type veth peer name va1");
    host.ip("link set va1 up");
    rig.wait_down(1, "interface va0 is down; set it up with `ip link set va0 up`");
    for up in [true, false, true] {
        host.ip(if up { "link set va0 up" } else { "link set va0 down" });
        if up { rig.wait_up(1) } else { rig.wait_down(1, "va0") }
    }
    host.ip("link del va0");
    rig.wait_down(1, "interface va0 does not exist");
}
