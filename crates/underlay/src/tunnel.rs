//! A tunnel: its headers, its counters, its remotes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_fdb::PortShare;
use straightline_packet::{Drops, PortIndex, Reason};
use straightline_port::QueueCounters;
use straightline_wire::IpProtocol;

use crate::face::Face;
use crate::headers::Headers;
use crate::neighbours::NextHop;
use crate::path_mtu::PathMtu;
use crate::rate_limit::RateLimit;
use crate::remotes::{RemoteMove, RemoteStation, Remotes};
use crate::{NeighbourState, TunnelConfig, Underlay};

/// The most errors that are sent in a second to senders inside a tunnel.
const MOST_ERRORS: u32 = 10;

/// A tunnel. All workers and control share it.
#[derive(Debug)]
pub struct Tunnel {
    pub(crate) config: TunnelConfig,
    pub(crate) underlay: Arc<Underlay>,
    /// The index of the tunnel's own port.
    pub(crate) port: PortIndex,
    pub(crate) drops: Arc<Drops>,
    /// Several workers write them.
    pub(crate) counters: Arc<QueueCounters>,
    /// An administrator has set the link down.
    set_down: AtomicBool,
    /// The limit of errors to senders inside. Each tunnel has one: no guest takes those of others.
    pub(crate) errors: RateLimit,
    /// The paths to the remotes, in the order of the settings.
    pub(crate) paths: Vec<Path>,
    /// The remote of each station, if there are several remotes.
    pub(crate) remotes: Option<Remotes>,
    /// The Ethernet face, if the tunnel carries IP.
    pub(crate) face: Option<Face>,
}

/// The path to one remote.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: IpAddr,
    /// The next hop; `None` if no network of the underlay and no gateway leads to the remote.
    pub(crate) hop: Option<NextHop>,
    /// The MTU that routers on the way have told.
    pub(crate) mtu: PathMtu,
    pub(crate) headers: Headers,
}

/// A tunnel as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelStatus {
    /// Our address.
    pub local: IpAddr,
    /// The addresses of the other ends.
    pub remotes: Vec<IpAddr>,
    /// The next hop to the first remote.
    pub next_hop: Option<IpAddr>,
    /// The state of that next hop.
    pub state: Option<NeighbourState>,
    /// Bytes of all headers around the inner frame, Ethernet header included.
    pub overhead: u16,
    /// Bytes of the longest inner IP packet that fits the underlay.
    pub mtu_inside: u16,
}

impl Tunnel {
    /// Returns the tunnel of these settings on an underlay, as the port of this index.
    ///
    /// # Panics
    /// If an address of the other end has another IP version than ours, or the headers are too
    /// long. The check of the configuration refuses both.
    #[must_use]
    pub fn new(config: TunnelConfig, underlay: Arc<Underlay>, port: PortIndex, drops: Arc<Drops>) -> Arc<Self> {
        let path = |&remote: &IpAddr| {
            let headers = Headers::new(underlay.config(), &config, remote);
            let headers = headers.expect("the settings were checked");
            Path { remote, hop: underlay.route(remote), mtu: underlay.path_mtus.add(remote), headers }
        };
        let paths = config.remotes.iter().map(path).collect();
        let remotes = Remotes::new(&config);
        let face = config.kind.carries_ip().then(|| Face::new(config.mac.unwrap_or_default()));
        let (counters, set_down, errors) = (Arc::default(), AtomicBool::new(false), RateLimit::new(MOST_ERRORS));
        let tunnel =
            Arc::new(Tunnel { config, underlay, port, drops, counters, set_down, errors, paths, remotes, face });
        tunnel.underlay.add_tunnel(&tunnel);
        tunnel
    }

    /// Returns whether a packet can be one of the tunnel's: its addresses, its protocol, and the
    /// beginning of what follows the IP header.
    pub(crate) fn can_have_sent(&self, src: IpAddr, dst: IpAddr, protocol: IpProtocol, rest: &[u8]) -> bool {
        let is_to = |path: &Path| path.remote == dst && path.headers.can_begin(protocol, rest);
        self.config.local == src && self.paths.iter().any(is_to)
    }

    /// Counts packets that the tunnel does not send.
    #[inline]
    pub(crate) fn drop_packets(&self, reason: Reason, packets: usize) {
        self.drops.add(reason, u64::try_from(packets).unwrap_or(0));
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &TunnelConfig {
        &self.config
    }

    /// Returns the index of the tunnel's port.
    #[must_use]
    pub fn port(&self) -> PortIndex {
        self.port
    }

    /// Returns whether an administrator has set the link down. Packets of the tunnel then drop as
    /// `set-down`.
    #[inline]
    #[must_use]
    pub fn is_set_down(&self) -> bool {
        self.set_down.load(Ordering::Relaxed)
    }

    /// Sets the link down or up for an administrator.
    pub(crate) fn set_down(&self, down: bool) {
        self.set_down.store(down, Ordering::Relaxed);
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> TunnelStatus {
        let next_hop = self.config.remotes.first().and_then(|&remote| self.underlay.via(remote));
        let state = next_hop.and_then(|next_hop| self.underlay.neighbours.state(next_hop));
        let inside = |path: &Path| path.headers.mtu_inside(self.underlay.path_mtus.get(&path.mtu));
        TunnelStatus {
            local: self.config.local,
            remotes: self.config.remotes.clone(),
            next_hop,
            state,
            overhead: self.paths.first().map_or(0, |path| path.headers.overhead()),
            mtu_inside: self.paths.iter().map(inside).min().unwrap_or(0),
        }
    }

    /// Returns the share of each remote in the table of stations, in the order of the settings. Empty
    /// if there is one remote.
    #[must_use]
    pub fn shares(&self) -> Vec<PortShare> {
        self.remotes.as_ref().map_or_else(Vec::new, Remotes::shares)
    }

    /// Returns the stations behind several remotes that are known at `now`, in seconds of the
    /// workers' clocks.
    #[must_use]
    pub fn stations(&self, now: u32) -> Vec<RemoteStation> {
        self.remotes.as_ref().map_or_else(Vec::new, |remotes| remotes.stations(now))
    }

    /// Returns the moves of stations from one remote to another after the first `since` ones, oldest
    /// first, as far as they are kept, and the number of all moves.
    #[must_use]
    pub fn moves(&self, since: u64) -> (Vec<RemoteMove>, u64) {
        self.remotes.as_ref().map_or_else(Default::default, |remotes| remotes.moves(since))
    }
}
