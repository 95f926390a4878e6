//! Bindings against a reference model: a map with one entry for each address, and the rules of the
//! module in the order in which it says them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const AGEING: u32 = 20;
const LIMIT: usize = 6;
const PORTS: [PortIndex; 3] = [PortIndex(0), PortIndex(1), PortIndex(2)];

fn key(n: u8) -> IpKey {
    let ip: IpAddr = if n.is_multiple_of(3) {
        std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()
    } else {
        [10, 0, 0, n].into()
    };
    let vlan = VlanId::new(1 + u16::from(n % 2)).unwrap();
    IpKey { vlan, ip }
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

#[derive(Clone, Debug)]
enum Act {
    Claim {
        ip: u8,
        mac: u8,
        port: u16,
        lease: Option<u32>,
    },
    Release {
        ip: u8,
        mac: u8,
    },
    Own {
        ip: u8,
        mac: u8,
        port: u16,
    },
    Disown {
        ip: u8,
        mac: u8,
    },
    /// Seconds pass; these stations answer when they are asked.
    Pass {
        seconds: u32,
        answer: Vec<u8>,
    },
    Reload,
}

fn acts() -> impl Strategy<Value = Act> {
    let ip = || 0..8_u8;
    let mac = || 0..4_u8;
    let lease = prop::option::of(1..60_u32);
    prop_oneof![
        6 => (ip(), mac(), 0..4_u16, lease).prop_map(|(ip, mac, port, lease)| Act::Claim { ip, mac, port, lease }),
        1 => (ip(), mac()).prop_map(|(ip, mac)| Act::Release { ip, mac }),
        2 => (ip(), mac(), 0..3_u16).prop_map(|(ip, mac, port)| Act::Own { ip, mac, port }),
        2 => (ip(), mac()).prop_map(|(ip, mac)| Act::Disown { ip, mac }),
        4 => (1..30_u32, prop::collection::vec(mac(), 0..3)).prop_map(|(seconds, answer)| Act::Pass { seconds, answer }),
        1 => Just(Act::Reload),
    ]
}

/// A binding that was heard.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    mac: u8,
    port: u16,
    seen: u32,
    until: Option<u32>,
    asked: u8,
}

#[derive(Default)]
struct Model {
    file: BTreeMap<IpKey, u8>,
    /// The MAC address and the port of each binding of owners.
    owners: BTreeMap<IpKey, (u8, u16)>,
    heard: BTreeMap<IpKey, Known>,
    now: u32,
    challenges: BTreeMap<u16, (u32, u32)>,
    /// Leases of the same station elsewhere than its owner says: MAC, port, end, time.
    deferred: BTreeMap<IpKey, (u8, u16, Option<u32>, u32)>,
    elsewhere: u64,
    overruled: u64,
}

impl Model {
    fn heard_at(&self, port: u16) -> usize {
        self.heard.values().filter(|known| known.port == port).count()
    }

    /// Two places in six are for each port's own: one each, and three common ones.
    fn has_place(&self, port: u16) -> bool {
        let extra: usize = (0..3).map(|port| self.heard_at(port).saturating_sub(1)).sum();
        port < 3 && (self.heard_at(port) < 1 || extra < LIMIT - 3)
    }

    fn refuse(&mut self) -> BindOutcome {
        self.elsewhere += 1;
        BindOutcome::Elsewhere
    }

    fn bind(&mut self, ip: IpKey, known: Known) -> BindOutcome {
        if !self.has_place(known.port) {
            return BindOutcome::Full;
        }
        self.overruled += u64::from(self.owners.get(&ip).is_some_and(|(has, _)| *has != known.mac));
        self.heard.insert(ip, known);
        BindOutcome::Bound
    }

    fn claim(&mut self, ip: IpKey, mac: u8, port: u16, lease: Option<u32>) -> BindOutcome {
        let now = self.now;
        let until = lease.map(|lease| now + lease);
        let new = Known { mac, port, seen: now, until, asked: 0 };
        if let Some(has) = self.file.get(&ip) {
            return if *has == mac { BindOutcome::Known } else { self.refuse() };
        }
        match self.heard.get_mut(&ip) {
            Some(known) if known.mac == mac && known.port == port => {
                *known = Known { until: until.or(known.until), ..new };
                return BindOutcome::Known;
            }
            // A server gives an address anew.
            Some(known) if lease.is_some() && known.until.is_some() => {
                self.heard.remove(&ip);
                return self.bind(ip, new);
            }
            Some(known) => {
                if known.asked == 0 {
                    let count = self.challenges.entry(port).or_default();
                    *count = if count.0 == now { (now, count.1 + 1) } else { (now, 1) };
                    if port < 3 && count.1 <= MOST_CHALLENGES {
                        known.asked = 1;
                    }
                }
                return self.refuse();
            }
            None => {}
        }
        match self.owners.get(&ip) {
            Some(owned) if *owned == (mac, port) => BindOutcome::Known,
            Some((has, _)) if lease.is_some() => {
                if *has == mac {
                    self.deferred.insert(ip, (mac, port, until, now));
                }
                self.refuse()
            }
            _ => self.bind(ip, new),
        }
    }

    fn own(&mut self, ip: IpKey, mac: u8, port: u16) -> bool {
        let other = self.file.get(&ip).copied().or(self.owners.get(&ip).map(|(has, _)| *has));
        if other.is_some_and(|other| other != mac) {
            self.elsewhere += 1;
            return false;
        }
        if self.file.contains_key(&ip) {
            return true;
        }
        self.owners.insert(ip, (mac, port));
        match self.heard.get_mut(&ip) {
            Some(known) if known.mac != mac => {
                self.elsewhere += 1;
                false
            }
            Some(known) => {
                if known.port != port {
                    known.asked = known.asked.max(1);
                }
                true
            }
            None => true,
        }
    }

    /// An owner gives up its binding. A lease of the same station here counts then.
    fn disown(&mut self, ip: IpKey, mac: u8) {
        if self.owners.get(&ip).is_none_or(|(has, _)| *has != mac) {
            return;
        }
        self.owners.remove(&ip);
        let Some((_, port, until, seen)) = self.deferred.get(&ip).copied().filter(|claim| claim.0 == mac) else {
            return;
        };
        self.deferred.remove(&ip);
        if self.now - seen < DEFERRED_S && !self.heard.contains_key(&ip) {
            self.bind(ip, Known { mac, port, seen, until, asked: 0 });
        }
    }

    /// Lets a second pass. Returns the addresses whose stations are asked.
    fn second(&mut self) -> Vec<IpKey> {
        self.now += 1;
        let now = self.now;
        let mut questions = Vec::new();
        self.heard.retain(|key, Known { seen, until, asked, .. }| {
            if until.is_some_and(|until| now >= until) {
                return false;
            }
            let is_old = until.is_none() && now - *seen >= AGEING;
            if *asked == 0 && !is_old {
                return true;
            }
            if *asked > MOST_QUESTIONS {
                return false;
            }
            *asked = (*asked).max(1) + 1;
            questions.push(*key);
            true
        });
        questions
    }

    /// Returns all bindings that count, by address.
    fn entries(&self) -> Vec<Binding> {
        let fixed = |key: IpKey, n: u8, port: Option<u16>, source| {
            let port = port.map(PortIndex);
            (key, Binding { key, mac: mac(n), port, source, seen: 0, asked: 0 })
        };
        let heard = |(key, known): (&IpKey, &Known)| {
            let Known { mac: n, port, seen, until, asked } = *known;
            let source = until.map_or(BindingSource::Checked, |until| BindingSource::Leased { until });
            (*key, Binding { key: *key, mac: mac(n), port: Some(PortIndex(port)), source, seen, asked })
        };
        let owners = self.owners.iter();
        let mut all: BTreeMap<IpKey, Binding> =
            owners.map(|(key, (n, port))| fixed(*key, *n, Some(*port), BindingSource::Owner)).collect();
        all.extend(self.heard.iter().map(heard));
        all.extend(self.file.iter().map(|(key, n)| fixed(*key, *n, None, BindingSource::Static)));
        all.into_values().collect()
    }
}

/// Lets a second pass. Returns the bindings whose stations are asked.
fn second(bindings: &Bindings, now: u32) -> Vec<Binding> {
    let mut asked = Vec::new();
    while bindings.tick(now, |binding| asked.push(*binding)) {}
    asked
}

fn in_order(mut bindings: Vec<Binding>) -> Vec<Binding> {
    bindings.sort_by_key(|binding| binding.key);
    bindings
}

fn fresh() -> Bindings {
    let bindings = Bindings::new(LIMIT, AGEING, &PORTS, [(key(7), mac(1))]);
    bindings.follow();
    bindings
}

proptest! {
    #[test]
    fn agree_with_a_map(acts in prop::collection::vec(acts(), 1..80)) {
        let mut bindings = fresh();
        let mut model = Model { now: 100, ..Model::default() };
        model.file.insert(key(7), 1);
        let mut told: BTreeMap<IpKey, MacAddr> = BTreeMap::new();
        let mut since = 0;
        let mut leases = (0, in_order(bindings.told()));
        for act in acts {
            match act {
                Act::Claim { ip, mac: n, port, lease } => {
                    let until = lease.map(|lease| model.now + lease);
                    let claim = Claim { key: key(ip), mac: mac(n), port: PortIndex(port), until, only_known: false };
                    prop_assert_eq!(bindings.claim(claim, model.now), model.claim(key(ip), n, port, lease));
                }
                Act::Release { ip, mac: n } => {
                    bindings.release(key(ip), mac(n));
                    if model.heard.get(&key(ip)).is_some_and(|known| known.mac == n && known.until.is_some()) {
                        model.heard.remove(&key(ip));
                    }
                }
                Act::Own { ip, mac: n, port } => {
                    let done = bindings.set_owned(key(ip), mac(n), PortIndex(port));
                    prop_assert_eq!(done, model.own(key(ip), n, port));
                }
                Act::Disown { ip, mac: n } => {
                    bindings.remove_owned(key(ip), mac(n));
                    model.disown(key(ip), n);
                }
                Act::Pass { seconds, answer } => {
                    for _ in 0..seconds {
                        let mut questions = model.second();
                        let mut asked = second(&bindings, model.now);
                        asked.sort_by_key(|binding| binding.key);
                        questions.sort_unstable();
                        prop_assert_eq!(asked.iter().map(|binding| binding.key).collect::<Vec<_>>(), questions);
                        for binding in asked {
                            let Some(port) = binding.port else { continue };
                            let n = binding.mac.0[5];
                            if answer.contains(&n) {
                                let claim = Claim { key: binding.key, mac: binding.mac, port, until: None, only_known: false };
                                prop_assert_eq!(bindings.claim(claim, model.now), BindOutcome::Known);
                                prop_assert_eq!(model.claim(binding.key, n, port.0, None), BindOutcome::Known);
                            }
                        }
                    }
                }
                Act::Reload => {
                    let next = fresh();
                    next.take_over(&bindings);
                    bindings = next;
                    // Owners send theirs again.
                    model.owners.clear();
                    model.challenges.clear();
                    model.deferred.clear();
                    told = model.heard.iter().map(|(key, known)| (*key, mac(known.mac))).collect();
                    since = bindings.follow();
                    leases = (bindings.lease_changes(), in_order(bindings.told()));
                }
            }
            let entries = in_order(bindings.entries());
            prop_assert_eq!(&entries, &model.entries());
            for entry in &entries {
                prop_assert_eq!(bindings.find(entry.key), Some(*entry));
            }
            prop_assert_eq!(bindings.counts().overruled, model.overruled);
            let now_told = in_order(bindings.told());
            let is_told = |binding: &Binding| matches!(binding.source, BindingSource::Static | BindingSource::Leased { .. });
            let expected: Vec<_> = entries.iter().copied().filter(is_told).collect();
            prop_assert_eq!(&now_told, &expected);
            let places = |all: &[Binding]| all.iter().map(|binding| (binding.key, binding.mac, binding.port)).collect::<Vec<_>>();
            if bindings.lease_changes() == leases.0 {
                prop_assert_eq!(places(&leases.1), places(&now_told), "a change is counted");
            }
            leases = (bindings.lease_changes(), now_told);
            prop_assert_eq!(bindings.counts().elsewhere, model.elsewhere);
            for port in PORTS {
                prop_assert_eq!(bindings.share(port).used as usize, model.heard_at(port.0));
            }
            let (changes, count) = bindings.changes(since).expect("few changes");
            since = count;
            for BindingChange { binding, is_bound } in changes {
                let before = if is_bound { told.insert(binding.key, binding.mac) } else { told.remove(&binding.key) };
                prop_assert_eq!(before.is_none(), is_bound);
            }
            prop_assert_eq!(&told, &model.heard.iter().map(|(key, known)| (*key, mac(known.mac))).collect::<BTreeMap<_, _>>());
        }
    }
}

#[test]
fn a_guest_that_claims_what_another_has_does_not_get_it_while_that_one_answers() {
    let bindings = fresh();
    let claim =
        |n: u8, port: u16| Claim { key: key(1), mac: mac(n), port: PortIndex(port), until: None, only_known: false };
    assert_eq!(bindings.claim(claim(1, 0), 100), BindOutcome::Bound);
    for now in 101..160 {
        assert_eq!(bindings.claim(claim(2, 1), now), BindOutcome::Elsewhere);
        for binding in second(&bindings, now) {
            assert_eq!(binding.mac, mac(1));
            assert_eq!(bindings.claim(claim(1, 0), now), BindOutcome::Known);
        }
    }
    // It goes away, and the other one gets the address within the questions' time.
    let mut now = 160;
    while bindings.claim(claim(2, 1), now) != BindOutcome::Bound {
        second(&bindings, now);
        now += 1;
        assert!(now < 170);
    }
}

#[test]
fn a_round_of_questions_looks_at_a_part_of_the_table_in_each_call() {
    let bindings = Bindings::new(4096, AGEING, &[PortIndex(0)], []);
    let key = |n: u32| IpKey { vlan: VlanId::DEFAULT, ip: std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into() };
    let claim = |n: u32| Claim { key: key(n), mac: mac(1), port: PortIndex(0), until: Some(200), only_known: false };
    assert!((0..1000).all(|n| bindings.claim(claim(n), 100) == BindOutcome::Bound));
    let ask = |_: &Binding| panic!("a lease is not asked for");
    let calls = (0..9).position(|_| !bindings.tick(150, ask)).expect("an end");
    assert_eq!((calls, bindings.counts().bound), (3, 1000));
    // Those that come while a round goes on wait for the next one, and all others end in this one.
    for n in 0..4 {
        assert_eq!(bindings.tick(200, ask), n < 3);
        bindings.claim(Claim { until: Some(900), ..claim(2000 + n) }, 200);
    }
    assert_eq!(bindings.counts().bound, 4);
    assert!(!bindings.tick(200, ask), "once a second");
}

#[test]
fn an_unchecked_station_keeps_what_it_has_and_gets_nothing() {
    let bindings = fresh();
    let claim =
        |n: u8, port: u16| Claim { key: key(1), mac: mac(n), port: PortIndex(port), until: None, only_known: true };
    assert_eq!(bindings.claim(claim(1, 0), 100), BindOutcome::Unknown);
    let lease = Claim { until: Some(10_000), only_known: false, ..claim(1, 0) };
    assert_eq!(bindings.claim(lease, 100), BindOutcome::Bound);
    assert_eq!(bindings.claim(claim(2, 0), 100), BindOutcome::Unknown);
    assert_eq!(bindings.claim(claim(1, 1), 100), BindOutcome::Unknown);
    assert_eq!((bindings.claim(claim(1, 0), 200), bindings.counts().elsewhere), (BindOutcome::Known, 0));
    let known = bindings.find(key(1)).expect("a binding");
    assert_eq!(known.source, BindingSource::Leased { until: 10_000 });
}

#[test]
fn a_binding_of_an_owner_is_small() {
    let size = size_of::<(u64, Fixed)>() + 1;
    assert!(size <= 17, "{size} bytes");
    for n in 0..=255 {
        let key = IpKey { vlan: VlanId::new(4094 - u16::from(n)).unwrap(), ip: [n, 255, 0, n].into() };
        assert_eq!(packed(key).map(unpacked), Some(key));
    }
}

/// The switch has compared the claim of a checked port with the addresses of that port. So it counts before
/// the word of another host, whichever came first.
#[test]
fn a_checked_port_overrules_an_owner() {
    let claim =
        |n: u8, port: u16| Claim { key: key(1), mac: mac(n), port: PortIndex(port), until: None, only_known: false };
    let bound = |bindings: &Bindings| bindings.find(key(1)).map(|known| (known.mac, known.source));
    let owned = Some((mac(2), BindingSource::Owner));
    let checked = Some((mac(1), BindingSource::Checked));
    let bindings = fresh();
    assert!(bindings.set_owned(key(1), mac(2), PortIndex(2)));
    assert_eq!(bindings.claim(Claim { only_known: true, ..claim(1, 0) }, 100), BindOutcome::Unknown);
    // A lease is no check: the station with this address may be anywhere.
    assert_eq!(bindings.claim(Claim { until: Some(900), ..claim(1, 0) }, 100), BindOutcome::Elsewhere);
    assert_eq!(bound(&bindings), owned);
    assert_eq!(bindings.claim(claim(1, 0), 100), BindOutcome::Bound);
    assert_eq!((bound(&bindings), bindings.counts().overruled), (checked, 1));
    // The owner says it again, and changes its mind.
    assert!(!bindings.set_owned(key(1), mac(2), PortIndex(2)));
    assert_eq!(bound(&bindings), checked);
    bindings.remove_owned(key(1), mac(2));
    assert!(!bindings.set_owned(key(1), mac(3), PortIndex(2)));
    // When the station here has gone, the owner's counts.
    let mut now = 100 + AGEING;
    while bound(&bindings) == checked {
        second(&bindings, now);
        now += 1;
        assert!(now < 200);
    }
    assert_eq!(bound(&bindings), Some((mac(3), BindingSource::Owner)));
}

/// A station that has gone to another host, by its owner's word, keeps its binding here only if it answers.
#[test]
fn a_station_that_has_gone_elsewhere_is_asked() {
    for answers in [false, true] {
        let bindings = fresh();
        let claim = Claim { key: key(1), mac: mac(1), port: PortIndex(0), until: None, only_known: false };
        assert_eq!(bindings.claim(claim, 100), BindOutcome::Bound);
        assert!(bindings.set_owned(key(1), mac(1), PortIndex(2)));
        for now in 101..110 {
            for asked in second(&bindings, now) {
                assert_eq!((asked.mac, asked.port), (mac(1), Some(PortIndex(0))));
                if answers {
                    assert_eq!(bindings.claim(claim, now), BindOutcome::Known);
                }
            }
        }
        let port = bindings.find(key(1)).and_then(|known| known.port);
        assert_eq!(port, Some(PortIndex(if answers { 0 } else { 2 })));
    }
}

/// A server gives an address anew, although it is leased to another station by what was heard before.
#[test]
fn a_newer_lease_counts() {
    let bindings = fresh();
    let lease =
        |n: u8, port: u16, until| Claim { key: key(1), mac: mac(n), port: PortIndex(port), until, only_known: false };
    assert_eq!(bindings.claim(lease(1, 0, Some(10_000)), 100), BindOutcome::Bound);
    assert_eq!(bindings.claim(lease(2, 1, Some(5000)), 101), BindOutcome::Bound);
    let known = bindings.find(key(1)).expect("a binding");
    assert_eq!((known.mac, known.source), (mac(2), BindingSource::Leased { until: 5000 }));
    assert_eq!(PORTS.map(|port| bindings.share(port).used), [0, 1, 0]);
    // A checked station keeps its address while it answers: its port may have this one only.
    let bindings = fresh();
    assert_eq!(bindings.claim(lease(1, 0, None), 100), BindOutcome::Bound);
    assert_eq!(bindings.claim(lease(2, 1, Some(5000)), 101), BindOutcome::Elsewhere);
}
