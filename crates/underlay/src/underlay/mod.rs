//! An underlay: its addresses, and what all its tunnels share.

pub(crate) mod agent;
pub(crate) mod conflicts;
pub(crate) mod neighbours;
pub(crate) mod outbox;
pub(crate) mod pings;
mod table;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use conflicts::{AddressStatus, Conflicts, Notice};
use foldhash::quality::RandomState;

use neighbours::{Neighbours, NextHop, Question, is_station};
use outbox::Outbox;
use pings::Pings;
use straightline_graph::{Port, SharedLimit, Told};
use straightline_packet::{IgnorePoison, PortIndex};
use straightline_wire::MacAddr;
use straightline_wire::messages::{self, ALL_NODES, Link};
use table::AlreadyTold;

use crate::tunnel::port::TunnelLink;
use crate::{Agent, NeighbourStatus, Tunnel, UnderlayConfig};

/// The bit of a known address in [`Underlay::mac`].
const KNOWN: u64 = 1 << 48;

/// The most questions for our MAC addresses that are answered in a second: ARP, neighbour discovery.
const MOST_ANSWERS: u32 = 1000;

/// The most echo requests that are answered in a second: ICMP, GTP-U.
const MOST_ECHOES: u32 = 1000;

/// The most packets of one sender that are answered in a second, of each sort.
const MOST_OF_SENDER: u32 = 50;

/// The most ICMP errors about our packets that are compared with the tunnels in a second, those of
/// one router and all.
const MOST_ERRORS_OF_ROUTER: u32 = 20;
const MOST_ERRORS: u32 = 100;

/// Counters for the senders of each sort. Two senders share one with a probability of one in so
/// many, and no sender can find out which.
const SENDERS: usize = 1024;

/// An underlay. All workers and control share it.
#[derive(Debug)]
pub struct Underlay {
    pub(crate) config: UnderlayConfig,
    /// The index of the port that packets of the underlay come from and go to.
    pub(crate) port: PortIndex,
    /// Our MAC address; 0 while it is not known.
    mac: AtomicU64,
    /// The MAC address of the port's interface; 0 while it is not known, and if there is none.
    interface_mac: AtomicU64,
    /// True if the port leaves inner checksums unfinished, see [`Port::leaves_unfinished`].
    leaves_unfinished: AtomicBool,
    pub(crate) neighbours: Neighbours,
    pub(crate) conflicts: Conflicts,
    /// Bytes of the longest IP packet that the port's interface and the settings allow.
    mtu: AtomicU16,
    pub(crate) outbox: Outbox,
    pub(crate) pings: Pings,
    /// By MAC address: the senders are stations of our network.
    pub(crate) answers: SharedLimit,
    /// Apart from `answers`: anybody can send echo requests, and our neighbours must find us still.
    /// By IP address, because a router sends those of many.
    pub(crate) echoes: SharedLimit,
    /// Errors about packets of ours, by the IP address of the router.
    pub(crate) errors: SharedLimit,
    /// Strangers choose their addresses, so the hash is seeded.
    senders: RandomState,
    /// The latest second that has begun, plus 1.
    second: AtomicU32,
    /// The links of tunnels, which depend on the state of next hops.
    links: Mutex<Vec<Weak<TunnelLink>>>,
    /// The tunnels to each remote, to know their packets in ICMP errors.
    tunnels: Mutex<BTreeMap<IpAddr, Vec<Weak<Tunnel>>>>,
    /// The number of times that a tunnel's remotes have changed.
    remote_changes: AtomicU64,
    told: Told<AlreadyTold>,
}

impl Underlay {
    /// Returns the underlay of these settings on the port of this index.
    #[must_use]
    pub fn new(config: UnderlayConfig, port: PortIndex) -> Arc<Self> {
        let mac = config.mac.map_or(0, |mac| mac.as_u64() | KNOWN);
        Arc::new(Underlay {
            neighbours: Neighbours::new(&config),
            conflicts: Conflicts::new(&config.addresses),
            mtu: AtomicU16::new(config.mtu),
            outbox: Outbox::default(),
            pings: Pings::default(),
            answers: SharedLimit::new(SENDERS, MOST_OF_SENDER, MOST_ANSWERS),
            echoes: SharedLimit::new(SENDERS, MOST_OF_SENDER, MOST_ECHOES),
            errors: SharedLimit::new(SENDERS, MOST_ERRORS_OF_ROUTER, MOST_ERRORS),
            senders: RandomState::default(),
            second: AtomicU32::new(0),
            links: Mutex::default(),
            tunnels: Mutex::default(),
            remote_changes: AtomicU64::new(0),
            told: Told::default(),
            mac: AtomicU64::new(mac),
            interface_mac: AtomicU64::new(0),
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
        known(&self.mac)
    }

    /// Notes the MAC address of the port's interface. It becomes ours, unless the settings name
    /// another.
    pub fn set_mac(&self, mac: MacAddr) {
        let word = mac.as_u64() | KNOWN;
        let before = self.interface_mac.swap(word, Ordering::Relaxed);
        if self.config.mac.is_none() {
            self.mac.store(word, Ordering::Relaxed);
            if before != 0 && before != word {
                self.note_link_up();
            }
        }
    }

    /// Notes that the link of the port has come up: our addresses are probed and announced.
    pub fn note_link_up(&self) {
        self.conflicts.begin();
    }

    /// Sets the MTU of the port's interface. The settings bound it, and hold if it is not known.
    pub(crate) fn set_interface_mtu(&self, mtu: Option<u16>) {
        self.mtu.store(mtu.map_or(self.config.mtu, |mtu| mtu.min(self.config.mtu)), Ordering::Relaxed);
    }

    /// Returns the bytes of the longest IP packet.
    #[inline]
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Returns the number of a sender for a [`SharedLimit`].
    pub(crate) fn sender(&self, address: impl Hash) -> u64 {
        self.senders.hash_one(address)
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

    /// Asks a next hop for its MAC address now, if it is not known.
    pub(crate) fn ask_soon(&self, hop: &NextHop) {
        self.neighbours.ask_soon(hop, |question| self.ask(question));
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

    /// Returns the latest second that has begun, 0 before the first.
    pub(crate) fn now(&self) -> u32 {
        self.second.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Returns the minute of the latest second.
    pub(crate) fn minute(&self) -> u32 {
        self.second.load(Ordering::Relaxed) / 60
    }

    fn tunnels(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Vec<Weak<Tunnel>>>> {
        self.tunnels.lock().ignore_poison()
    }

    /// Notes a tunnel under each of its remotes, as long as it lives.
    pub(crate) fn add_tunnel(&self, tunnel: &Arc<Tunnel>) {
        let mut tunnels = self.tunnels();
        for &remote in &tunnel.config.remotes {
            tunnels.entry(remote).or_default().push(Arc::downgrade(tunnel));
        }
    }

    /// Notes a tunnel under a remote that it has got.
    pub(crate) fn add_tunnel_to(&self, remote: IpAddr, tunnel: &Arc<Tunnel>) {
        let mut tunnels = self.tunnels();
        let known = tunnels.entry(remote).or_default();
        if !known.iter().any(|other| other.as_ptr() == Arc::as_ptr(tunnel)) {
            known.push(Arc::downgrade(tunnel));
        }
    }

    /// Forgets a tunnel under a remote, if it has the remote no more.
    pub(crate) fn forget_tunnel_to(&self, remote: IpAddr, tunnel: &Arc<Tunnel>) {
        if tunnel.has_remote(remote) {
            return;
        }
        let mut tunnels = self.tunnels();
        if let Some(known) = tunnels.get_mut(&remote) {
            known.retain(|other| other.as_ptr() != Arc::as_ptr(tunnel));
        }
        tunnels.retain(|_, known| !known.is_empty());
    }

    /// Returns the number of times that a tunnel's remotes have changed.
    #[inline]
    pub(crate) fn remote_changes(&self) -> u64 {
        self.remote_changes.load(Ordering::Relaxed)
    }

    /// Notes that a tunnel's remotes change. Workers must not see the change before.
    pub(crate) fn note_remote_change(&self) {
        self.remote_changes.fetch_add(1, Ordering::Release);
    }

    /// Returns whether a tunnel to this remote was added lately.
    pub(crate) fn has_tunnel_to(&self, remote: IpAddr) -> bool {
        self.tunnels().contains_key(&remote)
    }

    /// Calls `look` with each tunnel to this remote.
    pub(crate) fn look_at_tunnels_to(&self, remote: IpAddr, mut look: impl FnMut(&Tunnel)) {
        let tunnels = self.tunnels();
        tunnels.get(&remote).into_iter().flatten().filter_map(Weak::upgrade).for_each(|tunnel| look(&tunnel));
    }

    /// Forgets tunnels that are gone.
    fn forget_tunnels(&self) {
        self.tunnels().retain(|_, tunnels| {
            tunnels.retain(|tunnel| tunnel.strong_count() > 0);
            !tunnels.is_empty()
        });
    }

    /// Notes a link that is to be brought up to date once a second, as long as it lives.
    pub(crate) fn watch(&self, link: &Arc<TunnelLink>) {
        self.links().push(Arc::downgrade(link));
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, Vec<Weak<TunnelLink>>> {
        self.links.lock().ignore_poison()
    }

    /// Brings the links up to date.
    fn look_at_links(&self) {
        self.links().retain(|link| link.upgrade().inspect(|link| link.look()).is_some());
    }

    /// Does the work of a second: asks next hops, and forgets what is old. Returns the number of
    /// kept packets that were given up.
    pub(crate) fn tick(&self, now: u32) -> usize {
        self.forget_tunnels();
        self.look_at_links();
        self.look_at_addresses(now);
        self.neighbours.tick(now, |question| self.ask(question))
    }

    /// Probes and announces our addresses. Tells of other stations that have them.
    fn look_at_addresses(&self, now: u32) {
        let tell = |ip: IpAddr, other: Option<MacAddr>| {
            let underlay = &self.config.name;
            match other {
                Some(mac) => tracing::warn!(underlay, "another station, {mac}, has our address {ip}"),
                None => tracing::info!(underlay, "no other station has our address {ip} any more"),
            }
        };
        self.conflicts.tick(now, |notice| self.send_notice(notice), tell);
    }

    /// Sends a message about an address of ours. Returns `false` if it cannot be sent now.
    fn send_notice(&self, notice: Notice) -> bool {
        let Some(mac) = self.mac() else { return false };
        let link = |dst| Link { src: mac, dst, vlan: self.config.vlan };
        let message = match notice {
            Notice::Probe(IpAddr::V4(ip)) => messages::arp_request(link(MacAddr::BROADCAST), Ipv4Addr::UNSPECIFIED, ip),
            Notice::Announcement(IpAddr::V4(ip)) => messages::arp_request(link(MacAddr::BROADCAST), ip, ip),
            Notice::Probe(IpAddr::V6(ip)) => messages::probe(link(messages::everybody(ip.into())), ip),
            Notice::Announcement(IpAddr::V6(ip)) => {
                messages::advertisement(link(messages::group_mac(ALL_NODES)), ip, ALL_NODES, false)
            }
        };
        message.is_ok_and(|message| self.outbox.push(message.bytes()))
    }

    /// Notes that a station says by a message that it has our address `ip`. The host of the port's
    /// interface may have it too.
    pub(crate) fn note_claim(&self, ip: IpAddr, mac: MacAddr, now: u32) {
        if !is_station(mac) || [self.mac(), known(&self.interface_mac)].contains(&Some(mac)) {
            return;
        }
        if self.conflicts.claimed(ip, mac, now) {
            // A defence that is lost is not made up for: the next one comes soon enough.
            self.send_notice(Notice::Announcement(ip));
        }
    }

    /// Returns our addresses, in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> Vec<AddressStatus> {
        self.conflicts.status()
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
        message.is_ok_and(|message| self.outbox.push(message.bytes()))
    }

    /// Returns our address in the network of `ip`, else our first address of its version.
    pub(crate) fn address_towards(&self, ip: IpAddr) -> Option<IpAddr> {
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

/// Returns the MAC address in this word, if it is known.
#[inline]
fn known(word: &AtomicU64) -> Option<MacAddr> {
    let mac = word.load(Ordering::Relaxed);
    let [_, _, bytes @ ..] = (mac & !KNOWN).to_be_bytes();
    (mac & KNOWN != 0).then_some(MacAddr(bytes))
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
