//! Open vSwitch's user-space datapath. Its ports are streams (its devices for tests), so no kernel
//! touches a tag on the way.

use anyhow::Result;

use super::differences::OVS;
use super::topology::{BRIDGES, Mode, Native, PORTS, VlanPort};
use super::{exchange, frames};
use crate::cases::ends::{End, Stream};
use crate::lab::Lab;
use crate::ovs::PlainOvs;

pub(super) fn agrees(lab: &Lab) -> Result<()> {
    let mut ovs = PlainOvs::start(lab)?;
    for bridge in BRIDGES {
        ovs.add_bridge(bridge.name)?;
    }
    for port in PORTS {
        ovs.add_stream(BRIDGES[port.bridge].name, port.name, &settings(&port))?;
    }
    let mut ends: Vec<Box<dyn End>> = Vec::new();
    for port in PORTS {
        ends.push(Box::new(Stream::connect(&ovs.wait_stream(port.name)?)?));
    }
    exchange::agrees(lab, &mut ends, frames::MTU, &OVS)?;
    Ok(())
}

/// Returns the settings of a port in OvS's words.
fn settings(port: &VlanPort) -> Vec<String> {
    match &port.mode {
        Mode::Access(vlan) => vec![format!("tag={vlan}")],
        Mode::Qinq(vlan) => vec!["vlan_mode=dot1q-tunnel".to_owned(), format!("tag={vlan}")],
        Mode::Trunk(vlans, native) => {
            let vlans: Vec<String> = vlans.iter().map(u16::to_string).collect();
            let mut settings = vec![format!("trunks={}", vlans.join(","))];
            if let Some(Native { vlan, tagged }) = native {
                let mode = if *tagged { "tagged" } else { "untagged" };
                settings.extend([format!("vlan_mode=native-{mode}"), format!("tag={vlan}")]);
            }
            settings
        }
    }
}
