//! After a while, neither the generator's turns nor a forwarding guest's turns allocate memory.

use etherparse::PacketBuilder;
use straightline_guest::endpoints::{Layout as RingLayout, PortOptions, Received, TestPort, VhostPort};
use straightline_lab::guests::forward::{self, Mode, Touch};
use straightline_testing::allocations::{CountingAllocator, allocations};
use straightline_testing::{self as testing, mac, rig};
use straightline_virtio::net_header::NetHeader;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_generator_and_a_guest_that_forwards() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        for (mode, buffer_len) in [(Mode::Io, 2048), (Mode::FiveTupleSwap, 2048), (Mode::Csum, 500), (Mode::Io, 500)] {
            let rig = rig(4, |config| config.patches = vec![testing::patch(0, 1), testing::patch(2, 3)]);
            let ports = PortOptions { layout, buffer_len, queue_size: 64, ..PortOptions::default() };
            let connect = |ports: [usize; 2], options: &PortOptions| {
                let sockets = ports.map(|port| rig.socket(port).clone());
                VhostPort::connect_all(&sockets, options).expect("ports")
            };
            let mut generator = connect([0, 3], &ports);
            let options =
                forward::ForwardOptions { mode, touch: Touch::Read, ports, ..forward::ForwardOptions::default() };
            let mut guest = forward::guest(connect([1, 2], &options.ports), &options).expect("a guest");
            (0..4).for_each(|port| rig.wait_up(port));
            let mut frame = Vec::new();
            let udp = PacketBuilder::ethernet2(mac(0).0, mac(1).0).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
            udp.write(&mut frame, &[7; 1358]).expect("a frame");
            let mut came = 0;
            let header = NetHeader::default();
            let mut exchange = |packets: usize| {
                came = 0;
                let mut sent = 0;
                testing::wait_until("all packets have come", || {
                    let mut moves = true;
                    while moves {
                        let has_room = sent < packets && sent < came + 16;
                        let is_sent = has_room && generator[0].send(0, &header, &frame, &[(60, &[1, 2, 3])]);
                        sent += usize::from(is_sent);
                        generator[0].flush().expect("a sound backend");
                        let moved = guest.turn(0).expect("a sound backend");
                        let received = generator[1].receive(32, &mut |_: &dyn Received| {}).expect("a sound backend");
                        came += received;
                        moves = is_sent || moved + received > 0;
                    }
                    guest.wake();
                    generator.iter_mut().for_each(TestPort::wake);
                    came >= packets
                });
            };
            // By then, each buffer has been used at each place.
            exchange(200);
            assert_eq!(allocations(|| exchange(200)), 0, "{mode}, {layout:?}, buffers of {buffer_len}");
        }
    }
}
