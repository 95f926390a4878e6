//! Opening interfaces of a network namespace that each test makes. They need root.

use std::net::{IpAddr, Ipv6Addr};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use straightline_testing::wait_until;

use super::*;
use crate::device::bpf::{Instruction, Register};
use crate::device::test_namespace::{enter, run};
use crate::device::{DeviceRequest, Direct, Opener};

/// Makes a pair of interfaces, `nic0` and `nic1`, both up.
fn veth(queues: u32) {
    let numbers = format!("numrxqueues {queues} numtxqueues {queues}");
    run(&format!("ip link add nic0 {numbers} type veth peer name nic1 {numbers}"));
    run("ip link set nic0 up");
    run("ip link set nic1 up");
}

fn request(interface: &str) -> AfXdpRequest {
    AfXdpRequest {
        interface: interface.to_owned(),
        queues: None,
        steal: Steal::All,
        zero_copy: ZeroCopy::Allow,
        mtu: 1500,
    }
}

/// Opens an interface by the machine's clock.
fn open(request: &AfXdpRequest) -> Result<(OpenedDevice, Changes), OpenError> {
    super::open(request, &Clock::real())
}

/// Checks that the request fails for this cause, with these words in its message.
#[track_caller]
fn fails(request: &AfXdpRequest, cause: OpenCause, words: &str) {
    let error = open(request).map(|(opened, _)| opened).expect_err("it cannot be opened");
    assert_eq!(error.cause, cause, "{error}");
    assert!(error.message.contains(words), "{error}");
    assert!(error.message.contains(&request.interface), "{error}");
}

#[test]
fn an_interface_is_opened_natively_and_closed_without_traces() {
    let Some(_namespace) = enter("an_interface_is_opened_natively_and_closed_without_traces") else { return };
    veth(4);
    let vlan = || run("ethtool -k nic0").lines().any(|line| line == "rx-vlan-offload: on");
    let promiscuous = || run("ip -d link show nic0");
    let program = || run("ip link show nic0").contains("xdp");
    assert!(vlan() && promiscuous().contains("promiscuity 0") && !program());
    let direct = Direct::default();
    let device = DeviceRequest::AfXdp(request("nic0"));
    for _ in 0..2 {
        let opened = direct.open(&device).expect("opened");
        let facts = &opened.facts;
        assert_eq!((facts.driver.as_str(), facts.mode.as_str(), facts.zero_copy), ("veth", "native", false));
        assert_eq!((facts.queues, facts.mtu, facts.frame_size, opened.fds.len()), (4, 1500, 2048, 9));
        assert!(facts.warnings.is_empty(), "{:?}", facts.warnings);
        assert!(!vlan() && promiscuous().contains("promiscuity 1") && program());
        drop(opened);
        direct.close(&device);
        assert!(vlan() && promiscuous().contains("promiscuity 0") && !program());
    }
}

#[test]
fn features_are_restored_under_another_name() {
    let Some(_namespace) = enter("features_are_restored_under_another_name") else { return };
    veth(1);
    let has_vlan = |name: &str| run(&format!("ethtool -k {name}")).lines().any(|line| line == "rx-vlan-offload: on");
    let (opened, changes) = open(&request("nic0")).expect("opened");
    assert!(!has_vlan("nic0"));
    run("ip link set nic0 name new0");
    // Another interface has the old name now.
    run("ip link add nic0 type veth peer name nic2");
    run("ethtool -K nic0 rxvlan off");
    drop((opened, changes));
    assert!(has_vlan("new0") && !has_vlan("nic0"));
}

#[test]
fn the_interface_receives_what_the_switch_has_addresses_for() {
    let Some(_namespace) = enter("the_interface_receives_what_the_switch_has_addresses_for") else { return };
    veth(1);
    let modes = || {
        let shown = run("ip -d link show nic0");
        let mut words = shown.split_whitespace().skip_while(|word| *word != "promiscuity");
        let mut number = |name: &str| (words.next() == Some(name)).then(|| words.next()?.parse::<u32>().ok()).flatten();
        (number("promiscuity").expect("a count"), number("allmulti").expect("a count"))
    };
    let own = Interfaces::new().expect("a socket").mac("nic0").expect("found").expect("a MAC address");
    let v4 = "192.0.2.1";
    let v6 = "2001:db8::1";
    let cases = [
        (vec![v4], None, None, (0, 0)),
        (vec![v4, v6], None, None, (0, 1)),
        (vec![v4, v6], None, Some(own), (0, 1)),
        (vec![v4, v6], None, Some([2, 0, 0, 0, 0, 1]), (1, 0)),
        (vec![v4], Some(7), None, (1, 0)),
    ];
    for (addresses, vlan, mac, expected) in cases {
        assert!(modes() == (0, 0) && !run("ip link show nic0").contains("xdp"));
        let addresses = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        let steal = Steal::Address { addresses, vlan, mac };
        let opened = open(&AfXdpRequest { steal: steal.clone(), ..request("nic0") }).expect("opened");
        assert_eq!(modes(), expected, "{steal:?}");
        drop(opened);
    }
}

#[test]
fn queues_are_checked() {
    let Some(_namespace) = enter("queues_are_checked") else { return };
    veth(4);
    let with = |queues| AfXdpRequest { queues: Some(queues), ..request("nic0") };
    fails(&with(5), OpenCause::Unsupported, "has 4 receive and 4 transmit queues: use at most 4");
    let (opened, _changes) = open(&with(3)).expect("opened");
    let [warning] = &opened.facts.warnings[..] else { panic!("{:?}", opened.facts.warnings) };
    assert!(warning.contains("keeps packets of 1 of the 4 receive queues of nic0"), "{warning}");
    // A socket sends by the queue that it receives from.
    run("ip link add odd0 numrxqueues 4 numtxqueues 2 type veth peer name odd1");
    run("ip link set odd0 up");
    let (opened, _changes) = open(&request("odd0")).expect("opened");
    assert_eq!((opened.facts.queues, opened.facts.warnings.len()), (2, 1), "{:?}", opened.facts);
}

#[test]
fn interfaces_that_cannot_be_opened() {
    let Some(_namespace) = enter("interfaces_that_cannot_be_opened") else { return };
    veth(1);
    fails(&request("nic9"), OpenCause::Missing, "interface nic9 does not exist");
    fails(&request("lo"), OpenCause::Unsupported, "is not Ethernet");
    let require = AfXdpRequest { zero_copy: ZeroCopy::Require, ..request("nic0") };
    fails(&require, OpenCause::Unsupported, "has no zero-copy mode; use \"allow\"");
    run("ip link set nic0 down");
    fails(&request("nic0"), OpenCause::Down, "is down; set it up with `ip link set nic0 up`");
    run("ip link set nic0 up");
    let first = open(&request("nic0")).expect("opened");
    fails(&request("nic0"), OpenCause::Busy, "of another program already: end that program");
    drop(first);
    assert!(open(&request("nic0")).is_ok(), "it is free again");
}

#[test]
fn a_foreign_program_is_named_and_left_alone() {
    let Some(_namespace) = enter("a_foreign_program_is_named_and_left_alone") else { return };
    veth(1);
    let interface = Interfaces::new().expect("a socket").index("nic0").expect("found").expect("it exists");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        assert!(!run("ip link show nic0").contains("xdp"));
        let pass = [Instruction::set(Register(0), bpf::XDP_PASS), Instruction::exit()];
        let program = bpf::load(&pass, false).expect("loaded");
        let link = bpf::attach(program.as_fd(), interface, mode).expect("attached");
        let shown = run("ip link show nic0");
        let id = shown.split("prog/xdp id ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an id");
        fails(&request("nic0"), OpenCause::Busy, &format!("has XDP program {id} of another program already"));
        assert!(run("ip link show nic0").contains(&format!("prog/xdp id {id} ")), "it stays");
        drop(link);
    }
}

#[test]
fn a_driver_without_xdp_gets_the_generic_mode() {
    let Some(_namespace) = enter("a_driver_without_xdp_gets_the_generic_mode") else { return };
    run("ip link add nic0 type bridge");
    run("ip link set nic0 up");
    let (opened, _changes) = open(&request("nic0")).expect("opened");
    assert_eq!((opened.facts.driver.as_str(), opened.facts.mode.as_str()), ("bridge", "generic"));
    let [warning] = &opened.facts.warnings[..] else { panic!("{:?}", opened.facts.warnings) };
    assert!(warning.contains("generic mode only"), "{warning}");
}

#[test]
fn missing_privileges_are_named() {
    let Some(_namespace) = enter("missing_privileges_are_named") else { return };
    veth(1);
    let all = capabilities(None).expect("our capabilities");
    let without = |lost: CapabilitySet| {
        let mut some = all;
        some.effective -= lost;
        set_capabilities(None, some).expect("fewer capabilities");
    };
    without(CapabilitySet::NET_RAW);
    fails(&request("nic0"), OpenCause::Denied, "CAP_NET_RAW");
    without(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    fails(&request("nic0"), OpenCause::Denied, "CAP_BPF");
    // The limit holds for the whole process, so a larger limit is not reduced.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if limit.is_some_and(|limit| limit < umem_len(LARGE_FRAME_SIZE)) {
        without(CapabilitySet::IPC_LOCK);
        let large = AfXdpRequest { mtu: 9000, ..request("nic0") };
        fails(&large, OpenCause::Failed, "cannot lock the 16 MiB of packet memory for queue 0");
    }
    set_capabilities(None, all).expect("all capabilities");
}

/// Frames of every kind: the program must not depend on what is in them.
#[test]
fn the_program_redirects_every_frame_of_a_queue_that_has_a_socket() {
    let Some(_namespace) = enter("the_program_redirects_every_frame_of_a_queue_that_has_a_socket") else { return };
    /// XDP_REDIRECT.
    const REDIRECT: u32 = 4;
    veth(1);
    let (opened, _changes) = open(&request("nic0")).expect("opened");
    let socket = &opened.fds[1];
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 28]].concat();
    let ipv4 = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 20], &[0; 16]].concat();
    let tagged = [&[2; 12][..], &[0x81, 0, 0, 5, 0x86, 0xdd, 0x60], &[0; 39]].concat();
    let long = vec![7; 1514];
    for several in [false, true] {
        let sockets = bpf::create_socket_map(2).expect("a map");
        let code = program::redirect_all(sockets.as_fd());
        let program = bpf::load(&code, several).expect("loaded");
        for frame in [&arp, &ipv4, &tagged, &long] {
            let verdict = bpf::test_run(program.as_fd(), frame).expect("run");
            assert_eq!(verdict, bpf::XDP_PASS.cast_unsigned(), "no socket: the kernel gets the packet");
        }
        // The test runs on queue 0.
        bpf::set_socket(sockets.as_fd(), 1, socket.as_fd()).expect("entered");
        assert_eq!(bpf::test_run(program.as_fd(), &arp).expect("run"), bpf::XDP_PASS.cast_unsigned());
        bpf::set_socket(sockets.as_fd(), 0, socket.as_fd()).expect("entered");
        for frame in [&arp, &ipv4, &tagged, &long] {
            assert_eq!(bpf::test_run(program.as_fd(), frame).expect("run"), REDIRECT);
        }
    }
}

/// A frame: Ethernet with its tag, and what is behind.
fn frame(tag: Option<u16>, ethertype: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let tag = tag.map(|tag| [[0x81, 0], tag.to_be_bytes()].concat()).unwrap_or_default();
    [&[2; 12], &tag[..], &ethertype, rest].concat()
}

#[test]
fn a_program_takes_what_is_for_our_addresses_and_leaves_the_rest() {
    let Some(_namespace) = enter("a_program_takes_what_is_for_our_addresses_and_leaves_the_rest") else { return };
    const REDIRECT: u32 = 4;
    veth(1);
    let (opened, _changes) = open(&request("nic0")).expect("opened");
    let ours: [IpAddr; 3] = ["192.0.2.1", "2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().expect("an address"));
    let first = [192, 0, 2, 1];
    let second = ours[2];
    let other = [192, 0, 2, 2];
    let IpAddr::V6(second) = second else { panic!("version 6") };
    let foreign = Ipv6Addr::from_bits(second.to_bits() + 1);
    let arp = |target: [u8; 4]| [&[0; 24][..], &target].concat();
    let claim = |sender: [u8; 4]| [&[0; 14][..], &sender, &[0; 10]].concat();
    let v4 = |to: [u8; 4]| [&[0x45][..], &[0; 15], &to].concat();
    let v6 = |to: Ipv6Addr, protocol: u8, rest: &[u8]| {
        [&[0x60, 0, 0, 0, 0, 24, protocol, 255][..], &[0; 16], &to.octets(), rest].concat()
    };
    let group: Ipv6Addr = "ff02::1:ff00:2".parse().expect("an address");
    let asks = |target: Ipv6Addr, kind| v6(group, 58, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat());
    let taken = [
        ([8, 6], arp(first)),
        ([8, 6], claim(first)),
        ([8, 0], v4(first)),
        ([0x86, 0xdd], v6(second, 17, &[])),
        ([0x86, 0xdd], asks(second, 135)),
        ([0x86, 0xdd], asks(second, 136)),
    ];
    let left = [
        ([8, 6], arp(other)),
        ([8, 6], arp(first)[..27].to_vec()),
        ([8, 0], v4(other)),
        ([8, 0], arp(first)),
        ([0x86, 0xdd], v6(foreign, 17, &[])),
        ([0x86, 0xdd], asks(foreign, 135)),
        ([0x86, 0xdd], asks(second, 137)),
        ([0x86, 0xdd], asks(foreign, 136)),
        ([8, 6], claim(other)),
        ([0x86, 0xdd], v6(second, 17, &[])[..39].to_vec()),
        ([0x88, 0xcc], vec![0; 60]),
    ];
    for vlan in [None, Some(100)] {
        let sockets = bpf::create_socket_map(1).expect("a map");
        bpf::set_socket(sockets.as_fd(), 0, opened.fds[1].as_fd()).expect("entered");
        let code = program::redirect_addresses(sockets.as_fd(), &ours, vlan);
        let program = bpf::load(&code, false).expect("the kernel's verifier accepts it");
        let verdict = |frame: &[u8]| bpf::test_run(program.as_fd(), frame).expect("run");
        for (ethertype, rest) in &taken {
            // The priority of a tag does not count.
            assert_eq!(verdict(&frame(vlan.map(|vlan| vlan | 0xa000), *ethertype, rest)), REDIRECT, "{ethertype:?}");
            for tag in [None, Some(100), Some(101)].into_iter().filter(|tag| *tag != vlan) {
                assert_eq!(verdict(&frame(tag, *ethertype, rest)), bpf::XDP_PASS.cast_unsigned(), "{tag:?}");
            }
        }
        for (ethertype, rest) in &left {
            assert_eq!(
                verdict(&frame(vlan, *ethertype, rest)),
                bpf::XDP_PASS.cast_unsigned(),
                "{ethertype:?} {rest:?}"
            );
        }
    }
}

#[test]
fn a_busy_queue_is_tried_again_until_it_is_free_or_the_time_is_over() {
    let clock = Clock::moved();
    for (busy, tries, bound) in [(3, 4, Ok(())), (u32::MAX, BIND_TRIES + 1, Err(Errno::BUSY))] {
        let (sender, tried) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let clock = clock.clone();
            move || {
                let mut count = 0;
                bind_again(&clock, || {
                    count += 1;
                    sender.send(count).expect("a receiver");
                    if count <= busy { Err(Errno::BUSY) } else { Ok(()) }
                })
            }
        });
        // A move that comes before the thread sleeps does not end that sleep.
        wait_until("the thread has ended", || {
            clock.advance(BIND_PAUSE);
            thread.is_finished()
        });
        let count = tried.try_iter().last().expect("a try");
        assert_eq!((count, thread.join().expect("the thread")), (tries, bound));
    }
}
