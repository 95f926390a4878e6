//! The values of a configuration that was checked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use caps::Capability;
use rustix::process::getegid;
use straightline_api::{Joined, JoinedKind, Port};
use straightline_firewall::{Definitions, Group, PortGroups, Prefix, Set};
use straightline_flow::Meter;
use straightline_graph::{OWN_MODE, Permissions, RateLimits};
use straightline_nodes::{IpPrefix, MacPrefix, PortRules, PortVlans, VlanRole};
use straightline_packet::Level;
use straightline_underlay::{Address, PathMtuErrors};
use straightline_wire::{Dscp, DscpSet, VlanId};

use crate::{Mac, Needs, NodeConfig, PortKind, PortList, VhostUserConfig, capabilities_needed};

/// A whole configuration. All lists are in the file's order.
///
/// Programs that embed the switch may also build one by hand. They must then keep the rules for
/// names and numbers that the checks of a file enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[switch]`
    pub switch: SwitchConfig,
    /// A section `[port.NAME]`.
    pub ports: PortList,
    /// `[underlay.NAME]`
    pub underlays: Vec<UnderlayConfig>,
    /// `[patch.NAME]`
    pub patches: Vec<PatchConfig>,
    /// `[bridge.NAME]`
    pub bridges: Vec<BridgeConfig>,
    /// `[node.NAME]`
    pub nodes: Vec<NodeConfig>,
    /// `[rate.NAME]`
    pub rates: Vec<RateConfig>,
    /// `[group.NAME]`
    pub groups: Vec<Group>,
    /// `[set.NAME]`
    pub sets: Vec<SetConfig>,
    /// `[firewall]`
    pub firewall: FirewallConfig,
}

impl Config {
    /// Returns the index of the port of this name in [`Config::ports`].
    #[must_use]
    pub fn port_index(&self, name: &str) -> Option<usize> {
        self.ports.position(name)
    }

    /// Returns the index of the underlay of this name in [`Config::underlays`].
    #[must_use]
    pub fn underlay_index(&self, name: &str) -> Option<usize> {
        self.underlays.iter().position(|underlay| underlay.name == name)
    }

    /// Returns the limits of a port's rate.
    #[must_use]
    pub fn limits(&self, rate: &PortRate) -> RateLimits {
        match rate {
            PortRate::Own(limits) | PortRate::Live(limits) => *limits,
            PortRate::Shared(name) => {
                self.rates.iter().find(|rate| rate.name == *name).map(|rate| rate.limits).unwrap_or_default()
            }
        }
    }

    /// Returns the files that sections name: flows and sets. A reload reads them again.
    pub fn named_files(&self) -> impl Iterator<Item = &PathBuf> {
        let flows = self.bridges.iter().filter_map(|bridge| bridge.flows.as_ref()?.file.as_ref());
        flows.chain(self.sets.iter().filter_map(|set| set.file.as_ref()))
    }

    /// Returns the meaning of the names in rules. The members of a group are the addresses in
    /// `allowed-ips` of its ports.
    #[must_use]
    pub fn definitions(&self) -> Definitions {
        definitions(self.groups.iter().cloned(), self.sets.iter().map(SetConfig::named), &self.ports)
            .with_nat64(&self.firewall.nat64)
    }

    /// Returns the patch, bridge or underlay that the port of this name is in.
    #[must_use]
    pub fn joined(&self, port: &str) -> Option<Joined> {
        self.networks().get(port).map(|network| network.joined(self))
    }

    /// Returns the patch, bridge or underlay of each port that is in one, by the port's name.
    pub fn networks(&self) -> HashMap<&str, PortNetwork> {
        let mut networks = HashMap::with_capacity(self.ports.len());
        let mut add = |port, kind, at| _ = networks.entry(port).or_insert(PortNetwork { kind, at });
        for (at, patch) in self.patches.iter().enumerate() {
            patch.ports.iter().for_each(|port| add(port.as_str(), JoinedKind::Patch, at));
        }
        for (at, bridge) in self.bridges.iter().enumerate() {
            bridge.ports.iter().for_each(|port| add(port, JoinedKind::Bridge, at));
        }
        for (at, underlay) in self.underlays.iter().enumerate() {
            add(&underlay.port, JoinedKind::Underlay, at);
        }
        networks
    }

    /// Returns the indexes of ports whose messages without a rule are judged: those of guests in patches and
    /// bridges in which a port has groups.
    #[must_use]
    pub fn judged_ports(&self) -> Vec<usize> {
        let mut judged: Vec<usize> = self.guarded_networks().into_iter().flat_map(|(_, members)| members).collect();
        judged.retain(|at| self.ports[*at].is_of_guest());
        judged
    }

    /// Returns the name of each patch and bridge in which a port has groups, with the indexes of its ports.
    #[must_use]
    pub fn guarded_networks(&self) -> Vec<(String, Vec<usize>)> {
        let places: HashMap<&str, usize> =
            self.ports.iter().enumerate().map(|(at, port)| (port.name.as_str(), at)).collect();
        let place = |name: &str| places.get(name).copied();
        let patches = self.patches.iter().map(|patch| {
            let members = patch.ports.iter().filter_map(|name| place(name)).collect();
            (format!("patch {}", patch.name), members)
        });
        let bridges = self.bridges.iter().map(|bridge| {
            let members = bridge.ports.iter().filter_map(|name| place(name)).collect();
            (format!("bridge {}", bridge.name), members)
        });
        let has_groups =
            |(_, members): &(String, Vec<usize>)| members.iter().any(|at| !self.ports[*at].groups.is_empty());
        patches.chain(bridges).filter(has_groups).collect()
    }

    /// Returns whether a bridge has VLANs: one of its ports has.
    #[must_use]
    pub fn has_vlans(&self, bridge: &BridgeConfig) -> bool {
        let mut ports = bridge.ports.iter().filter_map(|name| self.port_index(name));
        ports.any(|port| self.ports[port].rules.vlans.is_some())
    }

    /// Returns the index of the port that carries the packets of the tunnel at this index.
    pub fn carrier(&self, tunnel: usize) -> Option<usize> {
        let tunnel = self.ports[tunnel].kind.as_tunnel()?;
        let underlay = self.underlay_index(&tunnel.underlay)?;
        self.port_index(&self.underlays[underlay].port)
    }

    /// Returns the indexes of the tunnels of the underlay at this index, in the ports' order.
    pub fn tunnels_of(&self, underlay: usize) -> impl Iterator<Item = usize> {
        let name = &self.underlays[underlay].name;
        let is_member = move |port: &PortConfig| port.kind.as_tunnel().is_some_and(|tunnel| tunnel.underlay == *name);
        self.ports.iter().enumerate().filter(move |(_, port)| is_member(port)).map(|(at, _)| at)
    }

    /// Returns the nodes that packets from the port at this index pass, in their order.
    pub fn ingress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].nodes)
    }

    /// Returns the nodes that packets to the port at this index pass, in their order.
    pub fn egress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].egress_nodes)
    }

    /// Returns the nodes of these names, in their order. Leaves out a node with an output to a port
    /// that does not exist.
    pub fn nodes_of<'a>(&'a self, names: &[String]) -> impl DoubleEndedIterator<Item = &'a NodeConfig> {
        let known = names.iter().filter_map(|name| self.nodes.iter().find(|node| node.name == *name));
        known.filter(|node| node.outputs().iter().all(|port| self.port_index(port).is_some()))
    }
}

/// The patch, bridge or underlay that a port is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNetwork {
    /// Patch or bridge.
    pub kind: JoinedKind,
    /// Its index in the configuration's list of this kind.
    pub at: usize,
}

impl PortNetwork {
    /// Returns its kind and name in the configuration that it was found in.
    pub fn name(self, config: &Config) -> (JoinedKind, &str) {
        let name = match self.kind {
            JoinedKind::Patch => &config.patches[self.at].name,
            JoinedKind::Bridge => &config.bridges[self.at].name,
            JoinedKind::Underlay => &config.underlays[self.at].name,
        };
        (self.kind, name)
    }

    /// Returns it as the API shows it.
    pub fn joined(self, config: &Config) -> Joined {
        let (kind, name) = self.name(config);
        Joined { kind, name: name.to_owned() }
    }
}

/// The section `[switch]`: settings of the whole switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The CPUs of the workers: one thread is pinned to each. Empty: one worker that is not pinned.
    pub workers: Vec<usize>,
    /// The behaviour of a worker that finds no packets.
    pub idle: Idle,
    /// The path of the API's socket. `None`: there is no API.
    pub api: Option<PathBuf>,
    /// The group whose members may use the API, besides this process's user.
    pub api_group: Option<u32>,
    /// The permission bits of the API's socket. `None`: 0600, or 0660 with a group.
    pub api_perms: Option<u32>,
    /// The path of a second socket, which only answers questions.
    pub api_read_only: Option<PathBuf>,
    /// The group whose members may use the second socket. `None`: the group [`Self::api_group`].
    pub api_read_only_group: Option<u32>,
    /// The permission bits of the second socket. `None`: 0666, or 0660 with a group of its own.
    pub api_read_only_perms: Option<u32>,
    /// The number of copies of a packet's body.
    pub copies: Copies,
    /// The instruction set of copies and checksums. `None`: the widest that is known to be good on
    /// this machine.
    pub simd: Option<Level>,
    /// A copy of another kind in place of the switch's own, for comparisons.
    pub copy: Option<Level>,
    /// The confinement of the process.
    pub sandbox: SandboxConfig,
    /// Turns prefetching of buffers off. No file can set this field: it is for experiments.
    pub without_prefetch: bool,
    /// The most packets of a turn, if fewer than usual. No file can set this field: it is for
    /// experiments.
    pub turn_packets: Option<usize>,
}

impl SwitchConfig {
    /// The permission bits of the socket that only answers questions, if it has no group of its own.
    const READ_ONLY_PERMS: u32 = 0o666;

    /// Returns who may connect to the API's socket.
    #[must_use]
    pub fn api_permissions(&self) -> Permissions {
        Permissions { owner: None, group: self.api_group, mode: self.api_perms }
    }

    /// Returns who may connect to the socket that only answers questions.
    #[must_use]
    pub fn api_read_only_permissions(&self) -> Permissions {
        let group = self.api_read_only_group.or(self.api_group);
        let default = if self.api_read_only_group.is_some() { None } else { Some(Self::READ_ONLY_PERMS) };
        Permissions { owner: None, group, mode: self.api_read_only_perms.or(default) }
    }

    /// Returns the paths of the API's sockets.
    pub fn api_sockets(&self) -> impl Iterator<Item = &PathBuf> {
        self.api.iter().chain(&self.api_read_only)
    }

    /// Returns the rights that the API's sockets take.
    pub fn api_needs(&self) -> Needs {
        let api = self.api.as_ref().map(|_| self.api_permissions());
        let read_only = self.api_read_only.as_ref().map(|_| self.api_read_only_permissions());
        let sockets = || api.iter().chain(&read_only);
        Needs {
            has_owner: sockets().any(|socket| socket.group.is_some()),
            sets_bits: sockets().any(|socket| socket.bits() != OWN_MODE),
            gives_away: sockets().any(|socket| socket.group.is_some_and(|group| group != getegid().as_raw())),
            ..Needs::default()
        }
    }

    /// Returns the instruction set of copies and checksums, or the other copy, with defaults resolved.
    #[must_use]
    pub fn level(&self) -> Level {
        self.copy.or(self.simd).unwrap_or_else(Level::detect)
    }
}

/// The confinement of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// The mechanisms that confine the process.
    pub mechanisms: Vec<Mechanism>,
    /// True if the file names the mechanisms. The switch then does not start without them.
    pub required: bool,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self { mechanisms: Mechanism::ALL.to_vec(), required: false }
    }
}

/// The kernel's mechanisms that can confine a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Drops root's privileges (capabilities(7)).
    Capabilities,
    /// Restricts files and the network (landlock(7)).
    Landlock,
    /// Restricts system calls (seccomp(2)).
    Seccomp,
}

impl Mechanism {
    /// All mechanisms, in alphabetical order.
    pub const ALL: [Self; 3] = [Self::Capabilities, Self::Landlock, Self::Seccomp];

    /// Returns the name in the file and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

/// The behaviour of a worker that finds no packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// The worker spins a little, then waits for a kick.
    #[default]
    Sleep,
    /// The worker never sleeps.
    Spin,
}

/// The number of copies of the body of a packet between two guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// One copy, from guest to guest.
    #[default]
    One,
    /// Two copies, through a buffer of the switch, as other switches do. It is the baseline of
    /// measurements.
    Two,
}

/// A section `[port.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The name, unique among ports: letters, digits, `_`, `.` and `-`, at most 32.
    pub name: String,
    /// The kind of the port, with the keys of that kind.
    pub kind: PortKind,
    /// The MTU. The largest frame is 18 bytes longer: the Ethernet header and a VLAN tag. With two tags
    /// it is 22 bytes longer.
    pub mtu: u16,
    /// The MAC address that the port reports to the guest. `None`: the guest chooses itself.
    pub mac: Option<Mac>,
    /// The names of the nodes that packets from the port pass before its patch or bridge, in this
    /// order.
    pub nodes: Vec<String>,
    /// The names of the nodes that packets to the port pass behind its patch or bridge, in this
    /// order.
    pub egress_nodes: Vec<String>,
    /// The addresses that the port's guest may claim. `None` (`source-check = "off"`): all.
    pub source_check: Option<SourceCheckConfig>,
    /// The rules of the port in a bridge: its VLANs, for example.
    pub rules: PortRules,
    /// The most addresses that move to the port in a second. `None`: any number.
    pub move_limit: Option<u32>,
    /// The port's part of its worker's time in relation to other ports, while all of them always have
    /// packets: 1 to 10.
    pub share: u8,
    /// The class of service that IP packets from the port get. `None`: they stay as they are.
    pub dscp: Option<Dscp>,
    /// The classes of service whose packets pass before others at the port. Empty: all are alike.
    pub expedited: DscpSet,
    /// The limit of what comes in from the port. `None`: there is none.
    pub rate_in: Option<PortRate>,
    /// The limit of what goes out to the port.
    pub rate_out: Option<PortRate>,
    /// The security groups and profiles, in the order in which their rules are tried. Empty: all packets
    /// pass.
    pub groups: Vec<String>,
    /// The most connections that the switch follows for the port.
    pub connections: u32,
    /// Ports with groups take router advertisements and answers of DHCP from the port.
    pub trusted: bool,
    /// The most messages of each kind without a rule in a second. `None`: any number.
    pub message_limit: Option<u32>,
}

/// The limit of a port in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRate {
    /// Limits of its own.
    Own(RateLimits),
    /// The limits of the section `[rate.NAME]` of this name, together with all others that name it.
    Shared(String),
    /// Limits that a client of the API has set. The file wins at the next reload.
    Live(RateLimits),
}

/// A section `[rate.NAME]`: a bucket that several ports share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateConfig {
    /// The name, unique among rates, with the letters of names of ports.
    pub name: String,
    /// The limits of all ports together.
    pub limits: RateLimits,
}

/// The addresses that the guest of a port may claim (`source-check = "mac"`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCheckConfig {
    /// MAC addresses besides [`PortConfig::mac`] (`allowed-macs`).
    pub macs: Vec<MacPrefix>,
    /// IP addresses (`allowed-ips`). `None`: all.
    pub ips: Option<Vec<IpPrefix>>,
}

impl PortConfig {
    /// The limit of moves to a guest's port in a second where the file names none.
    pub const DEFAULT_MOVE_LIMIT: u32 = 100;

    /// Returns the rules of the port in its bridge. In a bridge with VLANs, a port without any is an
    /// access port of the default one.
    #[must_use]
    pub fn rules_in(&self, has_vlans: bool) -> PortRules {
        let mut rules = self.rules.clone();
        if has_vlans && rules.vlans.is_none() {
            rules.vlans = Some(PortVlans::access(VlanId::DEFAULT));
        }
        rules
    }

    /// Returns whether one guest is behind the port, as far as its section says: it is neither trusted, nor a
    /// trunk, nor a tunnel.
    #[must_use]
    pub fn is_of_guest(&self) -> bool {
        let is_trunk = self.rules.vlans.as_ref().is_some_and(|vlans| matches!(vlans.role, VlanRole::Trunk { .. }));
        !self.trusted && !is_trunk && self.kind.as_tunnel().is_none()
    }

    /// Returns the port as the API describes it while its link is down.
    #[must_use]
    pub fn described(&self) -> Port {
        let device = self.kind.device(self.mtu, self.mac);
        let needed = device.iter().flat_map(capabilities_needed).filter(|&&one| one != Capability::CAP_IPC_LOCK);
        let mut answer = Port {
            name: self.name.clone(),
            kind: self.kind.word().to_owned(),
            mtu: self.mtu,
            mac: self.mac.map(|mac| mac.to_string()),
            socket: self.kind.socket().map(|path| path.display().to_string()),
            interface: self.kind.interface().map(str::to_owned),
            capabilities_needed: needed.map(ToString::to_string).collect(),
            source_check: if self.source_check.is_some() { "mac" } else { "off" }.to_owned(),
            dscp: self.dscp.map(|dscp| dscp.to_string()),
            expedited: self.expedited.iter().map(|dscp| dscp.to_string()).collect(),
            ..Port::default()
        };
        self.kind.describe(&mut answer);
        answer
    }

    /// Returns what the port has of groups, or `None` if all its packets pass.
    #[must_use]
    pub fn port_groups(&self) -> Option<PortGroups> {
        (!self.groups.is_empty()).then(|| PortGroups {
            groups: self.groups.clone(),
            trusted: self.trusted,
            source_check: self.source_check.is_some(),
        })
    }

    /// The connections of a port whose section names no number.
    pub const DEFAULT_CONNECTIONS: u32 = 10_000;
    /// The limit of messages without a rule of a port whose section names none.
    pub const DEFAULT_MESSAGE_LIMIT: u32 = 200;
    /// The MTU of a port whose section names none.
    pub const DEFAULT_MTU: u16 = 1500;
    /// The smallest MTU: that of IPv4 (RFC 791, 3.1).
    pub const MIN_MTU: u16 = 68;

    /// Creates a vhost-user port at `socket` with every default.
    #[must_use]
    pub fn vhost_user(name: impl Into<String>, socket: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            kind: PortKind::VhostUser(VhostUserConfig::new(socket)),
            mtu: Self::DEFAULT_MTU,
            mac: None,
            nodes: Vec::new(),
            egress_nodes: Vec::new(),
            source_check: None,
            rules: PortRules::default(),
            share: 1,
            dscp: None,
            expedited: DscpSet::default(),
            rate_in: None,
            rate_out: None,
            groups: Vec::new(),
            connections: Self::DEFAULT_CONNECTIONS,
            trusted: false,
            message_limit: Some(Self::DEFAULT_MESSAGE_LIMIT),
            move_limit: Some(Self::DEFAULT_MOVE_LIMIT),
        }
    }

    /// Returns the limits of this key of a port: `rate-in` or `rate-out`.
    #[must_use]
    pub fn rate(&self, key: &str) -> Option<&PortRate> {
        if key == "rate-in" { self.rate_in.as_ref() } else { self.rate_out.as_ref() }
    }
}

/// A section `[underlay.NAME]`: a port with addresses, whose packets carry those of tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayConfig {
    /// The name, unique among underlays.
    pub name: String,
    /// The name of the port. It is in no patch and no bridge, and no tunnel.
    pub port: String,
    /// The switch's addresses on it, at least one.
    pub addresses: Vec<Address>,
    /// The routers of other networks, at most one for each IP version.
    pub gateways: Vec<IpAddr>,
    /// The VLAN of all packets, or none.
    pub vlan: Option<u16>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// The switch's MAC address on it. `None`: that of the port's interface, or for a port without
    /// one, an address that the switch makes.
    pub mac: Option<Mac>,
    /// Next hops whose MAC addresses are fixed.
    pub neighbours: Vec<(IpAddr, Mac)>,
    /// The belief in ICMP errors about packets that are too long.
    pub path_mtu: PathMtuErrors,
}

/// A section `[patch.NAME]`: what enters by one port leaves by the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchConfig {
    /// The name, unique among patches.
    pub name: String,
    /// The names of the two ports.
    pub ports: [String; 2],
    /// The handling of a packet whose destination has no free buffer.
    pub full: WhenFull,
}

/// The handling of a packet whose destination has no free buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The packet is dropped and counted.
    #[default]
    Drop,
    /// The packet waits in the source's ring.
    Wait,
}

impl WhenFull {
    /// Returns the word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
        }
    }
}

/// A section `[bridge.NAME]`: a learning bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The name, unique among bridges.
    pub name: String,
    /// The names of the ports, at least one.
    pub ports: Vec<String>,
    /// The seconds until an address that was not seen again is forgotten.
    pub ageing: u32,
    /// The maximum number of addresses, static ones included.
    pub limit: u32,
    /// The maximum number of addresses that clients of the API may add.
    pub api_stations: u32,
    /// An address that moves again and again stays at one port.
    pub loop_protection: bool,
    /// Static entries: addresses that are known from the start and never forgotten.
    pub statics: Vec<StaticEntry>,
    /// IGMP and MLD snooping.
    pub snooping: bool,
    /// Bindings are learned, and questions for them answered.
    pub neighbour_suppression: bool,
    /// IP addresses with their MAC addresses, and the VLAN if the file names one.
    pub bindings: Vec<StaticBinding>,
    /// Flow tables in front of the bridge. `None`: the file has none for it.
    pub flows: Option<FlowsConfig>,
    /// The maximum number of connections that its flows follow.
    pub connections: u32,
}

/// An IP address whose MAC address the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    /// The IP address.
    pub ip: IpAddr,
    /// The MAC address.
    pub mac: Mac,
    /// The VLAN; `None` for the default one.
    pub vlan: Option<VlanId>,
}

/// The flow tables of a bridge, as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowsConfig {
    /// Meters, each with its number.
    pub meters: Vec<(u32, Meter)>,
    /// The lines of all flows: those of `flows-file`, then those of `flows`.
    pub lines: Vec<String>,
    /// The path of `flows-file`.
    pub file: Option<PathBuf>,
}

impl BridgeConfig {
    /// The ageing time where the file names none: the default of IEEE 802.1Q-2018, table 8-6.
    pub const DEFAULT_AGEING: u32 = 300;
    /// The limit where the file names none.
    pub const DEFAULT_LIMIT: u32 = 4096;
    /// The connections of flows where the file names none.
    pub const DEFAULT_CONNECTIONS: u32 = 65_536;
    /// The limit of addresses of the API's clients where the file names none.
    pub const DEFAULT_API_STATIONS: u32 = 4096;

    /// Creates a bridge of these ports with every default.
    #[must_use]
    pub fn new(name: impl Into<String>, ports: Vec<String>) -> Self {
        Self {
            name: name.into(),
            ports,
            ageing: Self::DEFAULT_AGEING,
            limit: Self::DEFAULT_LIMIT,
            api_stations: Self::DEFAULT_API_STATIONS,
            loop_protection: true,
            statics: Vec::new(),
            snooping: false,
            neighbour_suppression: false,
            bindings: Vec::new(),
            flows: None,
            connections: Self::DEFAULT_CONNECTIONS,
        }
    }
}

/// An entry of a bridge's `static`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// The address.
    pub mac: Mac,
    /// The port of the bridge behind which the address is.
    pub port: String,
    /// The VLAN in which the address is. `None`: the VLAN of the port's untagged frames.
    pub vlan: Option<VlanId>,
}

/// A section `[set.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConfig {
    /// The name, unique among sets.
    pub name: String,
    /// The addresses of `prefixes` and of the file, at least one.
    pub prefixes: Vec<Prefix>,
    /// The path of `file`.
    pub file: Option<PathBuf>,
}

impl SetConfig {
    /// Returns the set as rules know it.
    #[must_use]
    pub fn named(&self) -> Set {
        Set { name: self.name.clone(), prefixes: self.prefixes.clone(), ..Set::default() }
    }
}

/// The section `[firewall]`: settings of all connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallConfig {
    /// The time after a start in which connections of before go on. `None`: they end.
    pub pickup: Option<Duration>,
    /// Timeouts other than the defaults, each with its name in [`TIMEOUTS`](crate::TIMEOUTS).
    pub timeouts: Vec<(&'static str, Duration)>,
    /// The treatment of TCP segments outside of the window.
    pub windows: Windows,
    /// Prefixes of the network's translators (NAT64), beside the well-known one.
    pub nat64: Vec<Prefix>,
}

/// The treatment of TCP segments outside of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Windows {
    /// They drop.
    #[default]
    Strict,
    /// Only those drop that would reset the connection.
    Liberal,
}

/// Returns the meaning of the names in the rules of these groups, for these ports.
pub(crate) fn definitions<'a>(
    groups: impl Iterator<Item = Group>,
    sets: impl Iterator<Item = Set>,
    ports: impl IntoIterator<Item = &'a PortConfig>,
) -> Definitions {
    let mut definitions = Definitions::new(groups, sets);
    for port in ports {
        let ips = port.source_check.as_ref().and_then(|check| check.ips.as_ref());
        // Both kinds of prefix have the same text.
        let addresses: Vec<Prefix> = ips.into_iter().flatten().filter_map(|ip| ip.to_string().parse().ok()).collect();
        for group in &port.groups {
            definitions.members.entry(group.clone()).or_default().extend(&addresses);
        }
    }
    for members in definitions.members.values_mut() {
        members.sort_unstable();
        members.dedup();
    }
    definitions
}
