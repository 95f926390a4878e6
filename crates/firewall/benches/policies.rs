//! The time until many ports have their policies, and the cost of a decision.
//!
//! `cargo bench -p straightline-firewall --bench policies`: 1000 ports with 10 groups, each of 100
//! members. Each group names the members of another one. Then a member joins one group, and all ports
//! ask again. Decisions are those of a batch of flows from random places of the rules, beside 100 and
//! 10 000 rules. Without `--bench` it does one round.
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use straightline_classify::{Keys, MAX_KEYS, lookup_level};
use straightline_firewall::{
    Definitions, Direction, Flow, Group, Policies, Policy, PortGroups, Prefix, RuleIndex, Verdicts,
};
use straightline_report::random::Random;
use straightline_report::statistics::{Pairing, median, ratio};

const PORTS: usize = 1000;
const GROUPS: usize = 10;
const RULES: [u32; 2] = [100, 10_000];
const ROUNDS: usize = 40;
/// Batches of a round.
const BATCHES: usize = 400;

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    let (all, change): (Vec<_>, Vec<_>) = (0..rounds).map(|_| in_force()).unzip();
    println!("| ports | groups | all policies | after one member more |");
    println!("|---|---|---|---|");
    println!("| {PORTS} | {GROUPS} | {:.2?} | {:.2?} |", middle(all), middle(change));

    let mut random = Random::new(34);
    let decisions = RULES.map(|rules| Decisions::new(rules, &mut random));
    let mut times = [Vec::new(), Vec::new()];
    for round in (0..).take(rounds) {
        for (times, decisions) in times.iter_mut().zip(&decisions) {
            times.push((round, decisions.time()));
        }
    }
    println!("| rules | ns for a packet |");
    println!("|---|---|");
    for (times, rules) in times.iter().zip(RULES) {
        let values: Vec<_> = times.iter().map(|(_, time)| *time).collect();
        println!("| {rules} | {:.1} |", median(&values).unwrap_or(f64::NAN));
    }
    if let Some(ratio) = ratio(&times[1], &times[0], Pairing::ByRound) {
        let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.2}, {:.2}]", all.low, all.high));
        println!("{} beside {} rules: {:.2}{interval}", RULES[1], RULES[0], ratio.value);
    }
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the time until all ports have their policies, and that after one more member of a group.
fn in_force() -> (Duration, Duration) {
    let name = |group: usize| format!("g{}", group % GROUPS);
    let groups = (0..GROUPS).map(|group| {
        let inbound = [&*format!("tcp 80,443,8000-8099 from group:{}", name(group + 1)), "tcp 22 from 10.0.0.0/8"];
        Group::parse(&name(group), &inbound, &["udp 53 to 10.0.0.2", "tcp 443 to any"]).expect("valid rules")
    });
    let mut definitions = Definitions::new(groups, []);
    let mut random = Random::new(33);
    for port in 0..PORTS {
        // Addresses that do not lie side by side, so that each is a range of its own.
        let address = Ipv4Addr::from_bits(0x0a00_0000 | u32::try_from(random.below(1 << 24)).expect("24 bits"));
        definitions.members.entry(name(port)).or_default().push(Prefix::exact(address.into()));
    }
    let ports: Vec<_> = (0..PORTS)
        .map(|port| PortGroups { groups: vec![name(port)], source_check: true, ..PortGroups::default() })
        .collect();
    let begin = Instant::now();
    let mut policies = Policies::new(definitions, lookup_level());
    let get_all = |policies: &mut Policies| ports.iter().map(|port| policies.get(port)).collect::<Result<Vec<_>, _>>();
    let first = get_all(&mut policies).expect("known names");
    let all = begin.elapsed();
    let mut members = policies.definitions().members[&name(3)].clone();
    members.push(Prefix::exact(Ipv4Addr::new(192, 0, 2, 1).into()));
    let begin = Instant::now();
    assert!(policies.set_members(&name(3), members));
    let second = get_all(&mut policies).expect("known names");
    let change = begin.elapsed();
    let changed = first.iter().zip(&second).filter(|(first, second)| !std::sync::Arc::ptr_eq(first, second)).count();
    assert_eq!(changed, PORTS / GROUPS);
    (all, change)
}

/// A policy, and batches of flows that its rules allow.
struct Decisions {
    policy: Policy,
    batches: Vec<Keys>,
}

impl Decisions {
    fn new(rules: u32, random: &mut Random) -> Self {
        let place = |rule: u32| Ipv4Addr::from_bits(0x0a00_0000 | rule << 8);
        let texts: Vec<_> =
            (0..rules).map(|rule| format!("tcp {} from {}/26", 1000 + rule % 50, place(rule))).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let group = Group::parse("own", &texts, &[]).expect("valid rules");
        let port = PortGroups { groups: vec!["own".to_owned()], ..PortGroups::default() };
        let policy = Policy::compile(&port, &Definitions::new([group], []), lookup_level()).expect("known names");
        let batches = (0..16).map(|_| {
            let flow = |_| {
                let rule = u32::try_from(random.below(rules.into())).expect("below 2^32");
                let text = format!("tcp from {} port {}", place(rule), 1000 + rule % 50);
                text.parse::<Flow>().expect("a flow").key()
            };
            let keys: Vec<_> = (0..MAX_KEYS).map(flow).collect();
            keys.iter().collect()
        });
        Self { policy, batches: batches.collect() }
    }

    /// Returns the nanoseconds of a decision.
    #[inline(never)]
    fn time(&self) -> f64 {
        let mut verdicts: Verdicts = [RuleIndex::default(); MAX_KEYS];
        let begin = Instant::now();
        for keys in self.batches.iter().cycle().take(BATCHES) {
            self.policy.decide(Direction::In, keys, &mut verdicts);
            black_box(&verdicts);
        }
        let time = begin.elapsed();
        assert!(self.policy.rule(verdicts[0]).allows());
        time.as_secs_f64() * 1e9 / (BATCHES * MAX_KEYS) as f64
    }
}
