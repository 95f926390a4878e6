//! The processes of VMs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use straightline_api::{DEFAULT_PATH, Link, Port};

use super::command_line::{self, Settings};
use super::host::{Host, cpu_list};
use crate::facts::{Fact, Memory, Peer, Program, SwitchProcess, Unknown, User};

/// The processes of this machine, by their command lines.
#[derive(Debug)]
pub(super) struct Processes {
    all: Vec<(u32, Vec<String>)>,
}

impl Processes {
    /// Reads the command line of each process. Processes that end meanwhile are left out.
    pub(super) fn scan(host: &Host) -> Fact<Self> {
        let all = host.numbers("proc")?.into_iter();
        let all = all.filter_map(|pid| {
            let line = host.read(&format!("proc/{pid}/cmdline")).ok()?;
            let args: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
            Some((pid, args)).filter(|(_, args)| !args[0].is_empty())
        });
        Ok(Processes { all: all.collect() })
    }

    /// Returns the processes that run a switch (`straightline run FILE`). The one that is meant has the
    /// named file. Without a file and with the default socket, any may be meant.
    pub(super) fn switches(&self, host: &Host, api: &Path, named: Option<&Path>) -> Vec<SwitchProcess> {
        let of_line = |(pid, args): &(u32, Vec<String>)| {
            let [program, command, rest @ ..] = &args[..] else { return None };
            let is_ours = Path::new(program).file_name().is_some_and(|name| name == "straightline") && command == "run";
            let file = rest.iter().find(|arg| !arg.starts_with('-')).filter(|_| is_ours)?;
            // A relative path begins where the process is. If that is not visible, or the process has just
            // ended, its file is not known.
            let folder = fs::read_link(host.path(&format!("proc/{pid}/cwd")));
            let is_known = folder.is_ok() || Path::new(file).is_absolute();
            let file = folder.unwrap_or_default().join(file);
            let is_meant = match named {
                Some(named) => is_known && super::is_same_file(named, &file),
                None => api == Path::new(DEFAULT_PATH),
            };
            Some(SwitchProcess { pid: *pid, file, is_meant })
        };
        self.all.iter().filter_map(of_line).collect()
    }
}

/// Returns the VMs of a port: the process that is connected, and VMs that name the socket.
pub(super) fn peers(host: &Host, processes: &Fact<Processes>, port: &Port) -> Fact<Vec<Peer>> {
    if !port.has_frontend() {
        return Ok(Vec::new());
    }
    let socket = port.socket.as_deref();
    let processes = processes.as_ref().map_err(Clone::clone)?;
    let is_vm = |args: &[String]| !matches!(command_line::program(args), Program::Other(_));
    let concerned = processes.all.iter().filter(|(pid, args)| {
        port.pid == Some(*pid) || is_vm(args) && socket.is_some_and(|socket| command_line::names(args, socket))
    });
    let concerned: Vec<_> = concerned.collect();
    // User Mode Linux starts processes with its own command line, which are no VMs.
    let is_child = |pid: u32| {
        let status = host.read(&format!("proc/{pid}/status")).unwrap_or_default();
        let parent = field(&status, "PPid").and_then(|parent| parent.trim().parse::<u32>().ok());
        port.pid != Some(pid) && concerned.iter().any(|(other, _)| Some(*other) == parent)
    };
    let of_vms = concerned.iter().filter(|(pid, _)| !is_child(*pid));
    let found: Vec<_> = of_vms.map(|(pid, args)| peer(host, *pid, args, socket)).collect();
    match (found.is_empty(), port.link, port.pid) {
        (false, ..) | (true, Link::Down, None) => Ok(found),
        (true, _, Some(pid)) => Err(Unknown::for_root(format!("process {pid} is not visible to this user"))),
        (true, Link::Up, None) => Err(Unknown::new("the frontend is in another PID namespace")),
    }
}

fn peer(host: &Host, pid: u32, args: &[String], socket: Option<&str>) -> Peer {
    let Settings { program, memory, listens, reconnects, cpus, queue_pairs, has_iommu } =
        command_line::parse(args, socket);
    let memory = match private_memory(host, pid) {
        Some(option) => Ok(Memory::Private(option)),
        None => memory,
    };
    let threads = threads(host, pid);
    let allowed_cpus = threads.as_ref().map_err(Clone::clone).map(|threads| union(threads.iter()));
    let vcpu_cpus = threads.and_then(|threads| {
        let vcpus: Vec<_> = threads.into_iter().filter(|(name, _)| is_vcpu(name)).collect();
        if vcpus.is_empty() {
            Err(Unknown {
                why: format!("the threads of process {pid} do not say which are virtual CPUs"),
                fix: match program {
                    Program::Qemu => "start QEMU with `-name vm,debug-threads=on`".to_owned(),
                    _ => String::new(),
                },
            })
        } else {
            Ok(union(vcpus.iter()))
        }
    });
    let user = user_of_process(host, pid);
    Peer { pid, program, user, memory, listens, reconnects, cpus, queue_pairs, has_iommu, allowed_cpus, vcpu_cpus }
}

/// The least size of a mapping that counts as the memory of a guest.
const GUEST_MEMORY: u64 = 16 << 20;

/// Returns the option that is missing if a process maps a file as large as a guest's memory, and
/// keeps its own writes to itself. The switch then maps the same file, and sees none of them.
fn private_memory(host: &Host, pid: u32) -> Option<String> {
    // Each user sees the mappings of processes of their own; root sees all.
    let maps = host.read(&format!("proc/{pid}/maps")).ok()?;
    let is_private = |line: &&str| {
        let mut fields = line.split_whitespace();
        let range = fields.next()?;
        let rights = fields.next()?;
        let path = fields.nth(3)?;
        let (first, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let size = number(end)?.checked_sub(number(first)?)?;
        let is_memory = path.starts_with("/memfd:") || path.starts_with("/dev/shm/") || path.contains("hugepages");
        Some(rights == "rw-p" && is_memory && size >= GUEST_MEMORY)
    };
    let line = maps.lines().find(|line| is_private(line) == Some(true))?;
    let file = line.split_whitespace().nth(5).unwrap_or_default();
    Some(format!("a shared mapping (`share=on`): {file} is mapped privately"))
}

/// Returns the name of each thread, and the CPUs on which it may run.
fn threads(host: &Host, pid: u32) -> Fact<Vec<(String, BTreeSet<usize>)>> {
    let mut threads = Vec::new();
    for tid in host.numbers(&format!("proc/{pid}/task"))? {
        let task = format!("proc/{pid}/task/{tid}");
        // A thread that ends meanwhile is left out.
        let (Ok(name), Ok(status)) = (host.line(&format!("{task}/comm")), host.read(&format!("{task}/status"))) else {
            continue;
        };
        let allowed = field(&status, "Cpus_allowed_list").ok_or_else(|| Unknown::new("/proc tells no allowed CPUs"))?;
        threads.push((name, cpu_list(allowed)?));
    }
    if threads.is_empty() { Err(Unknown::new(format!("process {pid} has ended"))) } else { Ok(threads) }
}

fn union<'t>(threads: impl Iterator<Item = &'t (String, BTreeSet<usize>)>) -> BTreeSet<usize> {
    threads.flat_map(|(_, cpus)| cpus).copied().collect()
}

/// Returns whether a thread of this name is a virtual CPU: `CPU 0/KVM` and `ALL CPUs/TCG` (QEMU),
/// `vcpu0` (Cloud Hypervisor), `crosvm_vcpu0`.
fn is_vcpu(name: &str) -> bool {
    name.starts_with("CPU ")
        || name.starts_with("ALL CPUs/")
        || name.starts_with("vcpu")
        || name.starts_with("crosvm_vcpu")
}

/// Returns the user who connects to a socket: the VM's user, or else the configured owner.
pub(super) fn user_of(host: &Host, peers: &[Peer], owner: Option<u32>) -> Fact<User> {
    let passwd = host.read("etc/passwd").unwrap_or_default();
    let group = host.read("etc/group").unwrap_or_default();
    match (peers.first(), owner) {
        (Some(peer), _) => peer.user.clone(),
        (None, Some(uid)) => Ok(user(&passwd, &group, uid)),
        // A user of this machine who could run VMs need not run this one.
        (None, None) => Err(Unknown {
            why: "no VM is known, so neither is its user".to_owned(),
            fix: "start the VM, or set `owner` in the port's section".to_owned(),
        }),
    }
}

/// Returns the user of the switch: of its process, or else the one of the package's service.
pub(super) fn user_of_switch(host: &Host, own: &Fact<u32>) -> Fact<User> {
    if let Ok(pid) = own {
        return user_of_process(host, *pid);
    }
    let [passwd, group] = ["etc/passwd", "etc/group"].map(|file| host.read(file).unwrap_or_default());
    let uid = uid_of(&passwd, "straightline");
    uid.map(|uid| user(&passwd, &group, uid)).ok_or_else(|| Unknown {
        why: "no switch runs, so its user is not known".to_owned(),
        fix: "straightline run switch.toml".to_owned(),
    })
}

/// Returns the id of a user in `/etc/passwd`.
fn uid_of(passwd: &str, name: &str) -> Option<u32> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

fn user_of_process(host: &Host, pid: u32) -> Fact<User> {
    let status = host.read(&format!("proc/{pid}/status"))?;
    let passwd = host.read("etc/passwd").unwrap_or_default();
    // Real, effective, saved, and that for files, which checks of permissions use.
    let last = |name: &str| field(&status, name)?.split_whitespace().last()?.parse::<u32>().ok();
    let (uid, gid) = last("Uid").zip(last("Gid")).ok_or_else(|| Unknown::new("/proc tells no user"))?;
    let groups = field(&status, "Groups").unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok());
    Ok(User { name: name_of(&passwd, uid), uid, groups: groups.chain([gid]).collect() })
}

/// Returns a user, with the groups in `/etc/group`.
fn user(passwd: &str, group: &str, uid: u32) -> User {
    let name = name_of(passwd, uid);
    let own = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = own.filter(|fields| fields.first() == Some(&name.as_str()));
    let own = own.filter_map(|fields| fields.get(3)?.parse::<u32>().ok());
    let others = group.lines().filter_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let has = fields.get(3)?.split(',').any(|member| member == name);
        fields.get(2)?.parse::<u32>().ok().filter(|_| has)
    });
    User { groups: own.chain(others).collect(), name, uid }
}

fn name_of(passwd: &str, uid: u32) -> String {
    let number = uid.to_string();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).map_or(number.clone(), str::to_owned)
}

/// Returns a field of `/proc/PID/status`.
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/passwd", "root:x:0:0::/:\nqemu:x:64055:994::/:\n");
        write(root.path(), "etc/group", "kvm:x:994:qemu\nvms:x:7:a,qemu\n");
        let host = Host::new(root.path());
        (root, host)
    }

    #[test]
    fn a_vm_is_found_by_its_socket_with_its_user_and_threads() {
        let (root, host) = machine();
        let line = "qemu-system-x86_64\0-chardev\0socket,id=c,path=/run/vm1.sock\0";
        write(root.path(), "proc/12/cmdline", line);
        write(root.path(), "proc/13/cmdline", "sh\0-c\0qemu path=/run/vm1.sock\0");
        write(root.path(), "proc/14/cmdline", "");
        write(root.path(), "proc/12/status", "Name:\tqemu\nUid:\t1\t1\t1\t64055\nGid:\t1\t1\t1\t994\nGroups:\t7 \n");
        write(root.path(), "proc/12/task/12/comm", "qemu-system-x86\n");
        write(root.path(), "proc/12/task/12/status", "Cpus_allowed_list:\t0-3\n");
        let port = Port { kind: "vhost-user".into(), socket: Some("/run/vm1.sock".into()), ..Port::default() };
        let found = peers(&host, &Processes::scan(&host), &port).unwrap();
        assert_eq!((found.len(), found[0].pid, &found[0].program), (1, 12, &Program::Qemu));
        let user = found[0].user.as_ref().unwrap();
        assert_eq!((user.name.as_str(), user.uid, &user.groups), ("qemu", 64055, &vec![7, 994]));
        assert_eq!(found[0].allowed_cpus, Ok([0, 1, 2, 3].into()));
        assert!(found[0].vcpu_cpus.as_ref().unwrap_err().fix.contains("debug-threads=on"));
        write(root.path(), "proc/12/task/15/comm", "CPU 0/KVM\n");
        write(root.path(), "proc/12/task/15/status", "Cpus_allowed_list:\t2\n");
        let found = peers(&host, &Processes::scan(&host), &port).unwrap();
        assert_eq!(found[0].vcpu_cpus, Ok([2].into()));
    }

    #[test]
    fn the_processes_of_one_user_mode_linux_are_one_vm() {
        let (root, host) = machine();
        for (pid, parent) in [(12, 1), (13, 12), (14, 13), (15, 1)] {
            write(
                root.path(),
                &format!("proc/{pid}/cmdline"),
                "linux.uml\0mem=96M\0virtio_uml.device=/run/vm1.sock:1\0",
            );
            write(root.path(), &format!("proc/{pid}/status"), &format!("Name:\tlinux.uml\nPPid:\t{parent}\n"));
        }
        let vms = |pid| {
            let socket = Some("/run/vm1.sock".into());
            let port = Port { kind: "vhost-user".into(), socket, pid, ..Port::default() };
            let found = peers(&host, &Processes::scan(&host), &port).unwrap();
            found.iter().map(|peer| peer.pid).collect::<Vec<_>>()
        };
        assert_eq!(vms(Some(12)), [12, 15], "another VM names the socket too");
        assert_eq!(vms(Some(14)), [12, 14, 15], "the process that is connected is always told");
    }

    #[test]
    fn memory_that_is_mapped_privately_is_not_shared() {
        let (root, host) = machine();
        let line = "qemu-system-x86_64\0-readconfig\0vm.cfg\0-chardev\0socket,id=c,path=/run/vm1.sock\0";
        write(root.path(), "proc/12/cmdline", line);
        let port = Port { kind: "vhost-user".into(), socket: Some("/run/vm1.sock".into()), ..Port::default() };
        let memory = |maps: &str| {
            write(root.path(), "proc/12/maps", maps);
            peers(&host, &Processes::scan(&host), &port).unwrap()[0].memory.clone()
        };
        let small = "7f0000000000-7f0000100000 rw-p 00000000 00:01 7   /memfd:memory-backend-memfd (deleted)\n";
        let shared = "7f0000000000-7f0010000000 rw-s 00000000 00:01 7   /memfd:memory-backend-memfd (deleted)\n";
        let other = "7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \n";
        assert!(memory(&[small, shared, other].concat()).is_err(), "the options are in a file");
        let private = "7f0000000000-7f0010000000 rw-p 00000000 00:01 7   /memfd:memory-backend-memfd (deleted)\n";
        let Ok(Memory::Private(option)) = memory(&[other, private].concat()) else { panic!("not found") };
        assert!(option.contains("/memfd:memory-backend-memfd is mapped privately"), "{option}");
    }

    #[test]
    fn a_frontend_that_is_not_visible_is_unknown() {
        let (_root, host) = machine();
        let processes = Ok(Processes { all: Vec::new() });
        let up = |pid| Port { socket: Some("/run/vm1.sock".into()), link: Link::Up, pid, ..Port::default() };
        assert!(peers(&host, &processes, &up(None)).unwrap_err().why.contains("PID namespace"));
        assert!(peers(&host, &processes, &up(Some(7))).unwrap_err().why.contains("process 7"));
        let down = Port { link: Link::Down, ..up(None) };
        assert_eq!(peers(&host, &processes, &down), Ok(Vec::new()));
        assert!(peers(&host, &Err(Unknown::new("hidden")), &down).is_err());
    }

    #[test]
    fn the_user_is_the_owner_and_never_guessed() {
        let (root, host) = machine();
        assert_eq!(user_of(&host, &[], Some(5)).unwrap().name, "5");
        let qemu = user_of(&host, &[], Some(64055)).unwrap();
        assert_eq!((qemu.name.as_str(), qemu.groups), ("qemu", vec![994, 994, 7]));
        write(root.path(), "etc/passwd", "root:x:0:0::/:\nlibvirt-qemu:x:64055:994::/:\n");
        assert!(user_of(&host, &[], None).is_err(), "that user need not run the VM");
    }

    #[test]
    fn switches_are_found_by_their_command_lines() {
        let (root, host) = machine();
        let file = root.path().join("a.toml");
        fs::write(&file, "").unwrap();
        write(root.path(), "b.toml", "");
        write(root.path(), "proc/12/cmdline", "/usr/bin/straightline\0run\0a.toml\0");
        std::os::unix::fs::symlink(root.path(), root.path().join("proc/12/cwd")).unwrap();
        write(root.path(), "proc/13/cmdline", "straightline\0check\0a.toml\0");
        write(root.path(), "proc/14/cmdline", "vim\0run\0straightline\0");
        let processes = Processes::scan(&host).unwrap();
        let found = |named: Option<&Path>| processes.switches(&host, Path::new(DEFAULT_PATH), named);
        let expected = |is_meant| [SwitchProcess { pid: 12, file: file.clone(), is_meant }];
        assert_eq!(found(None), expected(true));
        assert_eq!(found(Some(&file)), expected(true));
        assert_eq!(found(Some(&root.path().join("b.toml"))), expected(false));
        assert_eq!(processes.switches(&host, Path::new("/run/other.sock"), None), expected(false));

        // A process that ends while it is looked at. This test's own folder has a file of that name.
        write(root.path(), "proc/15/cmdline", "straightline\0run\0Cargo.toml\0");
        let processes = Processes::scan(&host).unwrap();
        let found = processes.switches(&host, Path::new(DEFAULT_PATH), Some(Path::new("Cargo.toml")));
        assert!(found.iter().any(|process| process.pid == 15) && found.iter().all(|process| !process.is_meant));
    }
}
