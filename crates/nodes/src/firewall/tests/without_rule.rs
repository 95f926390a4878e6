//! Messages that need no rule: their form, their number and their addresses.

use std::net::Ipv6Addr;

use straightline_wire::messages::{Link, Message, advertisement, arp_reply, arp_request, solicitation};

use super::*;

const LINK: Link = Link { src: MacAddr([2, 0, 0, 0, 0, 1]), dst: MacAddr([2, 0, 0, 0, 0, 2]), vlan: None };

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect(text)
}

fn bytes(message: Result<Message, straightline_wire::WireError>) -> Vec<u8> {
    message.expect("a message").bytes().to_vec()
}

fn arp() -> Vec<u8> {
    bytes(arp_request(LINK, OWN, PEER))
}

/// Returns a report of IGMP, or another message of that type and length.
fn igmp(kind: u8, len: usize) -> Vec<u8> {
    let mut message = vec![0; len];
    message[0] = kind;
    let mut frame = icmp(OWN, Ipv4Addr::new(224, 0, 0, 251), &message);
    frame[14 + 8] = 1;
    frame[14 + 9] = 2;
    frame
}

fn advertised(to: &str) -> Vec<u8> {
    bytes(advertisement(LINK, v6("fd00::1"), v6(to), true))
}

#[test]
fn a_message_has_the_form_that_hosts_give_it() {
    let mut rig = Rig::new(&[], &[]);
    assert!(rig.sends(arp()) && rig.sends(igmp(0x16, 8)) && rig.sends(advertised("fe80::2")));
    let mut long = arp();
    long.resize(1514, 7);
    assert!(!rig.sends(long.clone()), "data behind ARP");
    assert!(!rig.sends(igmp(0x99, 8)) && !rig.sends(igmp(0x16, 1000)), "data in IGMP");
    let mut data = advertised("fe80::2");
    data[18] = 4;
    data.resize(14 + 40 + usize::from(u16::from_be_bytes([data[18], data[19]])), 1);
    assert!(!rig.sends(data), "data in options");
    assert!(!rig.sends(advertised("ff02::fb")), "to a group");
    assert_eq!(rig.dropped(Reason::MessageForm), 5);
    assert!(rig.sends(tagged(&arp(), 4)) && rig.sends(tagged(&advertised("fe80::2"), 1)), "behind priority tags");
    assert!(rig.gets(long), "another port answers for what it sends");
}

#[test]
fn each_kind_of_message_has_a_limit() {
    let mut rig = Rig::new(&["udp 9 from any"], &["udp 9 to any"]);
    let many = |frame: &Vec<u8>| vec![frame.clone(); 10_000];
    for (frame, reason) in [
        (arp(), Reason::ArpLimit),
        (advertised("fe80::2"), Reason::DiscoveryLimit),
        (igmp(0x16, 8), Reason::GroupLimit),
    ] {
        assert_eq!(rig.pass(Direction::Out, many(&frame)), 400, "{reason:?}");
        assert_eq!(rig.dropped(reason), 9600, "{reason:?}");
        // What others send is not counted here.
        assert_eq!(rig.pass(Direction::In, many(&frame)), 10_000, "{reason:?}");
    }
    assert!(rig.sends(udp((OWN, 9), (PEER, 9))), "all else goes on");
    // A reload does not begin it anew, and another limit does.
    rig.change(settings(&["udp 9 from any"], &[], |_| ()));
    assert_eq!(rig.pass(Direction::Out, many(&arp())), 0);
    let router = MessageSettings { port: VM, most: None };
    rig.change(settings(&[], &[], |settings| settings.messages = vec![router]));
    assert_eq!(rig.pass(Direction::Out, many(&arp())), 10_000);
}

#[test]
fn a_trusted_port_has_no_limit() {
    let mut rig = Rig::with(settings(&[], &[], |settings| settings.messages = Vec::new()));
    let mut long = arp();
    long.resize(1514, 7);
    assert_eq!(rig.pass(Direction::Out, vec![long; 1000]), 1000);
}

/// Neighbour discovery to one address could lead beyond the link, so it goes to addresses that are known.
#[test]
fn neighbour_discovery_goes_to_named_addresses() {
    let mut rig = Rig::new(&[], &[]);
    let pass = |rig: &mut Rig, to: &str| rig.pass(Direction::Out, vec![advertised(to); 50]);
    assert_eq!(pass(&mut rig, "fe80::2"), 50);
    assert_eq!(pass(&mut rig, "2001:db8::2"), 10, "nobody has named it");
    assert_eq!(rig.dropped(Reason::DiscoveryLimit), 40);
    let mut padded = advertised("2001:db8::2");
    padded[19] += 8;
    padded.extend([200, 1, 0, 0, 0, 0, 0, 0]);
    assert!(!rig.sends(padded.clone()), "another option to an address that nobody has named");
    assert_eq!(rig.dropped(Reason::MessageForm), 1);
    // A station behind another port asks from the address, and another one has answered for one.
    assert!(rig.gets(bytes(solicitation(LINK, v6("2001:db8::2"), v6("fd00::1"), true))));
    assert!(rig.gets(bytes(advertisement(LINK, v6("2001:db8::3"), v6("fe80::1"), true))));
    assert_eq!(pass(&mut rig, "2001:db8::2"), 50);
    assert_eq!(pass(&mut rig, "2001:db8::3"), 50);
    assert!(rig.sends(padded));
    assert_eq!(pass(&mut rig, "2001:db8::4"), 0);
}

/// A port without groups in a network with others has the same limits, by a node of its own.
#[test]
fn a_port_without_groups_has_the_limits_too() {
    let own = MessageSettings { port: OTHER, most: Some(100) };
    let mut rig = Rig::with_node(settings(&[], &[], |settings| settings.messages.push(own)), |control| {
        Box::new(MessageLimit::new(control, OTHER))
    });
    let mut frames = vec![arp(); 1000];
    frames.extend(vec![udp((PEER, 9), (OWN, 9)); 1000]);
    // Behind a header of options.
    let mut hidden = advertised("fe80::2");
    hidden[14 + 6] = 60;
    hidden[14 + 5] += 8;
    hidden.splice(54..54, [58, 0, 1, 4, 0, 0, 0, 0]);
    frames.extend(vec![hidden; 1000]);
    frames.extend(vec![igmp(0x22, 500); 1000]);
    assert_eq!(rig.pass(Direction::In, frames), 200 + 1000 + 200 + 200);
    for reason in [Reason::ArpLimit, Reason::DiscoveryLimit, Reason::GroupLimit] {
        assert_eq!(rig.dropped(reason), 800, "{reason:?}");
    }
}

/// Returns a frame behind priority tags.
fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0xe0, 0].repeat(tags), &frame[12..]].concat()
}

/// Returns a question of each kind, its answer, and the name of the limit.
fn questions() -> [(Vec<u8>, Vec<u8>, Reason); 3] {
    let reply = bytes(arp_reply(LINK, OWN, PEER));
    [
        (arp(), reply, Reason::ArpLimit),
        (bytes(solicitation(LINK, v6("fe80::2"), v6("fe80::1"), true)), advertised("fe80::2"), Reason::DiscoveryLimit),
        (igmp(0x11, 8), igmp(0x16, 8), Reason::GroupLimit),
    ]
}

/// Others decide how many answers a port sends. They cannot use up what it sends by itself.
#[test]
fn answers_to_others_take_nothing_from_a_port() {
    for tags in [0, 1] {
        let mut rig = Rig::new(&[], &[]);
        for (question, answer, reason) in questions() {
            let [question, answer] = [question, answer].map(|frame| tagged(&frame, tags));
            // Three guests, each within its limit.
            for second in 0..10 {
                assert_eq!(rig.pass(Direction::In, vec![question.clone(); 3 * 60]), 180, "{reason:?} {second}");
                assert_eq!(rig.pass(Direction::Out, vec![answer.clone(); 180]), 180, "{reason:?} {second}");
            }
            assert_eq!(rig.pass(Direction::Out, vec![question; 1000]), 400, "{reason:?}: questions of its own");
            assert_eq!(rig.dropped(reason), 600, "{reason:?}");
            // Answers that nobody has asked for are limited, and so are those that were asked for long ago.
            assert_eq!(rig.pass(Direction::Out, vec![answer.clone(); 1000]), 400, "{reason:?}");
        }
        let (question, reply, _) = &questions()[0];
        rig.pass(Direction::In, vec![question.clone(); 10_000]);
        assert_eq!(rig.pass(Direction::Out, vec![reply.clone(); 1000]), 400);
    }
}

/// A rule that allows everything allows no flood of messages.
#[test]
fn a_message_that_a_group_allows_counts() {
    let unchecked = |settings: &mut FirewallSettings| settings.ports[0].groups.source_check = false;
    let mut rig = Rig::with(settings(&[], &["any to any"], unchecked));
    let hops = |frame: Vec<u8>, at: usize, hops: u8| {
        let mut frame = frame;
        frame[at] = hops;
        frame
    };
    let typed = |icmp_type: u8| hops(advertised("fe80::2"), 54, icmp_type);
    let mut unicast = hops(igmp(0x16, 8), 14 + 8, 64);
    unicast[30..34].copy_from_slice(&PEER.octets());
    for (frame, reason) in [
        (advertised("2001:db8::2"), Reason::DiscoveryLimit),
        (hops(typed(135), 21, 64), Reason::DiscoveryLimit),
        (typed(133), Reason::DiscoveryLimit),
        (typed(130), Reason::GroupLimit),
        (typed(151), Reason::GroupLimit),
        (hops(igmp(0x16, 8), 14 + 8, 64), Reason::GroupLimit),
        (unicast, Reason::GroupLimit),
    ] {
        let before = rig.dropped(reason);
        let passed = rig.pass(Direction::Out, vec![frame.clone(); 2000]);
        assert!(passed <= 400 && rig.dropped(reason) - before == 2000 - passed as u64, "{passed} {reason:?} {frame:?}");
    }
    assert_eq!(rig.pass(Direction::Out, vec![udp((OWN, 9), (PEER, 9)); 2000]), 2000);
    // Its form is any.
    assert!(Rig::new(&[], &["any to any"]).sends(hops(igmp(0x99, 500), 14 + 8, 64)));
}

/// The limit comes before all that takes time: no guest has the switch look for more addresses.
#[test]
fn beyond_the_limit_nothing_is_looked_for() {
    let mut rig = Rig::new(&[], &[]);
    let mut padded = advertised("2001:db8::2");
    padded[19] += 8;
    padded.extend([200, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.pass(Direction::Out, vec![padded; 10_000]), 0);
    assert_eq!((rig.dropped(Reason::MessageForm), rig.dropped(Reason::DiscoveryLimit)), (400, 9600));
}

/// A message of a port without groups counts behind priority tags, and its answers count apart.
#[test]
fn a_port_without_groups_has_the_limits_behind_tags_too() {
    for tags in 0..=4 {
        let own = MessageSettings { port: OTHER, most: Some(100) };
        let mut rig = Rig::with_node(settings(&[], &[], |settings| settings.messages.push(own)), |control| {
            Box::new(MessageLimit::new(control, OTHER))
        });
        for (question, answer, reason) in questions() {
            for frame in [question, answer] {
                let before = rig.dropped(reason);
                assert_eq!(rig.pass(Direction::In, vec![tagged(&frame, tags); 1000]), 200, "{reason:?} {tags}");
                assert_eq!(rig.dropped(reason) - before, 800, "{reason:?} {tags}");
            }
        }
        let in_vlan = [&arp()[..12], &[0x81, 0, 0, 5], &arp()[12..]].concat();
        assert_eq!(rig.pass(Direction::In, vec![in_vlan; 1000]), 1000, "ARP of a VLAN");
    }
}

/// A message of another form passes if a group allows it. So a guest may be a router of groups.
#[test]
fn a_group_may_allow_another_form() {
    // DVMRP, and PIM version 1, with a time to live of 1; an option to an address that nobody has named.
    let mut padded = advertised("2001:db8::2");
    padded[19] += 8;
    padded.extend([200, 1, 0, 0, 0, 0, 0, 0]);
    let others = || [igmp(0x13, 100), igmp(0x14, 100), padded.clone()];
    let mut rig = Rig::new(&[], &["ip 2 to any", "icmp6 to any"]);
    assert_eq!(rig.pass(Direction::Out, others().to_vec()), 3);
    assert_eq!(rig.pass(Direction::Out, vec![igmp(0x13, 100); 1000]), 398, "they count");
    let mut long = arp();
    long.resize(1000, 1);
    assert!(!rig.sends(long), "no group allows ARP");
    let mut rig = Rig::new(&[], &["deny ip 2 to any", "any to any", "deny icmp6 to any"]);
    assert_eq!(rig.pass(Direction::Out, others().to_vec()), 1, "the first rule of a group decides");
    assert_eq!((rig.dropped(Reason::MessageForm), rig.dropped(Reason::Denied)), (2, 0));
    assert!(rig.sends(igmp(0x16, 8)), "the network allows reports");
}

/// Each network has its own names, and so has each port: not those of the port that had its place before.
#[test]
fn names_of_other_ports_and_networks_do_not_hold() {
    let named = |change: &dyn Fn(&mut FirewallSettings)| {
        let mut rig = Rig::new(&[], &[]);
        assert!(rig.gets(bytes(solicitation(LINK, v6("2001:db8::2"), v6("fd00::1"), true))));
        assert_eq!(rig.pass(Direction::Out, vec![advertised("2001:db8::2"); 50]), 50);
        rig.change(settings(&[], &[], change));
        rig.pass(Direction::Out, vec![advertised("2001:db8::2"); 50])
    };
    assert_eq!(named(&|_| ()), 50, "nothing has changed");
    assert_eq!(named(&|settings| settings.networks[0].ports[1].1 = "new".to_owned()), 10, "another port");
    assert_eq!(named(&|settings| settings.networks[0].name = "new".to_owned()), 10, "another network");
    let mut apart = Rig::with(settings(&[], &[], |settings| {
        let other = settings.networks[0].ports.pop().into_iter().collect();
        settings.networks.push(GuardedNetwork { name: "lan2".to_owned(), ports: other });
    }));
    assert!(apart.gets(bytes(solicitation(LINK, v6("2001:db8::2"), v6("fd00::1"), true))));
    let passed = apart.pass(Direction::Out, vec![advertised("2001:db8::2"); 50]);
    assert_eq!(passed, 10, "a port of another network");
}
