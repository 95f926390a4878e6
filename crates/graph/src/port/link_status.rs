//! The link's status as operators see it: whether it is up, if not why, and what was negotiated.

use serde::{Deserialize, Serialize};

use crate::{Clock, Down, DownCause, LinkHistory, Peer};

/// The status of a link now. Facts that a kind of port does not have stay at their defaults.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// Packets can pass both ways.
    pub up: bool,
    /// The reason why the link is down, in one sentence; empty when it is up.
    pub reason: String,
    /// The cause of that reason; none when the link is up.
    pub cause: Option<DownCause>,
    /// The process at the other end.
    pub peer: Option<Peer>,
    /// The names of the negotiated features.
    pub features: Vec<&'static str>,
    /// The number of mapped memory regions.
    pub regions: usize,
    /// The NUMA nodes of the rings when they started, each once. Empty if they are not known.
    pub memory_nodes: Vec<usize>,
    /// The MAC address in our configuration space, which the driver may read.
    pub mac: Option<[u8; 6]>,
    /// The receive mode and the VLANs that the driver asks for, if it uses a control queue that is
    /// ours.
    pub receives: Option<RxFilter>,
    /// The number of queue pairs whose rings both run and are enabled.
    pub pairs: u16,
    /// The rings, once they are set up.
    pub ring: Option<RingStatus>,
    /// The notifications of the guest take so long that a helper thread sends them.
    pub slow_calls: bool,
    /// The open interface of a device port.
    pub device: Option<DeviceStatus>,
}

impl LinkStatus {
    /// Returns the status of a link that is down, without a frontend.
    #[must_use]
    pub fn down(down: Down) -> Self {
        LinkStatus { reason: down.reason, cause: Some(down.cause), ..LinkStatus::default() }
    }
}

/// The interface of a device port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The facts that its opener found.
    pub facts: DeviceFacts,
    /// The packets that the kernel has dropped for this port, by the kernel's names.
    pub kernel_drops: Vec<(&'static str, u64)>,
}

/// The format of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStatus {
    /// The number of entries.
    pub size: u16,
    /// True for packed rings.
    pub packed: bool,
}

/// The packets that the driver of a guest wants to receive. The settings are shown, not applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxFilter {
    /// Receive everything.
    pub promiscuous: bool,
    /// Receive every multicast frame.
    pub all_multicast: bool,
    /// Receive every unicast frame.
    pub all_unicast: bool,
    /// Receive no multicast frame.
    pub no_multicast: bool,
    /// Receive no unicast frame.
    pub no_unicast: bool,
    /// Receive no broadcast frame.
    pub no_broadcast: bool,
    /// The driver's own address, if it has set one.
    pub mac: Option<[u8; 6]>,
    /// Further unicast addresses.
    pub unicast: Vec<[u8; 6]>,
    /// Multicast addresses.
    pub multicast: Vec<[u8; 6]>,
    /// VLANs.
    pub vlans: Vec<u16>,
}

/// Facts about an open interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub ifindex: u32,
    /// The name of the interface's driver; empty if the kernel does not tell.
    pub driver: String,
    /// The mode, in a word of the kind: such as `native` or `generic` for AF_XDP.
    pub mode: String,
    /// True if the kernel copies no packets.
    pub zero_copy: bool,
    /// The number of open queues.
    pub queues: u16,
    /// The interface's MTU.
    pub mtu: u32,
    /// The interface's MAC address.
    pub mac: [u8; 6],
    /// Virtio features that stand for the offloads of both directions.
    pub features: u64,
    /// Bytes of a frame in shared memory; 0 for kinds without such frames.
    pub frame_size: u32,
    /// Findings for operators that do not stop the port, one sentence each.
    pub warnings: Vec<String>,
}

/// The state of a link, kept where any thread can read it, with its history.
#[derive(Debug)]
pub struct LinkState {
    now: LinkStatus,
    /// The reason why the last link ended. It is kept until the next link is up.
    fault: Option<Down>,
    /// An administrator has set the link down.
    set_down: bool,
    history: LinkHistory,
    clock: Clock,
}

impl Default for LinkState {
    fn default() -> Self {
        Self::new(Clock::real())
    }
}

impl LinkState {
    /// Returns the state of a link that is down and never was up. Its history has the times of this
    /// clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let history = LinkHistory::new(clock.now());
        LinkState { now: LinkStatus::default(), fault: None, set_down: false, history, clock }
    }

    /// Replaces the status. Returns whether the link that the frontend sets up has come up or gone
    /// down.
    pub fn show(&mut self, now: LinkStatus) -> bool {
        let before = std::mem::replace(&mut self.now, now);
        self.note();
        // A frontend has left, and its link never came up.
        if before.peer.is_some() && self.now.peer.is_none() && !before.up {
            self.history.note_failure(&self.now.reason, self.clock.time_of_day());
        }
        before.up != self.now.up
    }

    /// Shows a link that could not be set up, for this reason.
    pub fn show_failure(&mut self, down: &Down) {
        let was_up = self.now.up;
        self.show(LinkStatus::down(down.clone()));
        if !was_up {
            self.history.note_failure(&down.reason, self.clock.time_of_day());
        }
    }

    /// Sets why the link is down, or soon will be. It stays until [`Self::forget_fault`].
    pub fn set_fault(&mut self, fault: Down) {
        let now = self.clock.time_of_day();
        self.history.note_failure(&fault.reason, now);
        self.history.note_fault(&fault.reason, now);
        self.fault = Some(fault);
    }

    /// Forgets the fault.
    pub fn forget_fault(&mut self) {
        self.fault = None;
    }

    /// Returns the fault, if there is one.
    pub fn fault(&self) -> Option<&Down> {
        self.fault.as_ref()
    }

    /// Sets the link down or up for an administrator.
    pub fn set_down(&mut self, down: bool) {
        self.set_down = down;
        self.note();
    }

    /// Returns the changes so far.
    #[must_use]
    pub fn history(&self) -> LinkHistory {
        self.history.clone()
    }

    /// Returns the status now.
    #[must_use]
    pub fn status(&self) -> LinkStatus {
        LinkStatus { up: self.is_up(), reason: self.reason().to_owned(), cause: self.cause(), ..self.now.clone() }
    }

    fn is_up(&self) -> bool {
        self.now.up && !self.set_down
    }

    fn reason(&self) -> &str {
        match &self.fault {
            _ if self.set_down => "set down by the administrator",
            Some(fault) if !self.now.up => &fault.reason,
            _ => &self.now.reason,
        }
    }

    fn cause(&self) -> Option<DownCause> {
        match &self.fault {
            _ if self.set_down => Some(DownCause::SetDown),
            Some(fault) if !self.now.up => Some(fault.cause),
            _ => self.now.cause,
        }
    }

    fn note(&mut self) {
        let is_up = self.is_up();
        let reason = self.reason().to_owned();
        self.history.note(is_up, &reason, self.clock.now(), self.clock.time_of_day());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up() -> LinkStatus {
        LinkStatus { up: true, ..connected("") }
    }

    /// Returns the status of a frontend that is connected and whose link is down.
    fn connected(reason: &str) -> LinkStatus {
        LinkStatus { reason: reason.to_owned(), peer: Some(Peer { pid: Some(1), uid: 0 }), ..LinkStatus::default() }
    }

    fn waiting(reason: &str) -> LinkStatus {
        LinkStatus { reason: reason.to_owned(), ..LinkStatus::default() }
    }

    fn reasons(state: &LinkState) -> Vec<String> {
        state.history().reasons.into_iter().map(|(_, reason)| reason).collect()
    }

    #[test]
    fn the_steps_of_a_frontend_are_no_reasons_and_its_end_is_one() {
        let mut state = LinkState::default();
        state.show(waiting("no frontend has connected yet"));
        assert!(!state.show(connected("no memory")) && !state.show(connected("no kick")) && state.show(up()));
        assert!(state.show(waiting("it closed its connection")));
        assert_eq!((reasons(&state), state.history().changes), (vec!["it closed its connection".to_owned()], 2));
        // A frontend whose link never comes up.
        state.show(connected("no memory"));
        state.show(waiting("it sent nonsense"));
        assert_eq!(reasons(&state), ["it closed its connection", "it sent nonsense"]);
        assert_eq!(state.history().changes, 2);
    }

    #[test]
    fn a_broken_ring_is_one_reason() {
        let mut state = LinkState::default();
        state.show(up());
        state.set_fault(Down::new(DownCause::RingFault, "a loop"));
        state.show(connected("the receive ring does not run"));
        assert_eq!(reasons(&state), ["a loop"]);
        assert_eq!(state.status().reason, "a loop");
        state.set_fault(Down::new(DownCause::Protocol, "refused"));
        assert_eq!(state.status().cause, Some(DownCause::Protocol));
        assert_eq!(reasons(&state), ["a loop", "refused"]);
    }

    #[test]
    fn the_administrator_changes_the_link_too() {
        let mut state = LinkState::default();
        state.set_down(true);
        state.set_down(false);
        assert_eq!(state.history().changes, 0, "it was down all the time");
        state.show(up());
        state.set_down(true);
        assert_eq!((state.status().up, state.status().reason.as_str()), (false, "set down by the administrator"));
        assert_eq!(state.status().cause, Some(DownCause::SetDown));
        state.set_down(false);
        assert!(state.status().up);
        assert_eq!((reasons(&state), state.history().changes), (vec!["set down by the administrator".to_owned()], 3));
    }
}
