//! Tests of the page: its parts, and the forest plot.

use super::*;

fn named(document: &Document<'_>, tag: &str) -> Vec<String> {
    let nodes = document.descendants().filter(|node| node.has_tag_name((XHTML, tag)));
    nodes
        .map(|node| node.descendants().filter_map(|part| part.is_text().then(|| part.text()).flatten()).collect())
        .collect()
}

#[test]
fn a_page_has_a_finding_and_a_plot_and_everything_else_is_folded() {
    let samples = trials(&["testpmd", "ours"], &["64", "imix"], &["split", "packed"]);
    let page = html(&samples);
    let document = parsed(&page);
    let (above, folded) = page.split_at(page.find("<details").expect("a folded part"));
    let titles = named(&document, "figcaption");
    assert_eq!(
        titles.iter().filter(|title| *title == "Throughput (Mpps) of pvp: ratio to testpmd").count(),
        1,
        "{titles:#?}"
    );
    assert_eq!(titles.iter().filter(|title| title.starts_with("Latency by percentile")).count(), 4, "{titles:#?}");
    assert_eq!(above.matches("<svg").count(), 2, "one plot in two layouts");
    assert!(
        above.contains("throughput (Mpps): ratio to testpmd</th>")
            && above.contains("<tr><td>ours</td><td class=\"worse\">0.")
            && above.contains("<td>4 worse</td></tr>"),
        "{above}"
    );
    for part in ["Switch cost (cycles/packet)", "Cycles by phase", "Environment", "<h3>Throughput (Mpps)</h3>"] {
        assert!(folded.contains(part) && !above.contains(&format!("<h3>{part}")), "{part}");
    }
    assert!(above.contains("4 comparisons: 4 worse. Unclear are 0 %; the aim is at most 25 %."), "{above}");
    assert!(folded.contains("<h3>Loss (ratio)</h3>\n<p class=\"soft\">0 everywhere.</p>"), "{folded}");
    assert!(above.matches("<table").count() == 1 && !page.contains(" open="));
    // Each picture has a title and a description.
    for picture in pictures(&document) {
        let texts: Vec<&str> =
            picture.children().filter_map(|node| Some(node.tag_name().name()).filter(|_| node.is_element())).collect();
        assert_eq!(texts[..2], ["title", "desc"]);
        let named = picture.attribute("aria-labelledby").expect("a name").split(' ');
        for id in named {
            assert_eq!(document.descendants().filter(|node| node.attribute("id") == Some(id)).count(), 1, "{id}");
        }
    }
    // Each link within the page has its place.
    for link in document.descendants().filter_map(|node| node.attribute("href")?.strip_prefix('#')) {
        assert_eq!(document.descendants().filter(|node| node.attribute("id") == Some(link)).count(), 1, "{link}");
    }
    assert!(!page.contains("<script") && !page.contains("src="), "nothing is fetched");
    check_layout(&page);
}

#[test]
fn the_findings_of_all_scenarios_stand_on_top() {
    let mut samples = few(&["fast", "slow"], &["64"], &["split"]);
    let mut others = samples.clone();
    others.iter_mut().for_each(|sample| sample.scenario = "width".to_owned());
    samples.extend(others);
    let page = html(&samples);
    let on_top = &page[..page.find("<section").expect("a section")];
    assert!(on_top.contains("2 scenarios, 2 rounds each; all trials are valid. EPYC"), "{on_top}");
    assert!(on_top.find("How to read") < on_top.find("<h2>Findings</h2>"), "{on_top}");
    for (anchor, name) in [(0, "pvp"), (1, "width")] {
        let item = &on_top[on_top.find(&format!("<li><a href=\"#s{anchor}\">{name}</a> ")).expect("a finding")..];
        let item = &item[..item.find("</li>").expect("an end")];
        assert!(item.contains("<tr><td>slow</td><td") && item.contains("<td>1 unclear</td>"), "{item}");
        // Only experiments have questions.
        assert_eq!(item.contains("<strong>Do wider registers copy faster"), name == "width", "{item}");
        assert_eq!(item.contains("The variant is the width"), name == "width", "{item}");
    }
    // Below, an experiment has its question, and no finding again.
    let (_, below) = page.split_once("<section").expect("a section");
    let (sections, _) = below.split_once("<details").expect("a folded part");
    assert!(sections.contains("Do wider registers copy faster") && !sections.contains("<table"), "{sections}");
    // Too few trials for an interval: nothing is drawn, and no variants are called different.
    assert!(!page.contains("class=\"wide\"") || page.contains("Latency"), "{page}");
    assert!(page.contains("No plot: no comparison shows a result."), "{page}");
    // A single scenario has its finding above its plot only.
    assert!(!html(&few(&["fast", "slow"], &["64"], &["split"])).contains("<h2>Findings</h2>"));
}

#[test]
fn a_plot_of_medians_says_whether_there_are_intervals() {
    let few = html(&few(&["only"], &["64", "128"], &["split"]));
    assert!(few.contains("Medians. There are too few trials for 95 % intervals, which take 6 valid ones."), "{few}");
    let many = html(&trials(&["only"], &["64", "128"], &["split"]));
    assert!(many.contains("Medians with their 95 % intervals."), "{many}");
}

#[test]
fn rows_of_a_forest_plot_are_sorted_around_the_line_at_1() {
    let mut samples = trials(&["to", "b", "c", "d", "e"], &["64", "128", "256", "512"], &["split", "packed"]);
    for sample in &mut samples {
        let size: f64 = sample.cell["size"].parse().expect("a number");
        let factor = if sample.variant == "b" { size / 100.0 } else { 1.0 };
        sample.metrics.values_mut().for_each(|value| *value *= factor);
    }
    let results = results(&samples);
    let report = Report::new("A report", &results).expect("samples");
    let [(name, file)] = &report.plots()[..] else { panic!("one plot") };
    assert_eq!(name, "pvp.svg");
    let file = parsed(file);
    let page = report.html();
    let page = parsed(&page);
    let plots = pictures(&page).into_iter().filter(|picture| picture.attribute("id").is_none()).take(2);
    for picture in plots.chain([file.root_element()]) {
        let lines = |class: &str| -> Vec<Node<'_, '_>> {
            picture
                .descendants()
                .filter(|node| node.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class)))
                .collect()
        };
        let [one] = &lines("one")[..] else { panic!("one line at 1") };
        let one = number(*one, "x1");
        let width = picture.attribute("viewBox").and_then(|view| view.split(' ').nth(2)?.parse().ok()).unwrap_or(0.0);
        assert!(one > 0.0 && one < width, "{one} in {width}");
        let better: Vec<f64> = lines("better")
            .into_iter()
            .filter(|node| node.has_attribute("cx"))
            .map(|node| number(node, "cx"))
            .collect();
        assert!(better.len() > 2 && better.iter().all(|&x| x > one), "{better:?} {one}");
        assert!(better.is_sorted(), "{better:?}");
        let spans = lines("span");
        let worse: Vec<f64> = spans
            .iter()
            .filter(|node| node.attribute("class") == Some("span worse"))
            .map(|node| number(*node, "x2"))
            .collect();
        assert!(!worse.is_empty() && worse.iter().all(|&x| x < one), "{worse:?} {one}");
        let rows: Vec<f64> = spans.iter().map(|node| number(*node, "y1")).collect();
        assert!(rows.is_sorted(), "{rows:?}");
        let values: Vec<&str> = lines("value").iter().filter_map(|node| node.text()).collect();
        let values: Vec<f64> =
            values.iter().map(|text| text.split(' ').next().unwrap_or_default().parse().expect("a ratio")).collect();
        assert!(values.is_sorted() && values.len() == rows.len(), "{values:?}");
    }
}

#[test]
fn rows_of_few_variants_are_together() {
    let mut samples = trials(&["to", "b", "c"], &["64", "512"], &["split"]);
    for sample in &mut samples {
        let factor = if sample.cell["size"] == "512" && sample.variant == "b" { 5.0 } else { 0.5 };
        let factor = if sample.variant == "to" { 1.0 } else { factor };
        sample.metrics.values_mut().for_each(|value| *value *= factor);
    }
    let results = results(&samples);
    let report = Report::new("A report", &results).expect("samples");
    let [(_, file)] = &report.plots()[..] else { panic!("one plot") };
    let file = parsed(file);
    let texts: Vec<&str> = file.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect();
    let rows: Vec<&str> = texts.into_iter().filter(|text| text.ends_with(" B")).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows[..2], ["b, 64 B", "b, 512 B"]);
}

#[test]
fn values_without_a_comparison_have_a_plot_in_the_order_of_cells() {
    let page = html(&trials(&["ours"], &["64", "1518"], &["split"]));
    assert!(
        page.contains("<th scope=\"col\">throughput (Mpps)</th>") && page.contains("<tr><td>ours</td><td>6."),
        "{page}"
    );
    assert!(page.contains("Throughput (Mpps) of pvp</figcaption>") && !page.contains("class=\"one\""), "{page}");
    assert!(page.find(">64 B</text>") < page.find(">1518 B</text>"), "{page}");
    check_layout(&page);
}

#[test]
fn a_page_of_twice_the_full_set_is_below_two_megabytes() {
    let sizes = ["64", "128", "256", "512", "1024", "1500"];
    let mut samples = Vec::new();
    for scenario in 0..8 {
        for mut sample in
            few(&["libc", "kernel", "movsb", "none"], &sizes, &["split", "packed", "in-order", "indirect"])
        {
            sample.scenario = format!("experiment-{scenario}");
            sample.latency = None;
            let value = sample.metrics["mpps"] * 1.234_567;
            sample.metrics.extend(
                (0..15).map(|metric| (format!("metric_{metric}_cycles_per_packet"), value + f64::from(metric))),
            );
            samples.push(sample);
        }
    }
    // Only one metric has enough rounds for intervals, which take long to compute.
    let more =
        samples.clone().into_iter().filter(|sample| sample.round == 1 && sample.scenario == "experiment-0").flat_map(
            |sample| {
                (3..=6).map(move |round| {
                    let metrics = [("mpps".to_owned(), sample.metrics["mpps"])].into();
                    Sample { round, metrics, ..sample.clone() }
                })
            },
        );
    let more: Vec<Sample> = more.collect();
    samples.extend(more);
    let page = html(&samples);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}
