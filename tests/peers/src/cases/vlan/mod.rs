//! Bridges with VLANs: the same frames through third-party bridges and ours, and guests with VLAN
//! devices.
//!
//! | file | contents |
//! |---|---|
//! | `topology` | the bridges and ports of the comparison |
//! | `frames` | random frames, the same for each seed |
//! | `model` | the reference model, which predicts the outputs of each frame |
//! | `differences` | the differences of third-party switches from the model, with reasons |
//! | `exchange` | frames through a switch, and its outputs compared |
//! | `ovs`, `linux`, `ours` | the switches |
//! | `tags` | the tags that our switch has written, read by tshark |
//! | `guests` | guests with VLAN devices |

mod differences;
mod exchange;
mod frames;
mod guests;
mod linux;
mod model;
mod ours;
mod ovs;
mod tags;
mod topology;

use crate::machine::Need;
use crate::runner::{Test, beside_others};

/// Returns the tests.
pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("vlan_switch", &[Need::Tshark], ours::agrees),
        Test::new("vlan_switch_devices", &[Need::Namespaces], ours::devices_agree),
        Test::new("vlan_ovs", &[Need::PlainOvs], ovs::agrees),
        Test::new("vlan_linux", &[Need::Uml(1)], linux::agrees),
        Test::new("vlan_guests", &[Need::Uml(2), Need::Tshark], guests::exchange),
    ])
}
