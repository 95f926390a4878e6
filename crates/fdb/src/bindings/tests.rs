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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    File,
    Owner { port: u16 },
    Heard { port: u16, seen: u32, until: Option<u32>, asked: u8 },
}

#[derive(Default)]
struct Model {
    all: BTreeMap<IpKey, (u8, Known)>,
    now: u32,
    challenges: BTreeMap<u16, (u32, u32)>,
    /// Claims of the same station elsewhere than its owner says: MAC, port, lease, time.
    deferred: BTreeMap<IpKey, (u8, u16, Option<u32>, u32)>,
    elsewhere: u64,
}

impl Model {
    fn heard_at(&self, port: u16) -> usize {
        self.all.values().filter(|(_, known)| matches!(known, Known::Heard { port: at, .. } if *at == port)).count()
    }

    /// Two places in six are for each port's own: one each, and three common ones.
    fn has_place(&self, port: u16) -> bool {
        let extra: usize = (0..3).map(|port| self.heard_at(port).saturating_sub(1)).sum();
        port < 3 && (self.heard_at(port) < 1 || extra < LIMIT - 3)
    }

    fn claim(&mut self, ip: IpKey, mac: u8, port: u16, lease: Option<u32>) -> BindOutcome {
        let until = lease.map(|lease| self.now + lease);
        let now = self.now;
        let has_place = self.has_place(port);
        match self.all.get_mut(&ip) {
            Some((has, Known::File)) if *has == mac => BindOutcome::Known,
            Some((has, Known::Owner { port: at })) if *has == mac && *at == port => BindOutcome::Known,
            Some((has, Known::Heard { port: at, seen, until: end, asked })) if *has == mac && *at == port => {
                (*seen, *asked) = (now, 0);
                *end = until.or(*end);
                BindOutcome::Known
            }
            Some((has, known)) => {
                if matches!(known, Known::Owner { .. }) && *has == mac {
                    self.deferred.insert(ip, (mac, port, until, now));
                }
                if let Known::Heard { asked, .. } = known
                    && *asked == 0
                {
                    let count = self.challenges.entry(port).or_default();
                    *count = if count.0 == now { (now, count.1 + 1) } else { (now, 1) };
                    if port < 3 && count.1 <= MOST_CHALLENGES {
                        *asked = 1;
                    }
                }
                self.elsewhere += 1;
                BindOutcome::Elsewhere
            }
            None if !has_place => BindOutcome::Full,
            None => {
                self.all.insert(ip, (mac, Known::Heard { port, seen: now, until, asked: 0 }));
                BindOutcome::Bound
            }
        }
    }

    /// Binds an address that its owner has given up, if the same station has claimed it here.
    fn bind_deferred(&mut self, ip: IpKey, mac: u8) {
        let Some((_, port, until, seen)) = self.deferred.get(&ip).copied().filter(|claim| claim.0 == mac) else {
            return;
        };
        self.deferred.remove(&ip);
        if self.now - seen < DEFERRED_S && self.has_place(port) {
            self.all.insert(ip, (mac, Known::Heard { port, seen, until, asked: 0 }));
        }
    }

    /// Lets a second pass. Returns the addresses whose stations are asked.
    fn second(&mut self) -> Vec<IpKey> {
        self.now += 1;
        let now = self.now;
        let mut questions = Vec::new();
        self.all.retain(|key, (_, known)| {
            let Known::Heard { seen, until, asked, .. } = known else { return true };
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
        model.all.insert(key(7), (1, Known::File));
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
                    let is_lease = |(has, known): &(u8, Known)| *has == n && matches!(known, Known::Heard { until: Some(_), .. });
                    if model.all.get(&key(ip)).is_some_and(is_lease) {
                        model.all.remove(&key(ip));
                    }
                }
                Act::Own { ip, mac: n, port } => {
                    let done = bindings.set_owned(key(ip), mac(n), PortIndex(port));
                    let expected = match model.all.get(&key(ip)) {
                        Some((has, _)) if *has != n => {
                            model.elsewhere += 1;
                            false
                        }
                        Some((_, Known::File)) => true,
                        _ => {
                            model.all.insert(key(ip), (n, Known::Owner { port }));
                            true
                        }
                    };
                    prop_assert_eq!(done, expected);
                }
                Act::Disown { ip, mac: n } => {
                    bindings.remove_owned(key(ip), mac(n));
                    let is_owned = |(has, known): &(u8, Known)| *has == n && matches!(known, Known::Owner { .. });
                    if model.all.get(&key(ip)).is_some_and(is_owned) {
                        model.all.remove(&key(ip));
                        model.bind_deferred(key(ip), n);
                    }
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
                    model.all.retain(|_, (_, known)| !matches!(known, Known::Owner { .. }));
                    model.challenges.clear();
                    model.deferred.clear();
                    told = model.all.iter().filter(|(_, (_, known))| matches!(known, Known::Heard { .. }))
                        .map(|(key, (n, _))| (*key, mac(*n))).collect();
                    since = bindings.follow();
                    leases = (bindings.lease_changes(), in_order(bindings.told()));
                }
            }
            let entries = in_order(bindings.entries());
            let expected: Vec<_> = model.all.iter().map(|(key, (n, known))| match *known {
                Known::File => Binding { key: *key, mac: mac(*n), port: None, source: BindingSource::Static, seen: 0, asked: 0 },
                Known::Owner { port } => {
                    let port = Some(PortIndex(port));
                    Binding { key: *key, mac: mac(*n), port, source: BindingSource::Owner, seen: 0, asked: 0 }
                }
                Known::Heard { port, seen, until, asked } => {
                    let source = until.map_or(BindingSource::Checked, |until| BindingSource::Leased { until });
                    Binding { key: *key, mac: mac(*n), port: Some(PortIndex(port)), source, seen, asked }
                }
            }).collect();
            prop_assert_eq!(&entries, &expected);
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
            let heard = model.all.iter().filter(|(_, (_, known))| matches!(known, Known::Heard { .. }));
            prop_assert_eq!(&told, &heard.map(|(key, (n, _))| (*key, mac(*n))).collect::<BTreeMap<_, _>>());
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
