use super::*;

fn address(last: u8) -> Address {
    let mut address = [0; 16];
    address[0] = 0xfd;
    address[15] = last;
    address
}

#[test]
fn each_kind_has_a_limit_of_its_own() {
    let limits = MessageLimits::new(MessageSettings { port: PortIndex(0), most: Some(3) });
    let other = |kind| Message { kind, role: MessageRole::Other };
    let taken = |kind, now| (0..20).filter(|_| limits.take(other(kind), now).is_ok()).count();
    assert_eq!(
        (taken(MessageKind::Arp, 5), taken(MessageKind::Discovery, 5), taken(MessageKind::Groups, 5)),
        (6, 6, 6)
    );
    assert_eq!((taken(MessageKind::Arp, 5), taken(MessageKind::Arp, 6)), (0, 3));
    assert_eq!(limits.take(other(MessageKind::Arp), 6), Err(Reason::ArpLimit));
    (0..4).for_each(|_| _ = limits.take(other(MessageKind::Discovery), 6));
    assert_eq!(limits.take(other(MessageKind::Discovery), 6), Err(Reason::DiscoveryLimit));
    (0..4).for_each(|_| _ = limits.take(other(MessageKind::Groups), 6));
    assert_eq!(limits.take(other(MessageKind::Groups), 6), Err(Reason::GroupLimit));
    assert_eq!((0..20).filter(|_| limits.take_unknown(6)).count(), 10);
    let router = MessageLimits::new(MessageSettings { port: PortIndex(0), most: None });
    assert!((0..10_000).all(|_| router.take(other(MessageKind::Arp), 5).is_ok() && router.take_unknown(5)));
}

#[test]
fn each_question_allows_one_answer() {
    let limits = MessageLimits::new(MessageSettings { port: PortIndex(0), most: Some(3) });
    let message = |role| Message { kind: MessageKind::Arp, role };
    let taken = |role| (0..20).filter(|_| limits.take(message(role), 5).is_ok()).count();
    let asks = |times| (0..times).for_each(|_| limits.note(message(MessageRole::Question)));
    (0..9).for_each(|_| limits.note(message(MessageRole::Answer)));
    assert_eq!(taken(MessageRole::Answer), 6);
    asks(4);
    assert_eq!(taken(MessageRole::Answer), 4);
    asks(100);
    assert_eq!((taken(MessageRole::Question), taken(MessageRole::Answer)), (6, 6), "no more than a burst");
    limits.give_back(message(MessageRole::Answer));
    assert_eq!((taken(MessageRole::Other), taken(MessageRole::Answer)), (0, 1));
}

#[test]
fn an_address_is_named_by_another_port() {
    let named = NamedAddresses::new(3);
    let all = [0, 1, 2, 9].map(PortIndex);
    let has = |asker| named.has(&all, PortIndex(asker), 7, address(1));
    assert!(!has(0));
    named.note(PortIndex(1), 7, address(1));
    named.note(PortIndex(9), 7, address(2));
    assert!(has(0) && !has(1) && has(2), "not by the port itself");
    assert!(!named.has(&all, PortIndex(0), 8, address(1)), "in another VLAN");
    assert!(!named.has(&all, PortIndex(0), 7, address(2)), "by a port that does not exist");
    assert!(!named.has(&[0, 2].map(PortIndex), PortIndex(0), 7, address(1)), "by a port of another network");
    let more = named.resized(8);
    assert!(more.has(&all, PortIndex(0), 7, address(1)) && more.ports() == 8);
    assert!(!named.resized(1).has(&all, PortIndex(0), 7, address(1)));
    named.forget(PortIndex(1));
    named.forget(PortIndex(9));
    assert!(!has(0));
}

/// A port that names many addresses loses its own older ones only.
#[test]
fn a_port_fills_its_own_share() {
    let named = NamedAddresses::new(2);
    named.note(PortIndex(0), 0, address(1));
    for last in 0..=u8::MAX {
        named.note(PortIndex(1), 0, address(last));
    }
    let both = [0, 1].map(PortIndex);
    assert!(named.has(&both, PortIndex(1), 0, address(1)));
    let known = (0..=u8::MAX).filter(|last| named.has(&both, PortIndex(0), 0, address(*last))).count();
    assert!((1..=SHARE).contains(&known), "{known}");
    assert!(named.has(&both, PortIndex(0), 0, address(u8::MAX)), "the newest one");
}
