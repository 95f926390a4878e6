//! Results of a run, one line for each kind.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use straightline_report::results::{Sample, series};
use straightline_report::statistics::{Interval, Pairing, median, ratio};

use super::{ALL_OF_MANY, Load, ONE, ONE_OF_MANY, PLAIN};
use crate::convert::float;
use crate::guests::forward::LINE_OVERHEAD;

/// The metric that kinds are compared by.
const COST: &str = "switch_cycles_per_byte";

/// Results of one kind, or of plain patches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunnelReport {
    /// The kind's name; `plain` for patches.
    pub kind: String,
    /// Number of valid trials.
    pub trials: usize,
    /// Number of trials that are not valid.
    pub invalid: usize,
    /// Bytes that the tunnel adds to a frame on the wire.
    pub overhead_bytes: Option<f64>,
    /// Packets of 1500 bytes.
    pub packets_1500: Option<CostReport>,
    /// TCP packets of 64 KiB, segmented for the wire and coalesced behind it.
    pub segments_64k: Option<CostReport>,
    /// Frames of 64 bytes.
    pub packets_64: Option<CostReport>,
    /// Packets of 1500 bytes over a line of a fixed rate.
    pub line: Option<LineReport>,
    /// Cycles of the way to the wire for a frame of 64 bytes, above those of plain patches.
    pub encapsulation_cycles_per_packet: Option<f64>,
    /// Cycles of the way from the wire for a frame of 64 bytes, above those of plain patches.
    pub decapsulation_cycles_per_packet: Option<f64>,
}

/// Costs under one load. Cycles are those of the switch, for both of its passages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReport {
    /// Cycles per inner byte of payload.
    pub cycles_per_byte: f64,
    /// Cycles per packet on the wire.
    pub cycles_per_packet: f64,
    /// Gbit/s of payload, both directions together.
    pub payload_gbit_per_s: f64,
    /// Million packets received by the guests per second, both directions together.
    pub mpps: f64,
    /// Million packets on the wire per second for which the switch's core has the cycles.
    pub core_mpps: f64,
    /// Packets from the wire that the switch receives in a call.
    pub packets_per_call: f64,
    /// Cycles per byte, divided by those of plain patches.
    pub cost_to_plain: Option<f64>,
    /// The interval of that ratio, from six rounds on.
    pub cost_to_plain_interval: Option<Interval>,
    /// Cycles per byte, divided by those of the cheapest kind.
    pub cost_to_cheapest: Option<f64>,
    /// Packets per second that the switch's core has the cycles for, divided by those of plain
    /// patches.
    pub core_rate_to_plain: Option<f64>,
}

/// Results of a line of a fixed rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineReport {
    /// Gbit/s on the line, both directions together, with Ethernet's own bytes around each frame.
    pub line_gbit_per_s: f64,
    /// Gbit/s of payload, both directions together.
    pub payload_gbit_per_s: f64,
    /// Ratio of the payload rate to the rate of plain patches.
    pub goodput_to_plain: Option<f64>,
    /// The same ratio as the lengths of frames have it: a plain frame on the line, divided by one
    /// in the tunnel.
    pub header_share: Option<f64>,
}

/// Results of many tunnels on one underlay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManyReport {
    /// The kind's name.
    pub kind: String,
    /// Number of tunnels.
    pub tunnels: u16,
    /// Number of valid trials.
    pub trials: usize,
    /// Number of trials that are not valid.
    pub invalid: usize,
    /// Packets of 1500 bytes.
    pub packets_1500: Option<ManyCost>,
    /// Frames of 64 bytes.
    pub packets_64: Option<ManyCost>,
}

/// Cycles of the switch per packet on the wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManyCost {
    /// With one tunnel.
    pub one_cycles_per_packet: f64,
    /// With many tunnels, and traffic in one.
    pub one_of_many_cycles_per_packet: f64,
    /// With many tunnels, and traffic in each.
    pub all_of_many_cycles_per_packet: f64,
    /// One of many, divided by one.
    pub one_of_many_to_one: Option<f64>,
    /// All of many, divided by one.
    pub all_of_many_to_one: Option<f64>,
}

/// The samples of one cell, by variant.
#[derive(Clone, Copy)]
struct In<'s> {
    samples: &'s [Sample],
    axes: [(&'static str, &'s str); 2],
}

impl<'s> In<'s> {
    fn load(samples: &'s [Sample], load: Load) -> In<'s> {
        In { samples, axes: [("load", load.name()), ("load", load.name())] }
    }

    fn series(&self, variant: &str, metric: &str) -> Vec<(u32, f64)> {
        let is_here = |sample: &Sample| {
            self.axes.iter().all(|&(axis, at)| sample.cell.get(axis).is_some_and(|there| there == at))
        };
        series(self.samples.iter().filter(|sample| sample.variant == variant && is_here(sample)), metric)
    }

    fn median(&self, variant: &str, metric: &str) -> Option<f64> {
        median(&self.series(variant, metric).into_iter().map(|(_, value)| value).collect::<Vec<_>>())
    }

    fn ratio(&self, variant: &str, to: &str, metric: &str) -> Option<straightline_report::statistics::Ratio> {
        ratio(&self.series(variant, metric), &self.series(to, metric), Pairing::ByRound)
    }
}

/// Returns the results of each variant of [`super::tunnel_plan`], in the order of the samples.
#[must_use]
pub fn reports(samples: &[Sample]) -> Vec<TunnelReport> {
    let mut kinds: Vec<&str> = Vec::new();
    for sample in samples {
        if !kinds.contains(&sample.variant.as_str()) {
            kinds.push(&sample.variant);
        }
    }
    let cheapest: BTreeMap<Load, &str> = Load::ALL
        .into_iter()
        .filter_map(|load| {
            let at = In::load(samples, load);
            let costs =
                kinds.iter().filter(|kind| **kind != PLAIN).filter_map(|&kind| Some((kind, at.median(kind, COST)?)));
            costs.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(kind, _)| (load, kind))
        })
        .collect();
    kinds.iter().map(|kind| report(samples, kind, &cheapest)).collect()
}

fn report(samples: &[Sample], kind: &str, cheapest: &BTreeMap<Load, &str>) -> TunnelReport {
    let is_plain = kind == PLAIN;
    let [trials, invalid] = counts(samples.iter().filter(|sample| sample.variant == kind));
    let cost = |load: Load| {
        let at = In::load(samples, load);
        let middle = |metric: &str| at.median(kind, metric);
        let to_plain = at.ratio(kind, PLAIN, COST).filter(|_| !is_plain);
        let to_cheapest = cheapest.get(&load).filter(|_| !is_plain).and_then(|other| at.ratio(kind, other, COST));
        Some(CostReport {
            cycles_per_byte: middle(COST)?,
            cycles_per_packet: middle("switch_cycles_per_packet")?,
            payload_gbit_per_s: middle("payload_gbit_per_s")?,
            mpps: middle("mpps")?,
            core_mpps: middle("core_mpps")?,
            packets_per_call: middle("wire_packets_per_call")?,
            cost_to_plain: to_plain.map(|ratio| ratio.value),
            cost_to_plain_interval: to_plain.and_then(|ratio| ratio.interval),
            cost_to_cheapest: to_cheapest.map(|ratio| ratio.value),
            core_rate_to_plain: at.ratio(kind, PLAIN, "core_mpps").filter(|_| !is_plain).map(|ratio| ratio.value),
        })
    };
    let above_plain = |load: Load, metric: &str| {
        let at = In::load(samples, load);
        Some(at.median(kind, metric)? - at.median(PLAIN, metric)?).filter(|_| !is_plain)
    };
    let line = || {
        let at = In::load(samples, Load::Line);
        let on_line = |kind: &str| Some(at.median(kind, "wire_frame_bytes")? + float(LINE_OVERHEAD));
        let shares = on_line(PLAIN).zip(on_line(kind)).filter(|_| !is_plain);
        Some(LineReport {
            line_gbit_per_s: at.median(kind, "wire_gbit_per_s")?,
            payload_gbit_per_s: at.median(kind, "payload_gbit_per_s")?,
            goodput_to_plain: at
                .ratio(kind, PLAIN, "payload_gbit_per_s")
                .filter(|_| !is_plain)
                .map(|ratio| ratio.value),
            header_share: shares.map(|(plain, tunnel)| plain / tunnel),
        })
    };
    TunnelReport {
        kind: kind.to_owned(),
        trials,
        invalid,
        overhead_bytes: above_plain(Load::Packets, "wire_frame_bytes"),
        packets_1500: cost(Load::Packets),
        segments_64k: cost(Load::Segments),
        packets_64: cost(Load::Small),
        line: line(),
        encapsulation_cycles_per_packet: above_plain(Load::Small, "out_cycles_per_packet"),
        decapsulation_cycles_per_packet: above_plain(Load::Small, "in_cycles_per_packet"),
    }
}

/// Returns the results of each kind of [`super::many_plan`].
#[must_use]
pub fn many_reports(samples: &[Sample], tunnels: u16) -> Vec<ManyReport> {
    let mut kinds: Vec<&str> = Vec::new();
    for kind in samples.iter().filter_map(|sample| sample.cell.get("kind")) {
        if !kinds.contains(&kind.as_str()) {
            kinds.push(kind);
        }
    }
    let row_of = |kind: &&str| {
        let is_of_kind = |sample: &&Sample| sample.cell.get("kind").is_some_and(|at| at == kind);
        let [trials, invalid] = counts(samples.iter().filter(is_of_kind));
        let cost = |load: Load| {
            let at = In { samples, axes: [("kind", kind), ("load", load.name())] };
            let cycles = "switch_cycles_per_packet";
            Some(ManyCost {
                one_cycles_per_packet: at.median(ONE, cycles)?,
                one_of_many_cycles_per_packet: at.median(ONE_OF_MANY, cycles)?,
                all_of_many_cycles_per_packet: at.median(ALL_OF_MANY, cycles)?,
                one_of_many_to_one: at.ratio(ONE_OF_MANY, ONE, cycles).map(|ratio| ratio.value),
                all_of_many_to_one: at.ratio(ALL_OF_MANY, ONE, cycles).map(|ratio| ratio.value),
            })
        };
        let packets_1500 = cost(Load::Packets);
        let packets_64 = cost(Load::Small);
        ManyReport { kind: (*kind).to_owned(), tunnels, trials, invalid, packets_1500, packets_64 }
    };
    kinds.iter().map(row_of).collect()
}

/// Returns the numbers of valid samples and of others.
fn counts<'s>(samples: impl Iterator<Item = &'s Sample>) -> [usize; 2] {
    samples.fold(
        [0, 0],
        |[valid, invalid], sample| if sample.is_valid() { [valid + 1, invalid] } else { [valid, invalid + 1] },
    )
}

/// Returns the results as a table of text.
#[must_use]
pub fn table(reports: &[TunnelReport]) -> String {
    let mut text = format!(
        "{:<11} {:>8}  {:^26}  {:^26}  {:^20}  {:^22}  {:^11}\n",
        "", "overhead", "1500-byte packets", "64 KiB segments", "64-byte packets", "line", "cycles more"
    );
    let _ = writeln!(
        text,
        "{:<11} {:>8}  {:>10} {:>7} {:>7}  {:>10} {:>7} {:>7}  {:>12} {:>7}  {:>7} {:>7} {:>6}  {:>5} {:>5}",
        "kind",
        "bytes",
        "cycles/B",
        "plain",
        "least",
        "cycles/B",
        "plain",
        "least",
        "cycles",
        "rate",
        "Gbit/s",
        "plain",
        "share",
        "out",
        "in"
    );
    for report in reports {
        let cost = |cost: &Option<CostReport>| {
            let number = |value: Option<f64>, digits| show(value, digits);
            format!(
                "{:>10} {:>7} {:>7}",
                number(cost.as_ref().map(|cost| cost.cycles_per_byte), 3),
                number(cost.as_ref().and_then(|cost| cost.cost_to_plain), 2),
                number(cost.as_ref().and_then(|cost| cost.cost_to_cheapest), 2)
            )
        };
        let small = report.packets_64.as_ref();
        let line = report.line.as_ref();
        let _ = writeln!(
            text,
            "{:<11} {:>8}  {}  {}  {:>12} {:>7}  {:>7} {:>7} {:>6}  {:>5} {:>5}",
            report.kind,
            show(report.overhead_bytes, 0),
            cost(&report.packets_1500),
            cost(&report.segments_64k),
            show(small.map(|small| small.cycles_per_packet), 0),
            show(small.and_then(|small| small.core_rate_to_plain), 2),
            show(line.map(|line| line.payload_gbit_per_s), 2),
            show(line.and_then(|line| line.goodput_to_plain), 3),
            show(line.and_then(|line| line.header_share), 3),
            show(report.encapsulation_cycles_per_packet, 0),
            show(report.decapsulation_cycles_per_packet, 0)
        );
    }
    text
}

/// Returns the results of many tunnels as a table of text.
#[must_use]
pub fn many_table(reports: &[ManyReport]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<11} {:>7}  {:>6}  {:>10} {:>12} {:>6} {:>12} {:>6}",
        "kind", "tunnels", "bytes", "one", "one of many", "ratio", "all of many", "ratio"
    );
    for report in reports {
        for (bytes, cost) in [("1500", &report.packets_1500), ("64", &report.packets_64)] {
            let cost = cost.as_ref();
            let _ = writeln!(
                text,
                "{:<11} {:>7}  {:>6}  {:>10} {:>12} {:>6} {:>12} {:>6}",
                report.kind,
                report.tunnels,
                bytes,
                show(cost.map(|cost| cost.one_cycles_per_packet), 0),
                show(cost.map(|cost| cost.one_of_many_cycles_per_packet), 0),
                show(cost.and_then(|cost| cost.one_of_many_to_one), 2),
                show(cost.map(|cost| cost.all_of_many_cycles_per_packet), 0),
                show(cost.and_then(|cost| cost.all_of_many_to_one), 2)
            );
        }
    }
    text
}

fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_report::results::Validity;

    fn sample(round: u32, load: &str, variant: &str, cost: f64) -> Sample {
        let metrics = [
            ("switch_cycles_per_byte", cost),
            ("switch_cycles_per_packet", 1000.0 * cost),
            ("payload_gbit_per_s", 2.0 / cost),
            ("mpps", 1.0),
            ("core_mpps", 3.0 / cost),
            ("wire_packets_per_call", 32.0),
            ("wire_frame_bytes", if variant == PLAIN { 1514.0 } else { 1580.0 }),
            ("wire_gbit_per_s", 2.0),
            ("out_cycles_per_packet", 100.0 * cost),
            ("in_cycles_per_packet", 200.0 * cost),
        ];
        Sample {
            round,
            variant: variant.to_owned(),
            cell: BTreeMap::from([("load".to_owned(), load.to_owned())]),
            metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Sample::default()
        }
    }

    fn near(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?}, not {expected}");
    }

    #[test]
    fn kinds_are_compared_with_plain_patches_and_with_the_cheapest_kind() {
        let mut samples = Vec::new();
        for round in 1..=3 {
            for load in ["1500", "64k", "64", "line"] {
                for (variant, cost) in [("plain", 1.0), ("vxlan", 1.25), ("gre", 1.0)] {
                    samples.push(sample(round, load, variant, cost));
                }
            }
        }
        samples
            .push(Sample { validity: Validity::Interrupted("interrupted".to_owned()), ..sample(4, "64", "gre", 9.0) });
        let reports = reports(&samples);
        let kinds: Vec<_> =
            reports.iter().map(|report| (report.kind.as_str(), report.trials, report.invalid)).collect();
        assert_eq!(kinds, [("plain", 12, 0), ("vxlan", 12, 0), ("gre", 12, 1)]);
        let [plain, vxlan, gre] = &reports[..] else { panic!("three") };
        let plain_cost = plain.packets_64.as_ref().expect("a cost");
        assert_eq!((plain_cost.cost_to_plain, plain_cost.cost_to_cheapest, plain.overhead_bytes), (None, None, None));
        assert_eq!(plain.line.as_ref().expect("a line").header_share, None);
        near(vxlan.overhead_bytes, 66.0);
        for cost in [&vxlan.packets_1500, &vxlan.segments_64k, &vxlan.packets_64] {
            let cost = cost.as_ref().expect("a cost");
            near(cost.cost_to_plain, 1.25);
            near(cost.cost_to_cheapest, 1.25);
            near(cost.core_rate_to_plain, 0.8);
        }
        near(gre.packets_1500.as_ref().expect("a cost").cost_to_cheapest, 1.0);
        near(vxlan.encapsulation_cycles_per_packet, 25.0);
        near(vxlan.decapsulation_cycles_per_packet, 50.0);
        let line = vxlan.line.as_ref().expect("a line");
        near(line.goodput_to_plain, 0.8);
        near(line.header_share, 1538.0 / 1604.0);
        let table = table(&reports);
        assert_eq!(table.lines().count(), 5, "{table}");
        let widths: Vec<_> = table.lines().skip(1).map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(vxlan).expect("JSON")).expect("JSON");
        assert_eq!((json["kind"].as_str(), json["packets_64"]["cost_to_plain"].as_f64()), (Some("vxlan"), Some(1.25)));
    }

    #[test]
    fn a_kind_without_a_valid_trial_has_no_values() {
        let invalid =
            Sample { validity: Validity::SpoiltByBackend("refused".to_owned()), ..sample(1, "1500", "geneve", 1.0) };
        let reports = reports(&[sample(1, "1500", "plain", 1.0), invalid]);
        assert_eq!((reports[1].trials, reports[1].invalid, &reports[1].packets_1500), (0, 1, &None));
        assert!(table(&reports).lines().last().expect("a line").starts_with("geneve             -"));
    }

    #[test]
    fn many_tunnels_are_compared_with_one() {
        let row_of = |load: &str, variant: &str, cost: f64| {
            let mut sample = sample(1, load, variant, cost);
            sample.cell.insert("kind".to_owned(), "vxlan".to_owned());
            sample
        };
        let samples: Vec<_> = ["1500", "64"]
            .into_iter()
            .flat_map(|load| [row_of(load, ONE, 1.0), row_of(load, ONE_OF_MANY, 1.04), row_of(load, ALL_OF_MANY, 2.0)])
            .collect();
        let reports = many_reports(&samples, 256);
        assert_eq!((reports.len(), reports[0].tunnels, reports[0].trials), (1, 256, 6));
        let cost = reports[0].packets_64.as_ref().expect("a cost");
        near(cost.one_of_many_to_one, 1.04);
        near(cost.all_of_many_to_one, 2.0);
        assert_eq!(many_table(&reports).lines().count(), 3);
    }
}
