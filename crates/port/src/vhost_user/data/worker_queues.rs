//! One worker's part of a port's queues.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use straightline_graph::QueueAssignment;

use super::link::Link;

/// The queues of a port that one worker serves. Only one thread uses it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerQueues {
    /// The pairs that the worker receives from, in ascending order.
    pub(crate) rx_pairs: Box<[usize]>,
    /// The position in `rx_pairs` that comes first in the next turn.
    pub(crate) first: AtomicUsize,
    /// The worker's number. Its waits for free buffers are recorded under it. A worker that does
    /// not deliver here never waits.
    pub(crate) worker: usize,
    /// The worker's position among the workers that deliver, which is its entry in [`Link::tx`]. 0
    /// for a worker that does not deliver.
    pub(crate) tx_index: usize,
    /// The fault epoch up to which no memory has vanished that this worker's packets came from.
    pub(crate) clean_epoch: AtomicU64,
}

impl WorkerQueues {
    pub(crate) fn new(worker: usize, rx_pairs: Box<[usize]>, tx_index: usize) -> Self {
        WorkerQueues { rx_pairs, first: AtomicUsize::new(0), worker, tx_index, clean_epoch: AtomicU64::new(u64::MAX) }
    }

    /// Returns a worker's part of an assignment.
    pub(crate) fn of(assignment: &QueueAssignment, worker: usize) -> Self {
        let pairs = (0..assignment.rx_workers.len()).filter(|&pair| assignment.rx_workers[pair] == worker).collect();
        WorkerQueues::new(worker, pairs, assignment.delivering.iter().position(|&other| other == worker).unwrap_or(0))
    }

    /// Returns the pairs that the worker receives from, up to the last that the guest has started.
    /// If a frontend may start a hundred pairs and starts one, the worker visits only one.
    pub(crate) fn rx_pairs(&self, link: &Link) -> &[usize] {
        let started = self.rx_pairs.partition_point(|&pair| pair < link.rx.len());
        &self.rx_pairs[..started]
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::queue;
    use super::*;

    /// As in a patch of two ports with one pair each: one worker receives from the port, the other
    /// delivers to it.
    #[test]
    fn whoever_does_not_deliver_leaves_the_wish_of_whoever_does() {
        let assignment = QueueAssignment { rx_workers: vec![0], tx_workers: vec![1], delivering: vec![1] };
        let [receiver, deliverer] = [0, 1].map(|worker| WorkerQueues::of(&assignment, worker));
        let queue = queue();
        let is_waited_for = || queue.lock().buffer_waiters.any_asleep();
        queue.lock().buffer_waiters.set(deliverer.worker, Some(0));
        assert_eq!((queue.arm_for_buffers(deliverer.worker), is_waited_for()), (Ok(false), true));
        assert_eq!(queue.arm_for_buffers(receiver.worker), Ok(false));
        queue.disarm_for_buffers(receiver.worker);
        assert!(is_waited_for(), "the receiver has woken, and the deliverer sleeps");
        queue.disarm_for_buffers(deliverer.worker);
        assert!(!is_waited_for());
    }
}
