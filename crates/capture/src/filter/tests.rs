//! Tests of filters: the parser against its own output and against hostile text, the evaluation
//! against tcpdump.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{EtherType, MacAddr, tcp, vlan};

use super::*;
use crate::pcapng::{Interface, Writer};

fn conditions() -> impl Strategy<Value = Condition> {
    let side = || prop_oneof![Just(Side::Source), Just(Side::Destination), Just(Side::Either)];
    let mac = any::<[u8; 6]>().prop_map(MacAddr);
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    let with_ports = prop_oneof![Just(None), Just(Some(IpProtocol::TCP)), Just(Some(IpProtocol::UDP))];
    let families = (prop_oneof![Just(None), Just(Some(Family::V4)), Just(Some(Family::Arp))], v4, 0_u8..=32);
    let families6 = (prop_oneof![Just(None), Just(Some(Family::V6))], v6, 0_u8..=128);
    prop_oneof![
        any::<u16>().prop_map(|number| Condition::EtherType(EtherType(number))),
        Just(Condition::EtherType(EtherType::ARP)),
        Just(Condition::Protocol(None, IpProtocol::TCP)),
        any::<u8>().prop_map(|number| Condition::Protocol(Some(Family::V6), IpProtocol(number))),
        (side(), mac).prop_map(|(side, mac)| Condition::Ether(side, mac)),
        Just(Condition::Broadcast),
        Just(Condition::Multicast),
        proptest::option::of(0_u16..4096).prop_map(Condition::Vlan),
        (side(), families).prop_map(|(side, (family, address, bits))| Condition::Address {
            family,
            side,
            address,
            bits
        }),
        (side(), families6).prop_map(|(side, (family, address, bits))| Condition::Address {
            family,
            side,
            address,
            bits
        }),
        (side(), with_ports, any::<u16>(), any::<u16>()).prop_map(|(side, protocol, a, b)| Condition::Ports {
            protocol,
            side,
            first: a.min(b),
            last: a.max(b)
        }),
        any::<u32>().prop_map(Condition::Less),
        any::<u32>().prop_map(Condition::Greater),
    ]
}

fn expressions() -> impl Strategy<Value = Expression> {
    conditions().prop_map(Expression::Is).prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Expression::Not(Box::new(inner))),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Expression::And),
            proptest::collection::vec(inner, 2..4).prop_map(Expression::Or),
        ]
    })
}

proptest! {
    #[test]
    fn a_printed_filter_reads_back(expression in expressions()) {
        let text = expression.to_string();
        prop_assert_eq!(text.parse::<Filter>().map_err(|error| error.to_string()), Ok(Filter(expression)), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 ()!&|.:/é-]{0,80}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.to_string()[15..].split(':').next().unwrap().parse().unwrap()));
        }
    }

    #[test]
    fn words_in_any_order_are_read_or_refused(words in proptest::collection::vec(
        prop_oneof![
            Just("tcp"), Just("src"), Just("dst"), Just("port"), Just("host"), Just("net"), Just("ip"), Just("ip6"),
            Just("ether"), Just("proto"), Just("vlan"), Just("not"), Just("("), Just(")"), Just("and"), Just("or"),
            Just("10.0.0.1"), Just("80"), Just("fd00::/8"), Just("1-2"), Just("portrange"), Just("&&"), Just("!"),
        ], 0..60)) {
        let _ = words.join(" ").parse::<Filter>();
    }

    #[test]
    fn any_head_has_facts(head in proptest::collection::vec(any::<u8>(), 0..120), ether_type in any::<[u8; 2]>(), expression in expressions()) {
        let mut head = head;
        for ether_type in [ether_type, [8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]] {
            if let Some(field) = head.get_mut(12..14) {
                field.copy_from_slice(&ether_type);
            }
            let len = u32::try_from(head.len()).unwrap();
            let filter = Filter(expression.clone());
            let not = Filter(Expression::Not(Box::new(expression.clone())));
            prop_assert_ne!(filter.selects(&head, len), not.selects(&head, len));
        }
    }
}

#[test]
fn errors_say_where_and_what_would_be_right() {
    let cases = [
        (
            "",
            "filter, column 1: expected a condition such as `arp`, `tcp port 80`, `ip host 10.0.0.1` or `vlan 7`, found the end",
        ),
        ("tcp prot 80", "filter, column 5: expected `and`, `or` or the end, found `prot`"),
        ("tcp port http", "filter, column 10: expected a port, 0 to 65535, found `http`"),
        ("tcp port 65536", "filter, column 10: expected a port, 0 to 65535, found `65536`"),
        ("tcp host 10.0.0.1", "filter, column 5: expected `port` or `portrange`, found `host`"),
        ("ip port 80", "filter, column 4: expected `host` or `net`, found `port`"),
        ("ip host fd00::1", "filter, column 9: expected an IPv4 address; use `ip6` for IPv6, found `fd00::1`"),
        ("net 10.0.0.0/33", "filter, column 5: expected a length of at most 32 bits, found `10.0.0.0/33`"),
        ("(arp", "filter, column 5: expected `)`, found the end"),
        ("arp)", "filter, column 4: expected `and`, `or` or the end, found `)`"),
        ("vlan 4096", "filter, column 6: expected a VLAN, 0 to 4095, found `4096`"),
        ("ether host vm1", "filter, column 12: expected a MAC address, such as 52:54:00:00:00:01, found `vm1`"),
        ("portrange 9-8", "filter, column 11: expected two ports in order, such as 8000-8080, found `9-8`"),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<Filter>().unwrap_err().to_string(), message);
    }
    let deep = format!("{}arp{}", "(".repeat(40), ")".repeat(40));
    assert!(deep.parse::<Filter>().unwrap_err().to_string().contains("at most 32 parentheses"));
    let long = vec!["arp"; 65].join(" or ");
    assert!(long.parse::<Filter>().unwrap_err().to_string().contains("at most 64 conditions"));
    assert!(vec!["arp"; 64].join("||").parse::<Filter>().is_ok());
}

#[test]
fn conditions_look_behind_tags() {
    let tag = |vid| Some(vlan::Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid });
    let frame = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [tag(7), tag(9)],
        net: Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        transport: Transport::Udp { src_port: 53, dst_port: 5353 },
        payload_len: 0,
    };
    let mut bytes = vec![0; frame.headers_len()];
    frame.emit(&mut bytes, Checksum::Zero).unwrap();
    for (text, selected) in [
        ("vlan", true),
        ("vlan 7 and vlan 9", true),
        ("vlan 8", false),
        ("udp src port 53 and ip dst host 10.0.0.2", true),
        ("udp dst port 53", false),
        ("not vlan", false),
    ] {
        assert_eq!(text.parse::<Filter>().unwrap().selects(&bytes, 50), selected, "{text}");
    }
}

#[test]
fn conditions_look_behind_priority_tags() {
    let tag = |vid| Some(vlan::Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid });
    let frame = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [tag(7), None],
        net: Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        transport: Transport::Udp { src_port: 53, dst_port: 5353 },
        payload_len: 0,
    };
    let mut bytes = vec![0; frame.headers_len()];
    frame.emit(&mut bytes, Checksum::Zero).unwrap();
    for count in 1..=4 {
        let tags = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(2);
        let tagged = [&bytes[..12], &tags[..4 * count], &bytes[12..]].concat();
        for text in ["vlan 0 and vlan 7", "udp src port 53 and ip dst host 10.0.0.2", "ether host 02:00:00:00:00:01"] {
            assert!(text.parse::<Filter>().unwrap().selects(&tagged, 64), "{text}, {count} tags");
        }
    }
}

/// Frames of many kinds, for the comparison with tcpdump.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let one = MacAddr([2, 0, 0, 0, 0, 1]);
    let two = MacAddr([2, 0, 0, 0, 0, 2]);
    let nets = [
        Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        Net::v4([10, 0, 0, 2].into(), [192, 168, 7, 1].into()),
        Net::v6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
        Net::v6("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap()),
    ];
    let tcp =
        |src_port, dst_port| Transport::Tcp { src_port, dst_port, seq: 0, ack: 0, flags: tcp::Flags(2), window: 1 };
    let transports = [
        tcp(40_000, 80),
        tcp(443, 40_000),
        Transport::Udp { src_port: 53, dst_port: 80 },
        Transport::Udp { src_port: 1, dst_port: 65_535 },
    ];
    for net in nets {
        for transport in transports {
            for (dst, payload_len) in [(two, 0), (MacAddr::BROADCAST, 100), (MacAddr([1, 0, 0x5e, 0, 0, 1]), 1400)] {
                let frame = Frame { src: one, dst, tags: [None; 2], net, transport, payload_len };
                let mut bytes = vec![0; frame.headers_len()];
                frame.emit(&mut bytes, Checksum::Zero).unwrap();
                bytes.resize(bytes.len() + usize::from(payload_len), 0x55);
                if matches!(net, Net::V4 { .. }) && payload_len == 100 {
                    // The same bytes as a later fragment, as ICMP, and with options.
                    let mut fragment = bytes.clone();
                    fragment[21] = 9;
                    let mut icmp = bytes.clone();
                    icmp[23] = 1;
                    let mut options = bytes.clone();
                    options[14] = 0x46;
                    options.splice(34..34, [1, 1, 1, 0]);
                    frames.extend([fragment, icmp, options]);
                }
                frames.push(bytes);
            }
        }
    }
    let mut arp = vec![0xff; 6];
    arp.extend([
        2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ]);
    let mut lldp = arp.clone();
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    frames.extend([arp, lldp]);
    frames
}

/// The frames that a filter selects are those that tcpdump selects by the same words.
#[test]
fn filters_select_what_tcpdump_selects() {
    let is_there = |tool: &str| {
        let found = Command::new(tool).arg("--version").output().is_ok();
        assert!(found || std::env::var_os("CI").is_none(), "{tool} is missing; install it");
        if !found {
            eprintln!("SKIPPED: {tool} is missing");
        }
        found
    };
    if !is_there("tcpdump") {
        return;
    }
    let frames = frames();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames.pcapng");
    let interfaces = [Interface { name: "test".to_owned(), description: String::new() }];
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), &interfaces, 1 << 18, None).unwrap();
    for (at, frame) in (0..).zip(&frames) {
        let len = u32::try_from(frame.len()).unwrap();
        writer.packet(0, at * 1000, len, frame, crate::pcapng::Direction::Unknown, None).unwrap();
    }
    drop(writer);
    let texts = [
        "arp",
        "rarp",
        "ip",
        "ip6",
        "icmp",
        "icmp6",
        "tcp",
        "udp",
        "sctp",
        "not ip",
        "ip or arp",
        "ip and not tcp",
        "host 10.0.0.1",
        "src host 10.0.0.2",
        "dst host 10.0.0.2",
        "arp host 10.0.0.2",
        "ip host 10.0.0.1",
        "net 10.0.0.0/8",
        "src net 192.168.0.0/16",
        "ip6 host fd00::2",
        "ip6 dst net ff00::/8",
        "net fd00::/16",
        "port 80",
        "tcp port 80",
        "udp port 80",
        "src port 53",
        "tcp dst port 40000",
        "portrange 1-80",
        "udp portrange 50-60",
        "ether host 02:00:00:00:00:02",
        "ether src 02:00:00:00:00:01",
        "ether dst 02:00:00:00:00:02",
        "ether proto 0x88cc",
        "ether proto \\arp",
        "ether broadcast",
        "ether multicast",
        "ip proto 17",
        "ip6 proto 6",
        "less 60",
        "greater 142",
        "(tcp or udp) and (host 10.0.0.1 or host fd00::1)",
        "!(tcp && port 80) || arp",
        "not not arp",
        "vlan",
    ];
    for text in texts {
        let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let selected: Vec<_> = (0..frames.len())
            .filter(|&at| filter.selects(&frames[at], u32::try_from(frames[at].len()).unwrap()))
            .collect();
        assert_eq!(selected, by_tcpdump(&path, text), "{text}");
    }
}

/// Returns the indexes of the frames that tcpdump selects: their times.
fn by_tcpdump(path: &Path, text: &str) -> Vec<usize> {
    let output =
        Command::new("tcpdump").args(["-tt", "-n", "-q", "--nano", "-r"]).arg(path).arg(text).output().unwrap();
    assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let time = |line: &str| line.strip_prefix("0.")?.get(..9)?.parse::<usize>().ok();
    lines.lines().filter_map(time).map(|nanoseconds| nanoseconds / 1000).collect()
}
