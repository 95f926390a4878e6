//! Packets that OvS changes in another way. `docs/flows.md` lists them, and says why we do not.

/// A way in which OvS changes some packets otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// It writes fields of the transport header, and checksums, into fragments that have none.
    LaterFragment,
    /// Behind a routing or fragment header of IPv6, it does not adjust the transport checksum for a new
    /// address.
    ExtensionHeader,
    /// It changes no field of IP with the protocol 0, and none of ARP with the operation 0.
    NoProtocol,
    /// It changes the target of neighbour discovery that has an option twice, and so none of its fields.
    TwiceTheOption,
}

impl Difference {
    /// Returns the difference that a packet may show; `None` for others.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let Network { protocol, is_arp, fragment, is_extended, begin, left, .. } = network(frame)?;
        if protocol == 0 {
            Some(Self::NoProtocol)
        } else if is_arp {
            None
        } else if fragment == Fragment::Later {
            Some(Self::LaterFragment)
        } else if is_extended {
            Some(Self::ExtensionHeader)
        } else {
            let is_twice = protocol == 58 && has_an_option_twice(frame.get(begin..begin + left)?);
            is_twice.then_some(Self::TwiceTheOption)
        }
    }

    /// Returns the bytes of a packet that both switches must send alike.
    pub(super) fn compared(self, frame: &[u8]) -> Vec<u8> {
        let Some(Network { at, behind, .. }) = network(frame) else { return frame.to_vec() };
        let end = if self == Self::NoProtocol { at } else { behind };
        let mut compared = frame[..end.min(frame.len())].to_vec();
        compared.extend(frame.len().to_be_bytes());
        compared
    }
}

/// Returns whether a packet begins with two tags of VLAN 0. OvS takes the second one for the type, and we step
/// over both.
pub(super) fn has_several_priority_tags(frame: &[u8]) -> bool {
    [12, 16].into_iter().all(|at| {
        let tag = frame.get(at..).and_then(|rest| rest.first_chunk());
        matches!(tag, Some([0x81, 0, high, 0] | [0x88, 0xa8, high, 0]) if high & 0xf == 0)
    })
}

/// Returns whether the headers of a packet can be changed. Of a damaged header, OvS keeps the new values of
/// fields for later tables, and we do not. We drop a first fragment whose checksum cannot be adjusted, since
/// it is in a later one or covers bytes that are there; OvS sends it on with a wrong one.
pub(super) fn can_change(frame: &[u8]) -> bool {
    network(frame).is_none_or(|network| {
        let Network { is_damaged, protocol, fragment, begin, left, .. } = network;
        let least = match protocol {
            _ if fragment == Fragment::Later => 0,
            132 if fragment == Fragment::First => return false,
            // A header of TCP says its length.
            6 => match frame.get(begin + 12) {
                Some(offset) if offset >> 4 >= 5 => usize::from(offset >> 4) * 4,
                _ => return false,
            },
            132 => 12,
            1 | 17 | 58 => 8,
            _ => 0,
        };
        !is_damaged && left >= least
    })
}

/// Returns whether a message of neighbour discovery has one of its options twice.
fn has_an_option_twice(message: &[u8]) -> bool {
    let mut seen = [0; 2];
    let mut options = message.get(24..).unwrap_or_default();
    while let [kind, eights, ..] = options {
        let is_address = matches!(kind, 1 | 2) && *eights == 1;
        seen[usize::from(*kind == 2)] += u32::from(is_address);
        match options.split_at_checked(usize::from(*eights) * 8) {
            Some((option, rest)) if !option.is_empty() => options = rest,
            _ => break,
        }
    }
    seen.into_iter().any(|count| count > 1)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fragment {
    #[default]
    None,
    First,
    Later,
}

/// The network header behind all tags.
#[derive(Debug, Default)]
struct Network {
    /// Place of the header.
    at: usize,
    /// Place behind the header without IPv6's extensions.
    behind: usize,
    /// Place behind all headers of the network, and the number of bytes there.
    begin: usize,
    left: usize,
    /// Protocol of IP, or operation of ARP.
    protocol: u8,
    is_arp: bool,
    fragment: Fragment,
    is_damaged: bool,
    /// There is a fragment header of IPv6, or a routing header that names further hops.
    is_extended: bool,
}

fn network(frame: &[u8]) -> Option<Network> {
    let mut at = 12;
    while matches!(half(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    if half(frame, at)? < 0x600 {
        at += 8;
    }
    let kind = half(frame, at)?;
    at += 2;
    let header = frame.get(at..)?;
    let mut network = Network { at, behind: at, ..Network::default() };
    match kind {
        0x800 => network.ipv4(header),
        0x86dd => network.ipv6(header),
        0x806 | 0x8035 => network.arp(header),
        _ => return None,
    }?;
    Some(network)
}

impl Network {
    fn ipv4(&mut self, header: &[u8]) -> Option<()> {
        let len = usize::from(header.first()? & 15) * 4;
        let total = usize::from(half(header, 2)?);
        self.behind += len;
        self.begin = self.behind;
        self.left = total.saturating_sub(len);
        self.is_damaged = len < 20 || total < len || total > header.len();
        self.protocol = *header.get(9)?;
        let place = half(header, 6)?;
        self.fragment = match (place & 0x1fff, place & 0x2000) {
            (0, 0) => Fragment::None,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        Some(())
    }

    fn arp(&mut self, header: &[u8]) -> Option<()> {
        self.is_arp = true;
        self.is_damaged = header.len() < 28 || header[..6] != [0, 1, 8, 0, 6, 4];
        // OvS knows operations up to 255.
        self.protocol = u8::try_from(half(header, 6)?).unwrap_or(0);
        Some(())
    }

    fn ipv6(&mut self, header: &[u8]) -> Option<()> {
        self.behind += 40;
        self.protocol = *header.get(6)?;
        let end = 40 + usize::from(half(header, 4)?);
        let mut at = 40;
        while let 0 | 43 | 44 | 51 | 60 = self.protocol {
            let Some(extension) = header.get(at..at + 8) else {
                self.is_damaged = true;
                break;
            };
            self.is_extended |= self.protocol == 44 || self.protocol == 43 && extension[3] > 0;
            at += match self.protocol {
                44 => 8,
                51 => (usize::from(extension[1]) + 2) * 4,
                _ => (usize::from(extension[1]) + 1) * 8,
            };
            if self.protocol == 44 {
                let place = half(extension, 2)?;
                if place >> 3 != 0 {
                    self.fragment = Fragment::Later;
                    break;
                }
                if place != 0 {
                    self.fragment = Fragment::First;
                }
            }
            self.protocol = extension[0];
        }
        self.begin = self.at + at;
        self.left = end.saturating_sub(at);
        self.is_damaged |= at > end || end > header.len();
        Some(())
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_be_bytes(*half))
}
