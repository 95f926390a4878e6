//! Groups beside nftables: the same rules and the same packets, and each packet passes at both or at
//! none. Each run has other rules and packets. Its seed is printed, and `SEED=` repeats it.
//!
//! ```text
//!   guest's side                           other stations
//!   tap ──── namespace that routes: nftables, nf_conntrack ──── tap
//!   guest ── switch: a patch, groups at the guest's port ── guest
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `policy` | rules in both languages |
//! | `sequence`, `packet` | sequences of packets, and their bytes |
//! | `kernel` | the namespace |
//! | `exchange` | packets through both, compared |
//! | `known` | sequences on which both once differed |
//! | `scan` | a port scanner, and a browser |
//! | `guests` | Linux guests with groups |
//! | `dhcp` | a member of a group by a DHCP server and its client |

mod dhcp;
mod exchange;
mod guests;
mod kernel;
mod known;
pub(crate) mod packet;
mod policy;
mod scan;
mod sequence;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use straightline_report::random::Random;

use self::exchange::{Exchanged, Paths, Pause};
use self::kernel::Kernel;
use self::policy::Policy;
use self::sequence::{IN, MEANT, Meant, OUT, Sequence};
use crate::cases::ends::{Embedded, End};
use crate::conntrack;
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::seed::seed;
use crate::switch::Switch;

/// Sequences that are on their way together.
const WINDOW: u32 = 500;

/// Windows of a run, and of a long one. Each has a policy of its own.
const WINDOWS: u32 = 2;
const LONG: u32 = 20;

/// Number of the first known sequence. No other sequence has its addresses.
const KNOWN: u32 = 60_000;

/// Sequences in the report of a failure.
const SHOWN: usize = 20;

/// Timeouts that never end, in seconds.
const PATIENT: &[(&str, u32)] = &[
    ("tcp-syn-sent", 600),
    ("tcp-syn-recv", 600),
    ("tcp-fin-wait", 600),
    ("tcp-close-wait", 600),
    ("tcp-last-ack", 600),
    ("tcp-time-wait", 600),
    ("tcp-close", 600),
    ("udp", 600),
    ("icmp", 600),
    ("icmpv6", 600),
];

/// Timeouts of which half end in a [`PAUSE`]. That of a SYN does not: the kernel has a fixed one if both
/// sides send a SYN.
const SHORT: &[(&str, u32)] = &[
    ("tcp-syn-sent", 600),
    ("tcp-syn-recv", 3),
    ("tcp-fin-wait", 600),
    ("tcp-close-wait", 3),
    ("tcp-last-ack", 600),
    ("tcp-time-wait", 3),
    ("tcp-close", 3),
    ("udp", 3),
    ("icmp", 600),
    ("icmpv6", 3),
];

/// The pause of a run with timeouts. Our clock counts whole seconds.
const PAUSE: Duration = Duration::from_secs(6);

/// The longest time of all packets before the pause, and of all after it: no timeout may have come.
const LONGEST: Duration = Duration::from_millis(1500);

/// Packets of each sequence before the pause.
const STEPS_BEFORE_PAUSE: usize = 3;

pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("firewall_nftables", &[Need::Nftables], agrees),
        Test::new("firewall_nftables_timeouts", &[Need::Nftables], timeouts_agree),
        Test::new("firewall_conntrack_cost", &[Need::Nftables], |_| conntrack::check()),
        Test::new("firewall_scan", &[Need::Nmap], scan::scan),
        Test::new("firewall_dhcp", &[Need::Nmap, Need::Nat], dhcp::lease),
        Test::new("firewall_guests", &[Need::Uml(2)], guests::exchange),
    ])
}

fn agrees(lab: &Lab) -> Result<()> {
    let mut run = Run::begin(lab)?;
    let known = known::sequences();
    let mut random = Random::new(run.seed);
    for window in 0..if lab.machine.long { LONG } else { WINDOWS } {
        let policy = Policy::random(&mut random);
        let mut sequences = run.sequences(&mut random);
        if window == 0 {
            let numbers = KNOWN..;
            sequences.extend(known.iter().cloned().zip(numbers).map(|(known, number)| Sequence { number, ..known }));
        }
        run.window(lab, &policy, &sequences, PATIENT, None)?;
    }
    run.end(&MEANT)
}

fn timeouts_agree(lab: &Lab) -> Result<()> {
    let mut run = Run::begin(lab)?;
    let mut random = Random::new(run.seed);
    // On a machine that stands still now and then, a timeout may come without the pause.
    proc::until(&format!("no packets before the pause, or after it, take more than {LONGEST:?}"), || {
        let policy = Policy::random(&mut random);
        let sequences = run.sequences(&mut random);
        let pause = Pause { after: STEPS_BEFORE_PAUSE, time: PAUSE, longest: LONGEST };
        Ok(run.window(lab, &policy, &sequences, SHORT, Some(pause))?.then_some(()))
    })?;
    run.end(&[])
}

/// The results of a run.
struct Run {
    seed: u64,
    began: Instant,
    sequences: u32,
    packets: usize,
    passed: usize,
    meant: BTreeMap<Meant, usize>,
    /// Sequences that differ, as text.
    wrong: Vec<String>,
    /// The first of them, with its policy.
    first: String,
}

impl Run {
    fn begin(lab: &Lab) -> Result<Self> {
        let seed = seed(lab.machine.long)?;
        say!("  sequences of seed {seed}");
        // The time is the subject: it is only printed.
        Ok(Run {
            seed,
            began: Instant::now(),
            sequences: 0,
            packets: 0,
            passed: 0,
            meant: BTreeMap::new(),
            wrong: Vec::new(),
            first: String::new(),
        })
    }

    fn sequences(&mut self, random: &mut Random) -> Vec<Sequence> {
        let first = self.sequences;
        self.sequences += WINDOW;
        (first..self.sequences).map(|number| Sequence::random(number, random)).collect()
    }

    /// Sends sequences through both, and compares. Returns false if they took too long.
    fn window(
        &mut self,
        lab: &Lab,
        policy: &Policy,
        sequences: &[Sequence],
        timeouts: &[(&str, u32)],
        pause: Option<Pause>,
    ) -> Result<bool> {
        let kernel = Kernel::start(policy, timeouts)?;
        let mut switch = Switch::spawn_with(lab, &[], &configuration(lab, policy, timeouts)?)?;
        switch.wait_ready()?;
        let mut ours: Vec<Box<dyn End>> = Vec::new();
        for name in NAMES {
            ours.push(Box::new(Embedded::connect(&lab.socket(name))?));
        }
        let mut paths = Paths::new([kernel.ends()?, ours]);
        let Some(Exchanged { passed, is_late }) = paths.exchange(sequences, pause)? else {
            switch.stop()?;
            return Ok(false);
        };
        let mut wrong = Vec::new();
        for (sequence, passed) in sequences.iter().zip(&passed) {
            let compared = exchange::compare(sequence, passed);
            self.packets += passed.len();
            self.passed += passed.iter().filter(|both| both[0]).count();
            if let Some(meant) = compared.meant {
                *self.meant.entry(meant).or_default() += 1;
            }
            wrong.extend(compared.report);
        }
        // A timeout may have come at one of both only.
        if is_late && !wrong.is_empty() {
            switch.stop()?;
            return Ok(false);
        }
        if let Some(first) = wrong.first()
            && self.wrong.is_empty()
        {
            self.first = format!("{first}{}", configuration(lab, policy, timeouts)?);
        }
        self.wrong.extend(wrong);
        switch.stop()?;
        Ok(true)
    }

    /// Says how much was compared. Each of these differences must have been seen.
    fn end(self, expected: &[Meant]) -> Result<()> {
        let Run { seed, sequences, packets, passed, meant, wrong, first, .. } = &self;
        // The time is the subject: the run says how long it has taken.
        let seconds = self.began.elapsed().as_secs_f64();
        say!(
            "  {sequences} sequences of {packets} packets in {seconds:.1} s: {passed} passed at both; meant differences: {meant:?}"
        );
        ensure!(
            wrong.is_empty(),
            "seed {seed}: {} sequences differ. {first}\n{}",
            wrong.len(),
            wrong[..wrong.len().min(SHOWN)].concat()
        );
        ensure!(
            *passed > packets / 10 && passed < packets,
            "{passed} of {packets} packets passed: that is a weak test"
        );
        for meant in expected {
            ensure!(self.meant.contains_key(meant), "no packet shows the difference {meant:?}: delete it");
        }
        Ok(())
    }
}

/// The ports of our switch, by side.
const NAMES: [&str; 2] = ["vm", "net"];

fn configuration(lab: &Lab, policy: &Policy, timeouts: &[(&str, u32)]) -> Result<String> {
    let mut text = Switch::port_sections(lab, &[])?;
    for name in NAMES {
        write!(text, "\n[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{}\"\n", lab.socket(name).display())?;
        if name == NAMES[IN] {
            text += "groups = [\"oracle\"]\nconnections = 10000\n";
        }
    }
    let timeouts: Vec<String> = timeouts.iter().map(|(name, seconds)| format!("{name} = \"{seconds}s\"")).collect();
    let [outbound, inbound] = [IN, OUT].map(|side| policy.of_group(side));
    write!(
        text,
        "\n[patch.wire]\nports = {NAMES:?}\n\n[group.oracle]\nin = {inbound:#?}\nout = {outbound:#?}\n\n[firewall]\n\
         timeouts = {{ {} }}\n",
        timeouts.join(", ")
    )?;
    Ok(text)
}
