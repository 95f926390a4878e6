use super::Fixture;

/// The first command of the README, run as a script does. The demo ends with one line of JSON that
/// has every node, and no packet is lost.
#[test]
fn the_demo_ends_with_one_line_of_json_and_loses_nothing() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["demo", "--secs", "1", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let last = done.out.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert!(summary["mpps"].as_f64().unwrap() > 0.0, "{summary}");
    assert!(summary["gbit_per_s"].as_f64().unwrap() > 0.0, "{summary}");
    assert_eq!(summary["lost"], 0, "{summary}");
    for node in ["left-rx", "right-rx", "patch.demo", "left-tx", "right-tx", "turn-end"] {
        assert!(summary["cycles_per_packet"][node].as_f64().unwrap() > 0.0, "{node}: {summary}");
    }
}

#[test]
fn the_demo_shows_a_line_each_second_and_a_summary() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["demo", "--secs", "2"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<_> = done.out.lines().collect();
    assert!(lines[2].trim_start().starts_with('1') && lines[3].trim_start().starts_with('2'), "{}", done.out);
    assert!(lines.last().unwrap().ends_with("0 lost, 0 out of order"), "{}", done.out);
}
