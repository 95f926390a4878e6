//! The link's status as operators see it.

use straightline_virtio::features::names;
use tracing::Level;

use super::frontend::ConnectedFrontend;
use crate::vhost_user::ring_name::ring_name;
use crate::{LinkStatus, RingStatus};

impl ConnectedFrontend {
    /// Updates the status that operators see.
    pub(crate) fn show(&self) {
        let reason = self.why_down();
        let up = reason.is_none();
        let now = LinkStatus {
            up,
            reason: reason.unwrap_or_default(),
            peer: self.peer,
            features: names(self.session.acked_features()).collect(),
            regions: self.memory.regions().len(),
            mac: self.session.told_mac(),
            receives: self.running_control().map(|_| {
                let state = &self.control_queue.state;
                (state.rx_filter().clone(), state.vlans().collect())
            }),
            ring: self
                .rings
                .iter()
                .flatten()
                .next()
                .map(|r| RingStatus { size: r.queue.size(), packed: r.queue.is_packed() }),
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

    fn why_down(&self) -> Option<String> {
        if let Some(refusal) = self.session.refusal()
            && self.session.acked_features() != 0
        {
            return Some(refusal.to_string());
        }
        // One pair is enough for packets to pass. A frontend may never start the others.
        for index in 0..2 {
            if let Some(missing) = self.session.missing(index) {
                return Some(format!("a frontend is connected; its {} does not start: {missing}", ring_name(index)));
            }
            match self.rings.get(usize::from(index)).and_then(Option::as_ref) {
                None => return Some(format!("the {} does not run", ring_name(index))),
                Some(r) if !r.queue.enabled() => {
                    return Some(format!("the frontend has disabled the {}", ring_name(index)));
                }
                Some(_) => {}
            }
        }
        None
    }
}
