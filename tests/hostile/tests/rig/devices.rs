//! A container at the other end of a veth pair, whose near end is a port of the switch.

use hostile::scene::measure_gap;
use straightline_config::PortConfig;
use straightline_guest::GuestOptions;
use straightline_guest::endpoints::{Interface, InterfaceKind, InterfacePort, TestPort};
use straightline_switch::api::Link;
use straightline_testing::host::{Host, af_packet};
use straightline_testing::packets::{Kind, segmented};
use straightline_testing::{BROADCAST, Rig, Victims, arrived, bridge, frame, mac, noise, patch, rig, wait_until};
use straightline_virtio::net_header::NetHeader;

use crate::logs::LogLines;

/// Frames of the attack.
const FRAMES: u64 = 4000;

/// A switch in a host of its own. Port 0 and the near end of the veth pair are in a bridge, ports 1
/// and 2 (the victims') are patched.
struct Scene {
    host: Host,
    rig: Rig,
}

/// The number of the veth's port.
const NEAR: usize = 3;

impl Scene {
    fn new(test: &str, near: impl FnOnce(&str) -> PortConfig) -> Option<Scene> {
        let host = Host::new(test)?;
        host.ip("link add near type veth peer name far");
        host.ip("link set near up");
        host.ip("link set far up");
        let rig = rig(3, |config| {
            let near = near("near");
            let mut lan = bridge(1);
            lan.ports.push(near.name.clone());
            config.ports.push(near);
            config.bridges.push(lan);
            config.patches.push(patch(1, 2));
        });
        rig.wait_up(NEAR);
        Some(Scene { host, rig })
    }

    /// Opens the far end, as the container does.
    fn far(&self) -> InterfacePort {
        let far = Interface { kind: InterfaceKind::AfPacket, name: "far".to_owned() };
        InterfacePort::open(&far, 65_000, 1500).expect("the far end")
    }

    /// Sends a good frame from the far end until port 0 gets it.
    fn a_good_frame_arrives(&self, far: &mut InterfacePort) {
        let mut guest = self.rig.guest(0, &GuestOptions::default());
        let good = frame(BROADCAST, mac(0x77), 200, 7);
        wait_until("a good frame arrives", || {
            far.send(usize::MAX, &NetHeader::default(), &good, &[]);
            far.flush().expect("the far end sends");
            arrived(&mut guest).iter().any(|(_, bytes)| *bytes == good)
        });
    }
}

/// A number that looks random and is the same in each run.
fn random(n: u64) -> u64 {
    u64::from_le_bytes(*noise(n, 8).first_chunk().expect("8 bytes"))
}

/// Returns a frame of the attack: any bytes, tags upon tags, headers that end early or promise more
/// than there is, and segments of every size.
fn odd(n: u64) -> (NetHeader, Vec<u8>) {
    let [kind, a, b, c, ..] = random(n).to_le_bytes();
    let small = u16::from(a);
    let len = 14 + usize::from(b) * 5;
    let mut plain = frame(BROADCAST, mac(a), len.max(14), n);
    match kind % 6 {
        0 => {}
        1 => {
            // Up to 60 tags of both types, and nothing behind them.
            let tag = if c & 1 == 0 { [0x81, 0, b, c] } else { [0x88, 0xa8, b, c] };
            plain.truncate(12);
            (0..usize::from(a % 60)).for_each(|_| plain.extend_from_slice(&tag));
            plain.extend_from_slice(&[8, 0]);
        }
        2 | 3 => {
            let kind = Kind::ALL[usize::from(a % 4)];
            let (header, mut whole) = segmented(kind, BROADCAST, mac(1), &noise(n, usize::from(b) * 64 + 1), 64);
            if c & 1 == 0 {
                // A length, an offset or a type in the headers is another one.
                let at = 12 + usize::from(c) % 44;
                if let Some(byte) = whole.get_mut(at) {
                    *byte = b;
                }
            }
            let header = match c % 4 {
                0 => NetHeader { gso_size: small, ..header },
                1 => NetHeader { csum_start: u16::from(b), ..header },
                2 => NetHeader { gso_type: c, hdr_len: small, ..header },
                _ => header,
            };
            return (header, whole);
        }
        4 => {
            let (_, mut whole) = segmented(Kind::ALL[usize::from(a % 4)], BROADCAST, mac(1), &noise(n, 100), 64);
            whole.truncate(14 + usize::from(b) % (whole.len() - 14));
            plain = whole;
        }
        _ => plain[6..12].copy_from_slice(&random(n + 1).to_le_bytes()[..6]),
    }
    (NetHeader { flags: c & 1, csum_start: small, csum_offset: u16::from(b % 20), ..NetHeader::default() }, plain)
}

/// The kernel at the far end refuses what it knows to be wrong, and passes the rest.
#[test]
fn odd_frames_of_a_container() {
    let Some(scene) = Scene::new("odd_frames_of_a_container", |name| af_packet(name, 1)) else { return };
    let victims = Victims::start(&scene.rig, 1, 2);
    let mut far = scene.far();
    measure_gap(&victims, "odd frames of a container", || {
        for n in 0..FRAMES {
            let (header, bytes) = odd(n);
            // Each is a template of its own: a port writes only the changes of one that it holds.
            far.send(usize::try_from(n).expect("few"), &header, &bytes, &[]);
            if n % 32 == 0 {
                far.flush().expect("the far end sends");
            }
        }
        far.flush().expect("the far end sends");
    });
    let came = || scene.rig.port(NEAR).queues[0].rx.packets;
    assert!(came() > FRAMES / 10, "{} frames came", came());
    scene.a_good_frame_arrives(&mut far);
    victims.finish();
}

/// The container takes its end down and up again, and moves its MTU, as fast as it can.
#[test]
fn an_interface_that_a_container_takes_down_and_up() {
    let test = "an_interface_that_a_container_takes_down_and_up";
    let Some(scene) = Scene::new(test, |name| af_packet(name, 1)) else { return };
    let victims = Victims::start(&scene.rig, 1, 2);
    measure_gap(&victims, "an interface that goes down and up", || {
        for mtu in (600..1500).step_by(30) {
            scene.host.ip("link set far down");
            scene.host.ip(&format!("link set far mtu {mtu}"));
            scene.host.ip("link set far up");
        }
        scene.host.ip("link set far mtu 1500");
    });
    wait_until("the link is up", || scene.rig.port(NEAR).link == Link::Up);
    scene.a_good_frame_arrives(&mut scene.far());
    victims.finish();
}

/// The container takes its end down and up again. Each time the switch sees it, and may log a line.
#[test]
fn a_carrier_that_comes_and_goes() {
    let lines = LogLines::of("flapping");
    let near = |name: &str| PortConfig { name: "flapping".to_owned(), ..af_packet(name, 1) };
    let Some(scene) = Scene::new("a_carrier_that_comes_and_goes", near) else { return };
    let victims = Victims::start(&scene.rig, 1, 2);
    measure_gap(&victims, "a carrier that comes and goes", || {
        for _ in 0..hostile::repeats(40, 1000) {
            for (state, link) in [("down", Link::Down), ("up", Link::Up)] {
                scene.host.ip(&format!("link set far {state}"));
                wait_until(&format!("the link is {state}"), || scene.rig.port(NEAR).link == link);
            }
        }
    });
    lines.are_limited();
    scene.a_good_frame_arrives(&mut scene.far());
    victims.finish();
}

/// The container ends, with its end of the pair, and another one begins.
#[test]
fn an_interface_that_goes_with_its_container() {
    let test = "an_interface_that_goes_with_its_container";
    let Some(scene) = Scene::new(test, |name| af_packet(name, 1)) else { return };
    let victims = Victims::start(&scene.rig, 1, 2);
    measure_gap(&victims, "an interface that goes", || {
        for _ in 0..3 {
            scene.host.ip("link del far");
            wait_until("the link is down", || scene.rig.port(NEAR).link == Link::Down);
            scene.host.ip("link add near type veth peer name far");
            scene.host.ip("link set near up");
            scene.host.ip("link set far up");
            wait_until("the link is up", || scene.rig.port(NEAR).link == Link::Up);
        }
    });
    scene.a_good_frame_arrives(&mut scene.far());
    victims.finish();
}
