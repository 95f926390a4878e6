//! Several hosts with their switches, and routes between them that are late. The truth is where each
//! station last was. Once all is quiet, every host must have found it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::super::Change;
use super::*;

const HOSTS: u8 = 3;

/// A host: its machine, its switch's table, and the routes on their way to it.
struct Host {
    machine: Machine,
    /// Stations that the switch has learned.
    learned: BTreeSet<MacAddr>,
    /// Stations that the switch was told, with their hosts.
    placed: BTreeMap<MacAddr, IpAddr>,
    /// Stations whose place the switch is told later.
    late: BTreeSet<MacAddr>,
    /// Its GoBGP is new: its neighbours have not told it all yet.
    is_new: bool,
    /// Own paths that GoBGP has.
    paths: BTreeMap<RouteKey, Route>,
    /// One queue for each other host, in order.
    inbox: Vec<VecDeque<Told>>,
}

struct World {
    hosts: Vec<Host>,
    now: Duration,
    /// The host of each station.
    truth: BTreeMap<MacAddr, usize>,
}

impl World {
    fn new() -> Self {
        // Moves are many here. Duplicates have their own test.
        let rate = super::super::Rate { per_second: 1000, burst: 1000 };
        Self::with_limits(&Limits { duplicate_moves: 1000, port_routes: rate, port_moves: rate, ..Limits::default() })
    }

    fn with_limits(limits: &Limits) -> Self {
        let host = |number: u8| Host {
            machine: machine(number + 1, limits.clone()),
            learned: BTreeSet::new(),
            placed: BTreeMap::new(),
            late: BTreeSet::new(),
            is_new: false,
            paths: BTreeMap::new(),
            inbox: vec![VecDeque::new(); usize::from(HOSTS)],
        };
        let mut world = Self { hosts: (0..HOSTS).map(host).collect(), now: ms(0), truth: BTreeMap::new() };
        world.execute();
        world
    }

    /// Tells a switch the places of stations.
    fn tell_switch(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        for mac in std::mem::take(&mut host.late) {
            match host.machine.placed(0, mac) {
                Some(placed) => {
                    host.placed.insert(mac, placed.remote);
                    host.learned.remove(&mac);
                }
                None => drop(host.placed.remove(&mac)),
            }
        }
    }

    /// Executes all changes of paths, as the process does.
    fn execute(&mut self) {
        for at in 0..self.hosts.len() {
            let changes = self.hosts[at].machine.take_changes();
            for change in changes {
                match change {
                    Change::Path(key) => {
                        let path = self.hosts[at].machine.path(&key);
                        let told = match &path {
                            Some(route) => Told::Route(route.clone()),
                            None => Told::Withdrawn(key),
                        };
                        let host = &mut self.hosts[at];
                        match path {
                            Some(route) => drop(host.paths.insert(key, route)),
                            None => drop(host.paths.remove(&key)),
                        }
                        for other in (0..self.hosts.len()).filter(|other| *other != at) {
                            self.hosts[other].inbox[at].push_back(told.clone());
                        }
                    }
                    Change::Station { mac, .. } => drop(self.hosts[at].late.insert(mac)),
                    Change::Remote { .. } => {}
                }
            }
        }
    }

    /// A station sends a frame at a host.
    fn speak(&mut self, number: u8, at: usize) {
        let station = mac(number);
        self.truth.insert(station, at);
        let now = self.now;
        let host = &mut self.hosts[at];
        let seen = if host.placed.contains_key(&station) { Seen::Claimed } else { Seen::Learned };
        if seen == Seen::Learned {
            host.learned.insert(station);
        }
        host.machine.station_seen(now, "lan", 1, station, "vm1", seen);
        self.execute();
    }

    fn deliver(&mut self, to: usize, from: usize) {
        let now = self.now;
        if let Some(told) = self.hosts[to].inbox[from].pop_front() {
            self.hosts[to].machine.told(now, told);
            self.execute();
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for host in &mut self.hosts {
            host.machine.tick(self.now);
        }
        self.execute();
    }

    /// A host's GoBGP ends, and its neighbours notice. A new one lists its table.
    fn restart_gobgp(&mut self, at: usize) {
        let now = self.now;
        let paths: Vec<RouteKey> = std::mem::take(&mut self.hosts[at].paths).into_keys().collect();
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            self.hosts[other].inbox[at].extend(paths.iter().map(|key| Told::Withdrawn(*key)));
            self.hosts[at].inbox[other].clear();
        }
        let machine = &mut self.hosts[at].machine;
        machine.gobgp_lost(now);
        machine.begin_routes();
        machine.end_routes(now);
        self.hosts[at].is_new = true;
        self.execute();
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            let routes: Vec<Told> = self.hosts[other].paths.values().cloned().map(Told::Route).collect();
            self.hosts[at].inbox[other].extend(routes);
        }
    }

    /// Delivers all routes, and lets all times pass, until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..20 {
            for to in 0..self.hosts.len() {
                for from in 0..self.hosts.len() {
                    while !self.hosts[to].inbox[from].is_empty() {
                        self.deliver(to, from);
                    }
                }
            }
            for at in 0..self.hosts.len() {
                if std::mem::take(&mut self.hosts[at].is_new) {
                    self.hosts[at].machine.sweep_routes(self.now);
                    self.execute();
                }
                self.tell_switch(at);
            }
            self.wait(ms(100));
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (station, truth) in &self.truth {
            for (at, host) in self.hosts.iter().enumerate() {
                let number = u8::try_from(at).expect("few hosts") + 1;
                let is_announced = announced(&host.machine, number, *station).is_some();
                prop_assert_eq!(is_announced, at == *truth, "{} at host {}", station, at);
                let place = host.placed.get(station).copied();
                let there = super::host(u8::try_from(*truth).expect("few hosts") + 1);
                prop_assert_eq!(place, (at != *truth).then_some(there), "{} at host {}", station, at);
                prop_assert_eq!(host.machine.placed(0, *station).map(|placed| placed.remote), place);
            }
        }
        for host in &self.hosts {
            let paths: BTreeSet<RouteKey> = host.machine.paths().collect();
            prop_assert_eq!(paths, host.paths.keys().copied().collect());
            for (key, path) in &host.paths {
                prop_assert_eq!(host.machine.path(key), Some(path.clone()));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Event {
    Speak(u8, usize),
    Deliver(usize, usize),
    Wait(u64),
    TellSwitch(usize),
    Restart(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let host = || 0..usize::from(HOSTS);
    prop_oneof![
        4 => (1..4u8, host()).prop_map(|(station, at)| Event::Speak(station, at)),
        8 => (host(), host()).prop_map(|(to, from)| Event::Deliver(to, from)),
        4 => (0..60u64).prop_map(Event::Wait),
        4 => host().prop_map(Event::TellSwitch),
        1 => host().prop_map(Event::Restart),
    ]
}

proptest! {
    #[test]
    fn all_hosts_find_all_stations(events in proptest::collection::vec(event(), 1..120)) {
        let mut world = World::new();
        for event in events {
            match event {
                Event::Speak(station, at) => world.speak(station, at),
                Event::Deliver(to, from) => world.deliver(to, from),
                Event::Wait(time) => world.wait(ms(time)),
                Event::TellSwitch(at) => world.tell_switch(at),
                Event::Restart(at) => world.restart_gobgp(at),
            }
        }
        // Hosts that a station has left by a quick move do not know it yet: its next frames tell them.
        world.settle();
        for _ in 0..2 {
            for (station, at) in world.truth.clone() {
                let [.., number] = station.0;
                world.speak(number, at);
            }
            world.settle();
        }
        world.check()?;
    }
}

#[derive(Clone, Debug)]
enum Attack {
    Victim,
    Attacker,
    Deliver(usize, usize),
    Wait(u64),
    TellSwitch(usize),
    /// The attacker has taken the address everywhere when the victim speaks again.
    Round,
}

fn attack() -> impl Strategy<Value = Attack> {
    let host = || 0..usize::from(HOSTS);
    prop_oneof![
        4 => Just(Attack::Victim),
        4 => Just(Attack::Attacker),
        8 => (host(), host()).prop_map(|(to, from)| Attack::Deliver(to, from)),
        6 => (0..60u64).prop_map(Attack::Wait),
        4 => host().prop_map(Attack::TellSwitch),
        1 => Just(Attack::Round),
    ]
}

proptest! {
    /// A station at a checked port of host 0, and a guest of host 1 that sends from its address: however long
    /// that goes on, the next frame of the station brings it back on all hosts.
    #[test]
    fn a_checked_station_is_not_taken_away(events in proptest::collection::vec(attack(), 1..200)) {
        let rate = super::super::Rate { per_second: 1000, burst: 1000 };
        let limits = Limits { duplicate_moves: 2, port_routes: rate, port_moves: rate, ..Limits::default() };
        let mut world = World::with_limits(&limits);
        world.hosts[0].machine.port_is_checked("vm1", true);
        for event in events {
            match event {
                Attack::Victim => world.speak(1, 0),
                Attack::Attacker => world.speak(1, 1),
                Attack::Deliver(to, from) => world.deliver(to, from),
                Attack::Wait(time) => world.wait(ms(time)),
                Attack::TellSwitch(at) => world.tell_switch(at),
                Attack::Round => {
                    for at in [1, 0] {
                        world.settle();
                        world.speak(1, at);
                    }
                }
            }
        }
        world.settle();
        for _ in 0..3 {
            world.speak(1, 0);
            world.settle();
        }
        world.check()?;
    }
}
