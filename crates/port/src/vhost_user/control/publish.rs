//! The link that workers see, rebuilt from the rings that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use az::SaturatingAs;
use straightline_virtio::features::{VIRTIO_NET_F_CSUM, VIRTIO_NET_F_MRG_RXBUF};
use straightline_virtio::net_header::Receiver;

use super::frontend::ConnectedFrontend;
use crate::vhost_user::data::link::Link;
use crate::vhost_user::data::steering::Steering;

impl ConnectedFrontend {
    /// Publishes a link with the rings as they are now, and waits until no worker uses the previous
    /// link.
    pub(crate) fn publish(&mut self) {
        self.generation += 1;
        // Without MQ the control ring is where the second pair would be (virtio 1.2, 5.1.2). A
        // frontend may also set up rings that no driver has. With MQ the driver sets the number of
        // pairs that it uses, but the setting may not reach us. A frontend may have far more pairs
        // than it starts, so workers see only pairs up to the last that was started.
        let started = self.rings.iter().rposition(Option::is_some).map_or(0, |index| index / 2 + 1);
        let started = started.saturating_as::<u16>().min(self.session.queue_pairs());
        self.started_pairs = self.started_pairs.max(started);
        self.shared.pairs_shown.fetch_max(self.started_pairs, Ordering::Relaxed);
        let pairs = usize::from(self.started_pairs);
        let running = |index: usize| self.rings.get(index)?.as_ref().map(|r| Arc::clone(&r.queue));
        let used = self.running_control().map_or(pairs, |_| self.control_queue.state.pairs().into());
        // Packets in a transmit ring wait until it is enabled for the first time. A ring that is
        // disabled later discards them (vhost-user, "Ring states").
        let was_enabled = |index: usize| {
            u16::try_from(index).ok().and_then(|index| self.session.ring(index)).is_some_and(|setup| setup.was_enabled)
        };
        let rx: Box<[_]> =
            (0..pairs).map(|pair| 2 * pair + 1).map(|index| running(index).filter(|_| was_enabled(index))).collect();
        self.assignment = self.shared.assignment();
        let tx = |worker: &usize| {
            let is_own = |pair: usize| self.assignment.tx_workers.get(pair) == Some(worker);
            Steering::new((0..pairs).map(|pair| running(2 * pair).filter(|_| pair < used)), is_own)
        };
        let tx: Box<[_]> = self.assignment.delivering.iter().map(tx).collect();
        let acked = self.session.acked_features();
        let offloads = if self.running_control().is_some() { self.control_queue.state.features() } else { acked };
        let log = self.active_log();
        for ring in self.rings.iter().flatten() {
            ring.queue.renew(log.cloned());
        }
        // The workers that deliver to each ring.
        let delivering = self.assignment.delivering.iter().copied().zip(tx.iter());
        let serves =
            delivering.flat_map(|(worker, to)| to.queues().iter().map(move |queue| (worker, Arc::clone(queue))));
        let serves: Vec<_> = serves.collect();
        let link = (rx.iter().any(Option::is_some) || tx.iter().any(Steering::any_runs)).then(|| {
            Box::new(Link {
                index: self.shared.data.index,
                memory: Arc::clone(&self.memory),
                log: log.cloned(),
                acked,
                receiver: Receiver::new(offloads),
                mergeable: acked & VIRTIO_NET_F_MRG_RXBUF != 0,
                // Segmentation needs this feature, so the feature is enough for all that a header
                // can ask for.
                reads_header: acked & VIRTIO_NET_F_CSUM != 0,
                max_len: self.shared.config.max_len(),
                rx,
                tx,
                broken: AtomicBool::new(false),
                generation: self.generation,
                inbox: Arc::clone(&self.shared.inbox),
            })
        });
        drop(self.shared.data.link.swap(link));
        for queue in self.rings.iter().flatten().map(|ring| &ring.queue) {
            queue.retain_buffer_waiters(|worker| serves.iter().any(|(by, to)| *by == worker && Arc::ptr_eq(to, queue)));
        }
        // There may be packets that came before any worker looked.
        self.shared.routing.wake();
    }
}
