//! Interfaces that go and come back while packets pass.

use std::process::{Child, Command, Stdio};

use straightline_config::{AfXdpConfig, Config, PatchConfig, PortConfig, PortKind, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_port::device::{Steal, ZeroCopy};
use straightline_switch::api::Link;
use straightline_testing::host::{Host, af_packet, tap_with};
use straightline_testing::{BASIC, arrived, frame, mac, rig, send, wait_until};

fn options() -> GuestOptions {
    GuestOptions { features: BASIC, ..GuestOptions::default() }
}

fn af_xdp(interface: &str) -> PortConfig {
    let interface = interface.to_owned();
    let kind = AfXdpConfig {
        interface: interface.clone(),
        queues: None,
        steal: Steal::All,
        zero_copy: ZeroCopy::Off,
        take_default_route: false,
    };
    PortConfig { name: interface, kind: PortKind::AfXdp(kind), ..PortConfig::vhost_user("", "") }
}

/// Adds a port and patches it with the vhost-user port `guest`.
fn attach(config: &mut Config, guest: usize, port: PortConfig) {
    let ports = [format!("p{guest}"), port.name.clone()];
    config.patches.push(PatchConfig { name: format!("with-p{guest}"), ports, full: WhenFull::Drop });
    config.ports.push(port);
}

fn veth(host: &Host) {
    host.ip("link add nic0 type veth peer name nic1");
    host.ip("link set nic0 up");
    host.ip("link set nic1 up");
}

/// Sends a packet again and again until it has arrived: packets may be lost while links change.
fn passes(from: &mut Guest, to: &mut Guest, seed: u8) {
    let sent = frame(mac(2), mac(1), 100, seed.into());
    wait_until("a packet passes", || {
        send(from, &sent);
        arrived(to).iter().any(|(_, bytes)| *bytes == sent)
    });
}

/// Another network namespace, which a sleeping process keeps.
pub(crate) struct Elsewhere(Child);

impl Elsewhere {
    pub(crate) fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "600"]).stdin(Stdio::null());
        let elsewhere = Elsewhere(command.spawn().expect("unshare"));
        let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).expect("a namespace");
        let own = network("thread-self");
        wait_until("the process has its namespace", || network(&elsewhere.process()) != own);
        elsewhere
    }

    pub(crate) fn process(&self) -> String {
        self.0.id().to_string()
    }

    /// Runs `ip` there.
    pub(crate) fn ip(&self, host: &Host, arguments: &str) -> String {
        host.run("nsenter", &format!("--target {} --net ip {arguments}", self.process()))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_nic_goes_down_and_away_and_comes_back() {
    let Some(host) = Host::new("a_nic_goes_down_and_away_and_comes_back") else { return };
    for kind in [af_xdp, |interface: &str| af_packet(interface, 1)] {
        veth(&host);
        let rig = rig(2, |config| {
            attach(config, 0, kind("nic0"));
            attach(config, 1, af_packet("nic1", 1));
        });
        let mut a = rig.guest(0, &options());
        let mut b = rig.guest(1, &options());
        let mut both = |seed: u8| {
            (2..4).for_each(|port| rig.wait_up(port));
            passes(&mut a, &mut b, seed);
            passes(&mut b, &mut a, seed);
        };
        both(0);

        host.ip("link set nic0 down");
        rig.wait_down(2, "interface nic0 is down; set it up with `ip link set nic0 up`");
        rig.wait_down(3, "interface nic1 has no carrier; ");
        host.ip("link set nic0 up");
        both(1);

        host.ip("link set nic0 mtu 1000");
        wait_until("the MTU follows", || rig.port(2).device.is_some_and(|device| device.mtu == 1000));
        both(2);
        host.ip("link set nic0 mtu 1500");

        host.ip("link del nic0");
        (2..4).for_each(|port| rig.wait_down(port, "interface nic"));
        wait_until("both are closed", || (2..4).all(|port| rig.port(port).device.is_none()));
        veth(&host);
        both(3);

        let elsewhere = Elsewhere::new();
        host.ip(&format!("link set nic0 netns {}", elsewhere.process()));
        wait_until("it is closed", || rig.port(2).device.is_none());
        host.ip("link del nic1");
    }
}

#[test]
fn packets_beyond_the_mtu_of_an_interface_are_dropped() {
    let Some(host) = Host::new("packets_beyond_the_mtu_of_an_interface_are_dropped") else { return };
    veth(&host);
    let rig = rig(1, |config| attach(config, 0, af_packet("nic0", 1)));
    rig.wait_up(1);
    let mut guest = rig.guest(0, &options());
    host.ip("link set nic0 mtu 1000");
    wait_until("the MTU follows", || rig.port(1).device.is_some_and(|device| device.mtu == 1000));
    send(&mut guest, &frame(mac(2), mac(1), 1014, 0));
    send(&mut guest, &frame(mac(2), mac(1), 1019, 1));
    rig.wait_drops(1, "too-big", 1);
    wait_until("the shorter packet is sent", || rig.port(1).queues[0].tx.packets == 1);
}

#[test]
fn a_tap_that_is_deleted_is_made_again() {
    let Some(host) = Host::new("a_tap_that_is_deleted_is_made_again") else { return };
    host.ip("link add br0 type bridge");
    host.ip("link set br0 up");
    let rig = rig(2, |config| {
        for (guest, name) in ["tapa", "tapb"].into_iter().enumerate() {
            attach(config, guest, tap_with(name, |tap| tap.bridge = Some("br0".to_owned())));
        }
    });
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    passes(&mut a, &mut b, 0);
    for seed in 1..4 {
        let changes = rig.port(2).link_changes;
        host.ip("link del tapa");
        wait_until("the tap is made again", || rig.port(2).link_changes >= changes + 2 && rig.port(2).link == Link::Up);
        // It is a member of the bridge again.
        passes(&mut a, &mut b, seed);
        passes(&mut b, &mut a, seed);
    }
    let reasons = rig.port(2).reasons;
    assert!(reasons.iter().any(|down| down.reason.starts_with("interface tapa has gone")), "{reasons:?}");
    assert_eq!(rig.port(3).link_changes, 1, "the other tap was never down");
}

#[test]
fn a_tap_works_in_another_namespace_too() {
    let Some(host) = Host::new("a_tap_works_in_another_namespace_too") else { return };
    let rig = rig(1, |config| attach(config, 0, tap_with("sl0", |_| {})));
    let mut guest = rig.guest(0, &options());
    let elsewhere = Elsewhere::new();
    rig.wait_up(1);
    let first = rig.port(1).device.expect("a device").mac;
    host.ip(&format!("link set sl0 netns {}", elsewhere.process()));
    elsewhere.ip(&host, "link set sl0 up");
    let counts = |host: &Host| elsewhere.ip(host, "-s link show sl0");
    let before = counts(&host);
    wait_until("a packet passes", || {
        send(&mut guest, &frame(mac(2), mac(1), 100, 0));
        if counts(&host) == before { Err(Box::new(rig.port(1))) } else { Ok(()) }
    });
    let port = rig.port(1);
    assert_eq!((port.link, port.device.expect("a device").mac), (Link::Up, first.clone()));
    // When it is deleted there, it is made again here.
    elsewhere.ip(&host, "link del sl0");
    wait_until("the tap is made again", || rig.port(1).device.is_some_and(|device| device.mac != first));
    rig.wait_up(1);
    host.ip("link show sl0");
}

#[test]
fn a_port_that_is_renamed_keeps_its_interface() {
    let Some(host) = Host::new("a_port_that_is_renamed_keeps_its_interface") else { return };
    veth(&host);
    let rig = rig(2, |config| {
        attach(config, 0, af_xdp("nic0"));
        attach(config, 1, af_packet("nic1", 1));
    });
    let mut a = rig.guest(0, &options());
    let mut b = rig.guest(1, &options());
    passes(&mut a, &mut b, 0);
    let mut config = rig.switch.config();
    for (at, name) in [(2, "wan"), (3, "far")] {
        name.clone_into(&mut config.ports[at].name);
        name.clone_into(&mut config.patches[at - 2].ports[1]);
    }
    rig.switch.reload(&config).expect("a reload");
    for (at, name) in [(2, "wan"), (3, "far")] {
        assert_eq!(rig.port(at).name, name);
        // A child of another test that was just forked may have the interface's program for a moment.
        rig.wait_up(at);
        assert_eq!(rig.port(at).reason, None);
    }
    passes(&mut a, &mut b, 1);
    passes(&mut b, &mut a, 1);
}
