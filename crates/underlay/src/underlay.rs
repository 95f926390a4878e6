//! An underlay: its addresses, and what all its tunnels share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use straightline_packet::PortIndex;
use straightline_port::Port;
use straightline_wire::MacAddr;

use crate::UnderlayConfig;
use crate::agent::Outbox;
use crate::messages::{self, Link};
use crate::neighbours::{Neighbours, NextHop, Question};
use crate::path_mtu::PathMtus;
use crate::port::TunnelLink;
use crate::rate_limit::RateLimit;
use crate::{Agent, NeighbourStatus, Tunnel};

/// The bit of a known address in [`Underlay::mac`].
const KNOWN: u64 = 1 << 48;

/// The most questions for our MAC addresses that are answered in a second: ARP, neighbour discovery.
const MOST_ANSWERS: u32 = 1000;

/// The most echo requests that are answered in a second: ICMP, GTP-U.
const MOST_ECHOES: u32 = 1000;

/// An underlay. All workers and control share it.
#[derive(Debug)]
pub struct Underlay {
    pub(crate) config: UnderlayConfig,
    /// The index of the port that packets of the underlay come from and go to.
    pub(crate) port: PortIndex,
    /// Our MAC address; 0 while it is not known.
    mac: AtomicU64,
    /// True if the port leaves inner checksums unfinished, see [`Port::leaves_unfinished`].
    leaves_unfinished: AtomicBool,
    pub(crate) neighbours: Neighbours,
    pub(crate) path_mtus: PathMtus,
    pub(crate) outbox: Outbox,
    pub(crate) answers: RateLimit,
    /// Apart from `answers`: anybody can send echo requests, and our neighbours must find us still.
    pub(crate) echoes: RateLimit,
    /// The latest second that has begun, plus 1.
    second: AtomicU32,
    /// The links of tunnels, which depend on the state of next hops.
    links: Mutex<Vec<Weak<TunnelLink>>>,
    /// The tunnels, to know their packets in ICMP errors.
    tunnels: Mutex<Vec<Weak<Tunnel>>>,
}

impl Underlay {
    /// Returns the underlay of these settings on the port of this index.
    #[must_use]
    pub fn new(config: UnderlayConfig, port: PortIndex) -> Arc<Self> {
        let mac = config.mac.map_or(0, |mac| mac.as_u64() | KNOWN);
        Arc::new(Underlay {
            neighbours: Neighbours::new(&config),
            path_mtus: PathMtus::new(config.mtu),
            outbox: Outbox::new(port),
            answers: RateLimit::new(MOST_ANSWERS),
            echoes: RateLimit::new(MOST_ECHOES),
            second: AtomicU32::new(0),
            links: Mutex::default(),
            tunnels: Mutex::default(),
            mac: AtomicU64::new(mac),
            leaves_unfinished: AtomicBool::new(false),
            port,
            config,
        })
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &UnderlayConfig {
        &self.config
    }

    /// Returns our MAC address, or `None` while it is not known. Nothing is sent until then.
    #[inline]
    #[must_use]
    pub fn mac(&self) -> Option<MacAddr> {
        let mac = self.mac.load(Ordering::Relaxed);
        let [_, _, bytes @ ..] = (mac & !KNOWN).to_be_bytes();
        (mac & KNOWN != 0).then_some(MacAddr(bytes))
    }

    /// Sets our MAC address to that of the port's interface, unless the settings name another.
    pub fn set_mac(&self, mac: MacAddr) {
        if self.config.mac.is_none() {
            self.mac.store(mac.as_u64() | KNOWN, Ordering::Relaxed);
        }
    }

    /// Sets the MTU of the port's interface. The settings bound it, and hold if it is not known.
    pub(crate) fn set_interface_mtu(&self, mtu: Option<u16>) {
        self.path_mtus.set_mtu(mtu.map_or(self.config.mtu, |mtu| mtu.min(self.config.mtu)));
    }

    /// Returns whether inner checksums of received packets may be unfinished, although nothing says
    /// so.
    #[inline]
    pub(crate) fn leaves_unfinished(&self) -> bool {
        self.leaves_unfinished.load(Ordering::Relaxed)
    }

    /// Sets whether inner checksums of received packets may be unfinished, although nothing says so
    /// (see [`Port::leaves_unfinished`]).
    pub fn set_leaves_unfinished(&self, leaves: bool) {
        self.leaves_unfinished.store(leaves, Ordering::Relaxed);
    }

    /// Returns whether this address is ours.
    #[must_use]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.config.addresses.iter().any(|address| address.ip == ip)
    }

    /// Returns the next hop to a remote: the remote itself in a network of ours, else the gateway
    /// of its IP version. `None` if there is none, or if the table of next hops is full.
    ///
    /// The next hop is asked for its MAC address from the next second on, as long as somebody holds
    /// the result.
    pub(crate) fn route(&self, remote: IpAddr) -> Option<NextHop> {
        self.neighbours.hop(self.via(remote)?)
    }

    /// Returns the address of the next hop to a remote.
    #[must_use]
    pub fn via(&self, remote: IpAddr) -> Option<IpAddr> {
        let is_near = self.config.addresses.iter().any(|address| address.contains(remote));
        let is_router = |gateway: &&IpAddr| gateway.is_ipv4() == remote.is_ipv4();
        if is_near { Some(remote) } else { self.config.gateways.iter().find(is_router).copied() }
    }

    /// Returns the input by which packets of the underlay's own enter a worker's graph. `port` is
    /// the underlay's port as this worker serves it.
    #[must_use]
    pub fn agent(self: &Arc<Self>, port: Arc<dyn Port>) -> Arc<Agent> {
        Arc::new(Agent::new(Arc::clone(self), port))
    }

    /// Returns whether a second begins with this call. It does for one worker only.
    #[inline]
    pub(crate) fn begins_second(&self, now: u32) -> bool {
        let second = now.saturating_add(1);
        self.second.load(Ordering::Relaxed) < second && self.second.fetch_max(second, Ordering::Relaxed) < second
    }

    /// Returns the minute of the latest second.
    pub(crate) fn minute(&self) -> u32 {
        self.second.load(Ordering::Relaxed) / 60
    }

    fn tunnels(&self) -> MutexGuard<'_, Vec<Weak<Tunnel>>> {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a tunnel, as long as it lives.
    pub(crate) fn add_tunnel(&self, tunnel: &Arc<Tunnel>) {
        let mut tunnels = self.tunnels();
        tunnels.retain(|tunnel| tunnel.strong_count() > 0);
        tunnels.push(Arc::downgrade(tunnel));
    }

    /// Returns whether any tunnel is one that `is_searched` finds.
    pub(crate) fn has_tunnel(&self, is_searched: impl Fn(&Tunnel) -> bool) -> bool {
        self.tunnels().iter().any(|tunnel| tunnel.upgrade().is_some_and(|tunnel| is_searched(&tunnel)))
    }

    /// Notes a link that is to be brought up to date once a second, as long as it lives.
    pub(crate) fn watch(&self, link: &Arc<TunnelLink>) {
        self.links().push(Arc::downgrade(link));
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, Vec<Weak<TunnelLink>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the links up to date.
    fn look_at_links(&self) {
        self.links().retain(|link| link.upgrade().inspect(|link| link.look()).is_some());
    }

    /// Does the work of a second: asks next hops, and forgets what is old. Returns the number of
    /// kept packets that were given up.
    pub(crate) fn tick(&self, now: u32) -> usize {
        self.path_mtus.tick(now);
        self.look_at_links();
        self.neighbours.tick(now, |question| self.ask(question))
    }

    /// Sends a question for a MAC address. Returns `false` if it cannot be sent now.
    fn ask(&self, Question { ip, to }: Question) -> bool {
        let Some(mac) = self.mac() else { return false };
        let link = Link { src: mac, dst: to.unwrap_or_else(|| messages::everybody(ip)), vlan: self.config.vlan };
        let message = match (ip, self.address_towards(ip)) {
            (IpAddr::V4(ip), Some(IpAddr::V4(own))) => messages::arp_request(link, own, ip),
            (IpAddr::V6(ip), Some(IpAddr::V6(own))) => messages::solicitation(link, own, ip, to.is_none()),
            // We have no address that could ask.
            _ => return true,
        };
        message.is_ok_and(|message| self.outbox.push(self.port, message.bytes()))
    }

    /// Returns our address in the network of `ip`, else our first address of its version.
    fn address_towards(&self, ip: IpAddr) -> Option<IpAddr> {
        let addresses = &self.config.addresses;
        let near = addresses.iter().find(|address| address.contains(ip));
        near.or_else(|| addresses.iter().find(|address| address.ip.is_ipv4() == ip.is_ipv4())).map(|address| address.ip)
    }

    /// Returns the next hops with their states, in the order of their addresses.
    #[must_use]
    pub fn neighbours(&self) -> Vec<NeighbourStatus> {
        self.neighbours.status()
    }
}

impl crate::Address {
    /// Returns whether `ip` is in the address's network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(ours), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                (ours.to_bits() ^ ip.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                (ours.to_bits() ^ ip.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}
