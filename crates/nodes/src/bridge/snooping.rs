//! IGMP and MLD snooping (RFC 4541): packets to a multicast group go only to the ports that listen to it.
//!
//! The bridge reads the messages by which hosts join and leave groups, and sends none itself. So it needs
//! a querier: a router or another switch that asks hosts regularly.
//!
//! | frame | goes to |
//! |---|---|
//! | packet to a group with members | the members, and the ports of queriers |
//! | packet to another group | the ports of queriers |
//! | report of a host | the ports of queriers |
//! | query, hello of PIM, message of an unknown type, message that cannot be used | all ports |
//! | 224.0.0.0/24, ff02::/16, groups of the scopes 0 and 1 | all ports |
//! | broadcast, no IP, a tag of a VLAN in the frame, an Ethernet address of another group | all ports |
//! | more priority tags than receivers agree on | no port |
//!
//! - **Without a querier** in its VLAN, a packet goes to all ports: nobody asks hosts to repeat what they
//!   listen to. The same holds while hosts answer the first query. IPv4 and IPv6 are apart.
//! - **Sources are not filtered.** Whoever wants some sources of a group gets all of them.
//! - **What cannot be known is flooded.** A port whose reports are too long, or whose share of the table is
//!   full, gets all groups.
//! - **Guests can lie.** A guest that sends a query gets all groups and all reports of its VLAN. Without
//!   snooping it gets them, too. What it reports adds packets for its own port only, and a leave counts
//!   for its own port only.
//!
//! | file | what it has |
//! |---|---|
//! | `message.rs` | the meaning of a frame |
//! | `groups.rs` | the table: members, timers, shares |
//! | `store.rs` | the part of the table that workers read without a lock |
//! | `control.rs` | the control half: rows, counters, events, the successor at a reload |

mod control;
mod edge_set;
#[cfg(test)]
mod frames;
mod groups;
mod key;
mod message;
mod store;
#[cfg(test)]
mod store_loom;
mod sync;
#[cfg(test)]
mod tests;
mod timing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use straightline_packet::{Checksum, PacketId, Packets, Reason};
use straightline_wire::VlanId;

pub use control::SnoopingTable;
pub(super) use edge_set::EdgeSet;
use groups::Groups;
use key::GroupKey;
use message::{LongMessage, Meaning, Visible};

/// State that the bridges of all workers share.
#[derive(Debug)]
struct Shared {
    groups: Groups,
    counts: Counts,
}

/// Numbers of messages.
#[derive(Debug, Default)]
struct Counts {
    reports: AtomicU64,
    queries: AtomicU64,
    /// Messages that must not be used.
    invalid: AtomicU64,
    /// Messages that are longer than a head can be.
    long: AtomicU64,
}

/// The snooping of one worker's bridge.
#[derive(Debug)]
pub(crate) struct Snooper {
    shared: Arc<Shared>,
    outputs: EdgeSet,
    scratch: EdgeSet,
}

impl Snooper {
    fn new(shared: Arc<Shared>) -> Self {
        let outputs = shared.groups.set();
        Snooper { scratch: outputs.clone(), outputs, shared }
    }

    /// Returns whether frames to this Ethernet address, as a number, may be pruned: it is one of IPv4 or
    /// IPv6 groups (RFC 1112, 6.4; RFC 2464, 7).
    #[inline]
    pub(super) fn may_prune(to: u64) -> bool {
        to >> 23 == 0x01_005e << 1 || to >> 32 == 0x3333
    }

    /// Forgets what has expired. Called with each batch.
    #[inline]
    pub(super) fn sweep(&self, now: u32) {
        self.shared.groups.sweep(now);
    }

    /// Returns the edges for a frame to a group address that came from the edge `from`, which may be among
    /// them; `None` for all. Learns from the frame if it is a message.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(super) fn outputs(
        &mut self,
        packets: &mut Packets<'_>,
        id: PacketId,
        vlan: VlanId,
        from: usize,
    ) -> Result<Option<&EdgeSet>, Reason> {
        let now = packets.now();
        let mut meaning = visible(packets, id).meaning();
        if let Meaning::Long(end, _) = meaning
            && end <= packets.max_head(id)
        {
            packets.pull_up(id, end);
            meaning = visible(packets, id).meaning();
        }
        let Shared { groups, counts } = &*self.shared;
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        let is_known = match meaning {
            Meaning::Other => false,
            Meaning::Hidden => return Err(Reason::Hidden),
            Meaning::Packet(group) => {
                groups.outputs(GroupKey { vlan, group }, now, &mut self.outputs, &mut self.scratch)
            }
            Meaning::Report(report) => {
                add(&counts.reports);
                let queriers = GroupKey::of_queriers(vlan, report.version());
                let changes = report.changes().map(|(group, change)| (GroupKey { vlan, group }, change));
                groups.report(queriers, from, now, changes);
                groups.report_outputs(queriers, &mut self.outputs)
            }
            Meaning::GeneralQuery(version, timing) => {
                add(&counts.queries);
                groups.query(GroupKey::of_queriers(vlan, version), from, now, timing);
                false
            }
            Meaning::Hello(version) => {
                groups.hello(GroupKey::of_queriers(vlan, version), from, now);
                false
            }
            Meaning::Invalid => {
                add(&counts.invalid);
                false
            }
            Meaning::Long(_, kind) => {
                add(&counts.long);
                if kind == LongMessage::Report {
                    groups.send_all(from, now);
                }
                false
            }
        };
        Ok(is_known.then_some(&self.outputs))
    }
}

fn visible<'a>(packets: &'a Packets<'_>, id: PacketId) -> Visible<'a> {
    let is_unsummed = matches!(packets.checksum(id), Checksum::Partial { .. });
    Visible { head: packets.head(id), len: packets.len(id) as usize, is_unsummed }
}
