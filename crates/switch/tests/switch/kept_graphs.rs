//! Graphs across reloads: one that was kept, or built from a changed configuration, forwards as that
//! of a switch that starts with this configuration.

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_config::{Config, Machine, NodeConfig, SourceCheckConfig, StaticEntry, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{BROADCAST, Rig, arrived, bridge, frame, mac, patch, rig, send, wait_turns, wait_until};
use straightline_wire::MacAddr;

/// Ports that send. The one behind them is the mirror's.
const SENDERS: u8 = 4;

/// A configuration of five ports.
#[derive(Clone, Debug)]
struct Wish {
    /// The ports of the bridge; the others are in patches by twos.
    bridged: usize,
    ageing: u32,
    has_static: bool,
    waits: bool,
    is_checked: bool,
    /// The ports whose packets are mirrored: as they come, and as they go.
    mirrored: (Option<usize>, Option<usize>),
}

fn wishes() -> impl Strategy<Value = Wish> {
    let port = || prop::option::of(0..usize::from(SENDERS));
    let bridged = prop::sample::select(vec![0, 2, 3, 4]);
    let fields = (bridged, 1_u32..3, any::<bool>(), any::<bool>(), any::<bool>(), (port(), port()));
    fields.prop_map(|(bridged, ageing, has_static, waits, is_checked, mirrored)| Wish {
        bridged,
        ageing: ageing * 150,
        has_static,
        waits,
        is_checked,
        mirrored,
    })
}

fn mirror() -> NodeConfig {
    let text = "[port.p4]\nkind = \"vhost-user\"\nsocket = \"/p\"\n[node.m]\nkind = \"mirror\"\nto = \"p4\"\n";
    Config::parse("mirror.toml", text, &Machine::this()).expect("a good file").config.nodes.remove(0)
}

/// Puts a wish into a configuration that has ports only.
fn grant(wish: &Wish, config: &mut Config) {
    let senders = usize::from(SENDERS);
    if wish.bridged > 0 {
        let mut lan = bridge(wish.bridged);
        lan.ageing = wish.ageing;
        if wish.has_static {
            lan.statics = vec![StaticEntry {
                mac: mac(9).to_string().parse().expect("an address"),
                port: "p0".into(),
                vlan: None,
            }];
        }
        config.bridges.push(lan);
    }
    for first in (wish.bridged..senders.saturating_sub(1)).step_by(2) {
        let mut pair = patch(first, first + 1);
        pair.full = if wish.waits { WhenFull::Wait } else { WhenFull::Drop };
        config.patches.push(pair);
    }
    config.ports[1].mac = Some(mac(2).to_string().parse().expect("an address"));
    config.ports[1].source_check = wish.is_checked.then(SourceCheckConfig::default);
    let (comes, goes) = wish.mirrored;
    if comes.is_some() || goes.is_some() {
        config.nodes.push(mirror());
    }
    if let Some(port) = comes {
        config.ports[port].nodes = vec!["m".to_owned()];
    }
    if let Some(port) = goes {
        config.ports[port].egress_nodes = vec!["m".to_owned()];
    }
}

/// A frame from a port.
#[derive(Clone, Debug)]
struct Sent {
    port: u8,
    dst: MacAddr,
    src: MacAddr,
    len: usize,
}

fn traffic() -> impl Strategy<Value = Vec<Sent>> {
    let multicast = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let dst =
        prop_oneof![4 => (1..=SENDERS).prop_map(mac), 1 => Just(mac(9)), 2 => Just(BROADCAST), 1 => Just(multicast)];
    let sent = (0..SENDERS, dst, 1..=SENDERS, prop::bool::weighted(0.2), 60_usize..400);
    let sent = sent.prop_map(|(port, dst, other, is_strange, len)| {
        let src = mac(if is_strange { other } else { port + 1 });
        Sent { port, dst, src, len }
    });
    prop::collection::vec(sent, 20..40)
}

/// A switch and its guests, with what has arrived at each of them.
struct Scene {
    rig: Rig,
    guests: Vec<Guest>,
    arrived: Vec<Vec<Vec<u8>>>,
}

impl Scene {
    fn new(wish: &Wish) -> Scene {
        let rig = rig(usize::from(SENDERS) + 1, |config| grant(wish, config));
        let guests = (0..=usize::from(SENDERS)).map(|port| rig.guest(port, &GuestOptions::default())).collect();
        Scene { rig, guests, arrived: vec![Vec::new(); usize::from(SENDERS) + 1] }
    }

    /// Sends a frame, and waits until the switch has taken it.
    fn send(&mut self, sent: &Sent, bytes: &[u8]) {
        let port = usize::from(sent.port);
        let taken = |rig: &Rig| {
            rig.port(port).queues.iter().map(|queue| queue.rx.packets).sum::<u64>()
                + rig.port(port).drops.values().sum::<u64>()
        };
        let before = taken(&self.rig);
        send(&mut self.guests[port], bytes);
        wait_until("the switch has the frame", || taken(&self.rig) > before);
    }

    fn receive(&mut self) {
        for (guest, frames) in self.guests.iter_mut().zip(&mut self.arrived) {
            frames.extend(arrived(guest).into_iter().map(|(_, bytes)| bytes));
        }
    }

    fn drops(&self) -> BTreeMap<String, u64> {
        let of_port = |port| self.rig.port(port).drops.into_iter().map(move |(why, n)| (format!("{port} {why}"), n));
        (0..=usize::from(SENDERS)).flat_map(of_port).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 2, ..ProptestConfig::default() })]

    #[test]
    fn a_reloaded_switch_forwards_as_a_new_one((before, after) in (wishes(), wishes()), keeps in any::<bool>(),
                                               traffic in traffic()) {
        // Half of the reloads change one thing only, so that most of the graph is kept.
        let after = if keeps { Wish { mirrored: after.mirrored, ..before.clone() } } else { after };
        let mut reloaded = Scene::new(&before);
        let mut config = reloaded.rig.switch.config();
        config.bridges.clear();
        config.patches.clear();
        config.nodes.clear();
        for port in &mut config.ports {
            port.nodes.clear();
            port.egress_nodes.clear();
            port.source_check = None;
        }
        grant(&after, &mut config);
        reloaded.rig.switch.reload(&config).expect("a good configuration");
        let mut fresh = Scene::new(&after);
        for (seed, sent) in (0..).zip(&traffic) {
            let bytes = frame(sent.dst, sent.src, sent.len, seed);
            reloaded.send(sent, &bytes);
            fresh.send(sent, &bytes);
        }
        for scene in [&mut reloaded, &mut fresh] {
            scene.guests[0].kick_anyway();
            wait_turns(&scene.rig.switch);
            scene.receive();
        }
        prop_assert_eq!(&reloaded.arrived, &fresh.arrived);
        prop_assert_eq!(reloaded.drops(), fresh.drops());
        // Ports 2 and 3 are in a patch, unless the bridge has them: it delivers each frame.
        let sent = traffic.iter().filter(|sent| sent.port >= 2).count();
        let delivered = fresh.arrived[2].len() + fresh.arrived[3].len();
        prop_assert!(after.bridged > 2 || delivered == sent, "{delivered} of {sent} were delivered");
    }
}
