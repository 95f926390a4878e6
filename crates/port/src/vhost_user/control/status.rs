//! The link's status as operators see it.

use std::collections::BTreeSet;

use az::SaturatingAs;
use straightline_graph::{Down, DownCause, LinkStatus, RingStatus, RxFilter};
use straightline_virtio::features::names;
use straightline_virtio::net_control;
use straightline_virtio::vhost_user::Refusal;
use tracing::Level;

use super::frontend::ConnectedFrontend;
use super::running_ring::RunningRing;
use crate::vhost_user::ring_name::ring_name;

impl ConnectedFrontend {
    /// Updates the status that operators see.
    pub(crate) fn show(&self) {
        let (cause, reason) = self.down().map(|down| (down.cause, down.reason)).unzip();
        let up = cause.is_none();
        let now = LinkStatus {
            up,
            reason: reason.unwrap_or_default(),
            cause,
            peer: self.peer,
            features: names(self.session.acked_features()).collect(),
            regions: self.memory.regions().len(),
            memory_nodes: self.memory_nodes(),
            mac: self.session.told_mac(),
            receives: self.running_control().map(|_| {
                let state = &self.control_queue.state;
                shown(state.rx_filter().clone(), state.vlans().collect())
            }),
            pairs: self.enabled_pairs(),
            ring: self
                .rings
                .iter()
                .flatten()
                .next()
                .map(|r| RingStatus { size: r.queue.size(), packed: r.queue.is_packed() }),
            slow_calls: false,
            device: None,
        };
        let reason = now.reason.clone();
        let changed = self.shared.state().show(now);
        match changed {
            true if up => self.shared.log(Level::INFO, format_args!("link up")),
            true => self.shared.log(Level::INFO, format_args!("link down: {reason}")),
            false => {}
        }
    }

    /// Returns the NUMA nodes of the running rings, each once.
    fn memory_nodes(&self) -> Vec<usize> {
        let nodes: BTreeSet<usize> = self.rings.iter().flatten().filter_map(|ring| ring.node).collect();
        nodes.into_iter().collect()
    }

    /// Returns the number of queue pairs whose rings both run and are enabled.
    fn enabled_pairs(&self) -> u16 {
        let rings = self.rings.len().min(usize::from(self.session.control_ring().unwrap_or(u16::MAX)));
        let runs = |ring: &Option<RunningRing>| ring.as_ref().is_some_and(|ring| ring.queue.enabled());
        let pairs = self.rings[..rings].chunks_exact(2).filter(|pair| pair.iter().all(runs)).count();
        pairs.saturating_as::<u16>()
    }

    fn down(&self) -> Option<Down> {
        if let Some(refusal) = self.session.refusal()
            && self.session.acked_features() != 0
        {
            let cause = match refusal {
                Refusal::NoFeatures => DownCause::NoFeatures,
                Refusal::LegacyDriver => DownCause::LegacyDriver,
                Refusal::Iommu => DownCause::Iommu,
            };
            return Some(Down::new(cause, refusal.to_string()));
        }
        // QEMU starts its device with the features, and then finds that it has no memory to share.
        if self.session.acked_features() != 0 && !self.was_sent_memory {
            let reason =
                "the guest's driver runs, and the frontend has sent no memory: the memory of the VM is not shared";
            return Some(Down::new(DownCause::MemoryNotShared, reason));
        }
        // One pair is enough for packets to pass. A frontend may never start the others.
        for index in 0..2 {
            if let Some(missing) = self.session.missing(index) {
                let reason = format!("a frontend is connected; its {} does not start: {missing}", ring_name(index));
                return Some(Down::new(DownCause::RingNotStarted, reason));
            }
            match self.rings.get(usize::from(index)).and_then(Option::as_ref) {
                None => {
                    let reason = format!("the {} does not run", ring_name(index));
                    return Some(Down::new(DownCause::RingNotStarted, reason));
                }
                Some(r) if !r.queue.enabled() => {
                    let reason = format!("the frontend has disabled the {}", ring_name(index));
                    return Some(Down::new(DownCause::RingDisabled, reason));
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// Returns the driver's receive settings as the link's status has them.
fn shown(filter: net_control::RxFilter, vlans: Vec<u16>) -> RxFilter {
    RxFilter {
        promiscuous: filter.promiscuous,
        all_multicast: filter.all_multicast,
        all_unicast: filter.all_unicast,
        no_multicast: filter.no_multicast,
        no_unicast: filter.no_unicast,
        no_broadcast: filter.no_broadcast,
        mac: filter.mac,
        unicast: filter.unicast,
        multicast: filter.multicast,
        vlans,
    }
}
