//! The addresses of an underlay in a network where the kernel of another host is.

use straightline_config::{Config, Machine};
use straightline_switch::Switch;
use straightline_switch::api::{EventKind, OwnAddress, table};
use straightline_testing::host::Host;
use straightline_testing::{wait_event, wait_until};

use crate::links::Elsewhere;

const OWN: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// The MAC addresses of both ends of the veth pair, and of nobody.
const NEAR: &str = "02:00:00:00:00:11";
const FAR: &str = "02:00:00:00:00:22";
const NOBODY: &str = "02:00:00:00:00:99";

/// Another host at the other end of the veth pair `nic0`.
struct Net<'a> {
    host: &'a Host,
    far: Elsewhere,
}

impl<'a> Net<'a> {
    fn new(host: &'a Host) -> Self {
        let far = Elsewhere::new();
        host.ip(&format!("link add nic0 address {NEAR} type veth peer name nic1 address {FAR}"));
        host.ip(&format!("link set nic1 netns {}", far.process()));
        host.ip("link set nic0 up");
        far.ip(host, "link set nic1 up");
        Net { host, far }
    }

    fn far(&self, arguments: &str) -> String {
        self.far.ip(self.host, arguments)
    }

    /// Starts a switch with a tunnel to a station that is not there. Nobody asks for its address.
    fn switch(&self, port: &str) -> Switch {
        let text = format!(
            "[port.nic]\ninterface = \"nic0\"\n{port}\n[port.t1]\nkind = \"vxlan\"\nunderlay = \"wan\"\nvni = 5\n\
             remote = \"192.0.2.9\"\nmtu = 1400\n[bridge.lan]\nports = [\"t1\"]\n\
             [underlay.wan]\nport = \"nic\"\naddress = [\"{}/24\", \"{}/64\"]\n\
             neighbours = {{ \"192.0.2.9\" = \"{NOBODY}\" }}\n",
            OWN[0], OWN[1]
        );
        // It warns of a host that uses the interface as well.
        let loaded = Config::parse("f.toml", &text, &Machine::this()).unwrap_or_else(|errors| panic!("{errors}"));
        Switch::start(&loaded.config).expect("a switch")
    }

    /// Makes the other host believe that nobody has our addresses.
    fn mislead(&self) {
        for own in OWN {
            self.far(&format!("neigh replace {own} dev nic1 lladdr {NOBODY} nud stale"));
        }
    }

    /// Waits until the other host knows our MAC address. It has not asked for it.
    fn wait_known(&self) {
        wait_until("the announcement", || self.is_known());
    }

    /// Returns whether the other host knows our MAC address.
    fn is_known(&self) -> bool {
        OWN.iter().all(|own| self.far(&format!("neigh show {own} dev nic1")).contains(NEAR))
    }
}

fn own(switch: &Switch) -> Vec<OwnAddress> {
    switch.source().neighbours().addresses
}

/// Looks for an announcement. They take many seconds, and announcements end after fewer.
const LOOKS: usize = 5000;

const AF_PACKET: &str = "kind = \"af-packet\"";
const AF_XDP: &str = "kind = \"af-xdp\"\nzero-copy = \"off\"\nqueues = 1";

#[test]
fn another_host_with_our_addresses_is_told_of() {
    let Some(host) = Host::new("another_host_with_our_addresses_is_told_of") else { return };
    for port in [AF_PACKET, AF_XDP, &format!("{AF_XDP}\nsteal = \"address\"")] {
        let net = Net::new(&host);
        for (own, prefix) in OWN.iter().zip([24, 64]) {
            net.far(&format!("addr add {own}/{prefix} dev nic1{}", if prefix == 64 { " nodad" } else { "" }));
        }
        let switch = net.switch(port);
        wait_until("both conflicts", || own(&switch).iter().all(|own| own.conflict.as_deref() == Some(FAR)));
        for address in OWN {
            wait_event(&switch, "an event", |kind| match kind {
                EventKind::AddressConflict { underlay, ip, mac } => {
                    underlay == "wan" && ip == address && mac.as_deref() == Some(FAR)
                }
                _ => false,
            });
        }
        let ports = table::ports(&switch.source().ports());
        assert!(ports.contains(&format!("another station, {FAR}, has 192.0.2.1 too")), "{ports}");
        let neighbours = table::neighbours(&switch.source().neighbours());
        assert!(neighbours.contains(&format!("wan       2001:db8::1  {FAR}")), "{neighbours}");
        drop(switch);
        host.ip("link del nic0");
    }
}

#[test]
fn addresses_are_announced_whenever_the_link_comes_up() {
    let Some(host) = Host::new("addresses_are_announced_whenever_the_link_comes_up") else { return };
    for port in [AF_PACKET, AF_XDP] {
        let net = Net::new(&host);
        for address in ["192.0.2.2/24", "2001:db8::2/64 nodad"] {
            net.far(&format!("addr add {address} dev nic1"));
        }
        net.mislead();
        let switch = net.switch(port);
        net.wait_known();
        wait_until("an announcement when the link comes up", || {
            net.far("link set nic1 down");
            wait_until("the link is down", || {
                let ports = switch.source().ports().ports;
                ports.iter().any(|port| port.name == "nic" && port.reason.is_some())
            });
            net.far("link set nic1 up");
            net.far("addr replace 2001:db8::2/64 dev nic1 nodad");
            // The announcements end after two seconds. If this thread did not run meanwhile, the link
            // goes down again.
            net.mislead();
            (0..LOOKS).any(|_| net.is_known())
        });
        assert!(own(&switch).iter().all(|own| own.conflict.is_none() && own.claims == 0), "{:?}", own(&switch));
        drop(switch);
        host.ip("link del nic0");
    }
}

#[test]
fn the_kernel_of_our_own_host_may_have_our_address() {
    let Some(host) = Host::new("the_kernel_of_our_own_host_may_have_our_address") else { return };
    let net = Net::new(&host);
    host.ip("addr add 192.0.2.1/24 dev nic0");
    for address in ["192.0.2.2/24", "2001:db8::2/64 nodad"] {
        net.far(&format!("addr add {address} dev nic1"));
    }
    let switch = net.switch(AF_PACKET);
    net.mislead();
    net.wait_known();
    // The host asks and answers from the address.
    host.run("ping", "-n -c 1 -W 120 192.0.2.2");
    host.run("nsenter", &format!("--target {} --net ping -n -c 1 -W 120 192.0.2.1", net.far.process()));
    assert!(own(&switch).iter().all(|own| own.conflict.is_none() && own.claims == 0), "{:?}", own(&switch));
}
