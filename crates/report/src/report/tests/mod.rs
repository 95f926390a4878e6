//! Tests of reports: the files, and what they have.

mod page;

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};

use super::Report;
use super::text::width;
use crate::results::{Environment, FORMAT, Latency, LevelBounds, MemoryBounds, Results, Sample, Validity};

const SVG: &str = "http://www.w3.org/2000/svg";
const XHTML: &str = "http://www.w3.org/1999/xhtml";

/// Names with characters that are special in HTML, XML, Markdown or CSV.
const NASTY: &str = "<b>\"x\" & 'y', | `z` ]]> --> \u{1}\u{202e}";

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns two rounds of trials of such variants. Two rounds are too few for intervals, which take
/// long to compute.
fn few(variants: &[&str], sizes: &[&str], rings: &[&str]) -> Vec<Sample> {
    let mut samples = trials(variants, sizes, rings);
    samples.retain(|sample| sample.round <= 2);
    samples
}

/// Returns eight rounds of these variants at sizes and rings, with cycles and latencies; all values
/// differ.
fn trials(variants: &[&str], sizes: &[&str], rings: &[&str]) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut state = 7_u64;
    for round in 1..=8 {
        for size in sizes {
            for ring in rings {
                for (index, variant) in variants.iter().enumerate() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let noise = f64::from(u32::try_from(state >> 40).expect("24 bits")) / f64::from(1 << 24);
                    let factor = 1.0 + 0.3 * f64::from(u32::try_from(index).expect("few"));
                    let cycles = 150.0 * factor + 30.0 * noise;
                    let steps = (0..40).map(|step| (900 + step * step * 40 + (state >> 60), 2_000_000 >> step.min(20)));
                    samples.push(Sample {
                        scenario: "pvp".to_owned(),
                        round,
                        variant: (*variant).to_owned(),
                        cell: texts(&[("size", size), ("ring", ring), ("mrg", "on")]),
                        metrics: [
                            ("mpps".to_owned(), 6.0 / factor + noise),
                            ("switch_cycles_per_packet".to_owned(), cycles),
                            ("loss_ratio".to_owned(), 0.0),
                        ]
                        .into(),
                        cycles: ["receive", "bridge", "copy", "notify"]
                            .map(|phase| (phase.to_owned(), cycles / 4.0))
                            .into(),
                        latency: Some(Latency { steps: steps.collect() }),
                        ..Sample::default()
                    });
                }
            }
        }
    }
    samples
}

fn results(samples: &[Sample]) -> Results {
    let environment = Environment {
        format: FORMAT,
        cpu: "EPYC".to_owned(),
        flags: ["avx2", "fma"].map(str::to_owned).into(),
        kernel: NASTY.to_owned(),
        peers: texts(&[(NASTY, NASTY), ("testpmd", "22.11")]),
        ..Environment::default()
    };
    Results { environment, samples: samples.to_vec(), bounds: None }
}

fn html(samples: &[Sample]) -> String {
    Report::new("A report", &results(samples)).expect("samples").html()
}

fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}:\n{page}"))
}

fn pictures<'d>(document: &'d Document<'_>) -> Vec<Node<'d, 'd>> {
    document.descendants().filter(|node| node.has_tag_name((SVG, "svg"))).collect()
}

/// The edges of an area: left, top, right, bottom.
type Box = [f64; 4];

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("no {name} in {node:?}"));
    let value = text.parse::<f64>().unwrap_or_else(|_| panic!("{name}={text}"));
    assert!(value.is_finite());
    value
}

/// Returns the place of a text, from the attributes in the picture.
fn text_box(node: Node<'_, '_>) -> (Box, String) {
    let text = node.text().unwrap_or_default().to_owned();
    let x = number(node, "x");
    let y = number(node, "y");
    let size = number(node, "font-size");
    let wide = width(&text, size);
    if node.attribute("transform").is_some() {
        return ([x - 0.8 * size, y, x + 0.25 * size, y + wide], text);
    }
    let left = match node.attribute("text-anchor") {
        Some("start") => x,
        Some("middle") => x - wide / 2.0,
        Some("end") => x - wide,
        other => panic!("{other:?}"),
    };
    ([left, y - 0.8 * size, left + wide, y + 0.25 * size], text)
}

fn overlap(a: &Box, b: &Box) -> bool {
    a[0] + 0.1 < b[2] && b[0] + 0.1 < a[2] && a[1] + 0.1 < b[3] && b[1] + 0.1 < a[3]
}

/// Checks that no label covers another one, and that none is outside the picture.
fn check_layout(page: &str) {
    let document = parsed(page);
    for picture in pictures(&document) {
        let view = picture.attribute("viewBox").expect("a view box");
        let view: Vec<f64> = view.split(' ').map(|part| part.parse().expect("a number")).collect();
        let labels: Vec<(Box, String)> = picture
            .descendants()
            .filter(|node| node.has_tag_name((SVG, "text")))
            .map(text_box)
            .filter(|label| !label.1.is_empty())
            .collect();
        for (index, (place, text)) in labels.iter().enumerate() {
            let inside = place[0] >= -0.5 && place[1] >= -0.5 && place[2] <= view[2] + 0.5 && place[3] <= view[3] + 0.5;
            assert!(inside, "`{text}` at {place:?} leaves the picture of {view:?}");
            for (other, name) in &labels[index + 1..] {
                assert!(!overlap(place, other), "`{text}` at {place:?} lies on `{name}` at {other:?}");
            }
        }
    }
}

#[test]
fn labels_stay_apart_however_long_and_many() {
    let long = "straightline-with-everything-switched-on-and-a-long-name";
    let variants = ["a", long, "dpdk-testpmd-22.11", "ovs-dpdk", "e", "f", "g", "h", "i", "j"];
    let sizes = ["64", "128", "256", "512", "1024", "1280", "1518", "9000", "imix", "a-mix-of-sizes-with-a-name"];
    check_layout(&html(&few(&variants, &sizes, &["split", "packed-in-order-no-mergeable"])));
    check_layout(&html(&few(&variants[..2], &["64"], &["split"])));
    let many: Vec<String> = (0..90).map(|value| format!("{}", value * 64)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    check_layout(&html(&few(&["a"], &many, &["split", "packed"])));
    check_layout(&html(&few(&["a"], &sizes, &["split", "packed-in-order-no-mergeable"])));
    // Only comparisons with intervals are drawn.
    check_layout(&html(&trials(
        &["a", long],
        &["64", "a-mix-of-sizes-with-a-name"],
        &["split", "packed-in-order-no-mergeable"],
    )));
}

#[test]
fn every_value_is_in_the_csv() {
    let samples = trials(&["a", "b"], &["64", "1518"], &["split"]);
    let csv = Report::new("A report", &results(&samples)).expect("samples").csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), samples.len() + 1);
    for (sample, line) in samples.iter().zip(&lines[1..]) {
        let values: Vec<f64> = line.split(',').filter_map(|cell| cell.parse().ok()).collect();
        for value in sample.metrics.values().chain(sample.cycles.values()) {
            assert!(values.contains(value), "{value} in {line}");
        }
    }
}

#[test]
fn names_from_files_stay_text() {
    let mut samples = few(&[NASTY, "b"], &["64", NASTY], &["split", "packed"]);
    for sample in &mut samples {
        sample.scenario = NASTY.to_owned();
        sample.cell.insert(NASTY.to_owned(), NASTY.to_owned());
        sample.metrics.insert(NASTY.to_owned(), f64::from(sample.round));
        sample.cycles.insert(NASTY.to_owned(), 3.0);
    }
    samples[0].validity = Validity::SpoiltByBackend(NASTY.to_owned());
    let results = results(&samples);
    let report = Report::new(NASTY, &results).expect("samples");
    let page = report.html();
    check_layout(&page);
    assert!(!page.contains("<b>"));
    assert!(!report.markdown().contains("<b>"));
    let shown = parsed(&page)
        .descendants()
        .filter_map(|node| node.text().map(str::to_owned))
        .any(|text| text.starts_with("<b>\"x\" &"));
    assert!(shown, "the name is shown as it is");
}

#[test]
fn trials_that_do_not_count_are_listed_with_their_reason() {
    let mut samples = trials(&["a", "b"], &["64"], &["split"]);
    for sample in samples.iter_mut().filter(|sample| sample.variant == "b") {
        sample.validity = Validity::SpoiltByLoad("sent 3 % less than meant".to_owned());
    }
    let results = results(&samples);
    let report = Report::new("A report", &results).expect("samples");
    let page = report.html();
    let markdown = report.markdown();
    for text in [&page, &markdown] {
        // Trials with the same reason are counted, not listed.
        assert_eq!(text.matches("sent 3 % less than meant").count(), 1);
        assert!(text.contains("8 trials") && text.contains("1 comparison: 1 unclear. Unclear are 100 %;"), "{text}");
        for known in ["avx2 fma", "peers.testpmd", "22.11"] {
            assert!(text.contains(known), "{known} in\n{text}");
        }
    }
    assert!(page.contains("<a href=\"#invalid\">for the reasons below</a>. EPYC."), "{page}");
    assert!(page.contains("<details id=\"invalid\">"), "{page}");
    check_layout(&page);
}

#[test]
fn a_search_has_what_it_found_and_a_latency_no_bound() {
    let mut samples = trials(&["a"], &["64"], &["split"]);
    samples.truncate(3);
    for (sample, load) in samples.iter_mut().zip(["ndr", "pdr 0.5 %", "latency 50 %"]) {
        sample.cell.insert("load".to_owned(), load.to_owned());
        sample.metrics = [("mpps".to_owned(), 7.25)].into();
    }
    let why = "no load up to 7250000 packets a second is too high";
    samples[0].metrics.insert("lower_mpps".to_owned(), 7.25);
    samples[0].validity = Validity::LowerBound(why.to_owned());
    samples[1].metrics.insert("lower_mpps".to_owned(), 7.0);
    let results = results(&samples);
    let markdown = Report::new("A search", &results).expect("samples").markdown();
    assert!(markdown.contains("| ndr | a | at least 7.250 | 1 |"), "{markdown}");
    let (_, lower) = markdown.split_once("### Lower throughput").expect("a figure of its own");
    let lower = lower.split("###").next().expect("its table");
    assert!(lower.contains("| pdr 0.5 % |") && !lower.contains("latency"), "{lower}");
    assert!(!markdown.contains("at least (") && !markdown.contains("### At least"), "{markdown}");
    assert!(markdown.contains(why), "{markdown}");
    // The same holds if there is no other trial.
    let markdown = Report::new("A search", &self::results(&samples[..1])).expect("a sample").markdown();
    assert!(markdown.contains("at least 7.250") && !markdown.contains("### At least"), "{markdown}");
}

#[test]
fn places_that_nobody_measured_are_not_those_without_a_valid_trial() {
    let entries = |samples: &[Sample], text: &str| html(samples).matches(&format!("<td>{text}</td>")).count();
    let mut samples = few(&["a", "b"], &["64", "512", "1518"], &["split", "packed"]);
    samples.retain(|sample| sample.variant == "a" || sample.cell["size"] == "64");
    assert_eq!(entries(&samples, "–"), 0);
    assert!(entries(&samples, "") > 0);
    for sample in samples.iter_mut().filter(|sample| sample.cell["size"] == "64" && sample.variant == "b") {
        sample.validity = Validity::SpoiltByBackend("nothing came".to_owned());
    }
    assert!(entries(&samples, "–") > 0);
}

#[test]
fn the_share_of_the_machines_bound_is_shown_where_it_was_measured() {
    let mut samples = few(&["a", "b"], &["64", "1518"], &["split"]);
    for sample in &mut samples {
        let rate = if sample.variant == "a" { 40.0 } else { 80.0 };
        sample.metrics.insert("gbit_per_s".to_owned(), if sample.cell["size"] == "64" { 1.0 } else { rate });
    }
    let mut results = results(&samples);
    let texts = |results: &Results| {
        let report = Report::new("A report", results).expect("samples");
        [report.html(), report.markdown()]
    };
    assert!(texts(&results).iter().all(|text| !text.contains("of a copy in")));
    let level =
        |name: &str, copy_gb_per_s| LevelBounds { name: name.to_owned(), copy_gb_per_s, ..LevelBounds::default() };
    let levels = vec![level("L1", 100.0), level("L3", 40.0), level("memory", 20.0)];
    results.bounds = Some(MemoryBounds { levels, ..MemoryBounds::default() });
    let [page, markdown] = texts(&results);
    check_layout(&page);
    // 40 Gbit/s are 5 GB/s: an eighth of 40, a quarter of 20.
    for row in ["<tr><td>a</td><td>40.0", "<td>12 %</td><td>25 %</td></tr>", "<td>25 %</td><td>50 %</td></tr>"] {
        assert!(page.contains(row), "{row} in {page}");
    }
    assert!(markdown.contains("| of a copy in L3 (40.0 GB/s) | of a copy in memory (20.0 GB/s) |"), "{markdown}");
    assert!(!markdown.contains("L1 ("), "{markdown}");
    // Without a rate in bits there is nothing to relate.
    for sample in &mut results.samples {
        sample.metrics.remove("gbit_per_s");
    }
    assert!(texts(&results).iter().all(|text| !text.contains("of a copy in")));
}

#[test]
fn a_single_sample_makes_a_page_and_none_an_error() {
    check_layout(&html(&trials(&["a"], &["64"], &["split"])[..1]));
    check_layout(&html(&[Sample::default()]));
    let error = Report::new("A report", &results(&[])).expect_err("nothing to report");
    assert!(error.to_string().contains("no samples"));
}

/// Values as files have them, and values that files must not have.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.1..20.0, 1 => any::<f64>(), 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("64".to_owned()),
        Just("1518".to_owned()),
        any::<String>()
    ]
}

fn metric() -> impl Strategy<Value = String> {
    prop_oneof![Just("mpps".to_owned()), Just("switch_cycles_per_packet".to_owned()), "[a-z_]{0,12}", any::<String>()]
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let latency = vec((any::<u64>(), any::<u64>()), 0..6).prop_map(|steps| Latency { steps });
    let axis = prop_oneof![Just("size".to_owned()), Just("ring".to_owned()), any::<String>()];
    (
        prop_oneof![4 => Just("pvp".to_owned()), 1 => any::<String>()],
        0..4_u32,
        name(),
        btree_map(axis, name(), 0..4),
        btree_map(metric(), value(), 0..3),
        btree_map(name(), value(), 0..12),
        option::of(latency),
        option::weighted(0.2, any::<String>()),
    )
        .prop_map(|(scenario, round, variant, cell, metrics, cycles, latency, invalid)| Sample {
            scenario,
            round,
            variant,
            cell,
            metrics,
            cycles,
            latency,
            carried: None,
            validity: invalid.map_or(Validity::Valid, Validity::SpoiltByLoad),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_samples_make_a_sound_page(samples in vec(any_sample(), 1..12)) {
        let page = html(&samples);
        let document = parsed(&page);
        for picture in pictures(&document) {
            for attribute in picture.descendants().flat_map(|node| node.attributes()) {
                let bad = ["NaN", "inf"].iter().any(|bad| attribute.value().contains(bad));
                let text = attribute.name().starts_with("aria");
                prop_assert!(text || !bad, "{attribute:?}");
            }
        }
        check_layout(&page);
        let results = results(&samples);
        let report = Report::new("A report", &results).expect("samples");
        for (name, file) in report.plots() {
            prop_assert!(name.ends_with(".svg") && !name.contains('/') && !name.starts_with('.'), "{name}");
            parsed(&file);
            prop_assert!(!file.contains("NaN") && !file.contains("\"inf"), "{file}");
        }
        prop_assert!(report.markdown().ends_with('\n'));
        prop_assert_eq!(report.csv().matches("\r\n").count() > samples.len(), true);
    }
}
