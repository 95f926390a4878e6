//! Why something was refused, and how often.

use std::collections::BTreeMap;

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal;)+) => {
        /// The reason why a route or a station was refused, ignored or delayed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Refusal {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the reason's word.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            /// Returns the reason's meaning.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

refusals! {
    /// Received routes of a type that is not used: 1, 4, 5 and others.
    UnusedType = "unused-type";
    /// Received routes that cannot be read.
    Malformed = "malformed";
    /// Received routes of stations behind several hosts (a segment that is not zero).
    Segment = "segment";
    /// Received routes without a target of any network here.
    NoTarget = "no-common-target";
    /// Received routes of a network here, with an Ethernet tag that it does not have.
    UnknownTag = "unknown-tag";
    /// Received routes of a network here, with another VNI.
    OtherVni = "vni-mismatch";
    /// Received routes for tunnels that are not VXLAN.
    Encapsulation = "encapsulation";
    /// Received routes of type 3 without ingress replication.
    NoReplication = "no-ingress-replication";
    /// Received routes whose next hop is an own address.
    OwnNextHop = "own-next-hop";
    /// Received routes whose next hop is no host's address, or of the other version of IP.
    NextHop = "bad-next-hop";
    /// Received routes with an own route distinguisher: another host has the same router id.
    OwnDistinguisher = "own-distinguisher";
    /// Received routes for an address that is no station's.
    BadMac = "bad-mac";
    /// Received routes for an IP address that is no host's.
    BadAddress = "bad-address";
    /// Received routes beyond the limit.
    TooManyRoutes = "too-many-routes";
    /// Received routes of a host that has filled its share.
    HostFull = "host-full";
    /// Received routes from more hosts than a tunnel may have.
    TooManyRemotes = "too-many-remotes";
    /// Received routes for a station that is static here.
    StaticHere = "static-here";
    /// IP addresses that were not used, because another station has them.
    AddressElsewhere = "address-elsewhere";
    /// Stations here that were not announced, because another host says that they may not move.
    StickyElsewhere = "sticky-elsewhere";
    /// Stations that moved too often between hosts.
    Duplicate = "duplicate";
    /// Announcements that were delayed by the limits of their port.
    PortRate = "port-rate";
    /// Stations that were not announced, because their port has too many.
    PortFull = "port-full";
    /// Announcements that GoBGP refused.
    GoBgp = "refused-by-gobgp";
    /// Own paths that were withdrawn by somebody else.
    LostPath = "lost-path";
}

/// The number of refusals by reason.
#[derive(Clone, Debug, Default)]
pub struct Counters(BTreeMap<Refusal, u64>);

impl Counters {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        *self.0.entry(refusal).or_default() += 1;
    }

    /// Returns the number of refusals for this reason.
    #[must_use]
    pub fn get(&self, refusal: Refusal) -> u64 {
        self.0.get(&refusal).copied().unwrap_or_default()
    }
}
