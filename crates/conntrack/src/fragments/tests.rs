use super::*;
use crate::key::{Direction, Ends, Key};
use crate::settings::{PortShare, Settings};
use crate::{Opened, Opening, Secret, Table, Transport};
use proptest::prelude::*;
use std::collections::HashMap;
use straightline_wire::IpProtocol;

const TIMEOUT: u32 = 2000;

fn key(id: u32) -> Key {
    let ends = Ends { local: [10, 0, 0, 1], remote: [10, 0, 0, 2], local_port: 0, remote_port: 0 };
    Key::v4(0, 0, IpProtocol::UDP, ends).with_fragments(Side::Remote, id)
}

fn entry() -> Entry {
    let table = Table::new(Settings::default(), Secret([1; 4]), &[(0, PortShare::new(8))]);
    let packet = &Transport::Other;
    let opening = Opening {
        direction: Direction::Inbound,
        opener: 3,
        is_trusted: false,
        generation: 9,
        rule: 1,
        packet,
        pickup: false,
    };
    let Ok(Opened::New(entry)) = table.open(&key(0), &opening, 0) else { panic!("a connection") };
    entry
}

fn piece(offset: u32, len: u32, is_last: bool) -> Fragment {
    Fragment { sender: Side::Remote, opener: 3, offset, len, is_last }
}

/// One set of datagrams.
struct Rig {
    fragments: Fragments,
    entry: Entry,
}

impl Rig {
    fn new() -> Self {
        Rig { fragments: Fragments::new(8), entry: entry() }
    }

    fn send(&mut self, id: u32, fragment: Fragment, now: u32) -> Result<(), BadFragment> {
        if fragment.offset == 0 {
            return self.fragments.begin(key(id).words(), 5, &fragment, Some(self.entry), [now, TIMEOUT]);
        }
        self.fragments.go_on(key(id).words(), 5, &fragment, now).map(|entry| assert_eq!(entry, Some(self.entry)))
    }
}

#[test]
fn a_datagram_passes_in_any_order_behind_its_first_fragment() {
    let mut rig = Rig::new();
    for order in [[8, 16, 24], [24, 16, 8], [16, 24, 8]] {
        assert_eq!(rig.send(1, piece(8, 8, false), 0), Err(BadFragment::Unknown), "the first one has not come");
        assert_eq!(rig.send(1, piece(0, 8, false), 0), Ok(()));
        for offset in order {
            let len = if offset == 24 { 3 } else { 8 };
            assert_eq!(rig.send(1, piece(offset, len, offset == 24), 1), Ok(()), "{offset} of {order:?}");
        }
        assert_eq!(rig.send(1, piece(24, 3, true), 1), Err(BadFragment::Unknown), "it is complete");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.send(1, piece(0, 64, false), 0), Ok(()));
    let cases = [
        (piece(0, 64, false), BadFragment::Overlap),
        (piece(8, 8, false), BadFragment::Overlap),
        (piece(56, 16, true), BadFragment::Overlap),
        (piece(64, 7, false), BadFragment::Length),
        (piece(64, 0, true), BadFragment::Length),
        (piece(67, 8, true), BadFragment::Length),
        (piece(65_528, 8, true), BadFragment::Beyond),
        (piece(u32::MAX - 7, 8, false), BadFragment::Beyond),
    ];
    for (fragment, bad) in cases {
        assert_eq!(rig.send(1, fragment, 0), Err(bad), "{fragment:?}");
    }
    assert_eq!(rig.send(1, piece(80, 4, true), 0), Ok(()));
    assert_eq!(rig.send(1, piece(88, 8, false), 0), Err(BadFragment::Beyond), "the end is known");
    assert_eq!(rig.send(1, piece(64, 8, true), 0), Err(BadFragment::Beyond), "there is one end");
    assert_eq!(rig.send(1, piece(64, 16, false), TIMEOUT), Err(BadFragment::Unknown), "too late");
}

#[test]
fn a_sender_evicts_its_own_datagrams_only() {
    let mut rig = Rig::new();
    let first = |opener| Fragment { opener, ..piece(0, 64, false) };
    let rest = piece(64, 8, false);
    assert_eq!(rig.send(100, first(7), 0), Ok(()));
    for id in 0..50 {
        assert_eq!(rig.send(id, first(3), id), Ok(()));
    }
    assert_eq!(rig.fragments.evicted, 46);
    assert_eq!(rig.send(100, rest, 60), Ok(()), "that of another sender");
    for id in 0..50 {
        let expected = if id < 46 { Err(BadFragment::Unknown) } else { Ok(()) };
        assert_eq!(rig.send(id, rest, 60), expected, "datagram {id}");
    }
}

#[test]
fn in_a_full_set_the_sender_with_most_datagrams_makes_place() {
    let mut rig = Rig::new();
    let first = |opener| Fragment { opener, ..piece(0, 64, false) };
    let rest = piece(64, 8, false);
    for id in 0..8 {
        let opener = if id % 2 == 0 { 1 } else { 2 };
        assert_eq!(rig.send(id, first(opener), id), Ok(()), "two senders fill the set");
    }
    assert_eq!(rig.send(10, first(3), 10), Ok(()), "a third one");
    assert_eq!(rig.send(11, first(3), 11), Ok(()));
    // 3, 3 and 2: from now on its own oldest makes place.
    assert_eq!(rig.send(12, first(3), 12), Ok(()));
    assert_eq!(rig.fragments.evicted, 3);
    let gone: Vec<u32> = (0..13).filter(|id| rig.send(*id, rest, 20) == Err(BadFragment::Unknown)).collect();
    assert_eq!(gone, [0, 1, 8, 9, 10], "the oldest of each; 8 and 9 were never sent");
}

#[test]
fn a_sender_keeps_its_only_datagram() {
    let mut rig = Rig::new();
    let first = |opener| Fragment { opener, ..piece(0, 64, false) };
    for opener in 0..8 {
        assert_eq!(rig.send(opener.into(), first(opener), 0), Ok(()));
    }
    assert_eq!(rig.send(100, first(9), 1), Err(BadFragment::Unknown), "no place, and nobody has more");
    assert_eq!(rig.send(101, first(3), 1), Ok(()), "that of its own makes place");
    assert_eq!(rig.fragments.evicted, 1);
    for id in (0..8).filter(|id| *id != 3) {
        assert_eq!(rig.send(id, piece(64, 8, false), 2), Ok(()));
    }
}

proptest! {
    /// Whatever others send, a sender has a place for its newest datagram, and each sender that has one
    /// keeps one.
    #[test]
    fn no_sender_takes_the_last_place_of_another(openers in prop::collection::vec(0..8_u16, 1..100)) {
        let mut rig = Rig::new();
        let mut sent = HashMap::new();
        for (id, opener) in (0..).zip(openers) {
            prop_assert_eq!(rig.send(id, Fragment { opener, ..piece(0, 64, false) }, id), Ok(()));
            sent.insert(opener, id);
            let places = rig.fragments.places.iter().flatten();
            let newest = |opener: u16, id: u32| places.clone().any(|p| p.opener == opener && p.key == *key(id).words());
            prop_assert!(newest(opener, id));
            let all = sent.keys().all(|opener| places.clone().any(|place| place.opener == *opener));
            prop_assert!(all, "{:?}", sent);
        }
        let live = rig.fragments.places.iter().flatten().count() as u64;
        prop_assert_eq!(rig.fragments.evicted + live, u64::from(*sent.values().max().expect("some")) + 1);
    }
}

#[test]
fn a_first_fragment_has_the_whole_header() {
    let table = Table::new(Settings::default(), Secret([1; 4]), &[(0, PortShare::new(8))]);
    let opening = Opening {
        direction: Direction::Inbound,
        opener: 3,
        is_trusted: false,
        generation: 9,
        rule: 1,
        packet: &Transport::Other,
        pickup: false,
    };
    let Ok(Opened::New(entry)) = table.open(&key(0), &opening, 0) else { panic!("a connection") };
    let first = piece(0, 16, false);
    for header in [None, Some(17), Some(20)] {
        assert_eq!(table.first_fragment(&key(1), &first, header, Some(entry), 0), Err(BadFragment::Tiny));
    }
    assert_eq!(table.next_fragment(&key(1), &piece(16, 8, true), 0), Err(BadFragment::Unknown));
    assert_eq!(table.first_fragment(&key(1), &first, Some(16), Some(entry), 0), Ok(()));
    let found = table.next_fragment(&key(1), &piece(16, 8, true), 0).expect("the connection");
    assert_eq!(found.map(|found| (found, found.generation())), Some((entry, 9)));
    let counts = table.counts(0).expect("a port");
    assert_eq!(counts.bad_fragments, [3, 1, 0, 0, 0, 0]);
}

/// The first fragment may be there before its connection.
#[test]
fn a_datagram_joins_a_connection_that_opens_later() {
    let table = Table::new(Settings::default(), Secret([1; 4]), &[(0, PortShare::new(8))]);
    assert_eq!(table.first_fragment(&key(1), &piece(0, 16, false), Some(8), None, 0), Ok(()));
    assert_eq!(table.next_fragment(&key(1), &piece(16, 8, false), 0), Ok(None));
    let entry = entry();
    table.join_fragments(&key(1), Side::Remote, entry, 0);
    table.join_fragments(&key(2), Side::Remote, entry, 0);
    assert_eq!(table.next_fragment(&key(1), &piece(24, 8, true), 0), Ok(Some(entry)));
    assert_eq!(table.next_fragment(&key(2), &piece(24, 8, true), 0), Err(BadFragment::Unknown));
}

/// The bytes of a datagram that have come.
#[derive(Default)]
struct Model {
    bytes: Vec<bool>,
    total: Option<u32>,
}

impl Model {
    /// Returns whether a fragment fits, and adds it.
    fn add(&mut self, fragment: &Fragment) -> bool {
        let Fragment { offset, len, is_last, .. } = *fragment;
        let end = offset + len;
        let has_shape = len > 0 && offset % 8 == 0 && (is_last || len % 8 == 0) && end <= 65_535;
        let last =
            self.bytes.iter().rposition(|has| *has).map_or(0, |last| u32::try_from(last).expect("a short one") + 1);
        let has_end = self.total.is_none_or(|total| !is_last && end <= total) && (!is_last || last <= end);
        self.bytes.resize(self.bytes.len().max(end as usize), false);
        let range = offset as usize..end as usize;
        let fits = has_shape && has_end && !self.bytes[range.clone()].contains(&true);
        if fits {
            self.bytes[range].fill(true);
            self.total = self.total.or(is_last.then_some(end));
        }
        fits
    }

    fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| self.bytes[..total as usize].iter().all(|has| *has))
    }

    /// Returns the number of ranges that stand alone.
    fn ranges(&self) -> usize {
        let begins = |at: usize| self.bytes[at] && (at == 0 || !self.bytes[at - 1]);
        (0..self.bytes.len()).filter(|at| begins(*at)).count()
    }
}

proptest! {
    /// No fragment passes that a list of all bytes refuses, and none is refused that it takes, but for
    /// those in a wild order.
    #[test]
    fn agrees_with_a_list_of_bytes(
        steps in prop::collection::vec((0..3_u32, 0..12_u32, 1..5_u32, prop::bool::weighted(0.2), 0..900_u32), 0..60),
    ) {
        let mut rig = Rig::new();
        let mut models: HashMap<u32, (Model, u32)> = HashMap::new();
        let mut now = 0;
        for (id, at, units, is_last, later) in steps {
            now += later;
            models.retain(|_, (_, since)| now - *since < TIMEOUT);
            let fragment = piece(at * 8, units * 8 - u32::from(is_last), is_last);
            let sent = rig.send(id, fragment, now);
            if at == 0 {
                models.entry(id).or_insert((Model::default(), now));
            }
            let Some((model, _)) = models.get_mut(&id) else {
                prop_assert_eq!(sent, Err(BadFragment::Unknown));
                continue;
            };
            if sent == Err(BadFragment::Order) {
                prop_assert!(model.ranges() >= RANGES);
                continue;
            }
            prop_assert_eq!(sent.is_ok(), model.add(&fragment), "{:?}: {:?}", fragment, sent);
            if model.is_whole() {
                models.remove(&id);
            }
        }
    }
}
