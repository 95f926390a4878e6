//! The values of a configuration that was checked.

use std::path::PathBuf;

use straightline_nodes::{IpPrefix, MacPrefix};
use straightline_packet::Level;

use super::{Mac, NodeConfig, PortKind, VhostUserConfig};

/// A whole configuration, everything in the file's order.
///
/// Programs that embed the switch may also build one by hand; the promises about names and numbers
/// are then theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[switch]`
    pub switch: SwitchConfig,
    /// `[port.NAME]`
    pub ports: Vec<PortConfig>,
    /// `[patch.NAME]`
    pub patches: Vec<PatchConfig>,
    /// `[bridge.NAME]`
    pub bridges: Vec<BridgeConfig>,
    /// `[node.NAME]`
    pub nodes: Vec<NodeConfig>,
}

impl Config {
    /// The place of the port of this name in [`Config::ports`].
    #[must_use]
    pub fn port_index(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// The nodes that packets from the port at this index pass, in their order.
    pub(crate) fn ingress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].nodes)
    }

    /// The nodes that packets to the port at this index pass, in their order.
    pub(crate) fn egress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].egress_nodes)
    }

    /// The nodes of these names, in their order. A node with an output to a port that does not exist is left out.
    pub(crate) fn nodes_of<'a>(&'a self, names: &[String]) -> impl DoubleEndedIterator<Item = &'a NodeConfig> {
        let known = names.iter().filter_map(|name| self.nodes.iter().find(|node| node.name == *name));
        known.filter(|node| node.outputs().iter().all(|port| self.port_index(port).is_some()))
    }
}

/// `[switch]`: what concerns the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The CPUs, one polling thread pinned to each. Empty: one thread, unpinned.
    pub workers: Vec<usize>,
    /// What a worker does that finds nothing to do.
    pub idle: Idle,
    /// Where the API listens. None: nowhere.
    pub api: Option<PathBuf>,
    /// How often the body of a packet is copied.
    pub copies: Copies,
    /// The instruction set of copies and checksums. None: the widest that is known to be good here.
    pub simd: Option<Level>,
    /// Who copies.
    pub copy: Copier,
    /// What the process gives up at its start.
    pub sandbox: SandboxConfig,
    /// Lines of buffers are not asked for before they are needed. No file says so: it is for experiments.
    pub without_prefetch: bool,
}

impl SwitchConfig {
    /// How copies and checksums are made, with what the file leaves open settled.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.copy {
            Copier::Kernel => self.simd.unwrap_or_else(Level::detect),
            Copier::Libc => Level::Libc,
            #[cfg(target_arch = "x86_64")]
            Copier::Movsb => Level::Movsb,
        }
    }
}

/// What the process gives up at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// By which mechanisms.
    pub mechanisms: Vec<Mechanism>,
    /// Whether the file names them, so that there is no start without.
    pub required: bool,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self { mechanisms: Mechanism::ALL.to_vec(), required: false }
    }
}

/// What of the kernel can confine a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Root's powers, one by one (capabilities(7)).
    Capabilities,
    /// Files and the network (landlock(7)).
    Landlock,
    /// System calls (seccomp(2)).
    Seccomp,
}

impl Mechanism {
    /// All, in alphabetical order.
    pub const ALL: [Self; 3] = [Self::Capabilities, Self::Landlock, Self::Seccomp];

    /// As the file and the API write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

/// What a worker does that finds nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Spin a little, then wait for a kick.
    #[default]
    Sleep,
    /// Never sleep.
    Spin,
}

/// How often the body of a packet between two guests is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// From guest to guest.
    #[default]
    One,
    /// Through a buffer of the switch: what others do, and what ours is measured against.
    Two,
}

/// Who copies bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copier {
    /// Our kernels, in the instruction set of [`SwitchConfig::simd`].
    #[default]
    Kernel,
    /// The C library, for comparison; but what is summed in the same pass is copied by our kernels.
    Libc,
    /// `rep movsb`, as [`Copier::Libc`].
    #[cfg(target_arch = "x86_64")]
    Movsb,
}

impl Copier {
    /// All that this kind of machine has.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Libc, Self::Movsb];
    /// All that this kind of machine has.
    #[cfg(not(target_arch = "x86_64"))]
    pub const ALL: [Self; 2] = [Self::Kernel, Self::Libc];

    /// As the file writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Libc => "libc",
            #[cfg(target_arch = "x86_64")]
            Self::Movsb => "movsb",
        }
    }
}

/// `[port.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Unique among ports; letters, digits, `_`, `.` and `-`, at most 32.
    pub name: String,
    /// What kind of port, with what only that kind has.
    pub kind: PortKind,
    /// The largest frame is this and 18 bytes of Ethernet header and VLAN tag more.
    pub mtu: u16,
    /// The address that the guest is told. None: it chooses itself.
    pub mac: Option<Mac>,
    /// The names of the nodes that packets from the port pass, in this order, before its patch or bridge.
    pub nodes: Vec<String>,
    /// The names of the nodes that packets to the port pass, in this order, behind its patch or bridge.
    pub egress_nodes: Vec<String>,
    /// Which addresses its guest may claim. None (`source-check = "off"`): all.
    pub source_check: Option<SourceCheckConfig>,
}

/// `source-check = "mac"`: the addresses that the guest of a port may claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCheckConfig {
    /// `allowed-macs`: MAC addresses beside [`PortConfig::mac`].
    pub macs: Vec<MacPrefix>,
    /// `allowed-ips`: IP addresses. None: all.
    pub ips: Option<Vec<IpPrefix>>,
}

impl PortConfig {
    /// MTU of a port that names none.
    pub const DEFAULT_MTU: u16 = 1500;

    /// A vhost-user port at `socket` with every default.
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
        }
    }
}

/// `[patch.NAME]`: what enters by one port leaves by the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchConfig {
    /// Unique among patches.
    pub name: String,
    /// The names of its two ports.
    pub ports: [String; 2],
    /// What becomes of a packet whose destination has no buffer.
    pub full: WhenFull,
}

/// What becomes of a packet whose destination has no buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is dropped, and counted.
    #[default]
    Drop,
    /// It waits in the source's ring.
    Wait,
}

/// `[bridge.NAME]`: a learning bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Unique among bridges.
    pub name: String,
    /// The names of its ports, at least one.
    pub ports: Vec<String>,
    /// Seconds until an address that was not seen again is forgotten.
    pub ageing: u32,
    /// The most addresses that it holds, static ones included.
    pub limit: u32,
    /// Addresses that are known from the start and never forgotten.
    pub statics: Vec<StaticEntry>,
}

impl BridgeConfig {
    /// Ageing where the file names none: the default of IEEE 802.1Q-2018, table 8-6.
    pub const DEFAULT_AGEING: u32 = 300;
    /// Limit where the file names none.
    pub const DEFAULT_LIMIT: u32 = 4096;
}

/// One line of a bridge's `static`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// The address.
    pub mac: Mac,
    /// The port that it is behind, one of the bridge's.
    pub port: String,
}
