//! Facts that checks look at. All of them are plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use straightline_api::{BridgeMoves, Drops, Event, Groups, Neighbours, Port, Row, Runtime, Sets, Status, Tables};
use straightline_evpn::process::Status as EvpnStatus;

/// A fact, or the reason why it is not known.
pub type Fact<T> = Result<T, Unknown>;

/// A reason why a fact is not known, with the command that finds it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The reason, in one phrase.
    pub why: String,
    /// The command or step; empty if there is none.
    pub fix: String,
}

impl Unknown {
    /// Returns a fact that is not known for this reason.
    pub fn new(why: impl Into<String>) -> Self {
        Unknown { why: why.into(), fix: String::new() }
    }

    /// Returns a fact that root can find out.
    pub fn for_root(why: impl Into<String>) -> Self {
        Unknown { why: why.into(), fix: "sudo straightline doctor".to_owned() }
    }
}

/// All facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The time at which the facts were gathered.
    pub now: SystemTime,
    /// The socket of the API.
    pub api: ApiFacts,
    /// The configuration file, if one was named.
    pub configured: Option<Configured>,
    /// The answers of the running switch.
    pub switch: Fact<SwitchFacts>,
    /// The ports of the running switch; without one, those of the configuration.
    pub ports: Vec<PortFacts>,
    /// The process of the running switch.
    pub process: Fact<ProcessFacts>,
    /// The processes of switches on this machine.
    pub switches: Fact<Vec<SwitchProcess>>,
    /// The program's file: the running switch's where it is visible, else that of this process.
    pub program: Fact<ProgramFile>,
    /// The process of EVPN.
    pub evpn: Fact<EvpnFacts>,
    /// The machine.
    pub machine: MachineFacts,
}

/// The process of EVPN on this machine.
#[derive(Clone, Debug, PartialEq)]
pub enum EvpnFacts {
    /// None runs.
    Absent,
    /// One has left this socket when it ended.
    Ended(PathBuf),
    /// One runs, and says this.
    Runs(Box<EvpnStatus>),
}

/// A process that runs a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchProcess {
    /// The process id.
    pub pid: u32,
    /// The configuration file on its command line.
    pub file: PathBuf,
    /// True if it is the file that was named. Without one, true for the default socket of the API.
    pub is_meant: bool,
}

/// The socket of the API, and its answer.
#[derive(Clone, Debug)]
pub struct ApiFacts {
    /// The socket.
    pub socket: SocketFacts,
    /// The reason why there is no answer, or `None` if there is one.
    pub failure: Option<ApiFailure>,
}

/// The reason why the API does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFailure {
    /// No process listens.
    NotListening,
    /// This user may not connect.
    Denied,
    /// The switch did not answer in time.
    Timeout,
    /// Another failure, in one sentence.
    Other(String),
}

/// The configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configured {
    /// The file.
    pub path: PathBuf,
    /// Its errors.
    pub errors: Vec<String>,
    /// Its warnings.
    pub warnings: Vec<String>,
    /// The socket of the API; none without the key `api`.
    pub api: Option<PathBuf>,
    /// Capabilities that this process lacks to open the interfaces, in one sentence.
    pub missing_privileges: Option<String>,
    /// The ports.
    pub ports: Vec<ConfiguredPort>,
}

/// A port of the configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfiguredPort {
    /// The port, as the API of a switch describes it whose links are down.
    pub port: Port,
    /// The user that owns the socket; none if it stays the switch's.
    pub owner: Option<u32>,
    /// The group that owns the socket; none if it stays the switch's.
    pub group: Option<u32>,
    /// The socket's permission bits.
    pub perms: u32,
}

/// The answers of a running switch.
#[derive(Clone, Debug, Default)]
pub struct SwitchFacts {
    /// The answer to `status` after an interval.
    pub status: Status,
    /// The moves in the answer to `status` before the interval.
    pub moves_before: Vec<BridgeMoves>,
    /// The answer to `neighbours`.
    pub neighbours: Neighbours,
    /// The answer to `ports` before the interval.
    pub ports_before: Vec<Port>,
    /// The answer to `tables` after the interval.
    pub tables: Tables,
    /// The answer to `drops` after the interval.
    pub drops: Drops,
    /// The answer to `groups`.
    pub groups: Groups,
    /// The answer to `sets`.
    pub sets: Sets,
    /// The bridges with `snooping`.
    pub snooping: Vec<SnoopedBridge>,
    /// The kept events, oldest first.
    pub events: Vec<Event>,
    /// True if the switch was started from the file that was named; `None` if none was.
    pub runs_named_file: Option<bool>,
    /// The answer to `runtime` before the interval.
    pub before: Runtime,
    /// The answer to `runtime` after the interval.
    pub after: Runtime,
}

/// A bridge that prunes multicast.
#[derive(Clone, Debug, Default)]
pub struct SnoopedBridge {
    /// The name of the bridge.
    pub bridge: String,
    /// The rows of its table of groups.
    pub rows: Vec<Row>,
}

/// A port, with its socket and the process at its other end.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// The port.
    pub port: Port,
    /// The port in the configuration file, if one was named.
    pub configured: Option<ConfiguredPort>,
    /// The socket of a port that has one.
    pub socket: Option<SocketFacts>,
    /// Processes of VMs that are connected to the socket, or name it on their command lines.
    pub peers: Fact<Vec<Peer>>,
    /// The processes that have the port's tap open, if the port cannot have it.
    pub interface_holders: Vec<Holder>,
    /// The NUMA node of the port's interface; `None` if it has none.
    pub interface_node: Fact<Option<usize>>,
}

/// A socket's file.
#[derive(Clone, Debug)]
pub struct SocketFacts {
    /// The path.
    pub path: PathBuf,
    /// The state of the path.
    pub state: Fact<SocketFile>,
    /// The processes that have the socket open and listen there.
    pub holders: Fact<Vec<Holder>>,
    /// The owner and the permissions of the socket's file; `None` if there is no file.
    pub file: Fact<Option<Access>>,
    /// Each folder above the file, outermost first.
    pub folders: Vec<(PathBuf, Fact<Access>)>,
    /// The user who is to connect: the VM's, or the switch's where the VM listens.
    pub user: Fact<User>,
}

/// The state of a socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFile {
    /// Nothing is there.
    Missing,
    /// A process left the socket when it ended.
    Stale,
    /// A running process has the socket open.
    Live,
    /// A file of another kind.
    NotASocket,
}

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// The program's name.
    pub name: String,
}

/// The owner and the permissions of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// True if an access control list changes the permissions.
    pub has_list: bool,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, or the number as text.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The ids of the user's groups.
    pub groups: Vec<u32>,
}

/// The process of a VM at the other end of a socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The process id.
    pub pid: u32,
    /// The program.
    pub program: Program,
    /// The user.
    pub user: Fact<User>,
    /// The settings of the VM, from its command line.
    pub memory: Fact<Memory>,
    /// True if the program listens at the socket, false if it connects.
    pub listens: Fact<bool>,
    /// True if the program connects again after its connection ended.
    pub reconnects: Fact<bool>,
    /// The number of virtual CPUs.
    pub cpus: Fact<u32>,
    /// The number of queue pairs that the program asks for.
    pub queue_pairs: Fact<u32>,
    /// True if the device has a virtual IOMMU.
    pub has_iommu: Fact<bool>,
    /// The CPUs on which any of the process's threads may run.
    pub allowed_cpus: Fact<BTreeSet<usize>>,
    /// The CPUs on which virtual CPUs may run; unknown if the threads have no names.
    pub vcpu_cpus: Fact<BTreeSet<usize>>,
}

/// The programs that speak vhost-user for guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// QEMU.
    Qemu,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// User Mode Linux.
    Uml,
    /// Another program, by its name.
    Other(String),
}

impl Program {
    /// Returns the program's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Qemu => "QEMU",
            Self::CloudHypervisor => "Cloud Hypervisor",
            Self::Crosvm => "crosvm",
            Self::Uml => "User Mode Linux",
            Self::Other(name) => name,
        }
    }
}

/// The memory of a guest, by the command line of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The switch can map it.
    Shared,
    /// The switch cannot map it, or does not see the guest's writes. With the option that is
    /// missing.
    Private(String),
}

/// The process of the switch.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    /// The process id.
    pub pid: u32,
    /// The limit of open descriptors; `None` if there is no limit.
    pub descriptor_limit: Fact<Option<u64>>,
    /// The quota of CPU time of its control groups; `None` if there is none.
    pub quota: Fact<Option<Quota>>,
}

/// The file of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    /// The path.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// True if each process that executes it gets capabilities (setcap(8)).
    pub has_capabilities: bool,
}

/// A limit of CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// The number of CPUs' worth of time.
    pub cpus: f64,
    /// The number of periods in which the group had to wait.
    pub throttled: u64,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// The interfaces that have a default route, in the network namespace of the switch.
    pub default_routes: Fact<BTreeSet<String>>,
    /// The CPUs that are online.
    pub cpus: Fact<BTreeMap<usize, Cpu>>,
    /// Lines of the kernel's log and the audit log in which AppArmor or SELinux denied something
    /// to a VM's program or the switch. `None` if neither is active.
    pub denials: Fact<Option<Vec<String>>>,
}

/// A CPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// The CPUs of the same core, itself included.
    pub siblings: Fact<BTreeSet<usize>>,
    /// The NUMA node.
    pub node: Fact<usize>,
    /// The frequency governor.
    pub governor: Fact<String>,
    /// The share of time that the hypervisor gave to others, 0 to 1.
    pub steal: Fact<f64>,
}
