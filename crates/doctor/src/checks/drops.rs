//! Packets that ports drop: by which reason, since the start and in the time of the look.

use std::collections::BTreeMap;

use straightline_api::{Drops, Link, Port};
use straightline_packet::Reason;

use super::{Check, CheckOutcome};
use crate::facts::{Facts, SwitchFacts};

/// The least number of packets in the time of the look that counts as a loss now.
const FEW_NOW: u64 = 10;

/// The least number of packets since the start that counts as a loss of a small share.
const FEW: u64 = 100;

/// The least number of packets since the start that counts as the loss of nearly everything.
const FEW_OF_FEW: u64 = 10;

/// The share of the packets above which a loss is worth a finding.
const SHARE: f64 = 0.001;

/// The share of the packets above which nothing works.
const MOST: f64 = 0.5;

/// Reasons of a link that is down or a queue that is off. They say something only while the link
/// is up: the check `links` has the rest.
const LINK: &[&str] = &["link-down", "set-down", "ring-disabled"];

/// Reasons for which nothing needs to be done, unless they take most of the packets.
const USUAL: &[&str] = &["same-port", "link-local", "not-joined", "not-ours", "flow-drop", "unsolicited"];

pub(super) const DROPS: Check = Check {
    name: "drops",
    passes: "no port drops a share of its packets that is worth a look",
    absent: "the switch has no port",
    run: drops,
};

/// A loss: the packets of a port that were dropped for one reason.
struct Loss<'f> {
    port: &'f Port,
    reason: &'f str,
    /// Packets since the start.
    all: Counts,
    /// Packets in the time of the look.
    now: Counts,
}

/// Packets that were dropped, and those that were dropped or passed in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    dropped: u64,
    of: u64,
}

impl Counts {
    fn since(self, before: Counts) -> Counts {
        let dropped = self.dropped.saturating_sub(before.dropped);
        Counts { dropped, of: self.of.saturating_sub(before.of).max(dropped) }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share is compared with a threshold")]
    fn share(self) -> f64 {
        self.dropped as f64 / self.of.max(1) as f64
    }
}

/// Returns whether packets of a reason are counted at the port that they went to.
fn is_of_destination(reason: &str) -> bool {
    Reason::ALL.iter().find(|known| known.name() == reason).is_some_and(|known| known.is_of_destination())
}

/// Returns the packets that a port dropped for a reason, and those of the same direction.
fn counts(port: &Port, reason: &str) -> Counts {
    let dropped = port.drops.get(reason).copied().unwrap_or(0);
    let same_direction = |other: &str| is_of_destination(other) == is_of_destination(reason);
    let all: u64 = port.drops.iter().filter(|(other, _)| same_direction(other)).map(|(_, n)| n).sum();
    let of = if is_of_destination(reason) {
        // Only delivered packets are counted there.
        port.queues.iter().map(|queue| queue.tx.packets).sum::<u64>() + all
    } else {
        // Most packets are counted before they are dropped.
        port.queues.iter().map(|queue| queue.rx.packets).sum::<u64>().max(all)
    };
    Counts { dropped, of }
}

impl Loss<'_> {
    /// The loss is a mistake in the settings of a tunnel, whatever other tunnels carry.
    fn is_of_a_tunnel(&self) -> bool {
        self.reason.starts_with("tunnel-")
    }

    fn goes_on(&self) -> bool {
        self.now.dropped >= FEW_NOW
    }

    /// Nearly all packets are lost, and no packets of the look say that this is over.
    fn is_total(&self) -> bool {
        let is_over = self.now.of > self.now.dropped && self.now.share() < MOST;
        self.goes_on() && self.now.share() >= MOST
            || !is_over && self.all.dropped >= FEW_OF_FEW && self.all.share() >= MOST
    }

    fn is_worth_a_look(&self) -> bool {
        let is_large = |counts: Counts, few| counts.dropped >= few && counts.share() >= SHARE;
        match self.reason {
            // The check `rates` has it.
            "rate" if self.port.rate_in.is_some() || self.port.rate_out.is_some() => false,
            // The check `ring-size` has it.
            "no-buffer" if self.port.ring_size > 0 => false,
            reason if LINK.contains(&reason) => self.port.link == Link::Up && is_large(self.now, FEW_NOW),
            reason if USUAL.contains(&reason) => self.all.dropped >= FEW && self.is_total(),
            _ if self.is_of_a_tunnel() => self.all.dropped >= FEW_OF_FEW,
            _ => is_large(self.now, FEW_NOW) || is_large(self.all, FEW) || self.is_total(),
        }
    }

    fn report(&self, remedies: &Drops, outcome: &mut CheckOutcome) {
        let Counts { dropped, of } = self.all;
        let symptom = format!("port {}: {dropped} of {of} packets dropped as {}", self.port.name, self.reason);
        let found = remedies.drops.iter().find(|drop| drop.reason == self.reason);
        let meaning = found.map_or("", |drop| drop.meaning.trim_end_matches('.'));
        let detail = if meaning.is_empty() {
            format!("{} of {} in the time of this look", self.now.dropped, self.now.of)
        } else {
            format!("{meaning}; {} of {} in the time of this look", self.now.dropped, self.now.of)
        };
        let remedy = found.map_or("straightline drops", |drop| drop.remedy.as_str()).replace("PORT", &self.port.name);
        let fix = format!("{remedy} To see them: straightline capture {} --dropped={}", self.port.name, self.reason);
        if self.is_total() && !USUAL.contains(&self.reason) {
            outcome.fail(symptom, detail, fix)
        } else {
            outcome.warn(symptom, detail, fix)
        }
    }
}

fn drops(facts: &Facts, outcome: &mut CheckOutcome) {
    let ports = facts.running_ports(outcome);
    let Ok(switch) = &facts.switch else { return };
    let mut losses: Vec<_> = ports.iter().flat_map(|port| losses(&port.port, switch)).collect();
    if !ports.is_empty() {
        outcome.pass();
    }
    losses.sort_by_key(|loss| (!loss.is_total(), std::cmp::Reverse((loss.now.dropped, loss.all.dropped))));
    for loss in losses {
        loss.report(&switch.drops, outcome);
    }
}

/// Returns the losses of a port that are worth a finding.
fn losses<'f>(port: &'f Port, switch: &'f SwitchFacts) -> Vec<Loss<'f>> {
    let nothing = Port { name: port.name.clone(), drops: BTreeMap::new(), ..Port::default() };
    let before = switch.ports_before.iter().find(|before| before.name == port.name).unwrap_or(&nothing);
    let of_reason = |reason: &'f String| {
        let all = counts(port, reason);
        Loss { port, reason: reason.as_str(), all, now: all.since(counts(before, reason)) }
    };
    port.drops.keys().map(of_reason).filter(Loss::is_worth_a_look).collect()
}
