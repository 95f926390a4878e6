//! A reference model of bridges with VLANs (IEEE 802.1Q, 6.9, 8.6 to 8.8): slow and obvious. It
//! predicts the outputs of each frame.

use std::collections::HashMap;

use super::topology::{CUSTOMER, Mode, Native, PORTS, PROVIDER, VlanPort};

/// A deviation of a third-party switch from this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A tag of either TPID is a tag of the bridge, and leaves by trunks as it came.
    AnyTpid,
    /// The drop eligible indicator is sometimes lost, so it is not compared.
    SomeDei,
    /// A customer's outer tag of VLAN 0 and priority 0 is lost.
    NullTagLost,
    /// Ports have no default priority.
    NoPortPriority,
    /// Frames with a group address as source, or with none, are forwarded.
    AnySource,
    /// Sources of frames to reserved addresses are not learned.
    ReservedUnlearned,
    /// Sources of pause frames are not learned.
    PauseUnlearned,
    /// Access and customer ports read tags of the bridge: of their own VLAN or of VLAN 0.
    OwnTag,
    /// Access ports take tags of the other TPID as payload.
    OtherTpidIsPayload,
    /// Frames to the group address of customers' bridges are forwarded.
    BridgeGroupForwarded,
    /// Provider bridges drop frames to the addresses that are reserved in customers' bridges only.
    CustomerReservedDropped,
    /// Ports take off one tag of VLAN 0 of their own TPID, and take what is behind it as payload.
    OnePriorityTag,
    /// A frame leaves without a tag of its VLAN, and begins with a tag that was inside.
    NestedTagFirst,
}

/// A frame at one of the outputs: the index of its port, and its bytes.
pub(super) type Delivery = (usize, Vec<u8>);

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) tpid: u16,
    pub(super) vid: u16,
    pub(super) priority: u8,
    pub(super) dei: bool,
}

impl Tag {
    /// Returns the four bytes of the tag.
    pub(super) fn bytes(self) -> [u8; 4] {
        let [high, low] = (self.vid | u16::from(self.priority) << 13 | u16::from(self.dei) << 12).to_be_bytes();
        let [first, second] = self.tpid.to_be_bytes();
        [first, second, high, low]
    }
}

/// The beginning of a frame behind its addresses.
#[derive(Clone, Copy)]
enum Outer {
    Untagged,
    Tagged(Tag),
    /// The frame ends inside the tag.
    Cut,
}

/// The bridges, and what they have learned.
pub(super) struct Model {
    rules: Vec<Rule>,
    /// The port of each station, by bridge, VLAN and address.
    stations: HashMap<(usize, u16, [u8; 6]), usize>,
}

const GROUP: u8 = 1;

/// The TPID of providers' tags before 802.1ad, which some receivers still take for one.
const OLD_PROVIDER: u16 = 0x9100;

impl Model {
    /// Creates bridges that have learned nothing, with these deviations.
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self { rules: rules.to_vec(), stations: HashMap::new() }
    }

    fn is(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// Returns the outputs of a frame that port `from` receives.
    pub(super) fn forward(&mut self, from: usize, frame: &[u8]) -> Vec<Delivery> {
        let Some((tag, inner)) = self.classify(&PORTS[from], frame) else { return Vec::new() };
        let bridge = PORTS[from].bridge;
        let destination: [u8; 6] = frame[..6].try_into().unwrap_or_default();
        let source: [u8; 6] = frame[6..12].try_into().unwrap_or_default();
        let is_station = source[0] & GROUP == 0 && source != [0; 6];
        if !is_station && !self.is(Rule::AnySource) {
            return Vec::new();
        }
        let is_reserved = destination[..5] == [0x01, 0x80, 0xc2, 0, 0] && destination[5] < 16;
        let is_pause = is_reserved && destination[5] == 1;
        let is_unlearned = is_reserved && self.is(Rule::ReservedUnlearned) || is_pause && self.is(Rule::PauseUnlearned);
        if is_station && !is_unlearned {
            self.stations.insert((bridge, tag.vid, source), from);
        }
        if is_reserved && !self.forwards_reserved(PORTS[from].tpid(), destination[5]) {
            return Vec::new();
        }
        let known = self.stations.get(&(bridge, tag.vid, destination)).filter(|_| destination[0] & GROUP == 0);
        let is_output = |at: usize| match known {
            Some(&port) => at == port,
            None => PORTS[at].bridge == bridge && PORTS[at].has(tag.vid),
        };
        let is_hopping = |at: usize| !self.is(Rule::NestedTagFirst) && hops(&PORTS[at], tag.vid, &inner);
        let outputs = (0..PORTS.len()).filter(|&at| at != from && is_output(at) && !is_hopping(at));
        outputs.map(|at| (at, self.finish(&PORTS[at], tag, &inner))).collect()
    }

    /// Returns true if a bridge forwards frames to the reserved address with this last byte (IEEE 802.1Q,
    /// tables 8-1 and 8-2).
    fn forwards_reserved(&self, tpid: u16, address: u8) -> bool {
        let is_customers = [0x00, 0x0b, 0x0c, 0x0d, 0x0f].contains(&address) && tpid == PROVIDER;
        is_customers && !self.is(Rule::CustomerReservedDropped) || address == 0 && self.is(Rule::BridgeGroupForwarded)
    }

    /// Returns an output without its bytes that are not compared.
    pub(super) fn compared(&self, (port, mut bytes): Delivery) -> Delivery {
        if let Outer::Tagged(_) = outer_of(&bytes)
            && self.is(Rule::SomeDei)
        {
            bytes[14] &= 0xef;
        }
        (port, bytes)
    }

    /// Returns the bridge's tag of a received frame, and the frame without it; or `None` if the port
    /// drops the frame.
    fn classify(&self, port: &VlanPort, frame: &[u8]) -> Option<(Tag, Vec<u8>)> {
        let outer = outer_of(frame);
        if matches!(outer, Outer::Cut) {
            return None;
        }
        let is_own = |tag: &Tag| tag.tpid == port.tpid() || self.is(Rule::AnyTpid);
        let enter = |vid: u16| {
            let priority = if self.is(Rule::NoPortPriority) { 0 } else { port.priority };
            let tpid =
                if self.is(Rule::AnyTpid) && !matches!(port.mode, Mode::Qinq(_)) { CUSTOMER } else { port.tpid() };
            let is_lost =
                matches!(outer, Outer::Tagged(tag) if tag.vid == 0 && tag.priority == 0) && self.is(Rule::NullTagLost);
            let inner = if is_lost { without_tag(frame) } else { frame.to_vec() };
            Some((Tag { tpid, vid, priority, dei: false }, inner))
        };
        let strip = |tag: Tag, vid: u16| Some((Tag { vid, ..tag }, without_tag(frame)));
        match (&port.mode, outer) {
            (Mode::Trunk(_, native), Outer::Tagged(tag)) if tag.vid == 0 && !self.is(Rule::OnePriorityTag) => {
                let vid = native.as_ref()?.vlan;
                Some((Tag { tpid: port.tpid(), vid, ..tag }, behind_priority_tags(frame)?))
            }
            (Mode::Trunk(_, native), outer) => match outer {
                Outer::Tagged(tag) if is_own(&tag) && tag.vid != 0 => {
                    port.has(tag.vid).then(|| strip(tag, tag.vid)).flatten()
                }
                Outer::Tagged(tag) if is_own(&tag) => strip(tag, native.as_ref()?.vlan),
                _ => enter(native.as_ref()?.vlan),
            },
            (Mode::Access(vlan), Outer::Tagged(tag)) if !self.is(Rule::OnePriorityTag) => {
                Some((Tag { vid: *vlan, ..tag }, without_priority_tags(frame)?))
            }
            (Mode::Access(vlan) | Mode::Qinq(vlan), Outer::Tagged(tag)) if is_own(&tag) && self.is(Rule::OwnTag) => {
                (tag.vid == 0 || tag.vid == *vlan).then(|| strip(tag, *vlan)).flatten()
            }
            (Mode::Access(vlan), Outer::Tagged(tag)) if is_own(&tag) => {
                (tag.vid == 0).then(|| strip(tag, *vlan)).flatten()
            }
            (Mode::Access(_), Outer::Tagged(_)) if !self.is(Rule::OtherTpidIsPayload) => None,
            (Mode::Access(vlan) | Mode::Qinq(vlan), _) => enter(*vlan),
        }
    }

    /// Returns the frame as a port sends it.
    fn finish(&self, port: &VlanPort, tag: Tag, inner: &[u8]) -> Vec<u8> {
        match port.mode {
            Mode::Access(_) | Mode::Qinq(_) => inner.to_vec(),
            Mode::Trunk(_, Some(Native { vlan, tagged: false })) if vlan == tag.vid => inner.to_vec(),
            Mode::Trunk(..) => {
                let tpid = if self.is(Rule::AnyTpid) { tag.tpid } else { port.tpid() };
                [&inner[..12], &Tag { tpid, ..tag }.bytes(), &inner[12..]].concat()
            }
        }
    }
}

/// Returns true if a frame would leave by a port without a tag of its VLAN, and with one that was inside.
fn hops(port: &VlanPort, vlan: u16, inner: &[u8]) -> bool {
    let is_untagged = match &port.mode {
        Mode::Access(_) => true,
        Mode::Qinq(_) => false,
        Mode::Trunk(_, native) => matches!(native, Some(native) if native.vlan == vlan && !native.tagged),
    };
    let kind = inner.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    is_untagged && [CUSTOMER, PROVIDER, OLD_PROVIDER].contains(&kind)
}

/// Returns the outer tag of a frame, if it has one.
pub(super) fn outer_tag(frame: &[u8]) -> Option<Tag> {
    match outer_of(frame) {
        Outer::Tagged(tag) => Some(tag),
        Outer::Untagged | Outer::Cut => None,
    }
}

/// Reads the beginning of a frame behind its addresses.
fn outer_of(frame: &[u8]) -> Outer {
    let number = |at: usize| frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let tpid = number(12);
    if ![CUSTOMER, PROVIDER].contains(&tpid) {
        return Outer::Untagged;
    }
    if frame.len() < 18 {
        return Outer::Cut;
    }
    let tci = number(14);
    let priority = u8::try_from(tci >> 13).unwrap_or_default();
    Outer::Tagged(Tag { tpid, vid: tci & 0xfff, priority, dei: tci & 0x1000 != 0 })
}

/// Returns a frame without its tags of VLAN 0; `None` if one of another VLAN is behind them.
fn without_priority_tags(frame: &[u8]) -> Option<Vec<u8>> {
    behind_priority_tags(frame).filter(|rest| matches!(outer_of(rest), Outer::Untagged))
}

/// Returns a frame without its tags of VLAN 0, of which there are at most four.
fn behind_priority_tags(frame: &[u8]) -> Option<Vec<u8>> {
    let mut rest = frame.to_vec();
    for _ in 0..4 {
        match outer_of(&rest) {
            Outer::Tagged(tag) if tag.vid == 0 => rest = without_tag(&rest),
            _ => break,
        }
    }
    match outer_of(&rest) {
        Outer::Cut => None,
        Outer::Tagged(tag) if tag.vid == 0 => None,
        Outer::Tagged(_) | Outer::Untagged => Some(rest),
    }
}

/// Returns a frame without its outer tag.
fn without_tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &frame[16..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ALL: [u8; 6] = [0xff; 6];

    fn port(name: &str) -> usize {
        PORTS.iter().position(|port| port.name == name).expect("a port")
    }

    /// Returns a frame with these bytes behind its addresses.
    fn frame(to: [u8; 6], from: [u8; 6], rest: &str) -> Vec<u8> {
        let digits: Vec<u8> = rest.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("two digits");
        [&to[..], &from, &digits.chunks(2).map(byte).collect::<Vec<_>>()].concat()
    }

    /// Asserts the outputs of a frame to all stations: the bytes behind the addresses, by port.
    fn floods(from: &str, rest: &str, outputs: &[(&str, &str)]) {
        let mut came = Model::new(&[]).forward(port(from), &frame(ALL, ONE, rest));
        let mut right: Vec<Delivery> = outputs.iter().map(|(name, rest)| (port(name), frame(ALL, ONE, rest))).collect();
        came.sort();
        right.sort();
        assert_eq!(came, right, "{rest} into {from}");
    }

    #[test]
    fn an_access_port_tags_and_refuses() {
        // The port's priority is 5. That of a tag counts more, and has an indicator.
        for (inside, tag) in
            [("88b5 07", "8100 a00a"), ("8100 7000 88b5 07", "8100 700a"), ("88a8 7000 8100 e000 88b5 07", "8100 700a")]
        {
            let tagged = format!("{tag} 88b5 07");
            let trunks = ["trunk", "untagged", "tagged"].map(|name| (name, tagged.as_str()));
            floods("b10", inside, &[&[("a10", "88b5 07")], &trunks[..]].concat());
        }
        let five = "8100 0000 ".repeat(5) + "88b5";
        for refused in [
            "8100 000a 88b5",
            "8100 0014 88b5",
            "88a8 0001 88b5",
            "8100",
            "8100 0000 88",
            "8100 0000 8100 0014 88b5",
            &five,
        ] {
            floods("b10", refused, &[]);
        }
    }

    #[test]
    fn a_trunk_filters_and_keeps_priorities() {
        floods("trunk", "8100 f01f 88b5 07", &[("tagged", "8100 f01f 88b5 07")]);
        floods("trunk", "8100 e014 8100 0001 88b5", &[("tagged", "8100 e014 8100 0001 88b5")]);
        floods("trunk", "8100 e014 9100 0001 88b5", &[("tagged", "8100 e014 9100 0001 88b5")]);
        for refused in ["88b5", "8100 0000 88b5", "8100 0024 88b5", "8100 0fff 88b5", "88a8 000a 88b5"] {
            floods("trunk", refused, &[]);
        }
        let native = [("a20", "88b5 07"), ("trunk", "8100 0014 88b5 07"), ("tagged", "8100 0014 88b5 07")];
        floods("untagged", "88b5 07", &native);
    }

    #[test]
    fn a_customer_keeps_all_tags() {
        for inside in ["88b5 07", "8100 0000 88b5", "88a8 0064 88b5", "8100 0fff 8100 0001 88b5"] {
            let tagged = format!("88a8 6064 {inside}");
            floods("d100", inside, &[("c100", inside), ("core", &tagged), ("edge", &tagged)]);
        }
    }

    #[test]
    fn a_provider_carries_the_protocols_of_its_customers_bridges() {
        for (address, is_carried) in [(0x00, true), (0x01, false), (0x08, false), (0x0b, true), (0x0e, false)] {
            let to = [0x01, 0x80, 0xc2, 0, 0, address];
            let outputs = |from: &str| Model::new(&[]).forward(port(from), &frame(to, ONE, "88b5")).len();
            assert_eq!((outputs("a10"), outputs("c100")), (0, 3 * usize::from(is_carried)), "{address:#x}");
        }
    }

    #[test]
    fn stations_are_learned_in_their_vlan() {
        let mut model = Model::new(&[]);
        let mut outputs = |from: &str, to: [u8; 6], source: [u8; 6], rest: &str| -> Vec<&str> {
            let deliveries = model.forward(port(from), &frame(to, source, rest));
            deliveries.iter().map(|(at, _)| PORTS[*at].name).collect()
        };
        outputs("a10", ALL, ONE, "88b5");
        assert_eq!(outputs("trunk", ONE, TWO, "8100 000a 88b5"), ["a10"]);
        // In another VLAN it is another station.
        assert_eq!(outputs("trunk", ONE, TWO, "8100 0014 88b5"), ["a20", "untagged", "tagged"]);
        assert_eq!(outputs("a10", TWO, ONE, "88b5"), ["trunk"]);
        // A frame that the port refuses teaches nothing.
        outputs("tagged", ALL, TWO, "8100 0024 88b5");
        assert_eq!(outputs("a10", TWO, ONE, "88b5"), ["trunk"]);
        assert_eq!(outputs("trunk", TWO, ONE, "8100 000a 88b5"), [""; 0]);
    }
}
