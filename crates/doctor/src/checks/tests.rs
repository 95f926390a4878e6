//! Each check passes on a healthy switch, finds what is wrong, and passes nothing that is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use straightline_api::{
    AddressSet, Addresses, BridgeMoves, ConfigurationFile, ConnectionUse, Device, DownReason, Drops, GroupMember,
    GroupRules, Groups, GroupsOfPort, Joined, JoinedKind, Link, MulticastRouter, Neighbour, NeighbourState, Neighbours,
    OwnAddress, Packets, PathMtu, Port, PortGroups, PortNodes, PortRate, PortVlans, Privileges, Queue, QueuePairs, Row,
    Runtime, Sets, Status, TableSummary, Tables, Tunnel, VlanRole, Worker,
};

mod evpn;
mod harmless;
mod situations;
mod traffic;

use super::*;
use crate::facts::*;
use Verdict::{Fail, Warn};

/// Returns a socket that user 64055 reaches, held by process 10.
fn socket(path: &str) -> SocketFacts {
    let access = |mode| Access { uid: 0, gid: 0, mode, has_list: false };
    SocketFacts {
        path: path.into(),
        state: Ok(SocketFile::Live),
        holders: Ok(vec![Holder { pid: 10, name: "straightline".to_owned() }]),
        file: Ok(Some(Access { uid: 64055, gid: 0, mode: 0o600, has_list: false })),
        folders: vec![("/".into(), Ok(access(0o755))), ("/run".into(), Ok(access(0o755)))],
        user: Ok(User { name: "qemu".to_owned(), uid: 64055, groups: vec![994] }),
    }
}

fn peer() -> Peer {
    Peer {
        pid: 20,
        program: Program::Qemu,
        user: Ok(User { name: "qemu".to_owned(), uid: 64055, groups: vec![994] }),
        memory: Ok(Memory::Shared),
        listens: Ok(false),
        reconnects: Ok(true),
        cpus: Ok(2),
        queue_pairs: Ok(2),
        has_iommu: Ok(false),
        allowed_cpus: Ok([2, 3].into()),
        vcpu_cpus: Ok([2, 3].into()),
    }
}

/// Returns a port of bridge `lan` that is up.
fn port(name: &str) -> PortFacts {
    let path = format!("/run/{name}.sock");
    let port = Port {
        name: name.to_owned(),
        kind: "vhost-user".to_owned(),
        link: Link::Up,
        features: ["guest-csum", "guest-tso4", "version-1"].map(str::to_owned).to_vec(),
        ring_size: 256,
        queues: vec![Queue { tx: Packets { packets: 10_000, bytes: 640_000 }, ..Queue::default() }],
        mtu: 1500,
        socket: Some(path.clone()),
        mode: Some("server".to_owned()),
        joined: Some(Joined { kind: JoinedKind::Bridge, name: "lan".to_owned() }),
        queue_pairs: Some(QueuePairs { offered: Some(2), enabled: 2 }),
        addresses: Some(Addresses { learned: 1, refused: 0 }),
        groups: Some(PortGroups {
            names: vec!["web".to_owned()],
            used: ConnectionUse { most: 1000, ..ConnectionUse::default() },
        }),
        rate_in: Some(PortRate {
            limit: "8 Mbit/s".to_owned(),
            bits: Some(8_000_000),
            burst_bytes: Some(65_536),
            waits: true,
            wait_count: 7,
            ..PortRate::default()
        }),
        vlans: Some(PortVlans {
            role: VlanRole::Access,
            vlans: "10".to_owned(),
            untagged: Some(10),
            native_tagged: false,
            tag: None,
            priority: 0,
        }),
        ..Port::default()
    };
    let configured = ConfiguredPort { port: port.clone(), owner: Some(64055), group: None, perms: 0o600 };
    PortFacts {
        port,
        configured: Some(configured),
        socket: Some(socket(&path)),
        peers: Ok(vec![peer()]),
        interface_holders: Vec::new(),
        interface_node: Ok(None),
    }
}

/// Returns a port of bridge `lan` on an interface.
fn nic() -> PortFacts {
    let device = Device {
        interface: "eth0".to_owned(),
        mode: "native".to_owned(),
        zero_copy: true,
        mtu: 1500,
        offloads: vec!["guest-csum".to_owned(), "guest-tso4".to_owned()],
        ..Device::default()
    };
    let joined = Some(Joined { kind: JoinedKind::Bridge, name: "lan".to_owned() });
    let [name, kind] = ["nic", "af-xdp"].map(str::to_owned);
    let port = Port {
        name,
        kind,
        link: Link::Up,
        mtu: 1500,
        interface: Some(device.interface.clone()),
        capabilities_needed: ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"].map(str::to_owned).to_vec(),
        device: Some(device),
        joined,
        trusted: true,
        ..Port::default()
    };
    PortFacts {
        port,
        configured: None,
        socket: None,
        peers: Ok(Vec::new()),
        interface_holders: Vec::new(),
        interface_node: Ok(Some(0)),
    }
}

fn tunnel() -> PortFacts {
    let remote = vec!["192.0.2.2".to_owned(), "198.51.100.9".to_owned()];
    let ends = Tunnel { underlay: "wan".to_owned(), remote, mtu_inside: 1450, overhead: 50, ..Tunnel::default() };
    let [name, kind] = ["far", "vxlan"].map(str::to_owned);
    let port = Port { name, kind, link: Link::Up, mtu: 1450, tunnel: Some(ends), ..Port::default() };
    PortFacts {
        port,
        configured: None,
        socket: None,
        peers: Ok(Vec::new()),
        interface_holders: Vec::new(),
        interface_node: Ok(None),
    }
}

fn runtime(seconds: f64, empty: f64) -> Runtime {
    let worker = |cpu| Worker {
        cpu: Some(cpu),
        busy_s: seconds * (1.0 - empty) / 2.0,
        empty_poll_s: seconds * empty,
        idle_s: seconds * (1.0 - empty) / 2.0,
        ..Worker::default()
    };
    Runtime { workers: vec![worker(0), worker(1)], ..Runtime::default() }
}

/// Returns facts with which each check passes: two workers on cores of their own, a VM, a NIC, a
/// tunnel.
fn healthy() -> Facts {
    let privileges = |process: &str, pid, capabilities: &[&str]| Privileges {
        process: process.to_owned(),
        pid,
        running: true,
        capabilities: capabilities.iter().map(|&name| name.to_owned()).collect(),
        seccomp: true,
        landlock: true,
    };
    let status = Status {
        workers: 2,
        fds_free: Some(1000),
        configuration: Some(ConfigurationFile { path: "/etc/switch.toml".to_owned(), changed: Some(false) }),
        moves: vec![BridgeMoves { bridge: "lan".to_owned(), count: 5 }],
        sandbox: ["capabilities", "landlock", "seccomp"].map(str::to_owned).to_vec(),
        privileges: vec![
            privileges(Privileges::SWITCH, 10, &[]),
            privileges(Privileges::OPENER, 11, &["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]),
        ],
        ..Status::default()
    };
    let hop = Neighbour {
        underlay: "wan".to_owned(),
        ip: "192.0.2.2".to_owned(),
        mac: None,
        state: NeighbourState::Reachable,
        age_s: Some(1),
    };
    let own = OwnAddress { underlay: "wan".to_owned(), ip: "192.0.2.1".to_owned(), ..OwnAddress::default() };
    let cpu = |core: usize| Cpu {
        siblings: Ok([core, core + 4].into()),
        node: Ok(0),
        governor: Ok("performance".to_owned()),
        steal: Ok(0.0),
    };
    let ports = vec![port("vm1"), port("vm2"), nic(), tunnel(), cloud_hypervisor()];
    Facts {
        now: UNIX_EPOCH + Duration::from_secs(10_000),
        api: ApiFacts { socket: socket("/run/api.sock"), failure: None },
        configured: Some(Configured {
            path: "switch.toml".into(),
            api: Some("/run/api.sock".into()),
            ..Configured::default()
        }),
        switch: Ok(SwitchFacts {
            status,
            moves_before: vec![BridgeMoves { bridge: "lan".to_owned(), count: 5 }],
            neighbours: Neighbours { neighbours: vec![hop], addresses: vec![own] },
            ports_before: ports.iter().map(|facts| facts.port.clone()).collect(),
            tables: Tables { tables: vec![evpn::bindings()] },
            drops: Drops::default(),
            groups: Groups {
                groups: vec![group("web", "file"), group("ssh", "api")],
                ports: vec![GroupsOfPort { groups: vec!["ssh".to_owned()], ..GroupsOfPort::default() }],
            },
            sets: Sets { sets: vec![set("set:office", "192.0.2.0/24"), set("group:web", "10.0.0.1/32")] },
            snooping: vec![SnoopedBridge {
                bridge: "lan".to_owned(),
                rows: vec![querier(10, "IGMP"), member("239.1.1.1")],
            }],
            events: Vec::new(),
            runs_named_file: Some(true),
            before: runtime(0.0, 0.0),
            after: runtime(1.0, 0.2),
        }),
        ports,
        process: Ok(ProcessFacts { pid: 10, descriptor_limit: Ok(Some(1024)), quota: Ok(None) }),
        evpn: Ok(EvpnFacts::Runs(Box::new(evpn::status()))),
        switches: Ok(Vec::new()),
        program: Ok(ProgramFile { path: "/usr/bin/straightline".into(), mode: 0o750, has_capabilities: true }),
        machine: MachineFacts {
            default_routes: Ok(["eth0".to_owned()].into()),
            cpus: Ok((0..8).map(|at| (at, cpu(at % 4))).collect()),
            denials: Ok(Some(Vec::new())),
        },
    }
}

fn group(name: &str, owner: &str) -> GroupRules {
    let inbound = ["tcp 22 from set:office", "tcp 80 from group:web", "tcp 443 from any"].map(str::to_owned);
    GroupRules { name: name.to_owned(), owner: owner.to_owned(), inbound: inbound.into(), outbound: Vec::new() }
}

fn set(name: &str, prefix: &str) -> AddressSet {
    AddressSet { name: name.to_owned(), owner: "file".to_owned(), prefixes: vec![prefix.to_owned()] }
}

/// Returns the row of a querier behind the first port.
fn querier(vlan: u16, protocol: &str) -> Row {
    Row::MulticastRouter(MulticastRouter { vlan, protocol: protocol.to_owned(), port: "vm1".to_owned(), left_s: 200 })
}

/// Returns the row of a port in VLAN 10 that listens to a group.
fn member(group: &str) -> Row {
    Row::GroupMember(GroupMember { vlan: Some(10), group: group.to_owned(), port: "vm2".to_owned(), left_s: 200 })
}

/// Returns a port whose Cloud Hypervisor listens.
fn cloud_hypervisor() -> PortFacts {
    let mut port = port("vm3");
    port.port.mode = Some("client".to_owned());
    port.peers = Ok(vec![Peer { pid: 21, program: Program::CloudHypervisor, listens: Ok(true), ..peer() }]);
    let theirs = |mode| Access { uid: 64055, gid: 990, mode, has_list: false };
    let socket = port.socket.as_mut().unwrap();
    socket.user = Ok(User { name: "straightline".to_owned(), uid: 990, groups: vec![990] });
    socket.folders[1].1 = Ok(theirs(0o2750));
    socket.file = Ok(Some(theirs(0o775)));
    port
}

/// Returns facts that are all unknown.
fn unknown() -> Facts {
    fn no<T>() -> Fact<T> {
        Err(Unknown::new("nobody knows"))
    }
    let nothing = |path: &str| SocketFacts {
        path: path.into(),
        state: no(),
        holders: no(),
        file: no(),
        folders: vec![("/".into(), no())],
        user: no(),
    };
    let mut vm = port("vm1");
    (vm.socket, vm.peers, vm.interface_node) = (Some(nothing("/run/vm1.sock")), no(), no());
    let mut client = port("vm2");
    client.port.mode = Some("client".to_owned());
    (client.socket, client.peers, client.interface_node) = (Some(nothing("/run/qemu/vm2.sock")), no(), no());
    Facts {
        now: UNIX_EPOCH,
        api: ApiFacts { socket: nothing("/run/api.sock"), failure: Some(ApiFailure::Denied) },
        configured: None,
        switch: no(),
        ports: vec![vm, client],
        process: no(),
        evpn: no(),
        switches: no(),
        program: no(),
        machine: MachineFacts { default_routes: no(), cpus: no(), denials: no() },
    }
}

/// A fault: the check that finds it, the change to healthy facts, the verdict, and a part of the
/// fix.
type Fault = (&'static str, fn(&mut Facts), Verdict, &'static str);

fn switch(facts: &mut Facts) -> &mut SwitchFacts {
    facts.switch.as_mut().unwrap()
}

fn vm(facts: &mut Facts) -> &mut Peer {
    &mut facts.ports[0].peers.as_mut().unwrap()[0]
}

fn its_socket(facts: &mut Facts) -> &mut SocketFacts {
    facts.ports[0].socket.as_mut().unwrap()
}

/// Makes the VM one of another program, which does not connect again.
fn connects_once(facts: &mut Facts, program: Program) {
    let vm = vm(facts);
    (vm.program, vm.reconnects) = (program, Ok(false));
}

/// Returns the socket of the VM that listens.
fn client_socket(facts: &mut Facts) -> &mut SocketFacts {
    facts.ports[4].socket.as_mut().unwrap()
}

fn client_folder(facts: &mut Facts) -> &mut Access {
    client_socket(facts).folders[1].1.as_mut().unwrap()
}

fn client_file(facts: &mut Facts) -> &mut Access {
    client_socket(facts).file.as_mut().unwrap().as_mut().unwrap()
}

fn device(facts: &mut Facts) -> &mut Device {
    facts.ports[2].port.device.as_mut().unwrap()
}

fn cpu(facts: &mut Facts, at: usize) -> &mut Cpu {
    facts.machine.cpus.as_mut().unwrap().get_mut(&at).unwrap()
}

/// Lets the NIC's port take all packets of the interface that has the default route.
fn cut_off(facts: &mut Facts) {
    device(facts).interface = "eth0".to_owned();
    let port = &mut facts.ports[2].port;
    (port.interface, port.steal) = (Some("eth0".to_owned()), Some("all".to_owned()));
}

#[test]
fn a_port_that_may_take_the_default_route_or_leaves_it_is_well() {
    let harmless: [fn(&mut Facts); 5] = [
        |facts| facts.ports[2].port.take_default_route = true,
        |facts| facts.ports[2].port.steal = Some("address".to_owned()),
        |facts| facts.ports[2].port.interface = Some("eth1".to_owned()),
        |facts| facts.machine.default_routes = Err(Unknown::new("not visible")),
        // The check of the file says it.
        |facts| {
            let error = "switch.toml:1: port \"nic\": AF_XDP takes all packets of eth0, which has".to_owned();
            facts.configured.as_mut().unwrap().errors.push(error);
        },
    ];
    for change in harmless {
        let mut facts = healthy();
        cut_off(&mut facts);
        assert_eq!(findings(&facts, "interfaces")[0].result, Fail);
        change(&mut facts);
        assert_eq!(findings(&facts, "interfaces")[0].result, Verdict::Pass);
    }
}

fn take_down(facts: &mut Facts, cause: &str) {
    let port = &mut facts.ports[0].port;
    port.link = Link::Down;
    port.reason = Some("it waits".to_owned());
    (port.cause, port.remedy) = (Some(cause.to_owned()), Some(format!("cure {cause}")));
}

/// A switch runs, and nobody listens at the API's socket.
fn lose_the_api(facts: &mut Facts) {
    facts.api.failure = Some(ApiFailure::NotListening);
    facts.switch = Err(Unknown::new("none"));
    facts.switches = Ok(vec![SwitchProcess { pid: 10, file: "/etc/switch.toml".into(), is_meant: true }]);
}

fn drop_packets(facts: &mut Facts) {
    facts.ports[0].port.drops = [("no-buffer".to_owned(), 100)].into();
}

const FAULTS: &[Fault] = &[
    ("api", |facts| facts.api.failure = Some(ApiFailure::NotListening), Fail, "straightline run switch.toml"),
    ("api", |facts| facts.api.failure = Some(ApiFailure::Denied), Fail, "sudo straightline doctor"),
    ("api", |facts| facts.api.failure = Some(ApiFailure::Timeout), Fail, "restart"),
    ("api", |facts| lose_the_api(facts), Fail, "restart the switch (process 10)"),
    (
        "api",
        |facts| {
            lose_the_api(facts);
            facts.configured = None;
        },
        Fail,
        "straightline doctor /etc/switch.toml",
    ),
    (
        "api",
        |facts| {
            lose_the_api(facts);
            facts.configured.as_mut().unwrap().errors.push("line 3: bad".to_owned());
        },
        Fail,
        "correct the file",
    ),
    ("api", |facts| facts.api.failure = Some(ApiFailure::Other("nonsense".to_owned())), Fail, "--api"),
    (
        "api",
        |facts| {
            facts.api.failure = Some(ApiFailure::NotListening);
            facts.configured.as_mut().unwrap().api = None;
        },
        Fail,
        "add `api = \"/run/api.sock\"`",
    ),
    (
        "configuration",
        |facts| facts.configured.as_mut().unwrap().errors.push("line 3: bad".to_owned()),
        Fail,
        "straightline check switch.toml",
    ),
    (
        "configuration",
        |facts| facts.configured.as_mut().unwrap().warnings.push("line 3: odd".to_owned()),
        Warn,
        "straightline check switch.toml",
    ),
    ("sockets", |facts| its_socket(facts).state = Ok(SocketFile::Missing), Fail, "restart the switch"),
    ("sockets", |facts| its_socket(facts).state = Ok(SocketFile::Stale), Fail, "restart the switch"),
    ("sockets", |facts| its_socket(facts).state = Ok(SocketFile::NotASocket), Fail, "rm /run/vm1.sock"),
    (
        "sockets",
        |facts| its_socket(facts).holders = Ok(vec![Holder { pid: 9, name: "ovs".into() }]),
        Fail,
        "end ovs (process 9) if it is not needed",
    ),
    (
        "sockets",
        // QEMU replaces a socket at which it is to listen.
        |facts| its_socket(facts).holders.as_mut().unwrap().push(Holder { pid: 9, name: "qemu".into() }),
        Fail,
        "end qemu (process 9) if it is not needed",
    ),
    (
        "sockets",
        // The VM listens too: its program is no obstacle to be ended.
        |facts| its_socket(facts).holders.as_mut().unwrap().push(Holder { pid: 20, name: "qemu".into() }),
        Fail,
        "set `mode = \"client\"` in [port.vm1]",
    ),
    ("sockets", |facts| facts.ports[4].socket.as_mut().unwrap().state = Ok(SocketFile::Stale), Warn, "start the VM"),
    ("sockets", |facts| facts.ports[4].socket.as_mut().unwrap().state = Ok(SocketFile::Missing), Warn, "start the VM"),
    (
        "sockets",
        |facts| {
            facts.switch = Err(Unknown::new("none"));
            its_socket(facts).state = Ok(SocketFile::Stale);
        },
        Warn,
        "straightline run",
    ),
    (
        "socket-access",
        |facts| its_socket(facts).folders[1].1 = Ok(Access { uid: 0, gid: 0, mode: 0o750, has_list: false }),
        Fail,
        "chmod a+x /run",
    ),
    (
        "socket-access",
        |facts| its_socket(facts).file = Ok(Some(Access { uid: 0, gid: 0, mode: 0o600, has_list: false })),
        Fail,
        "add `owner = \"qemu\"` to [port.vm1]",
    ),
    (
        "client-folder",
        |facts| {
            let socket = client_socket(facts);
            (socket.state, socket.file) = (Ok(SocketFile::Missing), Ok(None));
            socket.folders[1].1 = Err(Unknown::new("no such file"));
        },
        Warn,
        "install -d -o qemu -g straightline -m 2750 /run",
    ),
    ("client-folder", |facts| client_folder(facts).mode = 0o2700, Fail, "install -d -o qemu -g straightline"),
    ("client-folder", |facts| client_folder(facts).uid = 0, Fail, "install -d -o qemu -g straightline"),
    (
        "client-folder",
        |facts| client_socket(facts).folders[0].1 = Ok(Access { uid: 0, gid: 0, mode: 0o700, has_list: false }),
        Fail,
        "chmod a+x /",
    ),
    (
        "client-folder",
        |facts| {
            *client_folder(facts) = Access { uid: 64055, gid: 64055, mode: 0o755, has_list: false };
            client_file(facts).mode = 0o755;
        },
        Fail,
        "-m 2750 /run, then start the VM again under `umask 0002`",
    ),
    ("client-folder", |facts| client_file(facts).mode = 0o755, Fail, "start the VM again under `umask 0002`"),
    ("socket-owner", |facts| facts.ports[0].configured.as_mut().unwrap().owner = Some(7), Fail, "straightline reload"),
    ("socket-owner", |facts| facts.ports[0].configured.as_mut().unwrap().group = Some(7), Fail, "reload"),
    ("socket-owner", |facts| facts.ports[0].configured.as_mut().unwrap().perms = 0o660, Fail, "reload"),
    (
        "denials",
        |facts| facts.machine.denials = Ok(Some(vec!["apparmor=\"DENIED\" qemu".to_owned()])),
        Fail,
        "/etc/apparmor.d/local/",
    ),
    ("denials", |facts| facts.machine.denials = Ok(Some(vec!["avc:  denied qemu".to_owned()])), Fail, "audit2allow"),
    ("links", |facts| take_down(facts, "no-frontend"), Warn, "cure no-frontend"),
    ("links", |facts| take_down(facts, "frontend-left"), Warn, "reconnect-ms=1000"),
    ("links", |facts| take_down(facts, "ring-fault"), Fail, "cure ring-fault"),
    ("socket-sides", |facts| vm(facts).listens = Ok(true), Fail, "mode = \"client\""),
    ("socket-sides", |facts| facts.ports[0].port.mode = Some("client".to_owned()), Fail, "server=on,wait=off"),
    ("reconnect", |facts| vm(facts).reconnects = Ok(false), Warn, "reconnect-ms=1000"),
    ("reconnect", |facts| connects_once(facts, Program::Crosvm), Warn, "have crosvm started again whenever it ends"),
    ("reconnect", |facts| connects_once(facts, Program::Uml), Warn, "start the VM again after a restart of the switch"),
    ("reconnect", |facts| connects_once(facts, Program::Other("x".to_owned())), Warn, "let the VM listen if"),
    (
        "links",
        |facts| {
            vm(facts).program = Program::CloudHypervisor;
            take_down(facts, "frontend-left");
        },
        Warn,
        "vhost_mode=server",
    ),
    (
        "driver",
        |facts| {
            vm(facts).program = Program::CloudHypervisor;
            take_down(facts, "iommu");
        },
        Fail,
        "remove `iommu=on` from --net",
    ),
    (
        "cloud-hypervisor",
        |facts| facts.ports[4].peers.as_mut().unwrap()[0].listens = Ok(false),
        Warn,
        "vhost_mode=server",
    ),
    (
        "flapping",
        |facts| {
            let down = |time| DownReason { time, reason: "it left".to_owned() };
            facts.ports[0].port.reasons = [9_800.0, 9_900.0, 9_999.0].map(down).to_vec();
        },
        Warn,
        "straightline ports",
    ),
    (
        "guest-memory",
        |facts| vm(facts).memory = Ok(Memory::Private("`share=on`".to_owned())),
        Fail,
        "share=on -machine memory-backend=mem",
    ),
    ("driver", |facts| take_down(facts, "legacy-driver"), Fail, "disable-legacy=on"),
    ("driver", |facts| take_down(facts, "iommu"), Fail, "remove `iommu_platform=on`"),
    (
        "driver",
        |facts| {
            take_down(facts, "ring-not-started");
            vm(facts).has_iommu = Ok(true);
        },
        Warn,
        "iommu_platform=on",
    ),
    (
        "queues",
        |facts| facts.ports[0].port.queue_pairs.as_mut().unwrap().enabled = 1,
        Warn,
        "ethtool -L eth0 combined 2",
    ),
    (
        "queues",
        |facts| {
            facts.ports[0].port.queue_pairs = Some(QueuePairs { offered: Some(1), enabled: 1 });
            vm(facts).queue_pairs = Ok(1);
        },
        Warn,
        "set `queues = 2` in [port.vm1]",
    ),
    ("ring-size", drop_packets, Warn, "rx_queue_size=1024"),
    (
        "ring-size",
        |facts| {
            drop_packets(facts);
            facts.ports[0].port.ring_size = 1024;
        },
        Warn,
        "full = \"wait\"",
    ),
    ("bridge-mtu", |facts| facts.ports[0].port.mtu = 9000, Warn, "set `mtu = 9000` in [port."),
    ("bridge-mtu", |facts| device(facts).mtu = 1400, Warn, "ip link set eth0 mtu 1500"),
    ("bridge-offloads", |facts| facts.ports[0].port.features.clear(), Warn, "remove `offloads`"),
    ("bridge-offloads", |facts| device(facts).offloads.clear(), Warn, "af-packet"),
    (
        "learning",
        |facts| facts.ports[0].port.addresses = Some(Addresses { learned: 4096, refused: 3 }),
        Warn,
        "raise `limit` in [bridge.lan]",
    ),
    (
        "learning",
        |facts| {
            let tunnel = facts.ports[3].port.tunnel.as_mut().unwrap();
            tunnel.remote = vec!["192.0.2.2".to_owned(), "192.0.2.3".to_owned()];
            tunnel.addresses = [0, 3].map(|refused| Addresses { learned: 9, refused }).to_vec();
        },
        Warn,
        "raise `limit` in [port.far]",
    ),
    ("privileges", |facts| switch(facts).status.privileges[1].running = false, Fail, "restart"),
    (
        "privileges",
        |facts| drop(switch(facts).status.privileges[1].capabilities.pop()),
        Warn,
        "AmbientCapabilities=CAP_BPF",
    ),
    ("program", |facts| program(facts).mode = 0o755, Warn, "chmod 0750 /usr/bin/straightline"),
    ("program", |facts| program(facts).mode = 0o701, Warn, "setcap -r"),
    (
        "privileges",
        |facts| {
            facts.switch = Err(Unknown::new("none"));
            facts.configured.as_mut().unwrap().missing_privileges = Some("CAP_NET_ADMIN".to_owned());
        },
        Warn,
        "straightline check",
    ),
    ("interfaces", cut_off, Fail, "`take-default-route = true` in [port."),
    ("interfaces", |facts| device(facts).mode = "generic".to_owned(), Warn, "af-packet"),
    ("interfaces", |facts| device(facts).zero_copy = false, Warn, "zero-copy"),
    ("interfaces", |facts| device(facts).warnings.push("4 of 8 queues".to_owned()), Warn, "ip -details link"),
    ("interfaces", |facts| device(facts).kernel_drops = [("rx_ring_full".to_owned(), 5)].into(), Warn, "`queues`"),
    ("next-hops", |facts| hop(facts).state = NeighbourState::Unanswered, Fail, "straightline ping wan 192.0.2.2"),
    ("next-hops", |facts| hop(facts).state = NeighbourState::Asked, Fail, "straightline neighbours"),
    ("own-addresses", add_station, Fail, "ip -br link | grep -i 02:00:00:00:00:07"),
    ("path-mtu", lower_path, Warn, "set `path-mtu = \"off\"` there"),
    ("tunnel-mtu", |facts| facts.ports[3].port.mtu = 1500, Warn, "set `mtu = 1450` in [port.far]"),
    (
        "descriptors",
        |facts| {
            take_down(facts, "no-frontend");
            switch(facts).status.fds_free = Some(30);
        },
        Fail,
        "LimitNOFILE",
    ),
    ("descriptors", |facts| switch(facts).status.fds_free = Some(60), Warn, "LimitNOFILE"),
    ("sandbox", |facts| drop(switch(facts).status.sandbox.remove(1)), Warn, "landlock"),
    ("refused-calls", |facts| switch(facts).status.refused_calls = 2, Fail, "report"),
    ("spinning", |facts| switch(facts).after = runtime(1.0, 0.95), Warn, "idle = \"sleep\""),
    ("vcpu-cpus", |facts| vm(facts).vcpu_cpus = Ok([1, 2].into()), Warn, "taskset --all-tasks --pid --cpu-list 2-7 20"),
    ("smt-siblings", |facts| cpu(facts, 0).siblings = Ok([0, 1].into()), Warn, "different cores"),
    (
        "smt-siblings",
        |facts| vm(facts).vcpu_cpus = Ok([2, 4].into()),
        Warn,
        "taskset --all-tasks --pid --cpu-list 2-3,6-7 20",
    ),
    (
        "numa-nodes",
        |facts| [2, 3, 6, 7].iter().for_each(|&at| cpu(facts, at).node = Ok(1)),
        Warn,
        "numactl --cpunodebind=0",
    ),
    (
        "numa-nodes",
        |facts| {
            cpu(facts, 7).node = Ok(1);
            facts.ports[2].interface_node = Ok(Some(1));
        },
        Warn,
        "node1/cpulist",
    ),
    ("numa-nodes", |facts| serve_from(facts, 0, &[1]), Warn, "node1/cpulist"),
    (
        "numa-nodes",
        |facts| {
            cpu(facts, 0).node = Ok(1);
            serve_from(facts, 0, &[1]);
        },
        Warn,
        "straightline reload",
    ),
    ("cgroup-quota", |facts| process(facts).quota = Ok(Some(Quota { cpus: 1.5, throttled: 0 })), Warn, "CPUQuota="),
    ("cgroup-quota", |facts| process(facts).quota = Ok(Some(Quota { cpus: 4.0, throttled: 9 })), Warn, "CPUQuota="),
    ("steal", |facts| cpu(facts, 1).steal = Ok(0.2), Warn, "dedicated CPU"),
    ("governor", |facts| cpu(facts, 1).governor = Ok("powersave".to_owned()), Warn, "cpupower"),
];

/// The workers of the first port are on this node, and its guest's memory on those. CPU 7 is on
/// another node than the rest.
fn serve_from(facts: &mut Facts, worker: usize, memory: &[usize]) {
    cpu(facts, 7).node = Ok(1);
    facts.ports[0].port.nodes = Some(PortNodes { workers: vec![worker], memory: memory.to_vec(), interface: None });
}

/// A router has told an MTU of the path.
fn lower_path(facts: &mut Facts) {
    let tunnel = facts.ports[3].port.tunnel.as_mut().expect("a tunnel");
    tunnel.path_mtus.push(PathMtu { remote: "192.0.2.2".to_owned(), mtu: 1330 });
}

/// Another station has the switch's address.
fn add_station(facts: &mut Facts) {
    switch(facts).neighbours.addresses[0].conflict = Some("02:00:00:00:00:07".to_owned());
}

fn hop(facts: &mut Facts) -> &mut Neighbour {
    &mut switch(facts).neighbours.neighbours[0]
}

fn program(facts: &mut Facts) -> &mut ProgramFile {
    facts.program.as_mut().unwrap()
}

fn process(facts: &mut Facts) -> &mut ProcessFacts {
    facts.process.as_mut().unwrap()
}

fn findings(facts: &Facts, name: &str) -> Vec<Finding> {
    run(facts).checks.into_iter().filter(|finding| finding.name == name).collect()
}

#[test]
fn a_healthy_switch_passes_each_check() {
    let report = run(&healthy());
    for finding in &report.checks {
        assert_eq!(finding.result, Verdict::Pass, "{finding:?}");
    }
    assert_eq!((report.checks.len(), report.exit_code(true)), (CHECKS.len(), 0));
}

/// Returns the faults of all files.
fn all_faults() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().chain(traffic::FAULTS).chain(evpn::FAULTS)
}

#[test]
fn each_check_finds_its_faults() {
    for (name, fault, verdict, fix) in all_faults() {
        let mut facts = healthy();
        fault(&mut facts);
        let found = findings(&facts, name);
        let is_right = |finding: &&Finding| finding.result == *verdict && finding.fix.contains(fix);
        let finding = found.iter().find(is_right);
        let finding = finding.unwrap_or_else(|| panic!("{name}: no {verdict:?} with {fix:?} in {found:#?}"));
        assert!(!finding.symptom.is_empty() && !finding.detail.is_empty(), "{finding:?}");
        assert!(!found.iter().any(|finding| finding.result == Verdict::Pass), "{name} passes beside its fault");
    }
    let provoked: BTreeSet<_> = all_faults().map(|(name, ..)| *name).collect();
    let all: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(provoked, all, "each check has a fault that provokes it");
}

#[test]
fn what_is_unknown_never_passes() {
    let report = run(&unknown());
    for check in CHECKS {
        let found: Vec<_> = report.checks.iter().filter(|finding| finding.name == check.name).collect();
        assert!(!found.is_empty(), "{} reports nothing", check.name);
        for finding in found {
            let is_the_api = finding.name == "api" && finding.result == Verdict::Fail;
            // No file was named, and no port connects: that is known.
            let is_known = ["configuration", "client-folder"].contains(&finding.name.as_str());
            let is_skipped = finding.result == Verdict::Skip && is_known;
            assert!(finding.result == Verdict::Unknown || is_the_api || is_skipped, "{finding:?}");
            assert!(!finding.detail.is_empty(), "{finding:?}");
        }
    }
}

/// A gap: the check that must not pass, and the change to healthy facts.
type Gap = (&'static str, fn(&mut Facts));

/// Single facts that are unknown, each with the check that must not pass.
const GAPS: &[Gap] = &[
    ("sockets", |facts| its_socket(facts).state = Err(Unknown::for_root("hidden"))),
    ("sockets", |facts| its_socket(facts).holders = Err(Unknown::for_root("hidden"))),
    ("sockets", |facts| facts.process = Err(Unknown::new("hidden"))),
    ("socket-access", |facts| its_socket(facts).user = Err(Unknown::new("nobody"))),
    ("socket-access", |facts| its_socket(facts).folders[0].1 = Err(Unknown::for_root("hidden"))),
    ("socket-access", |facts| its_socket(facts).file = Err(Unknown::for_root("hidden"))),
    ("socket-access", |facts| {
        its_socket(facts).folders[1].1 = Ok(Access { uid: 0, gid: 0, mode: 0o750, has_list: true })
    }),
    ("client-folder", |facts| client_socket(facts).user = Err(Unknown::new("nobody"))),
    ("client-folder", |facts| client_socket(facts).file = Err(Unknown::for_root("hidden"))),
    ("client-folder", |facts| client_socket(facts).folders[1].1 = Err(Unknown::for_root("hidden"))),
    ("client-folder", |facts| {
        let access = client_folder(facts);
        (access.mode, access.has_list) = (0o2700, true);
    }),
    ("socket-owner", |facts| its_socket(facts).file = Err(Unknown::for_root("hidden"))),
    ("denials", |facts| facts.machine.denials = Err(Unknown::for_root("hidden"))),
    ("socket-sides", |facts| vm(facts).listens = Err(Unknown::new("hidden"))),
    ("reconnect", |facts| vm(facts).reconnects = Err(Unknown::new("hidden"))),
    ("cloud-hypervisor", |facts| facts.ports[4].peers.as_mut().unwrap()[0].listens = Err(Unknown::new("hidden"))),
    ("guest-memory", |facts| vm(facts).memory = Err(Unknown::new("hidden"))),
    ("guest-memory", |facts| facts.ports[1].peers = Err(Unknown::new("hidden"))),
    ("queues", |facts| vm(facts).cpus = Err(Unknown::new("hidden"))),
    ("queues", |facts| facts.ports[1].peers = Err(Unknown::new("hidden"))),
    ("queues", |facts| {
        vm(facts).queue_pairs = Err(Unknown::new("hidden"));
        facts.ports[0].port.queue_pairs = Some(QueuePairs { offered: None, enabled: 1 });
    }),
    ("descriptors", |facts| switch(facts).status.fds_free = None),
    ("drift", |facts| switch(facts).status.configuration = None),
    ("drift", |facts| traffic::file(facts).changed = None),
    ("program", |facts| facts.program = Err(Unknown::for_root("hidden"))),
    ("privileges", |facts| switch(facts).status.privileges.clear()),
    ("spinning", |facts| switch(facts).after = switch(facts).before.clone()),
    ("vcpu-cpus", |facts| {
        vm(facts).vcpu_cpus = Err(Unknown::new("no names"));
        vm(facts).allowed_cpus = Ok([0, 1, 2, 3].into());
    }),
    ("smt-siblings", |facts| cpu(facts, 0).siblings = Err(Unknown::new("hidden"))),
    ("smt-siblings", |facts| facts.machine.cpus = Err(Unknown::new("hidden"))),
    ("numa-nodes", |facts| cpu(facts, 5).node = Err(Unknown::new("hidden"))),
    ("cgroup-quota", |facts| process(facts).quota = Err(Unknown::new("hidden"))),
    ("cgroup-quota", |facts| facts.process = Err(Unknown::new("hidden"))),
    ("steal", |facts| cpu(facts, 0).steal = Err(Unknown::new("hidden"))),
    ("governor", |facts| cpu(facts, 0).governor = Err(Unknown::new("hidden"))),
    ("evpn", |facts| facts.evpn = Err(Unknown::new("hidden"))),
    ("evpn-mtu", |facts| facts.switch = Err(Unknown::new("hidden"))),
];

#[test]
fn one_unknown_fact_keeps_a_check_from_passing() {
    for (name, gap) in GAPS {
        let mut facts = healthy();
        gap(&mut facts);
        let found = findings(&facts, name);
        assert!(found.iter().all(|finding| finding.result == Verdict::Unknown), "{name}: {found:?}");
    }
}

#[test]
fn a_check_that_finds_nothing_to_look_at_does_not_apply() {
    let mut facts = healthy();
    facts.configured = None;
    facts.ports.clear();
    facts.machine.denials = Ok(None);
    switch(&mut facts).neighbours = Neighbours::default();
    switch(&mut facts).snooping.clear();
    switch(&mut facts).tables.tables.clear();
    facts.evpn = Ok(EvpnFacts::Absent);
    switch(&mut facts).status.moves.clear();
    switch(&mut facts).after.workers.iter_mut().for_each(|worker| worker.cpu = None);
    let report = run(&facts);
    let absent: Vec<_> = report.checks.iter().filter(|finding| finding.result == Verdict::Skip).collect();
    assert!(absent.iter().all(|finding| finding.symptom == "does not apply" && !finding.detail.is_empty()));
    let with_reason: Vec<_> = CHECKS.iter().filter(|check| !check.absent.is_empty()).map(|check| check.name).collect();
    let names: Vec<_> = absent.iter().map(|finding| finding.name.as_str()).collect();
    // A switch has an API and workers in any case.
    let expected: Vec<_> = with_reason.into_iter().filter(|name| !["sockets", "spinning"].contains(name)).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_vm_whose_threads_have_no_names_passes_where_it_cannot_run_beside_a_worker() {
    let mut facts = healthy();
    for port in &mut facts.ports {
        for peer in port.peers.as_mut().unwrap() {
            peer.vcpu_cpus = Err(Unknown::new("no names"));
        }
    }
    assert_eq!(findings(&facts, "vcpu-cpus")[0].result, Verdict::Pass);
    assert_eq!(findings(&facts, "smt-siblings")[0].result, Verdict::Pass);
}

#[test]
fn the_same_gap_of_several_ports_is_one_finding() {
    let mut facts = healthy();
    facts.ports.iter_mut().take(2).for_each(|port| port.peers = Err(Unknown::for_root("hidden")));
    let found = findings(&facts, "guest-memory");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].symptom, "port vm1, and 1 more");
}

#[test]
fn names_are_unique_and_texts_are_there() {
    let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), CHECKS.len());
    assert!(CHECKS.iter().all(|check| !check.passes.is_empty() && check.name.len() <= 16));
}

/// The table in `docs/doctor.md` has a row for each check.
#[test]
fn the_document_has_each_check() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let document = std::fs::read_to_string(path).unwrap();
    let section = document.split("\n## ").find(|section| section.starts_with("Checks\n")).unwrap();
    let rows: BTreeMap<&str, &str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name, rest.split(" |").next()?)))
        .collect();
    let expected: BTreeMap<&str, &str> = CHECKS.iter().map(|check| (check.name, check.passes)).collect();
    assert_eq!(rows, expected);
}
