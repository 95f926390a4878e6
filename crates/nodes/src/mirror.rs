//! A mirror: every packet continues, and a copy of it goes to a port that watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use straightline_api::{MirroredTo, Row};
use straightline_graph::{Next, Node, NodeControl, Rows, TableView};
use straightline_packet::{Batch, Packets};

/// Sends each packet along edge 0, where it continues, and along a second edge, to the output of
/// the mirror port.
///
/// Both edges carry the same packet: nothing is copied here. The output of the mirror port copies
/// bytes into its guest's buffers as for any delivery, and leaves the packet as it is. It segments
/// the packet, or completes its checksum, only for its own guest.
///
/// The builder of the graph, not the mirror, decides when the mirror port's output runs:
///
/// * Right after the mirror, the guest of the mirror port sees the packet as it was here.
/// * After outputs that wait (`full = "wait"`), the guest sees each packet once, even if the packet
///   passed here several times. The packet's head then has the changes that later nodes made.
#[derive(Clone, Debug)]
pub struct Mirror {
    copy: usize,
    control: Arc<MirrorControl>,
}

/// The control half of a mirror: where the copies go, and how many there were.
#[derive(Debug)]
struct MirrorControl {
    port: String,
    /// Mirrors of several workers add to it, once for a batch.
    copies: AtomicU64,
}

impl Mirror {
    /// Creates a mirror whose edge `copy` leads to the mirror port of this name.
    pub fn new(copy: usize, port: impl Into<String>) -> Self {
        Mirror { copy, control: Arc::new(MirrorControl { port: port.into(), copies: AtomicU64::new(0) }) }
    }
}

impl Node for Mirror {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        next.extend(0, batch.ids());
        next.extend(self.copy, batch.ids());
        self.control.copies.fetch_add(batch.ids().len() as u64, Ordering::Relaxed);
    }

    fn changes_packets(&self) -> bool {
        false
    }

    fn control(&self) -> Option<Arc<dyn NodeControl>> {
        Some(Arc::clone(&self.control) as _)
    }
}

impl NodeControl for MirrorControl {
    fn commit(&self, before: &dyn NodeControl) {
        if let Some(before) = before.downcast::<Self>() {
            self.copies.fetch_add(before.copies.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn rows(&self, _: &TableView<'_>, rows: &mut Rows) {
        rows.add(|| self.port.clone(), || Row::MirroredTo(MirroredTo { port: self.port.clone() }));
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("packets", self.copies.load(Ordering::Relaxed))]
    }
}
