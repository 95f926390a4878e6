//! The text of answers.

use straightline_packet::Reason;

use crate::layout::*;
use crate::table::*;
use crate::*;

fn lines_fit(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= TABLE_WIDTH, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn events_look_like_a_log() {
    let event =
        |seq, kind, message: &str| Event { seq, time: 1_700_000_000.25, message: message.to_owned(), skipped: 0, kind };
    let port = "vm1".to_owned();
    let change = |name: &str| Change {
        kind: ChangeKind::Port,
        name: name.to_owned(),
        change: Changed::Added,
        detail: String::new(),
    };
    let list = vec![
        event(1, EventKind::LinkUp { port: port.clone() }, "port \"vm1\": link up"),
        Event {
            skipped: 7,
            ..event(9, EventKind::LinkDown { port, reason: "\x1b[2J".to_owned() }, "port \"vm1\": link down: \x1b[2J")
        },
        event(10, EventKind::Reload { changes: vec![change("a"), change("b")], more: 5 }, "reload: 7 changes"),
        event(11, EventKind::ReloadFailed { error: "one\ntwo".to_owned() }, "reload: nothing is changed: one"),
    ];
    let text = events(&Events { last: 11, events: list });
    assert_eq!(
        text,
        "2023-11-14T22:13:20.250Z INFO 1 port \"vm1\": link up\n\
         2023-11-14T22:13:20.250Z WARN 9 port \"vm1\": link down: ?[2J (7 before this one came too often to be told)\n\
         2023-11-14T22:13:20.250Z INFO 10 reload: 7 changes\n    port \"a\" added\n    port \"b\" added\n    and 5 more\n\
         2023-11-14T22:13:20.250Z WARN 11 reload: nothing is changed: one\n    two\n"
    );
    assert_eq!(events(&Events::default()), "no events\n");
    for time in [-1.0, f64::NAN, f64::MAX] {
        assert!(
            crate::table::event(&Event {
                time,
                ..Event { seq: 1, time, message: String::new(), skipped: 0, kind: EventKind::Other }
            })
            .contains("1970")
        );
    }
}

fn busy_port() -> Port {
    let features = "VERSION_1 RING_EVENT_IDX RING_INDIRECT_DESC CSUM GUEST_CSUM GUEST_TSO4 GUEST_TSO6 HOST_TSO4 HOST_TSO6 MRG_RXBUF MAC";
    Port {
        name: "vm1".to_owned(),
        kind: "vhost-user".to_owned(),
        link: Link::Up,
        reason: None,
        pid: Some(1234),
        user: Some("libvirt-qemu".to_owned()),
        link_since_s: 3725.4,
        link_changes: 1001,
        reasons: vec![DownReason { time: 1.5, reason: "the frontend closed its connection".to_owned() }],
        features: features.split(' ').map(str::to_owned).collect(),
        ring: Some(RingKind::Split),
        ring_size: 256,
        regions: 2,
        queues: vec![Queue {
            index: 0,
            rx: Packets { packets: 1_234_567_890_123, bytes: 1_876_543_192_986_960 },
            tx: Packets { packets: 12, bytes: 768 },
            calls_sent: 1_234_567_890,
            calls_repeated: 0,
            calls_suppressed: 987_654_321_012,
            rx_worker: Some(0),
            tx_worker: Some(0),
            ..Queue::default()
        }],
        drops: [("no-buffer".to_owned(), 1200), ("too-big".to_owned(), 3), ("bad-ring".to_owned(), 0)].into(),
        rx_mode: None,
        mtu: 1500,
        mac: Some("52:54:00:00:00:01".to_owned()),
        socket: Some("/run/straightline/vm1.sock".to_owned()),
        source_check: "off".to_owned(),
        joined: None,
        addresses: Some(Addresses { learned: 2560, refused: 1_000_000 }),
        device: None,
        tunnel: None,
        ..Port::default()
    }
}

#[test]
fn ports_as_blocks() {
    let down = Port {
        name: "vm2".to_owned(),
        link: Link::Down,
        reason: Some("no frontend is connected".to_owned()),
        cause: Some("no-frontend".to_owned()),
        remedy: Some("Start the VM with a vhost-user device at /run/straightline/vm1.sock.".to_owned()),
        pid: None,
        user: None,
        link_changes: 0,
        features: Vec::new(),
        ring: None,
        ring_size: 0,
        regions: 0,
        queues: Vec::new(),
        drops: [].into(),
        rx_mode: None,
        mac: None,
        addresses: Some(Addresses::default()),
        device: None,
        tunnel: None,
        ..busy_port()
    };
    let text = ports(&Ports { ports: vec![busy_port(), down] });
    lines_fit(&text);
    let expected = "\
vm1  vhost-user  up
    link      changed 1,001 times, last 1 h 2 min 5 s ago
    was down  the frontend closed its connection
    frontend  process 1234 of user libvirt-qemu
    device    split ring of 256, 2 memory regions, mtu 1500, offered mac
              52:54:00:00:00:01
    socket    /run/straightline/vm1.sock
    features  VERSION_1 RING_EVENT_IDX RING_INDIRECT_DESC CSUM GUEST_CSUM
              GUEST_TSO4 GUEST_TSO6 HOST_TSO4 HOST_TSO6 MRG_RXBUF MAC
    addresses 2,560 learned, 1,000,000 refused: its share is full
    queue                packets                  bytes     calls sent       suppressed
    0      rx  1,234,567,890,123  1,876,543,192,986,960  1,234,567,890  987,654,321,012
           tx                 12                    768
    drops     no-buffer 1,200, too-big 3

vm2  vhost-user  down: no frontend is connected
    remedy    Start the VM with a vhost-user device at
              /run/straightline/vm1.sock.
    device    mtu 1500
    socket    /run/straightline/vm1.sock
    addresses 0 learned
";
    assert_eq!(text, expected);
    let mut far = busy_port();
    far.nodes = Some(PortNodes { workers: vec![0], memory: vec![0, 1], interface: None });
    let text = ports(&Ports { ports: vec![far.clone()] });
    assert!(text.contains("\n    nodes     workers 0, memory 0 1: packets cross between NUMA nodes\n"), "{text}");
    far.nodes = Some(PortNodes { workers: vec![0, 1], memory: Vec::new(), interface: Some(1) });
    let text = ports(&Ports { ports: vec![far] });
    assert!(text.contains("\n    nodes     workers 0 1, interface 1\n"), "{text}");
    let mut shared = busy_port();
    shared.queues.push(Queue { index: 1, rx_worker: Some(1), tx_worker: Some(0), ..Queue::default() });
    shared.queues[1].calls_repeated = 1_003;
    shared.slow_calls = true;
    let text = ports(&Ports { ports: vec![shared] });
    assert!(text.contains("\n    workers   by queue, rx 0 1, tx 0 0\n"), "{text}");
    assert!(text.contains("\n    calls     repeated, by queue: 0 1,003\n"), "{text}");
    assert!(text.contains("\n    calls     take longer than 50 µs each: a helper thread sends them\n"), "{text}");
}

#[test]
fn ports_as_lines() {
    let port = |name: &str, link, drops: &[(&str, u64)]| Port {
        name: name.to_owned(),
        link,
        drops: drops.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect(),
        ..busy_port()
    };
    let down = |name: &str, cause: Option<&str>| Port {
        queues: Vec::new(),
        reason: Some("the frontend closed its connection; it may come again at any time".to_owned()),
        cause: cause.map(str::to_owned),
        ..port(name, Link::Down, &[])
    };
    let list = vec![
        port("vm1", Link::Up, &[("no-buffer", 1200), ("too-big", 3), ("bad-ring", 0)]),
        down("vm2", Some("frontend-closed")),
        port("vm3", Link::Up, &[("bad-ring", 0)]),
    ];
    let text = ports_short(&Ports { ports: list });
    let expected = "\
port  kind        link         rx packets  tx packets  drops  reason
vm1   vhost-user  up    1,234,567,890,123          12  1,203  no-buffer
vm2   vhost-user  down                  0           0      0  frontend-closed
vm3   vhost-user  up    1,234,567,890,123          12      0
";
    assert_eq!(text, expected);
    let long = ports_short(&Ports { ports: vec![down(&"x".repeat(32), None), port(&"y".repeat(32), Link::Up, &[])] });
    lines_fit(&long);
    assert!(long.lines().nth(1).unwrap().ends_with("  the front…"), "{long}");
    assert_eq!(ports_short(&Ports::default()), "no ports\n");
}

#[test]
fn the_interface_of_a_port() {
    let device = Device {
        interface: "enp129s0f0np0".to_owned(),
        driver: "mlx5_core".to_owned(),
        mode: "native".to_owned(),
        zero_copy: true,
        queues: 4,
        mtu: 9000,
        mac: "02:00:00:00:00:01".to_owned(),
        kernel_drops: [("rx_ring_full".to_owned(), 1_234_567), ("tx_invalid_descs".to_owned(), 0)].into(),
        warnings: vec!["the interface has 16 queues, and packets of the other 12 stay with the kernel".to_owned()],
        offloads: Vec::new(),
    };
    let nic = Port {
        name: "nic0".to_owned(),
        kind: "af-xdp".to_owned(),
        mtu: 9000,
        device: Some(device.clone()),
        link: Link::Up,
        link_changes: 1,
        link_since_s: 4.0,
        ..Port::default()
    };
    let tap = Device {
        interface: "sl0".to_owned(),
        mode: String::new(),
        zero_copy: false,
        queues: 1,
        driver: "tun".to_owned(),
        kernel_drops: [].into(),
        warnings: Vec::new(),
        ..device
    };
    let reason = "interface sl0 is down; set it up with `ip link set sl0 up`";
    let host = Port {
        name: "host".to_owned(),
        kind: "tap".to_owned(),
        mtu: 1500,
        device: Some(tap),
        link: Link::Down,
        reason: Some(reason.to_owned()),
        ..Port::default()
    };
    let text = ports(&Ports { ports: vec![nic, host] });
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let expected = "\
nic0  af-xdp  up
    link      changed once, last 4.0 s ago
    device    mtu 9000
    interface enp129s0f0np0, driver mlx5_core, native zero-copy mode, 4 queues,
              mtu 9000, mac 02:00:00:00:00:01
    kernel    dropped: rx_ring_full 1,234,567
    warning   the interface has 16 queues, and packets of the other 12 stay with
              the kernel

host  tap  down: interface sl0 is down; set it up with `ip link set sl0 up`
    device    mtu 1500
    interface sl0, driver tun, 1 queue, mtu 9000, mac 02:00:00:00:00:01
";
    assert_eq!(text, expected);
}

/// A switch of an older version tells less.
#[test]
fn a_port_of_an_older_switch_can_be_read() {
    let answer = r#"{"name": "vm1", "kind": "vhost-user", "link": "down", "reason": "no frontend", "features": [],
        "ring": null, "ring_size": 0, "regions": 0, "queues": [], "drops": {}, "mtu": 1500, "mac": null,
        "socket": "/run/vm1.sock"}"#;
    let port: Port = serde_json::from_str(answer).unwrap();
    assert!(port.has_frontend() && !port.makes_interface && port.capabilities_needed.is_empty(), "{port:?}");
}

#[test]
fn runtime_as_two_tables() {
    let worker = Worker {
        cpu: Some(0),
        busy_s: 12_345.678,
        empty_poll_s: 30.5,
        idle_s: 600.0,
        unexplained_s: 0.01,
        turns: 1_234_567_890,
        sleeps: 1234,
        is_asleep: true,
        bodies_copied_bytes: 3_000,
        bodies_delivered_bytes: 3_000,
    };
    let rx = Node { worker: Some(0), most_packets: 64, ..Node::new("vm1-rx", 1_000_000, 32_000_000, 320_000_000) };
    let nodes = vec![rx, Node::new("patch", 0, 0, 0)];
    let text = runtime(&Runtime { workers: vec![worker, Worker::default()], nodes, cleared: None });
    lines_fit(&text);
    let expected = "\
worker    state         time    busy  empty poll   idle  unexplained          turns  turns/s  sleeps
CPU 0     asleep  12976.19 s  95.1 %       0.2 %  4.6 %        0.0 %  1,234,567,890   95,141   1,234
unpinned  awake       0.00 s   0.0 %       0.0 %  0.0 %        0.0 %              0        -       0
bodies: 3,000 bytes delivered, 3,000 copied (1.00 copies each)

node                 calls     packets  packets/s  packets/call  most  cycles/packet
vm1-rx on CPU 0  1,000,000  32,000,000      2,466         32.00    64           10.0
patch                    0           0          -          0.00     0            0.0
";
    assert_eq!(text, expected);
    let text =
        runtime(&Runtime { workers: Vec::new(), nodes: vec![Node::new("turn-end", 1, 1, 1)], ..Runtime::default() });
    lines_fit(&text);
    assert!(text.contains("\n\nturn-end is the work at the end of each turn: buffers go back"), "{text}");
}

#[test]
fn runtime_since_it_was_cleared() {
    let worker = |cpu, turns, busy_s| Worker { cpu: Some(cpu), turns, busy_s, ..Worker::default() };
    let twice = |calls| Node { worker: Some(0), ..Node::new("patch", calls, 10 * calls, 100 * calls) };
    let cleared = Cleared {
        ago_s: 4.2,
        workers: vec![worker(0, 100, 1.0), worker(1, 100, 1.0)],
        nodes: vec![twice(5), twice(7)],
    };
    // The second worker was made anew: all that it has is after the clearing.
    let workers = vec![worker(0, 150, 3.0), worker(1, 20, 0.5)];
    let now = Runtime { workers, nodes: vec![twice(6), twice(10), twice(1)], cleared: Some(cleared) };
    let since = now.since_cleared();
    assert_eq!(since.workers, [worker(0, 50, 2.0), worker(1, 20, 0.5)]);
    assert_eq!(since.nodes, [twice(1), twice(3), twice(1)], "nodes of one name keep their order");
    let text = runtime(&now);
    assert!(text.starts_with("since `straightline runtime --clear`, 4 s ago\n\nworker"), "{text}");
}

#[test]
fn drops_with_the_meaning_of_each_reason_once() {
    let row = |port: &str, reason: Reason, count| DropCount {
        port: port.to_owned(),
        reason: reason.name().to_owned(),
        count,
        meaning: reason.meaning().to_owned(),
        remedy: reason.remedy().to_owned(),
    };
    let rows = [
        row("vm1", Reason::NoBuffer, 1234),
        row("vm1", Reason::LinkDown, 1_000_000),
        row("vm2", Reason::NoBuffer, u64::MAX),
    ];
    let expected = "\
port  reason                        packets
vm1   no-buffer                       1,234
vm1   link-down                   1,000,000
vm2   no-buffer  18,446,744,073,709,551,615

link-down: The link of the destination port is down.
    Find out with `straightline ports` why that link is down.

no-buffer: The destination had no free buffer: a guest not even at the second
           try.
    Give the guest more CPU time, longer rings or more queues, or use `full =
    \"wait\"` in a patch.
";
    assert_eq!(drops(&Drops { drops: rows.to_vec() }), expected);
    assert_eq!(drops(&Drops::default()), "no drops\n");
    let old = DropCount { meaning: String::new(), remedy: String::new(), ..rows[0].clone() };
    assert_eq!(drops(&Drops { drops: vec![old] }), "port  reason     packets\nvm1   no-buffer    1,234\n");
    let all: Vec<_> = Reason::ALL.iter().map(|&reason| row("vm1", reason, 1)).collect();
    assert!(drops(&Drops { drops: all }).lines().all(|line| line.chars().count() <= WIDTH));
}

#[test]
fn fdb_and_status() {
    let entry = |port: &str, age_s, is_static| FdbEntry {
        vlan: 1,
        bridge: "lan".to_owned(),
        mac: "02:00:00:00:00:03".to_owned(),
        port: port.to_owned(),
        age_s,
        is_static,
        is_owned: false,
    };
    let expected = "\
bridge  address            port     age
lan     02:00:00:00:00:03  vm3   static
lan     02:00:00:00:00:03  vm10    12 s
";
    let entries = vec![entry("vm3", 0.0, true), entry("vm10", 12.3, false)];
    assert_eq!(fdb(&Fdb { entries: entries.clone(), remotes: Vec::new() }), expected);
    let remote = RemoteEntry {
        port: "t1".to_owned(),
        vlan: None,
        mac: "02:00:00:00:00:03".to_owned(),
        remote: "192.0.2.2".to_owned(),
        age_s: 4.0,
        is_static: false,
        is_owned: false,
    };
    let tunnels = "\
tunnel  address            remote     age
t1      02:00:00:00:00:03  192.0.2.2  4 s
";
    assert_eq!(fdb(&Fdb { entries: Vec::new(), remotes: vec![remote.clone()] }), tunnels);
    assert_eq!(fdb(&Fdb { entries, remotes: vec![remote.clone()] }), format!("{expected}\n{tunnels}"));
    let of_network = RemoteEntry { vlan: Some(10), port: "t2".to_owned(), ..remote.clone() };
    let networks = "\
tunnel  VLAN  address            remote     age
t1            02:00:00:00:00:03  192.0.2.2  4 s
t2        10  02:00:00:00:00:03  192.0.2.2  4 s
";
    assert_eq!(fdb(&Fdb { entries: Vec::new(), remotes: vec![remote, of_network] }), networks);

    let facts = Status {
        version: "0.1.0".to_owned(),
        api_version: 1,
        uptime_s: 3725.4,
        simd: "avx2".to_owned(),
        workers: 1,
        worker_nodes: Vec::new(),
        ports_up: 2,
        ports: 3,
        sandbox: vec!["landlock".to_owned(), "seccomp".to_owned()],
        privileges: vec![process(Privileges::SWITCH, &[]), process(Privileges::OPENER, &["CAP_NET_ADMIN", "CAP_BPF"])],
        refused_calls: 0,
        api_refused_clients: 0,
        api_held_threads: 0,
        notifications: Status::AIO.to_owned(),
        stalls: Vec::new(),
        workers_stalled: 0,
        fds_free: Some(1000),
        configuration: Some(ConfigurationFile { path: "/etc/switch.toml".to_owned(), changed: Some(true) }),
        moves: Vec::new(),
        flow_tables: Vec::new(),
    };
    let expected = "\
version        0.1.0
uptime         1 h 2 min 5 s
configuration  /etc/switch.toml, edited since it was read
simd           avx2
workers        1
ports          2 of 3 up
sandbox        landlock, seccomp
switch         pid 12, no capabilities; seccomp, landlock
opener         pid 12, CAP_NET_ADMIN CAP_BPF; seccomp, landlock
notifications  aio
descriptors    1,000 free
";
    assert_eq!(status(&facts), expected);
    let there = status(&Status { workers: 3, worker_nodes: vec![Some(0), None, Some(1)], ..facts.clone() });
    assert!(there.contains("\nworkers        3, on NUMA nodes 0 ? 1\n"), "{there}");
    let stalls = vec![
        Stalls { worker: 0, port: String::new(), count: 1 },
        Stalls { worker: 1, port: "vm1".to_owned(), count: 1234 },
    ];
    let stalled = status(&Status { stalls, ..facts.clone() });
    assert!(stalled.ends_with("stalls         worker 0: 1\nstalls         worker 1 at vm1: 1,234\n"), "{stalled}");
    let flow_tables = vec![FlowSearch { bridge: "lan".to_owned(), accesses: 1037 }];
    let searched = status(&Status { flow_tables, ..facts.clone() });
    assert!(searched.ends_with("flow search    bridge lan: at most 1,037 reads of memory in a table\n"), "{searched}");
    let ended = Privileges { running: false, ..process(Privileges::OPENER, &[]) };
    let all = Privileges { seccomp: false, landlock: false, ..process(Privileges::SWITCH, &["CAP_CHOWN"; 40]) };
    let text = status(&Status { privileges: vec![all, ended], ..facts.clone() });
    assert!(text.contains("switch         pid 12, 40 capabilities; not confined\n"), "{text}");
    assert!(text.contains("opener         pid 12 has ended; its interfaces stay open"), "{text}");
    let attacked = Status { sandbox: Vec::new(), refused_calls: 2, ..facts.clone() };
    let text = status(&attacked);
    assert!(text.contains("sandbox        off\n") && text.ends_with("refused        2 system calls\n"), "{text}");
    let text = status(&Status { api_refused_clients: 1200, api_held_threads: 3, ..facts });
    assert!(text.contains("API refused    1,200 clients: too many of their user\n"), "{text}");
    assert!(text.ends_with("API held       3 threads: descriptors of clients do not close\n"), "{text}");
}

fn process(name: &str, capabilities: &[&str]) -> Privileges {
    let capabilities = capabilities.iter().map(|&name| name.to_owned()).collect();
    Privileges { process: name.to_owned(), pid: 12, running: true, capabilities, seccomp: true, landlock: true }
}

#[test]
fn durations() {
    for (seconds, text) in [(f64::NAN, "NaN s"), (0.04, "0.0 s"), (61.9, "1 min 1 s"), (200_000.0, "2 d 7 h 33 min")] {
        assert_eq!(duration(seconds), text);
    }
}

#[test]
fn a_traced_packet_fits_80_columns() {
    let step = |node: &str, cycles, packets, actions| TracedStep { node: node.to_owned(), cycles, packets, actions };
    let port = |name: &str| name.to_owned();
    let outside = "150 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, UDP 192.0.2.1:50000 > 192.0.2.2:4789";
    let packet = TracedPacket {
        time: 100.5,
        port: port("vm1"),
        worker: 0,
        packet: "100 bytes, 02:00:00:00:00:0a > ff:ff:ff:ff:ff:ff, VLAN 7, ARP 10.0.0.1 > 10.0.0.2".to_owned(),
        length: 100,
        gso_size: None,
        skipped: 12,
        steps: vec![
            step("vm1-rx", 1200, 4, vec![TraceAction::Received { port: port("vm1") }]),
            step("source-check.vm1", 200, 4, Vec::new()),
            step("bridge.lan", 400, 4, vec![TraceAction::Copied { copies: 2 }]),
            step("vm2-tx", 4000, 4, vec![TraceAction::Dropped { port: port("vm2"), reason: "no-buffer".to_owned() }]),
            step(
                "up-tx",
                8_000_000,
                4,
                vec![
                    TraceAction::HeadersAdded { bytes: 50, packet: outside.to_owned() },
                    TraceAction::Delivered { port: port("up\x1b") },
                ],
            ),
        ],
        more_steps: 3,
        delivered: vec![port("up")],
        dropped: vec![TracedDrop { port: port("vm2"), reason: "no-buffer".to_owned() }],
        waits: false,
    };
    let text = traced_packet(&packet, 3, 100.0);
    let expected = "\
packet 3: from vm1, worker 0, after 0.500000 s
    100 bytes, 02:00:00:00:00:0a > ff:ff:ff:ff:ff:ff, VLAN 7, ARP 10.0.0.1 >
    10.0.0.2
    12 packets before it came too fast to be traced
    node              cycles/pkt  batch  action
    vm1-rx                   300      4  received by vm1
    source-check.vm1          50      4  passed on
    bridge.lan               100      4  sent 2 ways
    vm2-tx                 1,000      4  dropped: no-buffer, counted by vm2
    up-tx              2,000,000      4  headers added (50 bytes): 150 bytes,
                                         02:00:00:00:00:01 > 02:00:00:00:00:02,
                                         UDP 192.0.2.1:50000 > 192.0.2.2:4789
                                         delivered by up?
    and 3 further steps
    => delivered by up; dropped: no-buffer (vm2)
";
    assert_eq!(text, expected);
    let gone =
        TracedPacket { waits: true, steps: Vec::new(), skipped: 0, more_steps: 0, gso_size: Some(1400), ..packet };
    let text = traced_packet(&gone, 1, 200.0);
    assert!(text.contains("after 0.000000 s\n") && text.contains("to be segmented: 1400 bytes each"), "{text}");
    assert!(text.ends_with("=> waits in its ring, and comes again later\n"), "{text}");
}
