//! The control side of a tunnel port.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use straightline_graph::{
    Clock, Down, DownCause, LinkHistory, LinkState, LinkStatus, ListenError, Permissions, Port, PortControl,
    QueueAssignment, QueueCounters, RateLimit, Waiters,
};
use straightline_packet::{Batch, Drops, IgnorePoison, PortIndex, Reason, Turn};

use crate::{NeighbourState, Tunnel, TunnelStatus};

/// The most next hops that a reason names.
const MOST_NAMED: usize = 4;

/// The most lines that a tunnel logs about its link in a minute. Stations of the underlay's network
/// can cause them.
const MOST_LINES: u32 = 6;

/// A tunnel port. It has no peer, no thread and no queues of its own: its underlay's port carries
/// its packets.
///
/// The link is up while the MAC addresses of the underlay and of the next hop to a remote are
/// known. The underlay looks at this once a second.
#[derive(Debug)]
pub struct TunnelPort {
    link: Arc<TunnelLink>,
}

/// The link of a tunnel.
#[derive(Debug)]
pub(crate) struct TunnelLink {
    tunnel: Arc<Tunnel>,
    /// The link was up at the last look, unless an administrator has set it down, and the log says
    /// so.
    is_known_up: AtomicBool,
    state: Mutex<LinkState>,
    /// The last line in the log: whether the link is up. `None` before the first.
    logged: Mutex<Option<bool>>,
    lines: RateLimit,
}

impl TunnelPort {
    /// Returns the port of a tunnel. The history of its link has the times of this clock.
    #[must_use]
    pub fn new(tunnel: Arc<Tunnel>, clock: Clock) -> Self {
        let link = Arc::new(TunnelLink {
            tunnel,
            is_known_up: AtomicBool::new(false),
            state: Mutex::new(LinkState::new(clock)),
            logged: Mutex::default(),
            lines: RateLimit::new(MOST_LINES),
        });
        link.tunnel.underlay.watch(&link);
        TunnelPort { link }
    }

    /// Returns the tunnel's status.
    #[must_use]
    pub fn tunnel(&self) -> TunnelStatus {
        self.link.tunnel.status()
    }
}

impl TunnelLink {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().ignore_poison()
    }

    /// Brings the state up to date. A worker calls it, so it does little for a link that stays up.
    pub(crate) fn look(&self) {
        let down = self.tunnel.down();
        let is_up = down.is_none();
        if is_up && self.is_known_up.load(Ordering::Relaxed) {
            return;
        }
        let is_logged = self.log(down.as_ref().map(|down| down.reason.as_str()));
        self.is_known_up.store(is_up && is_logged, Ordering::Relaxed);
        let up = LinkStatus { up: true, ..LinkStatus::default() };
        self.state().show(down.map_or(up, LinkStatus::down));
    }

    /// Logs the state if it differs from the last line. Returns whether the last line is right now.
    /// After too many lines, a later look logs the state that the link has then.
    fn log(&self, down_reason: Option<&str>) -> bool {
        let is_up = down_reason.is_none();
        let mut logged = self.logged.lock().ignore_poison();
        let is_new = match *logged {
            Some(was_up) => was_up != is_up,
            // At the start, next hops get the time for an answer.
            None => is_up || self.tunnel.is_unanswered(),
        };
        if is_new && self.lines.take(self.tunnel.underlay.minute()) {
            let port = &self.tunnel.config.name;
            match down_reason {
                None => tracing::info!(port, "the tunnel is up"),
                Some(reason) => tracing::warn!(port, "the tunnel is down: {reason}"),
            }
            *logged = Some(is_up);
        }
        *logged == Some(is_up)
    }

    /// Returns the state, brought up to date.
    fn state_now(&self) -> MutexGuard<'_, LinkState> {
        self.look();
        self.state()
    }
}

impl Tunnel {
    /// Returns whether no next hop will answer soon: all were asked, or there is none.
    fn is_unanswered(&self) -> bool {
        let is_silent = |hop: IpAddr| self.underlay.neighbours.state(hop) == Some(NeighbourState::Unanswered);
        let paths = self.paths.now();
        let mut hops = paths.iter().filter_map(|path| path.hop.as_ref());
        self.underlay.mac().is_some() && hops.all(|hop| is_silent(hop.ip()))
    }

    /// Returns the reason why no packet can go to any remote, or `None` if one can.
    fn down(&self) -> Option<Down> {
        if self.underlay.mac().is_none() {
            let reason = format!("the MAC address of underlay {} is not known yet", self.underlay.config().name);
            return Some(Down::new(DownCause::NoUnderlayMac, reason));
        }
        let mut silent: Vec<IpAddr> = Vec::new();
        let paths = self.paths.now();
        if paths.is_empty() {
            let reason = "it has no remote yet; a client of the API adds some";
            return Some(Down::new(DownCause::NoRemote, reason));
        }
        for path in paths.iter() {
            match &path.hop {
                Some(hop) if self.underlay.neighbours.mac(hop).is_some() => return None,
                Some(hop) if !silent.contains(&hop.ip()) => silent.push(hop.ip()),
                _ => {}
            }
        }
        let named = silent.iter().take(MOST_NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let reason = match silent.len() {
            0 => {
                let remote = paths.iter().next().map(|path| path.remote.to_string()).unwrap_or_default();
                let reason = format!("underlay {} has no next hop to {remote}", self.underlay.config().name);
                return Some(Down::new(DownCause::NoRoute, reason));
            }
            1 => format!("next hop {named} has not answered"),
            2..=MOST_NAMED => format!("next hops {named} have not answered"),
            count => format!("next hops {named} and {} more have not answered", count - MOST_NAMED),
        };
        Some(Down::new(DownCause::NextHopSilent, reason))
    }
}

impl PortControl for TunnelPort {
    fn name(&self) -> &str {
        &self.link.tunnel.config.name
    }

    /// Returns a port from which nothing comes. Packets enter by [`Decap`](crate::Decap) and leave
    /// by [`Encap`](crate::Encap).
    fn for_worker(&self, _worker: usize) -> Arc<dyn Port> {
        Arc::new(Unserved(Arc::clone(&self.link.tunnel)))
    }

    /// Does nothing: the underlay's queues carry the packets.
    fn assign_queues(&self, _assignment: QueueAssignment) {}

    fn route_kicks(&self, _waiters: Waiters, _waits: bool) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing: packets never wait for a tunnel (`full = "wait"` is refused).
    fn set_waits(&self, _waits: bool) {}

    fn set_link(&self, up: bool) {
        if self.is_set_down() != up {
            return;
        }
        self.link.tunnel.set_down(!up);
        self.link.state_now().set_down(!up);
    }

    fn is_set_down(&self) -> bool {
        self.link.tunnel.is_set_down()
    }

    fn set_permissions(&self, _permissions: &Permissions) -> Result<(), ListenError> {
        Ok(())
    }

    fn status(&self) -> LinkStatus {
        self.link.state_now().status()
    }

    fn history(&self) -> LinkHistory {
        self.link.state_now().history()
    }

    fn counters(&self) -> Vec<Arc<QueueCounters>> {
        vec![Arc::clone(&self.link.tunnel.counters)]
    }

    fn drops(&self) -> &Arc<Drops> {
        &self.link.tunnel.drops
    }

    fn pause(&self) {}

    fn resume(&self) -> Result<(), ListenError> {
        Ok(())
    }

    fn listen_failure(&self) -> Option<String> {
        None
    }

    fn begin_stop(&self) {}

    /// Returns `true`: there is no thread.
    fn has_ended(&self) -> bool {
        true
    }

    fn end_wait(&self, _began: Instant) {}

    fn join(&self) -> bool {
        true
    }
}

/// A tunnel in place of a [`Port`], which nobody polls. It drops packets that are delivered to it.
#[derive(Debug)]
struct Unserved(Arc<Tunnel>);

impl Port for Unserved {
    fn name(&self) -> &str {
        &self.0.config.name
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.0.port)
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        turn.drop_at(self.0.port, batch.ids(), Reason::NotConnected);
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

#[cfg(test)]
mod tests {
    use straightline_wire::MacAddr;

    use super::*;
    use crate::{Address, TunnelConfig, TunnelKind, Underlay, UnderlayConfig};

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn underlay() -> Arc<Underlay> {
        let config = UnderlayConfig {
            neighbours: vec![("192.0.2.9".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 9]))],
            ..UnderlayConfig::new("wan", vec![Address { ip: "192.0.2.1".parse().unwrap(), prefix: 24 }])
        };
        Underlay::new(config, PortIndex(0))
    }

    fn tunnel(underlay: &Arc<Underlay>, remotes: &[&str]) -> TunnelPort {
        let config = TunnelConfig {
            mtu: 1450,
            ..TunnelConfig::new(
                "t1",
                TunnelKind::Vxlan { vni: 7 },
                "192.0.2.1".parse().unwrap(),
                remotes.iter().map(|remote| remote.parse().unwrap()).collect(),
            )
        };
        TunnelPort::new(Tunnel::new(config, Arc::clone(underlay), PortIndex(1), Arc::default()), Clock::real())
    }

    #[test]
    fn a_link_names_those_who_have_not_answered() {
        let underlay = underlay();
        let one = tunnel(&underlay, &["192.0.2.2"]);
        let three = tunnel(&underlay, &["192.0.2.2", "192.0.2.3", "192.0.2.4"]);
        let far = tunnel(&underlay, &["198.51.100.1"]);
        assert_eq!(one.status().reason, "the MAC address of underlay wan is not known yet");
        assert_eq!(one.status().cause, Some(DownCause::NoUnderlayMac));
        underlay.set_mac(OWN);
        assert_eq!(one.status().reason, "next hop 192.0.2.2 has not answered");
        assert_eq!(three.status().reason, "next hops 192.0.2.2, 192.0.2.3, 192.0.2.4 have not answered");
        assert_eq!(far.status().reason, "underlay wan has no next hop to 198.51.100.1");
        assert_eq!(three.status().cause, Some(DownCause::NextHopSilent));
        assert_eq!(far.status().cause, Some(DownCause::NoRoute));
        assert_eq!((one.status().up, one.history().changes), (false, 0));
        // One of two next hops is known.
        let two = tunnel(&underlay, &["192.0.2.2", "192.0.2.9"]);
        assert_eq!((two.status().up, two.status().reason.as_str()), (true, ""));
    }

    #[test]
    fn the_underlay_looks_at_links() {
        let underlay = underlay();
        let port = tunnel(&underlay, &["192.0.2.9"]);
        underlay.tick(0);
        underlay.set_mac(OWN);
        assert_eq!(port.link.state().history().changes, 0);
        underlay.tick(1);
        assert_eq!(port.link.state().history().changes, 1);
        drop(port);
        underlay.tick(2);
        assert_eq!(underlay.links().len(), 0, "the link has gone");
    }

    /// Returns the number of lines that the link may still log in this minute.
    fn lines_left(link: &TunnelLink) -> usize {
        let minute = link.tunnel.underlay.minute();
        (0..=MOST_LINES).filter(|_| link.lines.take(minute)).count()
    }

    #[test]
    fn the_log_has_each_change_once() {
        let underlay = underlay();
        let [port, silent, far] = ["192.0.2.9", "192.0.2.2", "198.51.100.1"].map(|remote| tunnel(&underlay, &[remote]));
        let logged = |port: &TunnelPort| *port.link.logged.lock().unwrap();
        // Nobody was asked yet.
        underlay.tick(0);
        assert_eq!([&port, &silent, &far].map(logged), [None; 3]);
        underlay.set_mac(OWN);
        underlay.tick(1);
        assert_eq!([&port, &silent, &far].map(logged), [Some(true), None, Some(false)]);
        (2..9).for_each(|now| _ = underlay.tick(now));
        assert_eq!(logged(&silent), Some(false), "nobody has answered");
        let left = usize::try_from(MOST_LINES).unwrap() - 1;
        assert_eq!([&port, &silent, &far].map(|port| lines_left(&port.link)), [left; 3]);
    }

    #[test]
    fn a_link_that_flaps_logs_a_few_lines_and_its_last_state() {
        let underlay = underlay();
        let port = tunnel(&underlay, &["192.0.2.9"]);
        let link = &port.link;
        let admitted = (0..100).filter(|n| link.log((n % 2 == 1).then_some("a reason"))).count();
        assert_eq!(*link.logged.lock().unwrap(), Some(false));
        // After the last line, every second state is the one that the log has.
        assert_eq!(admitted, 6 + (100 - 6) / 2);
        assert!(!link.log(None), "no more lines in this minute");
        assert!(underlay.begins_second(60) && link.log(None), "the next minute");
        assert_eq!(*link.logged.lock().unwrap(), Some(true));
    }

    #[test]
    fn an_administrator_sets_a_link_down() {
        let underlay = underlay();
        underlay.set_mac(OWN);
        let port = tunnel(&underlay, &["192.0.2.9"]);
        port.set_link(false);
        let status = port.status();
        assert_eq!((status.up, status.reason.as_str()), (false, "set down by the administrator"));
        assert!(port.is_set_down() && port.link.tunnel.is_set_down());
        port.set_link(true);
        assert!(port.status().up && !port.is_set_down());
    }

    #[test]
    fn a_tunnel_stops_at_once_and_has_one_pair_of_counters() {
        let underlay = underlay();
        let port = tunnel(&underlay, &["192.0.2.9"]);
        assert!(straightline_graph::stop_all([&port as &dyn PortControl], &Clock::real()).is_empty());
        assert_eq!((port.counters().len(), port.name()), (1, "t1"));
        assert_eq!(port.for_worker(0).index(), Some(PortIndex(1)));
    }
}
