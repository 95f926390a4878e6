//! Differences of third-party switches from the model, with their reasons. Any other difference is
//! a fault.

use super::model::Rule;

/// A difference, with its reason.
pub(super) struct Difference {
    pub(super) rule: Rule,
    pub(super) reason: &'static str,
}

const fn differs(rule: Rule, reason: &'static str) -> Difference {
    Difference { rule, reason }
}

/// The reason why others let a frame leave with a tag from inside.
const INNER_TAG: &str = "others pass a tag from inside to access ports and native VLANs, where it names another VLAN";

/// The reason why others take off one tag of VLAN 0 only.
const ONE_TAG: &str = "others read the outer tag only, and the tag behind one of VLAN 0 is payload for them";

pub(super) const OVS: [Difference; 9] = [
    differs(Rule::AnyTpid, "OvS looks at the VLAN of a tag only, and trunks send a tag's TPID as it came"),
    differs(Rule::SomeDei, "OvS has no such bit, so it is lost where OvS writes a tag anew for one of the outputs"),
    differs(Rule::NullTagLost, "OvS takes a tag without bits as no tag"),
    differs(Rule::NoPortPriority, "OvS has no priority of a port"),
    differs(Rule::AnySource, "OvS does not learn such a source, but forwards the frame"),
    differs(Rule::ReservedUnlearned, "OvS drops frames to reserved addresses before it learns"),
    differs(Rule::CustomerReservedDropped, "OvS has one list of reserved addresses for all bridges"),
    differs(Rule::OnePriorityTag, ONE_TAG),
    differs(Rule::NestedTagFirst, INNER_TAG),
];

pub(super) const LINUX: [Difference; 7] = [
    differs(Rule::OwnTag, "the VLAN of untagged frames (PVID) does not refuse tagged frames of the same VLAN"),
    differs(Rule::OtherTpidIsPayload, "a bridge of one TPID takes all other tags as payload"),
    differs(Rule::NoPortPriority, "a Linux bridge has no priority of a port"),
    differs(Rule::PauseUnlearned, "a Linux bridge drops pause frames before it learns"),
    differs(Rule::BridgeGroupForwarded, "without its spanning tree protocol, a Linux bridge forwards that of others"),
    differs(Rule::OnePriorityTag, ONE_TAG),
    differs(Rule::NestedTagFirst, INNER_TAG),
];
