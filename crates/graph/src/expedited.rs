//! Packets that pass before others: those of some classes of service.

use straightline_packet::{Batch, Packets};
use straightline_wire::{DscpSet, dscp_of};

/// Splits a batch into the packets of these classes, and the others. Each part keeps its order.
pub(crate) fn split(packets: &Packets<'_>, batch: &Batch, classes: DscpSet) -> (Batch, Batch) {
    let mut first = Batch::new();
    let mut rest = Batch::new();
    if classes.is_empty() {
        rest.clone_from(batch);
        return (first, rest);
    }
    for &id in batch.ids() {
        let is_expedited = dscp_of(packets.head(id)).is_some_and(|dscp| classes.contains(dscp));
        if is_expedited { first.push(id) } else { rest.push(id) }
    }
    (first, rest)
}
