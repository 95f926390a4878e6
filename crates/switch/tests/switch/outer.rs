//! Packets with outer headers reach a guest in segments, whatever the guest takes. Each segment is
//! compared with one that is built from its fields alone.

use straightline_config::NodeConfig;
use straightline_graph::{Next, Node};
use straightline_guest::GuestOptions;
use straightline_packet::{Batch, Outer, OuterChecksum, Packets};
use straightline_testing::packets::{Kind, NEEDS_CSUM};
use straightline_testing::{BASIC, mac, noise, patch, rig, take};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::checksum;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

use crate::segments::{CSUM, Packet, SEND, TAKE, guest};

/// A tunnel header, as of VXLAN.
const TUNNEL: [u8; 8] = [8, 0, 0, 0, 0x12, 0x34, 0x56, 0];
const HEADERS: u16 = 14 + 20 + 8 + 8;

/// Returns the headers of a tunnel around a packet with these bytes.
fn around(inner: &[u8]) -> Vec<u8> {
    let payload = [&TUNNEL, inner].concat();
    let headers = Frame {
        src: mac(3),
        dst: mac(4),
        tags: [None, None],
        net: Net::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into(), ident: 0, ttl: 64 },
        transport: Transport::Udp { src_port: 50_000, dst_port: 4789 },
        payload_len: u16::try_from(payload.len()).expect("short"),
    };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Complete { payload_sum: checksum::sum(&payload) }).expect("good headers");
    bytes.extend(TUNNEL);
    assert_eq!(bytes.len(), usize::from(HEADERS));
    bytes
}

/// Puts the headers of a tunnel around packets that are still to be segmented.
#[derive(Clone)]
struct Around;

impl Node for Around {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let outer = Outer { l3: 14, checksum: OuterChecksum::Udp { l4: 34 }, gtpu: None };
        for &id in batch.ids() {
            packets.prepend_outer(id, &around(&[]), outer).expect("a packet of the test");
        }
        next.extend(0, batch.ids());
    }
}

#[test]
fn no_guest_gets_outer_headers_around_an_unsegmented_packet() {
    for features in [0, CSUM, CSUM | TAKE] {
        // A segment fits into one buffer, or needs several.
        for buffer_len in [2048, 500] {
            let rig = rig(2, |config| {
                config.patches.push(patch(0, 1));
                config.nodes.push(NodeConfig::new("around", "around", Around));
                config.ports[1].egress_nodes = vec!["around".to_owned()];
            });
            let mut source = guest(&rig, 0, CSUM | SEND);
            let features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | features;
            let options = GuestOptions { features, buffer_len, ring_size: 256, ..GuestOptions::default() };
            let mut sink = rig.guest(1, &options);
            let is_partial = features & CSUM == CSUM;
            for kind in Kind::ALL {
                for (len, size) in [(5000, 1000), (5001, 1000), (1001, 1000), (30_000, 1301)] {
                    let packet = Packet::new(kind, 0, noise(len as u64, len));
                    packet.send(&mut source, size);
                    let sent = packet.header(size);
                    let segments = packet.segments(size);
                    for ((header, frame), segment) in take(&mut sink, segments.len()).into_iter().zip(segments) {
                        // The outer checksum is right once the inner one is finished.
                        let expected = [around(&segment.frame(false)), segment.frame(is_partial)].concat();
                        assert!(frame == expected, "{kind:?}: {frame:x?}\nshould be\n{expected:x?}");
                        let num_buffers = u16::try_from((12 + frame.len()).div_ceil(buffer_len as usize)).expect("few");
                        let mut told = NetHeader { num_buffers, ..NetHeader::default() };
                        if is_partial {
                            told.flags = NEEDS_CSUM;
                            (told.csum_start, told.csum_offset) = (sent.csum_start + HEADERS, sent.csum_offset);
                        }
                        assert_eq!(header, told);
                    }
                }
            }
            rig.no_drops();
        }
    }
}
