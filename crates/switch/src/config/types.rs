//! The values of a configuration that was checked.

use std::path::PathBuf;

use straightline_nodes::{IpPrefix, MacPrefix};
use straightline_packet::Level;

use super::{Mac, NodeConfig, PortKind, VhostUserConfig};

/// A whole configuration. All lists are in the file's order.
///
/// Programs that embed the switch may also build one by hand. They must then keep the rules for
/// names and numbers that the checks of a file enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[switch]`
    pub switch: SwitchConfig,
    /// A section `[port.NAME]`.
    pub ports: Vec<PortConfig>,
    /// `[patch.NAME]`
    pub patches: Vec<PatchConfig>,
    /// `[bridge.NAME]`
    pub bridges: Vec<BridgeConfig>,
    /// `[node.NAME]`
    pub nodes: Vec<NodeConfig>,
}

impl Config {
    /// Returns the index of the port of this name in [`Config::ports`].
    #[must_use]
    pub fn port_index(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// Returns the nodes that packets from the port at this index pass, in their order.
    pub(crate) fn ingress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].nodes)
    }

    /// Returns the nodes that packets to the port at this index pass, in their order.
    pub(crate) fn egress_nodes(&self, port: usize) -> impl DoubleEndedIterator<Item = &NodeConfig> {
        self.nodes_of(&self.ports[port].egress_nodes)
    }

    /// Returns the nodes of these names, in their order. Leaves out a node with an output to a port
    /// that does not exist.
    pub(crate) fn nodes_of<'a>(&'a self, names: &[String]) -> impl DoubleEndedIterator<Item = &'a NodeConfig> {
        let known = names.iter().filter_map(|name| self.nodes.iter().find(|node| node.name == *name));
        known.filter(|node| node.outputs().iter().all(|port| self.port_index(port).is_some()))
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
    /// The number of copies of a packet's body.
    pub copies: Copies,
    /// The instruction set of copies and checksums. `None`: the widest that is known to be good on
    /// this machine.
    pub simd: Option<Level>,
    /// The implementation of copies.
    pub copy: Copier,
    /// The confinement of the process.
    pub sandbox: SandboxConfig,
    /// Turns prefetching of buffers off. No file can set this field: it is for experiments.
    pub without_prefetch: bool,
}

impl SwitchConfig {
    /// Returns the instruction set or implementation of copies and checksums, with defaults
    /// resolved.
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

/// The implementation of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copier {
    /// The switch's own kernels, in the instruction set of [`SwitchConfig::simd`].
    #[default]
    Kernel,
    /// The C library, for comparison. Bytes that are summed in the same pass are still copied by
    /// the switch's kernels.
    Libc,
    /// The instruction `rep movsb`, for comparison as [`Copier::Libc`].
    #[cfg(target_arch = "x86_64")]
    Movsb,
}

impl Copier {
    /// All implementations on this architecture.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Libc, Self::Movsb];
    /// All implementations on this architecture.
    #[cfg(not(target_arch = "x86_64"))]
    pub const ALL: [Self; 2] = [Self::Kernel, Self::Libc];

    /// Returns the name in the file.
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

/// A section `[port.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The name, unique among ports: letters, digits, `_`, `.` and `-`, at most 32.
    pub name: String,
    /// The kind of the port, with the keys of that kind.
    pub kind: PortKind,
    /// The MTU. The largest frame is 18 bytes longer: the Ethernet header and a VLAN tag.
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
    /// The MTU of a port whose section names none.
    pub const DEFAULT_MTU: u16 = 1500;

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
        }
    }
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
    /// Static entries: addresses that are known from the start and never forgotten.
    pub statics: Vec<StaticEntry>,
}

impl BridgeConfig {
    /// The ageing time where the file names none: the default of IEEE 802.1Q-2018, table 8-6.
    pub const DEFAULT_AGEING: u32 = 300;
    /// The limit where the file names none.
    pub const DEFAULT_LIMIT: u32 = 4096;
}

/// An entry of a bridge's `static`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// The address.
    pub mac: Mac,
    /// The port of the bridge behind which the address is.
    pub port: String,
}
