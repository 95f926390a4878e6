//! Detection and announcement, beside a reference that knows the whole history.

use proptest::prelude::*;

use super::*;
use crate::testing::{config, ip};

const ONE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const TWO: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn own() -> IpAddr {
    ip("192.0.2.1")
}

fn conflicts() -> Conflicts {
    Conflicts::new(&config().addresses)
}

/// Returns the messages of a second about the IPv4 address.
fn tick(conflicts: &Conflicts, now: u32) -> Vec<Notice> {
    let mut sent = Vec::new();
    let send = |notice| {
        sent.extend(
            Some(notice)
                .filter(|notice| matches!(notice, Notice::Probe(ip) | Notice::Announcement(ip) if ip.is_ipv4())),
        );
        true
    };
    conflicts.tick(now, send, |_, _| {});
    sent
}

/// Returns the messages of these seconds, each with its second.
fn run(conflicts: &Conflicts, seconds: std::ops::Range<u32>) -> Vec<(u32, Notice)> {
    seconds.flat_map(|now| tick(conflicts, now).into_iter().map(move |notice| (now, notice))).collect()
}

#[test]
fn an_address_is_probed_and_announced_when_the_link_comes_up() {
    let conflicts = conflicts();
    let probe = Notice::Probe(own());
    let announcement = Notice::Announcement(own());
    assert_eq!(run(&conflicts, 0..5), []);
    conflicts.begin();
    let expected = [(5, probe), (6, probe), (7, probe), (9, announcement), (11, announcement)];
    assert_eq!(run(&conflicts, 5..100), expected);
    conflicts.begin();
    let again = expected.map(|(now, notice)| (now + 95, notice));
    assert_eq!(run(&conflicts, 100..200), again);
}

#[test]
fn a_message_that_cannot_be_sent_is_sent_later() {
    let conflicts = conflicts();
    conflicts.begin();
    conflicts.tick(0, |_| false, |_, _| {});
    assert_eq!(run(&conflicts, 1..3), [(1, Notice::Probe(own())), (2, Notice::Probe(own()))]);
}

#[test]
fn a_station_that_had_the_address_first_keeps_its_neighbours() {
    let conflicts = conflicts();
    conflicts.begin();
    run(&conflicts, 0..1);
    assert!(!conflicts.claimed(own(), ONE, 0), "the answer to a probe");
    // It answers all probes.
    let mut sent = Vec::new();
    for now in 1..30 {
        let notices = tick(&conflicts, now);
        assert!(notices.is_empty() || !conflicts.claimed(own(), ONE, now));
        sent.extend(notices.into_iter().map(|notice| (now, notice)));
    }
    assert_eq!(sent, [1, 2, 4, 14, 24].map(|now| (now, Notice::Probe(own()))));
    assert_eq!(conflicts.other(own()), Some(ONE));
    assert_eq!(
        conflicts.status()[0],
        AddressStatus { ip: own(), conflict: Some(AddressConflict { mac: ONE, age_s: 5 }), claims: 6 }
    );
    assert_eq!(conflicts.status()[1], AddressStatus { ip: ip("2001:db8::1"), conflict: None, claims: 0 });
    // It is gone.
    assert_eq!(run(&conflicts, 30..200), [34, 44].map(|now| (now, Notice::Probe(own()))));
    assert_eq!(conflicts.other(own()), None);
}

#[test]
fn an_address_is_defended_once_in_ten_seconds() {
    let conflicts = conflicts();
    conflicts.begin();
    run(&conflicts, 0..20);
    let mut defended = Vec::new();
    for now in 20..60 {
        tick(&conflicts, now);
        for n in 0..1000_u32 {
            let mac = MacAddr([2, 0, 0, 0, u8::try_from(now).unwrap(), n.to_be_bytes()[3]]);
            defended.extend(conflicts.claimed(own(), mac, now).then_some(now));
        }
    }
    assert_eq!(defended, [20, 32, 42, 52], "our probes at 30, 40 and 50 may have answers");
}

#[test]
fn each_conflict_is_told_once_and_names_the_first_station() {
    let conflicts = conflicts();
    let mut told = Vec::new();
    for now in 0..100 {
        conflicts.tick(now, |_| true, |ip, other| told.push((now, ip, other)));
        if now < 40 {
            for mac in [ONE, TWO] {
                conflicts.claimed(own(), mac, now);
            }
        }
    }
    assert_eq!(told, [(1, own(), Some(ONE)), (69, own(), None)]);
    assert!(!conflicts.claimed(ip("192.0.2.77"), ONE, 100), "no address of ours");
}

/// All that has happened to an address.
#[derive(Debug, Default)]
struct History {
    ups: Vec<u32>,
    claims: Vec<(u32, MacAddr)>,
    probes: Vec<u32>,
    defences: Vec<u32>,
}

impl History {
    /// Returns the station that has the address at this time, and since when.
    fn holder(&self, now: u32) -> Option<(MacAddr, u32)> {
        let mut holder: Option<(MacAddr, u32, u32)> = None;
        for &(at, mac) in &self.claims {
            holder = holder.filter(|&(_, _, last)| at < last + 30);
            match &mut holder {
                Some((first, _, last)) if *first == mac => *last = at,
                Some(_) => {}
                None => holder = Some((mac, at, at)),
            }
        }
        holder.filter(|&(_, _, last)| now < last + 30).map(|(mac, since, _)| (mac, since))
    }

    /// Returns the message of this second by the words of the RFCs.
    fn due(&self, now: u32) -> Option<Notice> {
        let up = *self.ups.last()?;
        let had_other = self.holder_at(up + 4);
        match now - up {
            0..=2 => Some(Notice::Probe(own())),
            3 => None,
            4 | 6 if !had_other => Some(Notice::Announcement(own())),
            4 => Some(Notice::Probe(own())),
            5 if !had_other => None,
            _ => {
                let end = if had_other { up } else { up + 6 };
                let (_, since) = self.holder(now)?;
                let last = self.probes.last().copied().unwrap_or(0).max(end).max(since);
                (now >= last + 10).then_some(Notice::Probe(own()))
            }
        }
    }

    /// Returns whether another station had the address when the second `now` began.
    fn holder_at(&self, now: u32) -> bool {
        let claims = self.claims.iter().copied().filter(|&(at, _)| at < now).collect();
        History { claims, ..History::default() }.holder(now).is_some()
    }

    /// Returns whether a claim at this time is to be answered.
    fn defends(&self, now: u32) -> bool {
        let is_early = self.ups.last().is_none_or(|up| now < up + 4);
        let is_near = |last: Option<&u32>, time| last.is_some_and(|last| now < last + time);
        !(is_early || is_near(self.probes.last(), 2) || is_near(self.defences.last(), 10))
    }
}

proptest! {
    /// Seconds in which the link comes up, or stations claim the address.
    #[test]
    fn messages_are_those_of_the_reference(
        seconds in prop::collection::vec((0_u8..30, prop::collection::vec(any::<bool>(), 0..3), 0_u8..6), 1..200),
    ) {
        let conflicts = conflicts();
        let mut history = History::default();
        for (now, (up, claims, quiet)) in (0..).zip(&seconds) {
            if *up == 0 || now == 3 {
                conflicts.begin();
                history.ups.push(now);
            }
            let expected = history.due(now);
            prop_assert_eq!(tick(&conflicts, now), Vec::from_iter(expected), "{} {:?}", now, history);
            if let Some(Notice::Probe(_)) = expected {
                history.probes.push(now);
            }
            prop_assert_eq!(conflicts.other(own()), history.holder(now).map(|(mac, _)| mac));
            for &is_one in claims.iter().filter(|_| *quiet == 0) {
                let mac = if is_one { ONE } else { TWO };
                history.claims.push((now, mac));
                let expected = history.defends(now);
                prop_assert_eq!(conflicts.claimed(own(), mac, now), expected, "{} {:?}", now, history);
                if expected {
                    history.defences.push(now);
                }
            }
        }
    }
}
