//! Guests that send tags which their ports do not allow, that flood, and that fill the bridge's table.

use hostile::scene::measure_gap;
use straightline_config::{Config, MacLimit, NativeVlan, PortConfig, PortRules, PortVlans, StormLimits, VlanRole};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::packets::NEEDS_CSUM;
use straightline_testing::{
    BROADCAST, Rig, Victims, arrived, bridge, frame, mac, nothing, rig, send, take, wait_until,
};
use straightline_virtio::features::VIRTIO_NET_F_CSUM;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, MacAddr, VlanId, VlanSet};

/// Port 0 (the attacker's), 1 (a bystander's, in VLAN 10), 2 and 3 (the victims', in VLAN 20), on one
/// bridge and one worker.
struct Lan {
    rig: Rig,
    config: Config,
    attacker: Guest,
    bystander: Guest,
    victims: Victims,
}

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn set(port: &mut PortConfig, vlans: PortVlans) {
    port.rules = PortRules { vlans: Some(vlans), ..PortRules::default() };
}

/// A trunk to the next switch, whose frames of VLAN 10 have no tag. That switch has VLAN 20 as well.
fn native() -> PortVlans {
    let native = Some(NativeVlan { id: id(10), is_tagged: false, has_nested_tags: false });
    let vlans: VlanSet = [10, 30].map(id).into_iter().collect();
    PortVlans { role: VlanRole::Trunk { tpid: EtherType::VLAN, vlans: Box::new(vlans), native }, priority: 0 }
}

/// All VLANs but that of the victims.
fn trunk() -> PortVlans {
    let vlans: VlanSet = (1..4095).filter(|vid| *vid != 20).map(id).collect();
    let role = VlanRole::Trunk { tpid: EtherType::VLAN, vlans: Box::new(vlans), native: None };
    PortVlans { role, priority: 0 }
}

impl Lan {
    fn new(attacker: PortVlans, change: impl FnOnce(&mut PortConfig)) -> Lan {
        Lan::beside(PortVlans::access(id(10)), attacker, change)
    }

    /// With a bystander in these VLANs.
    fn beside(bystander: PortVlans, attacker: PortVlans, change: impl FnOnce(&mut PortConfig)) -> Lan {
        let mut kept = Config::default();
        let rig = rig(4, |config| {
            set(&mut config.ports[0], attacker);
            change(&mut config.ports[0]);
            set(&mut config.ports[1], bystander);
            set(&mut config.ports[2], PortVlans::access(id(20)));
            set(&mut config.ports[3], PortVlans::access(id(20)));
            config.bridges.push(bridge(4));
            kept = config.clone();
        });
        let options = GuestOptions::default();
        let features = options.features | VIRTIO_NET_F_CSUM;
        let attacker = rig.guest(0, &GuestOptions { features, ..GuestOptions::default() });
        let bystander = rig.guest(1, &options);
        let victims = Victims::start(&rig, 2, 3);
        Lan { rig, config: kept, attacker, bystander, victims }
    }

    fn send_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> u64 {
        let mut count = 0;
        for frame in frames {
            send(&mut self.attacker, &frame);
            arrived(&mut self.bystander);
            count += 1;
        }
        count
    }

    fn end(mut self) {
        nothing(&self.rig.switch, &mut self.attacker);
        for port in 1..4 {
            assert!(self.rig.port(port).drops.is_empty(), "{:?}", self.rig.port(port).drops);
        }
        self.victims.finish();
    }
}

fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

fn tag(vid: u16) -> [u8; 4] {
    let [high, low] = vid.to_be_bytes();
    [0x81, 0, high, low]
}

const SERVICE: [u8; 4] = [0x88, 0xa8, 0, 20];

/// No tag leads from an access port into the VLAN of others.
#[test]
fn tags_at_an_access_port() {
    let mut lan = Lan::new(PortVlans::access(id(10)), |_| ());
    let plain = frame(BROADCAST, mac(9), 100, 1);
    let tags: [&[[u8; 4]]; 7] = [
        &[tag(20)],
        &[tag(10)],
        &[tag(4095)],
        &[SERVICE],
        &[tag(20), tag(20)],
        &[SERVICE, tag(0)],
        &[tag(10), tag(20)],
    ];
    let sent = lan.send_all(tags.iter().map(|tags| tagged(&plain, tags)));
    lan.rig.wait_drops(0, "vlan-not-allowed", sent);
    // Priority tags go, and are no disguise.
    let service = [0x88, 0xa8, 0xe0, 0];
    send(&mut lan.attacker, &tagged(&plain, &[tag(0), service, tag(0)]));
    assert_eq!(take(&mut lan.bystander, 1)[0].1, plain);
    send(&mut lan.attacker, &tagged(&plain, &[tag(0), tag(20)]));
    send(&mut lan.attacker, &tagged(&plain, &[service, tag(0), tag(0), tag(0), SERVICE]));
    lan.rig.wait_drops(0, "vlan-not-allowed", sent + 2);
    send(&mut lan.attacker, &tagged(&plain, &[tag(0); 5]));
    lan.rig.wait_drops(0, "hidden", 1);
    let cut = (14..18).map(|len| tagged(&plain, &[tag(20)])[..len].to_vec());
    let sent = lan.send_all(cut);
    lan.rig.wait_drops(0, "runt", sent);
    lan.victims.go_on();
    lan.end();
}

/// No tag inside leads into the VLAN of others on the next switch, where it would be the first one. The
/// attacker has an access port, a port for customers, or a trunk.
#[test]
fn tags_that_hop_by_a_native_vlan() {
    let customer = PortVlans { role: VlanRole::Customer(id(10)), priority: 0 };
    let service = [0x88, 0xa8, 0, 20];
    let ways: [(PortVlans, &[[u8; 4]], &str); 3] = [
        (PortVlans::access(id(10)), &[tag(0)], "vlan-not-allowed"),
        (customer, &[], "nested-tag"),
        (trunk(), &[tag(10)], "nested-tag"),
    ];
    for (attacker, outer, reason) in ways {
        let mut lan = Lan::beside(native(), attacker, |_| ());
        let source = mac(9);
        let station = mac(8);
        send(&mut lan.bystander, &frame(BROADCAST, station, 60, 1));
        take(&mut lan.attacker, 1);
        let inner: [&[[u8; 4]]; 4] = [&[tag(20)], &[service], &[tag(20), tag(20)], &[tag(0), tag(20)]];
        for (n, inner) in (1..).zip(inner) {
            let tags = [outer, inner].concat();
            for to in [BROADCAST, station] {
                send(&mut lan.attacker, &tagged(&frame(to, source, 100, 1), &tags));
            }
            wait_until("they are dropped or arrive", || {
                lan.rig.drops(0, reason) == 2 * n || !arrived(&mut lan.bystander).is_empty()
            });
            assert_eq!(lan.rig.drops(0, reason), 2 * n, "{inner:x?} behind {outer:x?}");
        }
        // A frame without a tag inside passes, and none has come before.
        let plain = frame(station, source, 100, 2);
        send(&mut lan.attacker, &tagged(&plain, if outer == [tag(10)] { outer } else { &[] }));
        assert_eq!(take(&mut lan.bystander, 1)[0].1, plain);
        lan.victims.go_on();
        lan.end();
    }
}

/// No checksum that is left to the switch writes a VLAN into a tag. The switch would sum it in the copy,
/// behind all decisions.
#[test]
fn tags_written_by_a_checksum() {
    let up = || {
        let vlans: VlanSet = [10, 30].map(id).into_iter().collect();
        let role = VlanRole::Trunk { tpid: EtherType::VLAN, vlans: Box::new(vlans), native: None };
        PortVlans { role, priority: 0 }
    };
    for (attacker, own) in [(PortVlans::access(id(10)), tag(0)), (trunk(), tag(10))] {
        let mut lan = Lan::beside(up(), attacker, |_| ());
        let station = mac(8);
        send(&mut lan.bystander, &tagged(&frame(BROADCAST, station, 60, 1), &[tag(10)]));
        take(&mut lan.attacker, 1);
        let mut sent = tagged(&[&station.0[..], &mac(9).0, &[8, 0], &[0; 46]].concat(), &[own]);
        // Behind the tag of VLAN 10, the checksum is 20: it is the complement of the sum.
        let word: u16 = !20 - 10 - 0x0800;
        sent[20..22].copy_from_slice(&word.to_be_bytes());
        for start in [14, 15, 16, 17] {
            let header = NetHeader { flags: NEEDS_CSUM, csum_start: start, ..NetHeader::default() };
            assert!(lan.attacker.send(&header, &sent));
            lan.attacker.flush();
            let mut got = Vec::new();
            wait_until("it is dropped or arrives", || {
                got.extend(arrived(&mut lan.bystander));
                lan.rig.drops(0, "checksum-range") == u64::from(start) - 13 || !got.is_empty()
            });
            assert!(got.is_empty(), "a checksum from {start} on: {got:x?}");
        }
        lan.victims.go_on();
        lan.end();
    }
}

/// A trunk does not lead into VLANs that it does not have, whatever stands behind its tag.
#[test]
fn tags_at_a_trunk() {
    let mut lan = Lan::new(trunk(), |_| ());
    let plain = frame(BROADCAST, mac(9), 100, 1);
    let tags: [&[[u8; 4]]; 6] =
        [&[], &[tag(20)], &[tag(0)], &[tag(4095)], &[SERVICE], &[tag(20), tag(10), tag(20), tag(20)]];
    let sent = lan.send_all(tags.iter().map(|tags| tagged(&plain, tags)));
    lan.rig.wait_drops(0, "vlan-not-allowed", sent);
    send(&mut lan.attacker, &tagged(&plain, &[tag(10), tag(20), tag(20)]));
    lan.rig.wait_drops(0, "nested-tag", 1);
    // A VLAN that nobody else has.
    send(&mut lan.attacker, &tagged(&plain, &[tag(77)]));
    lan.rig.wait_drops(0, "no-receiver", 1);
    lan.victims.go_on();
    lan.end();
}

/// Stations in every VLAN fill the attacker's share of the table only.
#[test]
fn stations_invented_in_every_vlan() {
    let mut lan = Lan::new(trunk(), |_| ());
    let frames = (0..hostile::repeats(2000, 100_000)).map(|n| {
        let [.., high, low] = n.to_be_bytes();
        let source = MacAddr([2, 0, 0, 1, high, low]);
        let vid = u16::try_from(n % 4094 + 1).expect("a VLAN");
        tagged(&frame(BROADCAST, source, 60, 1), &[tag(vid)])
    });
    let frames: Vec<_> = frames.collect();
    lan.send_all(frames);
    let addresses = |port| lan.rig.port(port).addresses.expect("it is in a bridge");
    wait_until("its share is full", || addresses(0).refused > 0);
    // An eighth of 64 places, and the half that no port owns.
    assert!(addresses(0).learned <= 40);
    assert!(addresses(2).learned >= 1, "the victim is known");
    for n in 1..=8 {
        send(&mut lan.bystander, &frame(MacAddr([2, 0, 0, 0, 9, 9]), mac(n), 60, 1));
    }
    wait_until("others have their places", || addresses(1).learned == 8);
    assert_eq!(addresses(1).refused, 0);
    // The trunk has the bystander's VLAN too.
    take(&mut lan.attacker, 8);
    lan.victims.go_on();
    lan.end();
}

/// A storm costs the paced neighbours on the same worker nothing.
#[test]
fn a_storm_beside_victims() {
    let limits = StormLimits { broadcast: Some(50), multicast: Some(50), unknown: Some(50) };
    let mut lan = Lan::new(PortVlans::access(id(10)), |port| {
        port.rules.storm = limits;
        port.rules.mac_limit = Some(MacLimit { most: 4, drops: true });
    });
    let groups = [BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr([2, 7, 7, 7, 7, 7])];
    let frames = (0..hostile::repeats(3000, 100_000)).map(|n| frame(groups[n % 3], mac(9), 60, 1));
    let frames: Vec<_> = frames.collect();
    let Lan { rig, attacker, bystander, victims, .. } = &mut lan;
    measure_gap(victims, "a storm", || {
        // As many as fit into the ring come at once, so that few may pass between two of them.
        for frame in &frames {
            if !attacker.send(&NetHeader::default(), frame) {
                arrived(bystander);
                send(attacker, frame);
            }
        }
        attacker.flush();
        wait_until("most of it is dropped", || rig.drops(0, "storm") > 1000);
    });
    lan.end();
}

/// A reload that moves the attacker from VLAN to VLAN, under traffic.
#[test]
fn vlans_that_change_under_traffic() {
    let mut lan = Lan::new(PortVlans::access(id(10)), |_| ());
    for vid in [30, 10, 40, 10] {
        let mut config = lan.config.clone();
        set(&mut config.ports[0], PortVlans::access(id(vid)));
        lan.rig.switch.reload(&config).expect("a good configuration");
        let before = lan.rig.drops(0, "no-receiver");
        send(&mut lan.attacker, &frame(BROADCAST, mac(9), 100, u64::from(vid)));
        if vid == 10 {
            take(&mut lan.bystander, 1);
        } else {
            lan.rig.wait_drops(0, "no-receiver", before + 1);
            nothing(&lan.rig.switch, &mut lan.bystander);
        }
        lan.victims.go_on();
    }
    lan.end();
}
