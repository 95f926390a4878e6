//! L2TPv3 with static sessions (RFC 3931, RFC 8159): the switch, QEMU and User Mode Linux are three
//! independent implementations. User Mode Linux has a driver for GRE as well.

use anyhow::{Context, Result};

use super::{Carrier, Inner, Outer, Place, Wire, capture, carried};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::Namespace;
use crate::proc::{self, Proc};
use crate::runner::Test;
use crate::say::say;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("tunnel_l2tpv3_qemu", &[Need::Namespaces, Need::Captures, Need::QemuNet, Need::Uml(1)], with_qemu),
        Test::new("tunnel_l2tpv3_uml", &[Need::Namespaces, Need::Captures, Need::Uml(2)], with_uml),
    ]
}

/// The tunnels with cookies of eight and four bytes, over IP and UDP, and without a cookie.
pub(super) const TUNNELS: [L2tpv3; 4] = [
    L2tpv3 { far: 11, outer: Outer::V6, over: Over::Ip, sessions: [u32::MAX; 2], cookies: LONG },
    L2tpv3 { far: 12, outer: Outer::V4, over: Over::Udp, sessions: [7, 0x8000_0008], cookies: SHORT },
    L2tpv3 { far: 13, outer: Outer::V6, over: Over::Udp, sessions: [9, 9], cookies: LONG },
    L2tpv3 { far: 14, outer: Outer::V4, over: Over::Ip, sessions: [10, 11], cookies: None },
];

const LONG: Option<[&str; 2]> = Some(["0011223344556677", "8899aabbccddeeff"]);
const SHORT: Option<[&str; 2]> = Some(["01020304", "a1a2a3a4"]);

/// Options by which tshark reads tunnels with cookies of eight bytes.
pub(super) const TSHARK: [&str; 6] =
    ["-o", "l2tp.cookie_size:8 Byte Cookie", "-o", "l2tp.l2_specific:None", "-d", "l2tp.pw_type==0,eth"];

/// QEMU's receive buffers have 2 KiB, so the inner MTU is 1500.
fn with_qemu(lab: &Lab) -> Result<()> {
    let wire = Wire::new(Carrier::AfPacket, 1500)?;
    // QEMU reads packets as they are on the wire, and a veth pair finishes no checksums.
    wire.near.sh("ethtool -K v1 tx off")?;
    let tunnels: Vec<(String, String)> =
        TUNNELS.iter().map(|tunnel| (format!("t{}", tunnel.far), tunnel.keys(wire.mtu))).collect();
    let switch = wire.switch(lab, &tunnels)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    guest.boot()?;
    guest.load_ip6()?;
    for (number, tunnel) in (1..).zip(TUNNELS) {
        wire.add_far(tunnel.outer, tunnel.far)?;
        let (_qemu, place) = tunnel.qemu(lab, wire.far(), Side::Far)?;
        let inner = Inner(number);
        inner.join(&mut guest, "eth0", 1, wire.mtu)?;
        let mut far = place.guest(lab, inner, (number + 1, 2), wire.mtu)?;
        inner.exchange(&mut guest, &mut far, wire.mtu)?;
        if number == 1 {
            capture(lab, &wire, &mut guest, &mut far, inner, &TSHARK)?;
        }
    }
    carried(&switch, &tunnels)?;
    switch.stop()
}

/// User Mode Linux has no limit of length, so the inner MTU is 9000. It also has GRE.
fn with_uml(lab: &Lab) -> Result<()> {
    let wire = Wire::new(Carrier::AfXdp, 9000)?;
    let mut tunnels: Vec<(String, String)> =
        TUNNELS[..3].iter().map(|tunnel| (format!("t{}", tunnel.far), tunnel.keys(wire.mtu))).collect();
    let mut devices: Vec<String> =
        (0..).zip(&TUNNELS[..3]).map(|(unit, tunnel)| tunnel.uml(Side::Far, unit, wire.mtu)).collect();
    for (far, outer, key) in [(15, Outer::V4, Some(0x7fff_ffff)), (16, Outer::V6, None)] {
        let unit = devices.len();
        tunnels.push((format!("t{far}"), gre_keys(far, outer, key, wire.mtu)));
        devices.push(gre_uml(unit, far, outer, key, wire.mtu));
        wire.add_far(outer, far)?;
    }
    for tunnel in &TUNNELS[..3] {
        wire.add_far(tunnel.outer, tunnel.far)?;
    }
    let switch = wire.switch(lab, &tunnels)?;
    let mut guest = LinuxGuest::start(lab, GuestKind::Uml, 1, "a")?;
    let mut far = LinuxGuest::start_with_devices(lab, 2, wire.far().command("setarch"), &devices)?;
    for guest in [&mut guest, &mut far] {
        guest.boot()?;
        guest.load_ip6()?;
    }
    for (number, interface) in (1..).zip(["eth0", "vec1", "vec2", "vec3", "vec4"]) {
        say!("  {}", tunnels[usize::from(number) - 1].1.replace('\n', ", "));
        let inner = Inner(number);
        inner.join(&mut guest, "eth0", 1, wire.mtu)?;
        inner.join(&mut far, interface, 2, wire.mtu)?;
        inner.exchange(&mut guest, &mut far, wire.mtu)?;
        if number == 1 {
            capture(lab, &wire, &mut guest, &mut far, inner, &TSHARK)?;
        }
    }
    carried(&switch, &tunnels)?;
    switch.stop()
}

/// Returns the lines of the section of a GRE tunnel.
fn gre_keys(far: u8, outer: Outer, key: Option<u32>, mtu: u32) -> String {
    let key = key.map_or(String::new(), |key| format!("\nkey = {key}"));
    format!("kind = \"gre\"\nunderlay = \"wan\"\nremote = \"{}\"\nmtu = {mtu}{key}", outer.address(far))
}

/// Returns the far end of a GRE tunnel as the device `unit` of User Mode Linux.
fn gre_uml(unit: usize, far: u8, outer: Outer, key: Option<u32>, mtu: u32) -> String {
    let key = key.map_or(String::new(), |key| format!(",rx_key={key},tx_key={key}"));
    let [own, others] = [far, 1].map(|host| outer.address(host));
    let v6 = u8::from(outer == Outer::V6);
    format!("vec{unit}:transport=gre,src={own},dst={others},v6={v6},depth=128,mtu={mtu}{key}")
}

/// The carrier of L2TPv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// IP protocol 115.
    Ip,
    /// UDP, with port 1701 at both ends.
    Udp,
}

/// The end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Near,
    Far,
}

/// A tunnel from host 1 of the underlay's network to another host. Pairs are what the near end and
/// the far end receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct L2tpv3 {
    pub(super) far: u8,
    pub(super) outer: Outer,
    pub(super) over: Over,
    pub(super) sessions: [u32; 2],
    /// Four or eight bytes in hexadecimal, or none.
    pub(super) cookies: Option<[&'static str; 2]>,
}

impl L2tpv3 {
    /// Returns what one side receives and sends: of a pair.
    fn directions<T: Copy>(side: Side, [near, far]: [T; 2]) -> [T; 2] {
        match side {
            Side::Near => [near, far],
            Side::Far => [far, near],
        }
    }

    /// Returns the underlay's addresses of one side: its own and the other's.
    fn addresses(&self, side: Side) -> [String; 2] {
        let [own, others] = Self::directions(side, [1, self.far]);
        [self.outer.address(own), self.outer.address(others)]
    }

    fn has_long_cookies(&self) -> bool {
        self.cookies.is_some_and(|[cookie, _]| cookie.len() == 16)
    }

    /// Returns the lines of the tunnel's section in the configuration.
    pub(super) fn keys(&self, mtu: u32) -> String {
        let [session, peer_session] = self.sessions;
        let mut keys = format!(
            "kind = \"l2tpv3\"\nunderlay = \"wan\"\nremote = \"{}\"\nmtu = {mtu}\nsession = {session}\n\
             peer-session = {peer_session}",
            self.outer.address(self.far)
        );
        if let Some([cookie, peer_cookie]) = self.cookies {
            keys += &format!("\ncookie = \"{cookie}\"\npeer-cookie = \"{peer_cookie}\"");
        }
        if self.over == Over::Udp {
            keys += "\nover = \"udp\"";
        }
        keys
    }

    /// Starts one side as a QEMU without a machine, in a namespace with its address. It joins the
    /// tunnel with a tap, which gets a namespace of its own.
    pub(super) fn qemu(&self, lab: &Lab, namespace: &Namespace, side: Side) -> Result<(Proc, Place)> {
        let [own, others] = self.addresses(side);
        let [rx, tx] = Self::directions(side, self.sessions);
        let mut tunnel = format!("l2tpv3,id=t,src={own},dst={others},rxsession={rx},txsession={tx}");
        if self.outer == Outer::V6 {
            tunnel += ",ipv6=on";
        }
        if self.over == Over::Udp {
            tunnel += ",udp=on,srcport=1701,dstport=1701";
        }
        if let Some(cookies) = self.cookies {
            let [rx, tx] = Self::directions(side, cookies);
            tunnel += &format!(",rxcookie=0x{rx},txcookie=0x{tx}");
        }
        if self.has_long_cookies() {
            // QEMU takes any value as "on".
            tunnel += ",cookie64=on";
        }
        let tap = format!("tq{}", self.far);
        let backend = format!("tap,id=p,ifname={tap},script=no,downscript=no,vnet_hdr=off");
        let mut args = vec!["-machine", "none", "-nodefaults", "-display", "none"];
        for netdev in [&tunnel, &backend] {
            args.extend(["-netdev", netdev]);
        }
        args.extend(["-netdev", "hubport,id=h1,hubid=0,netdev=t", "-netdev", "hubport,id=h2,hubid=0,netdev=p"]);
        let name = format!("qemu{}", self.far);
        let mut qemu = namespace.start(lab, &name, "qemu-system-x86_64", &args)?;
        proc::until(&format!("{name} makes {tap}"), || {
            let ended = qemu.ended()?.map(|status| anyhow::anyhow!("{name} ended ({status}): {:?}", qemu.texts()));
            ended.map_or(Ok(()), Err)?;
            Ok(namespace.link(&tap)?.map(|_| ()))
        })?;
        let place = Place::of(namespace, &tap).with_context(|| format!("the tap of {name}"))?;
        Ok((qemu, place))
    }

    /// Returns one side as the device `unit` of User Mode Linux.
    pub(super) fn uml(&self, side: Side, unit: u8, mtu: u32) -> String {
        let [own, others] = self.addresses(side);
        // The driver reads sessions as signed numbers.
        let [rx, tx] = Self::directions(side, self.sessions.map(u32::cast_signed));
        let flag = |is: bool| u8::from(is);
        let mut device = format!(
            "vec{unit}:transport=l2tpv3,src={own},dst={others},rx_session={rx},tx_session={tx},v6={},udp={},depth=128,\
             mtu={mtu}",
            flag(self.outer == Outer::V6),
            flag(self.over == Over::Udp)
        );
        if self.over == Over::Udp {
            device += ",srcport=1701,dstport=1701";
        }
        if let Some(cookies) = self.cookies {
            let [rx, tx] = Self::directions(side, cookies);
            device += &format!(",cookie64={},rx_cookie=0x{rx},tx_cookie=0x{tx}", flag(self.has_long_cookies()));
        }
        device
    }
}
