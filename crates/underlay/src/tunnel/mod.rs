//! A tunnel: its headers, its counters, its remotes.

pub(crate) mod face;
pub(crate) mod inside;
pub(crate) mod lookup;
pub(crate) mod networks;
pub(crate) mod open;
pub(crate) mod path_mtu;
pub(crate) mod paths;
pub(crate) mod port;
pub(crate) mod remotes;
mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use straightline_fdb::Share;
use straightline_graph::{QueueCounters, SharedLimit, Told};
use straightline_packet::{Drops, PortIndex, Rcu};
use straightline_wire::{IpProtocol, MacAddr, WireError};
use table::AlreadyTold;

use crate::headers::Headers;
use crate::kind::VNI_BEHIND_UDP;
use crate::tunnel::face::Face;
use crate::tunnel::networks::Networks;
use crate::tunnel::open::RemoteSpace;
use crate::tunnel::path_mtu::{LEAST_INSIDE, PathMtu, TooLong};
use crate::tunnel::paths::TunnelPaths;
use crate::tunnel::remotes::{RemoteMove, RemoteStation, Remotes};
use crate::underlay::neighbours::NextHop;
use crate::underlay::outbox::Places;
use crate::{NeighbourState, PathMtuErrors, TunnelConfig, Underlay};

/// The most errors that are sent in a second to senders inside a tunnel: to those behind one port,
/// and to all.
const MOST_ERRORS_OF_PORT: u32 = 10;
const MOST_ERRORS: u32 = 100;

/// Counters for the ports of these senders. Up to so many ports of a switch have one each.
const PORTS: usize = 256;

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
    /// The limit of errors to senders inside, by the port that they are behind.
    pub(crate) errors: SharedLimit,
    /// The errors that were not sent because of a limit.
    pub(crate) errors_refused: AtomicU64,
    /// The places of the tunnel's own packets in the underlay's outbox.
    pub(crate) places: Arc<Places>,
    /// The paths to the remotes.
    pub(crate) paths: TunnelPaths,
    /// The remote of each station, if there are several remotes, or may be.
    pub(crate) remotes: Option<Remotes>,
    /// `None`: it takes no remotes while it runs.
    space: Option<RemoteSpace>,
    /// The Ethernet face, if the tunnel carries IP.
    pub(crate) face: Option<Face>,
    /// The networks, if there are several.
    pub(crate) networks: Option<Networks>,
    /// Not all frames of the bridge or patch go through the tunnel as they are: it carries IP, or drops
    /// frames with a tag.
    pub(crate) is_selective: bool,
    told: Told<AlreadyTold>,
}

/// The path to one remote.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: IpAddr,
    /// The next hop; `None` if no network of the underlay and no gateway leads to the remote.
    pub(crate) hop: Option<NextHop>,
    /// The MTU of the way, as routers tell it.
    pub(crate) mtu: PathMtu,
    /// The headers in each network, at least one. They have one length.
    pub(crate) headers: Box<[Headers]>,
}

impl Path {
    /// Creates the path of a tunnel to a remote.
    ///
    /// # Errors
    /// The remote has another IP version than our end, or the headers are too long.
    fn new(config: &TunnelConfig, underlay: &Underlay, remote: IpAddr) -> Result<Self, WireError> {
        let of_kind = |kind: &crate::TunnelKind| Headers::new(underlay.config(), config, kind, remote);
        let headers: Result<Box<[_]>, WireError> = config.kinds().map(|(_, kind)| of_kind(&kind)).collect();
        let headers = headers?;
        let least = match underlay.config().path_mtu {
            PathMtuErrors::UsableInside => Some(headers[0].mtu_outside(LEAST_INSIDE)),
            PathMtuErrors::Least(mtu) => Some(mtu),
            PathMtuErrors::Off => None,
        };
        Ok(Path { remote, hop: underlay.route(remote), mtu: PathMtu::new(least), headers })
    }

    /// Returns headers that are as long as those of each network.
    pub(crate) fn any_headers(&self) -> &Headers {
        &self.headers[0]
    }
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
    /// Another station that has our address.
    pub conflict: Option<MacAddr>,
    /// Bytes of all headers around the inner frame, Ethernet header included.
    pub overhead: u16,
    /// Bytes of the longest inner IP packet that fits the underlay.
    pub mtu_inside: u16,
    /// The MTUs that routers have told, at most one for each remote.
    pub path_mtus: Vec<(IpAddr, u16)>,
    /// ICMP errors to senders inside that were not sent because of a limit.
    pub errors_refused: u64,
}

impl Tunnel {
    /// Returns the tunnel of these settings on an underlay, as the port of this index.
    ///
    /// # Panics
    /// If an address of the other end has another IP version than ours, or the headers are too
    /// long. The check of the configuration refuses both.
    #[must_use]
    pub fn new(config: TunnelConfig, underlay: Arc<Underlay>, port: PortIndex, drops: Arc<Drops>) -> Arc<Self> {
        Self::build(config, underlay, port, drops, None)
    }

    /// Returns a tunnel as [`Self::new`] does, which takes further remotes and stations while it runs.
    /// `rcu` has the workers.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn open(
        config: TunnelConfig,
        underlay: Arc<Underlay>,
        port: PortIndex,
        drops: Arc<Drops>,
        space: RemoteSpace,
        rcu: &Rcu,
    ) -> Arc<Self> {
        Self::build(config, underlay, port, drops, Some((space, rcu)))
    }

    fn build(
        config: TunnelConfig,
        underlay: Arc<Underlay>,
        port: PortIndex,
        drops: Arc<Drops>,
        space: Option<(RemoteSpace, &Rcu)>,
    ) -> Arc<Self> {
        let path = |&remote: &IpAddr| Path::new(&config, &underlay, remote).expect("the settings were checked");
        let paths = TunnelPaths::new(config.remotes.iter().map(path), space.map(|(_, rcu)| rcu));
        let remotes = Remotes::new(&config, space.map(|(space, _)| space));
        let networks = Networks::of(&config.networks);
        let face = config.kind.carries_ip().then(|| Face::new(config.mac.unwrap_or_default()));
        let is_selective = face.is_some() || config.drops_tags;
        let tunnel = Arc::new(Tunnel {
            config,
            underlay,
            port,
            drops,
            counters: Arc::default(),
            set_down: AtomicBool::new(false),
            errors: SharedLimit::new(PORTS, MOST_ERRORS_OF_PORT, MOST_ERRORS),
            errors_refused: AtomicU64::new(0),
            places: Arc::new(Places::new(port)),
            paths,
            remotes,
            space: space.map(|(space, _)| space),
            face,
            networks,
            is_selective,
            told: Told::default(),
        });
        tunnel.underlay.add_tunnel(&tunnel);
        tunnel
    }

    /// Lowers the MTU of the path to `dst`, if the error can be about a packet that this tunnel has
    /// sent from `src`. `protocol` and `rest` belong to the quoted packet: `rest` is the part behind
    /// its IP header. Returns whether the MTU is lower now.
    pub(crate) fn lower_path_mtu(
        &self,
        (src, dst): (IpAddr, IpAddr),
        (protocol, rest): (IpProtocol, &[u8]),
        error: TooLong,
        now: u32,
    ) -> bool {
        let paths = self.paths.now();
        let Some(path) = paths.to(dst).filter(|_| self.config.local == src) else { return false };
        // The headers are compared last, because that takes longest.
        let mtu = path.mtu.lower_to(dst, error, self.underlay.mtu(), now);
        let mtu = mtu.filter(|_| path.headers[self.network_of(rest)].can_begin(protocol, rest));
        mtu.is_some_and(|mtu| path.mtu.lower(mtu, now))
    }

    /// Returns the network that a quoted packet can be of. `quoted` is what follows its IP header. If it
    /// is too short to tell, or names no network, any one is as good.
    fn network_of(&self, quoted: &[u8]) -> usize {
        let Some(networks) = &self.networks else { return 0 };
        let Some(&[high, middle, low]) = quoted.get(VNI_BEHIND_UDP..).and_then(<[u8]>::first_chunk) else { return 0 };
        networks.of_vni(u32::from_be_bytes([0, high, middle, low])).unwrap_or(0).into()
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

    /// Returns the MTUs that routers have told about the ways to remotes, and that are not forgotten.
    #[must_use]
    pub fn path_mtus(&self) -> Vec<(IpAddr, u16)> {
        let now = self.underlay.now();
        self.paths.now().iter().filter_map(|path| Some((path.remote, path.mtu.told(now)?.0))).collect()
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> TunnelStatus {
        let paths = self.paths.now();
        let next_hop = paths.iter().next().and_then(|path| self.underlay.via(path.remote));
        let state = next_hop.and_then(|next_hop| self.underlay.neighbours.state(next_hop));
        let now = self.underlay.now();
        let inside = |path: &Path| path.any_headers().mtu_inside(path.mtu.get(self.underlay.mtu(), now));
        TunnelStatus {
            local: self.config.local,
            remotes: paths.iter().map(|path| path.remote).collect(),
            next_hop,
            state,
            conflict: self.underlay.conflicts.other(self.config.local),
            overhead: paths.iter().next().map_or(0, |path| path.any_headers().overhead()),
            mtu_inside: paths.iter().map(inside).min().unwrap_or(0),
            path_mtus: self.path_mtus(),
            errors_refused: self.errors_refused.load(Ordering::Relaxed),
        }
    }

    /// Returns the share of each remote in the table of stations, in the order of
    /// [`TunnelStatus::remotes`]. Empty if there is one remote for ever.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        self.remotes.as_ref().map_or_else(Vec::new, |remotes| remotes.shares(&self.paths.now()))
    }

    /// Returns the stations behind several remotes that are known at `now`, in seconds of the
    /// workers' clocks.
    #[must_use]
    pub fn stations(&self, now: u32) -> Vec<RemoteStation> {
        self.remotes.as_ref().map_or_else(Vec::new, |remotes| remotes.stations(&self.paths.now(), now))
    }

    /// Returns the moves of stations from one remote to another after the first `since` ones, oldest
    /// first, as far as they are kept, and the number of all moves.
    #[must_use]
    pub fn moves(&self, since: u64) -> (Vec<RemoteMove>, u64) {
        self.remotes.as_ref().map_or_else(Default::default, |remotes| remotes.moves(&self.paths.now(), since))
    }
}
