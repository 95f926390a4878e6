//! The settings of a VM on the command line of its program.

use std::collections::BTreeMap;

use crate::facts::{Fact, Memory, Program, Unknown};

/// The settings of a VM that concern one socket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) program: Program,
    pub(super) memory: Fact<Memory>,
    pub(super) listens: Fact<bool>,
    pub(super) reconnects: Fact<bool>,
    pub(super) cpus: Fact<u32>,
    pub(super) queue_pairs: Fact<u32>,
    pub(super) has_iommu: Fact<bool>,
}

/// Returns the program of a command line.
pub(super) fn program(args: &[String]) -> Program {
    let path = args.first().map_or("", String::as_str);
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        _ if name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm" => Program::Qemu,
        "cloud-hypervisor" => Program::CloudHypervisor,
        "crosvm" => Program::Crosvm,
        _ if name.starts_with("linux") && args.iter().any(|arg| arg.starts_with("virtio_uml.device=")) => Program::Uml,
        _ => Program::Other(name.to_owned()),
    }
}

/// Returns whether an argument names the socket.
pub(super) fn names(args: &[String], socket: &str) -> bool {
    let is_end = |rest: &str| rest.is_empty() || rest.starts_with([',', ':', '"', '\'', ' ']);
    let is_begin = |before: &str| before.is_empty() || before.ends_with(['=', ':', '"', '\'', ',', ' ']);
    args.iter()
        .any(|arg| arg.match_indices(socket).any(|(at, _)| is_begin(&arg[..at]) && is_end(&arg[at + socket.len()..])))
}

/// Parses the settings of a VM.
pub(super) fn parse(args: &[String], socket: Option<&str>) -> Settings {
    let program = program(args);
    let unknown = |what: &str| Unknown::new(format!("the command line of {} does not tell {what}", program.name()));
    let settings = Settings {
        memory: Err(unknown("its memory")),
        listens: Err(unknown("which side listens")),
        reconnects: Err(unknown("whether it connects again")),
        cpus: Err(unknown("its virtual CPUs")),
        queue_pairs: Err(unknown("its queue pairs")),
        has_iommu: Err(unknown("its device")),
        program,
    };
    match settings.program {
        Program::Qemu => qemu(args, socket, settings),
        Program::CloudHypervisor => cloud_hypervisor(args, socket, settings),
        // crosvm's memory is always a memfd, and it ends with its connection (by its source).
        Program::Crosvm => {
            Settings { memory: Ok(Memory::Shared), listens: Ok(false), reconnects: Ok(false), ..settings }
        }
        // Its memory is always a file (arch/um/os-Linux/mem.c).
        Program::Uml => {
            Settings { memory: Ok(Memory::Shared), listens: Ok(false), reconnects: Ok(false), cpus: Ok(1), ..settings }
        }
        Program::Other(_) => settings,
    }
}

/// An option's value: its first word, and its keys.
#[derive(Debug, Default)]
struct Value {
    first: String,
    keys: BTreeMap<String, String>,
}

impl Value {
    /// Parses `first,key=value,flag`, where `,,` is a comma (QEMU), or an object in JSON.
    fn parse(text: &str) -> Self {
        if text.starts_with('{') {
            return Self::parse_json(text);
        }
        let mut parts = vec![String::new()];
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                ',' if letters.next_if_eq(&',').is_none() => parts.push(String::new()),
                letter => parts.last_mut().expect("there is a part").push(letter),
            }
        }
        let mut value = Value::default();
        for (at, part) in parts.iter().enumerate() {
            match part.split_once('=') {
                Some((key, of_key)) => {
                    value.keys.insert(key.to_owned(), of_key.to_owned());
                }
                None if at == 0 => value.first.clone_from(part),
                // A flag alone is on, and `nowait` is off.
                None => match part.strip_prefix("no") {
                    Some(name) => drop(value.keys.insert(name.to_owned(), "off".to_owned())),
                    None => drop(value.keys.insert(part.clone(), "on".to_owned())),
                },
            }
        }
        value
    }

    fn parse_json(text: &str) -> Self {
        let mut value = Value::default();
        let object: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        flatten("", &object, &mut value.keys);
        let first = ["qom-type", "driver", "type"].iter().find_map(|key| value.keys.get(*key));
        value.first = first.cloned().unwrap_or_default();
        value
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    /// Returns whether a key is on, or `default` without it.
    fn is_on(&self, key: &str, default: bool) -> bool {
        self.get(key).map_or(default, |value| matches!(value, "on" | "yes" | "true" | "y"))
    }

    fn number(&self, key: &str) -> Option<u32> {
        self.get(key)?.parse().ok()
    }
}

/// Adds the keys of a JSON object, as `outer.inner`.
fn flatten(prefix: &str, value: &serde_json::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, keys);
            }
        }
        serde_json::Value::Bool(is_on) => {
            drop(keys.insert(prefix.to_owned(), if *is_on { "on" } else { "off" }.into()))
        }
        serde_json::Value::String(text) => drop(keys.insert(prefix.to_owned(), text.clone())),
        other => drop(keys.insert(prefix.to_owned(), other.to_string())),
    }
}

/// Returns the values of an option, given as `-option value`, `--option value` or `--option=value`.
fn values(args: &[String], options: &[&str]) -> Vec<Value> {
    let mut values = Vec::new();
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { continue };
        if options.contains(&name) {
            // Cloud Hypervisor takes several values after one option.
            while let Some(value) = args.next_if(|value| !value.starts_with('-')) {
                values.push(Value::parse(value));
            }
        } else if let Some((name, value)) = name.split_once('=')
            && options.contains(&name)
        {
            values.push(Value::parse(value));
        }
    }
    values
}

fn qemu(args: &[String], socket: Option<&str>, mut settings: Settings) -> Settings {
    let chardevs = values(args, &["chardev"]);
    let chardev = chardevs.iter().find(|chardev| socket.is_some() && chardev.get("path") == socket);
    if let Some(chardev) = chardev {
        let listens = chardev.is_on("server", false);
        let positive = |key| chardev.number(key).is_some_and(|time| time > 0);
        settings.listens = Ok(listens);
        settings.reconnects = Ok(positive("reconnect") || positive("reconnect-ms"));
    }
    let id = chardev.and_then(|chardev| chardev.get("id"));
    let netdevs = values(args, &["netdev"]);
    let netdev = netdevs.iter().find(|netdev| id.is_some() && netdev.get("chardev") == id);
    if let Some(netdev) = netdev {
        settings.queue_pairs = Ok(netdev.number("queues").unwrap_or(1));
    }
    let netdev_id = netdev.and_then(|netdev| netdev.get("id"));
    let devices = values(args, &["device"]);
    let device = devices.iter().find(|device| netdev_id.is_some() && device.get("netdev") == netdev_id);
    if let Some(device) = device {
        settings.has_iommu = Ok(device.is_on("iommu_platform", false));
    }
    let smp = values(args, &["smp"]);
    let cpus = smp.last().map_or(Some(1), |smp| smp.first.parse().ok().or_else(|| smp.number("cpus")));
    settings.cpus = cpus.ok_or_else(|| Unknown::new("QEMU's -smp does not name the number of virtual CPUs"));
    // The options may be in a file.
    settings.memory = if values(args, &["readconfig"]).is_empty() {
        Ok(qemu_memory(args))
    } else {
        Err(Unknown::new("QEMU reads its options from a file (-readconfig)"))
    };
    settings
}

/// Finds the memory that the machine uses, and whether it is shared.
fn qemu_memory(args: &[String]) -> Memory {
    let objects = values(args, &["object"]);
    let machines = values(args, &["machine", "M"]);
    let used_by_machine = machines.iter().filter_map(|machine| machine.get("memory-backend"));
    let numa = values(args, &["numa"]);
    let used: Vec<&str> = used_by_machine.chain(numa.iter().filter_map(|node| node.get("memdev"))).collect();
    let backend = |object: &&Value| object.first.starts_with("memory-backend-");
    let backends: Vec<&Value> = objects.iter().filter(backend).collect();
    let concerned: Vec<&&Value> =
        backends.iter().filter(|object| object.get("id").is_some_and(|id| used.contains(&id))).collect();
    if concerned.is_empty() {
        return Memory::Private(match backends.first().and_then(|object| object.get("id")) {
            Some(id) => format!("`-machine memory-backend={id}`"),
            None => "`-object memory-backend-memfd,id=mem,share=on` and `-machine memory-backend=mem`".to_owned(),
        });
    }
    for object in concerned {
        // memfd and shm are shared unless share=off (QEMU's qapi/qom.json).
        let default = matches!(object.first.as_str(), "memory-backend-memfd" | "memory-backend-shm");
        if object.first == "memory-backend-ram" {
            return Memory::Private("memory-backend-memfd in place of memory-backend-ram".to_owned());
        }
        if !object.is_on("share", default) {
            return Memory::Private(format!("`share=on` in `-object {}`", object.first));
        }
    }
    Memory::Shared
}

fn cloud_hypervisor(args: &[String], socket: Option<&str>, mut settings: Settings) -> Settings {
    let nets = values(args, &["net"]);
    let path = |net: &Value| net.get("socket").or(net.get("vhost_socket")).map(str::to_owned);
    if let Some(net) = nets.iter().find(|net| socket.is_some() && path(net).as_deref() == socket) {
        settings.listens = Ok(net.get("vhost_mode") == Some("server"));
        // It connects again for 60 s, which is a check of its own.
        settings.reconnects = Ok(true);
        settings.queue_pairs = Ok(net.number("num_queues").unwrap_or(2) / 2);
        settings.has_iommu = Ok(net.is_on("iommu", false));
    }
    let memory = values(args, &["memory"]);
    let zones = values(args, &["memory-zone"]);
    // Without such options, a program has set the VM up over its API.
    if let Some(memory) = memory.first() {
        let is_shared = |value: &Value| value.is_on("shared", false) || value.is_on("hugepages", false);
        settings.memory = Ok(if is_shared(memory) || !zones.is_empty() && zones.iter().all(is_shared) {
            Memory::Shared
        } else {
            Memory::Private("`shared=on` in `--memory`".to_owned())
        });
    }
    if let Some(cpus) = values(args, &["cpus"]).first() {
        settings.cpus = cpus.number("boot").ok_or_else(|| Unknown::new("`--cpus` does not name `boot`"));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn settings(line: &str) -> Settings {
        parse(&args(line), Some("/run/vm1.sock"))
    }

    const QEMU: &str = "/usr/bin/qemu-system-x86_64 -M q35,memory-backend=m -smp 4,sockets=1 \
         -object memory-backend-memfd,id=m,size=1G,share=on -chardev socket,id=c,path=/run/vm1.sock,reconnect=1 \
         -netdev vhost-user,id=n,chardev=c,queues=2 -device virtio-net-pci,netdev=n,mq=on";

    #[test]
    fn qemu_with_shared_memory() {
        let found = settings(QEMU);
        assert_eq!((&found.program, &found.memory), (&Program::Qemu, &Ok(Memory::Shared)));
        assert_eq!((&found.listens, &found.reconnects), (&Ok(false), &Ok(true)));
        assert_eq!((found.cpus, found.queue_pairs, found.has_iommu), (Ok(4), Ok(2), Ok(false)));
    }

    #[test]
    fn qemu_listens() {
        for server in ["server=on,wait=off", "server,nowait"] {
            let found = settings(&QEMU.replace("reconnect=1", server));
            assert_eq!((&found.listens, &found.reconnects), (&Ok(true), &Ok(false)), "{server}");
        }
        let found = settings(&QEMU.replace(",reconnect=1", ",reconnect-ms=1000"));
        assert_eq!(found.reconnects, Ok(true));
        let found = settings(&QEMU.replace("mq=on", "iommu_platform=on"));
        assert_eq!(found.has_iommu, Ok(true));
    }

    #[test]
    fn memory_of_qemu_that_is_not_shared() {
        let private = |line: &str, option: &str| match settings(line).memory {
            Ok(Memory::Private(found)) => assert!(found.contains(option), "{found}"),
            other => panic!("{other:?}"),
        };
        private(&QEMU.replace("share=on", "share=off"), "share=on");
        private(&QEMU.replace("memory-backend-memfd", "memory-backend-file").replace(",share=on", ""), "share=on");
        private(&QEMU.replace(",memory-backend=m", ""), "-machine memory-backend=m");
        private(&QEMU.replace("memory-backend-memfd", "memory-backend-ram"), "memory-backend-memfd");
        private("qemu-system-x86_64 -m 1G", "-object memory-backend-memfd");
        // A memfd is shared without the key.
        assert_eq!(settings(&QEMU.replace(",share=on", "")).memory, Ok(Memory::Shared));
        assert!(settings(&format!("{QEMU} -readconfig vm.cfg")).memory.is_err());
    }

    #[test]
    fn libvirt_writes_json() {
        let line = r#"qemu-system-x86_64 -machine pc-q35,memory-backend=pc.ram -smp 2,maxcpus=2
            -object {"qom-type":"memory-backend-file","id":"pc.ram","mem-path":"/dev/hugepages","share":true}
            -chardev socket,id=charnet0,path=/run/vm1.sock,server=on
            -netdev {"type":"vhost-user","chardev":"charnet0","queues":4,"id":"hostnet0"}
            -device {"driver":"virtio-net-pci","netdev":"hostnet0","iommu_platform":true}"#;
        let found = settings(line);
        assert_eq!((found.memory, found.listens), (Ok(Memory::Shared), Ok(true)));
        assert_eq!((found.cpus, found.queue_pairs, found.has_iommu), (Ok(2), Ok(4), Ok(true)));
        let private = settings(&line.replace(r#","share":true"#, ""));
        assert!(matches!(private.memory, Ok(Memory::Private(_))), "{:?}", private.memory);
    }

    #[test]
    fn cloud_hypervisor_crosvm_and_uml() {
        let line = "cloud-hypervisor --cpus boot=2 --memory size=1G,shared=on \
                    --net vhost_user=true,socket=/run/vm1.sock,num_queues=4 --disk path=x";
        let found = settings(line);
        assert_eq!((&found.memory, &found.listens, &found.cpus), (&Ok(Memory::Shared), &Ok(false), &Ok(2)));
        assert_eq!(found.queue_pairs, Ok(2));
        assert_eq!(settings(&line.replace("num_queues=4", "vhost_mode=server")).listens, Ok(true));
        assert!(matches!(settings(&line.replace(",shared=on", "")).memory, Ok(Memory::Private(_))));
        assert!(settings("cloud-hypervisor --api-socket /x").memory.is_err());
        let found = settings("crosvm run --vhost-user net,socket=/run/vm1.sock");
        assert_eq!((found.program, found.memory, found.reconnects), (Program::Crosvm, Ok(Memory::Shared), Ok(false)));
        let found = settings("linux.uml mem=1G virtio_uml.device=/run/vm1.sock:1");
        assert_eq!((found.program, found.memory), (Program::Uml, Ok(Memory::Shared)));
        assert!(settings("dpdk-testpmd --vdev net_virtio_user0,path=/run/vm1.sock").memory.is_err());
    }

    #[test]
    fn a_socket_is_found_as_a_whole_path() {
        for (arg, is_named) in [
            ("socket,path=/run/vm1.sock,server=on", true),
            ("virtio_uml.device=/run/vm1.sock:1", true),
            ("/run/vm1.sock", true),
            (r#"{"path":"/run/vm1.sock"}"#, true),
            ("path=/run/vm1.sock2", false),
            ("path=/other/run/vm1.sock", false),
        ] {
            assert_eq!(names(&[arg.to_owned()], "/run/vm1.sock"), is_named, "{arg}");
        }
    }

    #[test]
    fn values_with_commas() {
        let value = Value::parse("socket,path=/a,,b,server");
        assert_eq!(
            (value.first.as_str(), value.get("path"), value.get("server")),
            ("socket", Some("/a,b"), Some("on"))
        );
        assert_eq!(Value::parse("{broken").first, "");
    }
}
