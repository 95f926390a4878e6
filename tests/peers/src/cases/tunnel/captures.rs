//! Captures of each kind of tunnel over IPv4 and IPv6, read by tshark. Two switches are the ends,
//! and the hosts of two namespaces exchange traffic through them by taps.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Carrier, Inner, Outer, SPACE, Wire};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::Capture;
use crate::proc::Proc;
use crate::runner::Test;
use crate::say::say;
use crate::traffic::{self, Transfer};

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("tunnel_captures", &[Need::Namespaces, Need::Captures], all_kinds)]
}

const MTU: u32 = 1500;

/// The keys of each tunnel, and the IP versions outside.
const TUNNELS: [(&str, &[Outer]); 12] = [
    ("kind = \"l2tpv3\"\ncookie = \"0011223344556677\"\nsession = 1", BOTH),
    ("kind = \"l2tpv3\"\ncookie = \"0011223344556677\"\nsession = 1\nover = \"udp\"", BOTH),
    ("kind = \"vxlan\"\nvni = 2", BOTH),
    ("kind = \"geneve\"\nvni = 3", BOTH),
    ("kind = \"geneve\"\nvni = 4\noptions = \"01020301deadbeef\"", &[Outer::V6]),
    ("kind = \"gre\"\nkey = 5\nchecksum = true", BOTH),
    ("kind = \"gre\"\nip = true", BOTH),
    ("kind = \"nvgre\"\nvsid = 6000", BOTH),
    ("kind = \"vxlan-gpe\"\nvni = 7", &[Outer::V4]),
    ("kind = \"vxlan-gpe\"\nvni = 8\nip = true", &[Outer::V6]),
    ("kind = \"gtpu\"\nteid = 9", BOTH),
    ("kind = \"mpls-udp\"\nlabel = 100", BOTH),
];

const BOTH: &[Outer] = &[Outer::V4, Outer::V6];

/// Returns each tunnel with its number.
fn numbered() -> impl Iterator<Item = (u8, &'static str, Outer)> {
    let each = TUNNELS.iter().flat_map(|(keys, outers)| outers.iter().map(move |&outer| (*keys, outer)));
    (1..).zip(each).map(|(number, (keys, outer))| (number, keys, outer))
}

/// Returns the configuration of the host `own`: a patch of each tunnel with a tap.
fn configuration(lab: &Lab, own: u8, port: &str) -> Result<String> {
    let api = lab.socket(&format!("api{own}"));
    let mut text = format!("[switch]\napi = \"{}\"\n\n[port.nic0]\n{port}\nmtu = {}\n", api.display(), MTU + SPACE);
    let [v4, v6] = [Outer::V4, Outer::V6].map(|outer| outer.address(own));
    write!(text, "\n[underlay.wan]\nport = \"nic0\"\naddress = [\"{v4}/24\", \"{v6}/64\"]\n")?;
    for (number, keys, outer) in numbered() {
        let remote = outer.address(3 - own);
        write!(text, "\n[port.t{number}]\n{keys}\nunderlay = \"wan\"\nremote = \"{remote}\"\nmtu = {MTU}\n")?;
        write!(text, "\n[port.h{number}]\nkind = \"tap\"\nname = \"h{number}\"\nmtu = {MTU}\n")?;
        write!(text, "\n[patch.p{number}]\nports = [\"h{number}\", \"t{number}\"]\n")?;
    }
    Ok(text)
}

fn all_kinds(lab: &Lab) -> Result<()> {
    let wire = Wire::new(Carrier::AfXdp, MTU)?;
    // A veth pair finishes no checksums, and the capture would have them unfinished.
    wire.far().sh("ethtool -K eth0 tx off")?;
    let places = [&wire.near, wire.far()];
    // The far switch leaves packets to the capture as well. The near one finishes all checksums.
    let ports = ["kind = \"af-xdp\"\ninterface = \"v1\"", "kind = \"af-packet\"\ninterface = \"eth0\""];
    let mut switches = Vec::new();
    for ((own, namespace), port) in (1..).zip(places).zip(ports) {
        let file = lab.log(&format!("switch{own}.toml"));
        std::fs::write(&file, configuration(lab, own, port)?)?;
        let name = format!("switch{own}");
        let mut command = namespace.command(&lab.machine.switch);
        command.arg("run").arg(file);
        let mut switch = Proc::start(&name, command, &lab.log(&name))?;
        let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
        switch.wait_text("its `ready`", 0, ready)?;
        switches.push(switch);
    }
    let mut near = LinuxGuest::in_namespace(lab, &wire.near, 1, "h1")?;
    let mut far = LinuxGuest::in_namespace(lab, wire.far(), 2, "h1")?;
    for (guest, host) in [(&mut near, 1), (&mut far, 2)] {
        guest.boot()?;
        for (number, ..) in numbered() {
            Inner(number).join(guest, &format!("h{number}"), host, MTU)?;
        }
    }
    for state in ["on", "off"] {
        say!("  segmentation and checksums by the switch are {state}");
        let capture = Capture::start(lab, wire.far(), "eth0")?;
        for (number, keys, outer) in numbered() {
            say!("  {} over {outer:?}", keys.replace('\n', ", "));
            near.sh(&format!("ethtool -K h{number} tx {state} tso {state}"))?;
            let address = Inner(number).v4(2);
            traffic::reach(&mut near, &address)?;
            let mut file = Transfer::prepare(&mut near, &mut far, &address, 9000, 1)?;
            file.send(&mut near)?;
            file.finish(&mut near, &mut far)?;
        }
        let count = usize::from(numbered().map(|(number, ..)| number).max().unwrap_or_default());
        capture.checksums_are_right_by(count * usize::try_from((1 << 20) / MTU)?, &super::l2tpv3::TSHARK)?;
    }
    traffic::no_errors(&mut far)
}
