//! The table with a simulated network and clock.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::testing::{config, ip};

const TRUE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const FALSE: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xbb]);

/// A table with one next hop, and the station that has its address.
struct Net {
    table: Neighbours,
    hop: NextHop,
    now: u32,
    /// The address of the station, if it is there.
    station: Option<MacAddr>,
    questions: Vec<Question>,
}

impl Net {
    fn new(station: Option<MacAddr>) -> Self {
        let table = Neighbours::new(&config());
        let hop = table.hop(ip("192.0.2.2")).expect("a free entry");
        Net { table, hop, now: 0, station, questions: Vec::new() }
    }

    fn mac(&self) -> Option<MacAddr> {
        self.table.mac(&self.hop)
    }

    fn state(&self) -> NeighbourState {
        self.table.status()[0].state
    }

    /// Answers from `mac`.
    fn answer(&self, mac: MacAddr) -> Option<Kept> {
        self.table.answered(self.hop.ip(), Some(mac), mac)
    }

    /// Lets seconds pass. The station answers questions to it and to all.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.ask();
            self.now += 1;
            self.answer_all();
        }
    }

    fn ask(&mut self) {
        let questions = &mut self.questions;
        questions.clear();
        self.table.tick(self.now, |question| {
            questions.push(question);
            true
        });
    }

    fn answer_all(&self) {
        for question in &self.questions {
            if let Some(mac) = self.station.filter(|&mac| question.to.is_none_or(|to| to == mac)) {
                self.answer(mac);
            }
        }
    }
}

#[test]
fn a_next_hop_is_asked_and_refreshed() {
    let mut net = Net::new(Some(TRUE));
    assert_eq!((net.mac(), net.state()), (None, NeighbourState::Asked));
    net.ask();
    assert_eq!(net.questions, [Question { ip: ip("192.0.2.2"), to: None }]);
    net.answer_all();
    assert_eq!((net.mac(), net.state()), (Some(TRUE), NeighbourState::Reachable));
    let mut asked_at = Vec::new();
    for now in 1..100 {
        net.now = now;
        net.ask();
        if let [question] = net.questions[..] {
            assert_eq!(question.to, Some(TRUE));
            asked_at.push(now);
        }
        net.answer_all();
        assert_eq!(net.mac(), Some(TRUE));
    }
    assert_eq!(asked_at, [30, 60, 90]);
    assert_eq!(net.table.status()[0].age_s, Some(9));
}

#[test]
fn silence_is_noticed_and_ends() {
    let mut net = Net::new(Some(TRUE));
    net.pass(2);
    net.station = None;
    net.pass(33);
    assert_eq!((net.mac(), net.state()), (Some(TRUE), NeighbourState::Reachable), "all are still asked");
    net.pass(5);
    assert_eq!((net.mac(), net.state()), (None, NeighbourState::Unanswered));
    net.pass(100);
    net.station = Some(NEW);
    net.pass(RETRY_S + 1);
    assert_eq!(net.mac(), Some(NEW));
}

#[test]
fn nobody_who_never_answered_is_named() {
    let mut net = Net::new(None);
    net.pass(3);
    assert_eq!(net.state(), NeighbourState::Asked);
    net.pass(1);
    assert_eq!(
        net.table.status()[0],
        NeighbourStatus { ip: ip("192.0.2.2"), mac: None, state: NeighbourState::Unanswered, age_s: None }
    );
}

#[test]
fn another_address_is_taken_once_the_old_one_is_silent() {
    let mut net = Net::new(Some(TRUE));
    net.pass(2);
    net.station = Some(NEW);
    net.table.announced(net.hop.ip(), NEW);
    assert!(net.answer(NEW).is_none() && net.mac() == Some(TRUE), "nobody has asked");
    net.pass(u32::from(TRIES));
    assert_eq!(net.mac(), Some(TRUE), "the old one is asked three times");
    net.pass(1);
    assert_eq!(net.mac(), Some(NEW));
    net.answer(TRUE);
    assert_eq!(net.mac(), Some(NEW), "a late answer counts as an announcement");
    net.pass(4);
    assert_eq!(net.mac(), Some(NEW));
}

#[test]
fn an_answer_without_an_address_is_that_of_the_known_station() {
    let mut net = Net::new(Some(TRUE));
    net.ask();
    let hop = net.hop.ip();
    let table = &net.table;
    assert!(table.answered(hop, None, TRUE).is_none() && net.mac().is_none(), "no address is known");
    net.answer_all();
    (net.now, net.station) = (30, None);
    net.ask();
    net.table.answered(hop, None, FALSE);
    net.table.answered(hop, None, TRUE);
    assert_eq!((net.mac(), net.table.status()[0].age_s), (Some(TRUE), Some(0)));
}

#[test]
fn no_station_has_a_group_address() {
    let mut net = Net::new(None);
    net.ask();
    for mac in [MacAddr::BROADCAST, MacAddr::default(), MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        assert!(net.answer(mac).is_none());
    }
    assert_eq!(net.mac(), None);
}

#[test]
fn one_packet_is_kept_for_three_seconds() {
    let mut net = Net::new(None);
    net.ask();
    assert!(!net.table.keep(&net.hop, &[9; MOST_KEPT + 1]), "too long");
    assert!(!net.table.has_kept(&net.hop));
    assert!(net.table.keep(&net.hop, &[9; MOST_KEPT]) && net.table.has_kept(&net.hop));
    assert!(!net.table.keep(&net.hop, &[8; 60]), "one is kept already");
    let kept = net.answer(TRUE).expect("the kept packet");
    assert_eq!((&kept.bytes()[..6], &kept.bytes()[6..]), (&TRUE.0[..], &[9; MOST_KEPT - 6][..]));
    assert!(!net.table.has_kept(&net.hop));
    assert!(!net.table.keep(&net.hop, &[9; 60]), "the address is known");

    let table = Neighbours::new(&config());
    let hop = table.hop(ip("2001:db8::9")).expect("a free entry");
    let given_up = |now| table.tick(now, |_| true);
    assert_eq!(given_up(5), 0);
    assert!(table.keep(&hop, &[1; 60]));
    assert_eq!((given_up(6), given_up(7), given_up(8), given_up(9)), (0, 0, 1, 0));
    assert!(!table.has_kept(&hop) && table.keep(&hop, &[1; 60]));
    drop(hop);
    assert_eq!((given_up(10), table.status().len()), (1, 0), "nobody holds the next hop any more");
}

#[test]
fn traffic_to_nobody_does_not_hide_the_answer() {
    let mut net = Net::new(None);
    net.pass(10);
    net.ask();
    net.table.keep(&net.hop, &[1; 60]);
    assert!(net.answer(TRUE).is_some(), "the question before counts");
    assert_eq!(net.mac(), Some(TRUE));
}

#[test]
fn a_packet_or_an_announcement_hurries_the_next_question() {
    for hurry in [true, false] {
        let mut net = Net::new(None);
        net.pass(5);
        // The last three questions had no answer; the next is due in 3 seconds.
        net.ask();
        net.now += 1;
        if hurry {
            net.table.announced(net.hop.ip(), TRUE)
        } else {
            assert!(net.table.keep(&net.hop, &[1; 60]))
        }
        net.ask();
        assert_eq!(net.questions.len(), 1);
        net.ask();
        assert_eq!(net.questions.len(), 0, "one in a second");
    }
}

#[test]
fn a_next_hop_can_be_asked_at_once_but_once_a_second() {
    let mut net = Net::new(Some(TRUE));
    let soon = |net: &Net| {
        let mut asked = None;
        net.table.ask_soon(&net.hop, |question| asked.replace(question).is_none());
        asked
    };
    assert_eq!(soon(&net), Some(Question { ip: ip("192.0.2.2"), to: None }));
    assert_eq!(soon(&net), None);
    net.ask();
    assert_eq!(net.questions, [], "it was asked in this second");
    net.answer(TRUE);
    assert_eq!(net.mac(), Some(TRUE));
    net.now += 10;
    net.ask();
    assert_eq!(soon(&net), None, "its address is known");
}

#[test]
fn fixed_addresses_never_change() {
    let mut config = config();
    config.neighbours = vec![(ip("192.0.2.2"), TRUE)];
    let table = Neighbours::new(&config);
    let hop = table.hop(ip("192.0.2.2")).expect("an entry");
    for now in 0..100 {
        table.tick(now, |_| panic!("nobody is asked"));
        table.announced(hop.ip(), FALSE);
        table.answered(hop.ip(), Some(FALSE), FALSE);
        assert!(table.mac(&hop) == Some(TRUE) && !table.keep(&hop, &[1; 60]));
    }
    drop(hop);
    table.tick(100, |_| true);
    assert_eq!(
        table.status(),
        [NeighbourStatus { ip: ip("192.0.2.2"), mac: Some(TRUE), state: NeighbourState::Static, age_s: None }]
    );
}

#[test]
fn the_table_has_a_limit_and_forgets_what_nobody_holds() {
    let table = Neighbours::new(&config());
    let hop = |n: u32| table.hop(Ipv4Addr::from_bits(n).into());
    let mut held: Vec<_> = (0..600).map_while(hop).collect();
    assert_eq!((held.len(), table.status().len()), (MOST_HOPS, MOST_HOPS));
    assert!(hop(0).is_some() && hop(1000).is_none());
    held.truncate(10);
    assert!(hop(1000).is_some());
    table.tick(0, |_| true);
    assert_eq!(table.status().len(), 10);
}

#[test]
fn every_next_hop_has_its_turn_at_the_limit() {
    let table = Neighbours::new(&config());
    let held: Vec<_> = (0..256).map_while(|n| table.hop(Ipv4Addr::from_bits(n).into())).collect();
    let mut asked = BTreeSet::new();
    for now in 0..4 {
        let mut questions = 0;
        table.tick(now, |question| {
            asked.insert(question.ip);
            questions += 1;
            true
        });
        assert_eq!(questions, MOST_QUESTIONS);
    }
    assert_eq!(asked.len(), held.len());
    // A question that cannot be sent is asked later.
    table.tick(10, |_| false);
    let mut first = None;
    table.tick(11, |question| {
        first.get_or_insert(question.ip);
        true
    });
    assert!(first.is_some());
}

#[test]
fn a_reload_may_replace_all_next_hops() {
    let table = Neighbours::new(&config());
    let hops = |first: u32| -> Vec<_> {
        (first..first + 256).map_while(|n| table.hop(Ipv4Addr::from_bits(n).into())).collect()
    };
    let mut tunnels = hops(0);
    for reload in 1..5 {
        // New tunnels are made before the old ones go.
        let new = hops(1000 * reload);
        assert_eq!((tunnels.len(), new.len()), (256, 256));
        tunnels = new;
        table.tick(reload, |_| true);
        assert_eq!(table.status().len(), tunnels.len());
    }
}

/// An event of the simulation.
#[derive(Clone, Debug)]
enum Event {
    /// Seconds pass, and the station answers.
    Pass(u32),
    /// Somebody announces an address that is not his.
    Announce,
    /// Somebody answers in the station's place, before it.
    Answer { named: bool },
    /// A packet comes for the next hop.
    Keep,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0_u32..40).prop_map(Event::Pass),
        Just(Event::Announce),
        any::<bool>().prop_map(|named| Event::Answer { named }),
        Just(Event::Keep),
    ]
}

proptest! {
    /// Nobody takes the place of a station that answers.
    #[test]
    fn a_station_that_answers_keeps_its_place(events in prop::collection::vec(event(), 0..60)) {
        let mut net = Net::new(Some(TRUE));
        net.pass(1);
        let attack = |net: &Net, named: bool| {
            net.table.answered(net.hop.ip(), named.then_some(FALSE), FALSE);
        };
        for event in events {
            match event {
                Event::Pass(seconds) => for _ in 0..seconds {
                    net.ask();
                    prop_assert!(net.questions.len() <= 1);
                    attack(&net, true);
                    net.answer_all();
                    net.now += 1;
                },
                Event::Announce => net.table.announced(net.hop.ip(), FALSE),
                Event::Answer { named } => attack(&net, named),
                Event::Keep => prop_assert!(!net.table.keep(&net.hop, &[1; 60])),
            }
            prop_assert_eq!(net.mac(), Some(TRUE));
        }
    }

    /// Whatever has happened before, the table finds a station that answers, within the time of a
    /// refresh and two rounds of questions.
    #[test]
    fn a_station_is_found_whatever_has_happened(
        events in prop::collection::vec((event(), prop::option::of(Just(NEW))), 0..40),
    ) {
        let mut net = Net::new(None);
        for (event, station) in events {
            net.station = station;
            match event {
                Event::Pass(seconds) => net.pass(seconds),
                Event::Announce => net.table.announced(net.hop.ip(), FALSE),
                Event::Answer { named } => {
                    net.table.answered(net.hop.ip(), named.then_some(FALSE), FALSE);
                }
                Event::Keep => {
                    net.table.keep(&net.hop, &[1; 60]);
                }
            }
        }
        net.station = Some(TRUE);
        net.pass(REFRESH_S + 2 * u32::from(TRIES) + RETRY_S + 1);
        prop_assert_eq!(net.mac(), Some(TRUE));
    }
}
