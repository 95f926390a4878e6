//! Nodes in `egress-nodes` of a bridge's ports change packets, and each port sees its own changes.

use straightline_graph::{Next, Node};
use straightline_guest::{Guest, GuestOptions};
use straightline_packet::{Batch, PacketId, Packets, Reason};
use straightline_switch::config::{Config, Machine, NodeConfig};
use straightline_testing::{BROADCAST, Rig, bridge, frame, mac, nothing, rig, send, take};

/// The change that a node makes to each packet.
#[derive(Clone, Copy)]
enum Change {
    /// Pulls bytes up, and writes all of the head.
    Fill,
    /// Cuts bytes off from the front and from the end.
    Cut,
    /// Puts bytes in front.
    Lengthen,
    Drop,
}

impl Change {
    const ALL: [(&'static str, Change); 4] =
        [("fill", Change::Fill), ("cut", Change::Cut), ("lengthen", Change::Lengthen), ("drop", Change::Drop)];

    fn change(self, packets: &mut Packets<'_>, id: PacketId) -> bool {
        match self {
            Change::Fill => {
                let len = packets.len(id) as usize;
                packets.pull_up(id, len.min(400));
                packets.head_mut(id).fill(0xaa);
                true
            }
            Change::Cut => packets.truncate(id, packets.len(id) - 10) && packets.strip(id, 20).is_ok(),
            Change::Lengthen => packets.prepend(id, &[0xbb; 20]).is_ok(),
            Change::Drop => false,
        }
    }

    /// Does the same with all bytes of a packet.
    fn expected(self, mut packet: Vec<u8>) -> Option<Vec<u8>> {
        let len = packet.len();
        match self {
            Change::Fill => packet[..len.min(400)].fill(0xaa),
            Change::Cut => packet = packet[20..len - 10].to_vec(),
            Change::Lengthen => drop(packet.splice(..0, [0xbb; 20])),
            Change::Drop => return None,
        }
        Some(packet)
    }
}

impl Node for Change {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            if self.change(packets, id) {
                next.push(0, id);
            } else {
                packets.discard(id, Reason::Node);
            }
        }
    }
}

fn mirror_to(port: usize) -> NodeConfig {
    let text = format!(
        "[port.p{port}]\nkind = \"vhost-user\"\nsocket = \"/tmp/p\"\n[node.m]\nkind = \"mirror\"\nto = \"p{port}\"\n"
    );
    Config::parse("mirror.toml", &text, &Machine::this()).expect("a good file").config.nodes.remove(0)
}

/// A bridge of a sender, a port without nodes, a port for each change, and a last one without nodes.
fn changed_rig(change: impl FnOnce(&mut Config)) -> (Rig, Guest, [Guest; 6]) {
    let rig = rig(8, |config| {
        config.bridges.push(bridge(7));
        for ((name, node), port) in Change::ALL.into_iter().zip(2..) {
            config.nodes.push(NodeConfig::new(name, name, node));
            config.ports[port].egress_nodes = vec![name.to_owned()];
        }
        change(config);
    });
    let options = GuestOptions { ring_size: 1024, ..GuestOptions::default() };
    let sender = rig.guest(0, &options);
    let guests = [1, 2, 3, 4, 5, 6].map(|port| rig.guest(port, &options));
    (rig, sender, guests)
}

#[test]
fn each_port_of_a_flood_sees_the_changes_of_its_own_nodes() {
    let (rig, mut sender, mut guests) = changed_rig(|_| ());
    // Packets within a head, with a body, and shorter and longer than what is pulled up.
    let sent: Vec<_> = (0..).zip([60, 300, 1400, 256, 411, 1200, 100]).collect();
    let sent: Vec<_> = sent.into_iter().map(|(n, len)| frame(BROADCAST, mac(1), len, n)).collect();
    sent.iter().for_each(|frame| send(&mut sender, frame));
    let changes = Change::ALL.map(|(_, change)| Some(change));
    let changes = [None].into_iter().chain(changes).chain([None]);
    for (guest, change) in guests.iter_mut().zip(changes) {
        let expected = |frame: &Vec<u8>| match change {
            Some(change) => change.expected(frame.clone()),
            None => Some(frame.clone()),
        };
        let expected: Vec<_> = sent.iter().filter_map(expected).collect();
        let got: Vec<_> = take(guest, expected.len()).into_iter().map(|(_, frame)| frame).collect();
        assert!(got == expected);
        nothing(&rig.switch, guest);
    }
    rig.wait_drops(0, "node", sent.len() as u64);
}

#[test]
fn a_mirror_among_the_nodes_sees_the_packet_at_its_place() {
    let (rig, mut sender, mut guests) = changed_rig(|config| {
        config.nodes.push(mirror_to(7));
        config.ports[2].egress_nodes = ["m", "fill", "lengthen"].map(str::to_owned).to_vec();
        config.ports[4].egress_nodes = ["lengthen", "m"].map(str::to_owned).to_vec();
    });
    let mut watcher = rig.guest(7, &GuestOptions::default());
    let own = frame(BROADCAST, mac(1), 900, 3);
    send(&mut sender, &own);
    let [filled, longer] = [Change::Fill, Change::Lengthen].map(|change| change.expected(own.clone()).expect("none"));
    assert!(take(&mut guests[1], 1)[0].1 == Change::Lengthen.expected(filled).expect("none"));
    assert!(take(&mut guests[3], 1)[0].1 == longer);
    let mut copies: Vec<_> = take(&mut watcher, 2).into_iter().map(|(_, frame)| frame).collect();
    copies.sort();
    let mut expected = vec![own.clone(), longer];
    expected.sort();
    assert!(copies == expected);
    for guest in [0, 5] {
        assert!(take(&mut guests[guest], 1)[0].1 == own);
    }
    nothing(&rig.switch, &mut watcher);
}
