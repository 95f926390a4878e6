//! Facts about a machine, read from its files. A file that is not there is a fact that is not
//! known: nothing here fails.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::thread::{CpuSet, sched_getaffinity};
use straightline_port::device::check_interface_name;

use super::super::parse_cpu_list;

/// Users that run QEMU: Debian's libvirt, Fedora's, and Debian's user of old.
const QEMU_USERS: &[&str] = &["libvirt-qemu", "qemu", "kvm"];

/// Facts about a machine from which a first configuration is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The interfaces with hardware behind them, by name.
    pub nics: Vec<Nic>,
    /// The names of the Linux bridges.
    pub bridges: Vec<String>,
    /// The user that runs QEMU, if there is one.
    pub qemu_user: Option<String>,
    /// The isolated CPUs (`isolcpus=` and cpusets), ascending.
    pub isolated: Vec<usize>,
    /// The CPUs that this process may use, ascending.
    pub allowed: Vec<usize>,
    /// For each isolated CPU, the CPUs of its core.
    pub cores: Vec<Vec<usize>>,
    /// A folder for sockets. It need not be there yet.
    pub folder: PathBuf,
}

/// A network interface with hardware behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// The name.
    pub name: String,
    /// The name of its driver, or "unknown".
    pub driver: String,
    /// The MAC address, or "unknown".
    pub mac: String,
    /// True if the machine's default route leads through it.
    pub has_default_route: bool,
}

impl Facts {
    /// Reads the facts about this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let mut allowed = Vec::new();
        if let Ok(set) = sched_getaffinity(None) {
            allowed.extend((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)));
        }
        Self { allowed, folder: folder(), ..Self::below(Path::new("/")) }
    }

    /// Reads the facts that are files below this root: all but the allowed CPUs and the folder.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let names = interface_names(&root.join("sys/class/net"));
        let folder = |name: &str| root.join("sys/class/net").join(name);
        let route = read(&root.join("proc/net/route")).and_then(|routes| default_interface(&routes));
        let nics = names.iter().filter(|name| folder(name).join("device").exists());
        let nics = nics.map(|name| Nic {
            name: name.clone(),
            driver: driver(&folder(name)).unwrap_or_else(|| "unknown".to_owned()),
            mac: read(&folder(name).join("address")).map_or_else(|| "unknown".to_owned(), |mac| mac.trim().to_owned()),
            has_default_route: route.as_ref() == Some(name),
        });
        let nics = nics.collect();
        let bridges = names.iter().filter(|name| folder(name).join("bridge").exists()).cloned().collect();
        let passwd = read(&root.join("etc/passwd")).unwrap_or_default();
        let has_user = |user: &&&str| passwd.lines().any(|line| line.split(':').next() == Some(**user));
        let cpus = root.join("sys/devices/system/cpu");
        let isolated = read(&cpus.join("isolated")).and_then(|list| parse_cpu_list(&list)).unwrap_or_default();
        let core = |cpu: &usize| {
            let siblings = read(&cpus.join(format!("cpu{cpu}/topology/thread_siblings_list")));
            siblings.and_then(|list| parse_cpu_list(&list)).unwrap_or_else(|| vec![*cpu])
        };
        Self {
            nics,
            bridges,
            qemu_user: QEMU_USERS.iter().find(has_user).map(|user| (*user).to_owned()),
            cores: isolated.iter().map(core).collect(),
            isolated,
            allowed: Vec::new(),
            folder: PathBuf::new(),
        }
    }
}

/// The folder of the service.
const SERVICE_FOLDER: &str = "/run/straightline";

/// Returns a folder for sockets: the service's if this process may write it, else the user's own. If
/// neither is there, the service's, which is still to be made: everybody may write to `/tmp`.
fn folder() -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = [Some(PathBuf::from(SERVICE_FOLDER)), runtime];
    let is_ours = |path: &PathBuf| path.is_absolute() && path.is_dir() && access(path, Access::WRITE_OK).is_ok();
    candidates.into_iter().flatten().find(is_ours).unwrap_or_else(|| PathBuf::from(SERVICE_FOLDER))
}

/// Returns the names in a folder of interfaces, sorted. Names that no configuration can have are
/// left out.
fn interface_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_plain = |name: &String| {
        let is_quotable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
        is_quotable && check_interface_name(name).is_ok()
    };
    let mut names: Vec<_> = names.filter(is_plain).collect();
    names.sort();
    names
}

/// Returns the name of an interface's driver. A virtio device is below its NIC's bus.
fn driver(interface: &Path) -> Option<String> {
    let target = fs::read_link(interface.join("device/driver")).ok()?;
    let name = target.file_name()?.to_str()?;
    name.bytes().all(|byte| byte.is_ascii_graphic()).then(|| name.to_owned())
}

/// Returns the interface of the IPv4 default route in the kernel's table of routes.
fn default_interface(routes: &str) -> Option<String> {
    let mut fields = routes.lines().skip(1).map(|line| line.split_whitespace());
    fields.find_map(|mut fields| {
        let name = fields.next()?;
        let destination = fields.next()?;
        (destination == "00000000").then(|| name.to_owned())
    })
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}
