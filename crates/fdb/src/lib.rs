//! The forwarding database: the port behind which each station is.
//!
//! Bridges have one for their ports, and tunnels one for their remotes ([`FdbPort`]). A station is a
//! MAC address in a VLAN. An [`Fdb`] learns stations from the sources of frames, and forgets those
//! that are not heard for some time. Each port has a share of the table ([`Shares`]), so no guest
//! fills the table with invented addresses. It knows no packets, no clock and no graph: addresses,
//! ports and times are arguments.
//!
//! ```
//! use straightline_fdb::{Fdb, Station};
//! use straightline_packet::PortIndex;
//! use straightline_wire::{MacAddr, VlanId};
//!
//! let (a, b) = (PortIndex(0), PortIndex(1));
//! let fdb = Fdb::new(4096, 300, &[a, b], &[]);
//! let station = MacAddr([2, 0, 0, 0, 0, 1]);
//! fdb.learn(Station::new(VlanId::DEFAULT, station), a, 0);
//! let at = |now| fdb.lookup(Station::new(VlanId::DEFAULT, station), now);
//! assert_eq!((at(299), at(300)), (Some(a), None));
//! assert_eq!(fdb.lookup(Station::new(VlanId::MAX, station), 0), None, "another VLAN");
//! ```
#![forbid(unsafe_code)]

mod bindings;
mod journal;
mod owned;
mod port;
mod shares;
mod slots;
#[cfg(test)]
mod slots_loom;
mod sync;
mod table;
mod word;

pub use bindings::{
    BindOutcome, Binding, BindingChange, BindingCounts, BindingSource, Bindings, Claim, IpKey, MOST_QUESTIONS,
};
pub use journal::{FdbChange, FdbChangeKind};
pub use owned::{Newer, OwnedCommand, OwnedConflict, OwnedPlan, OwnedRow, OwnedTable, OwnerId, Owners};
pub use port::FdbPort;
pub use shares::{Reservation, Share, Shares, WhenFull};
pub use table::{Fdb, FdbEntry, FdbFreeze, FdbMove, FdbSpace, LearnOutcome, OwnOutcome, PlaceRank, PlaceRanks};
pub use word::Station;
