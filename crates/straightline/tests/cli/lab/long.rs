//! Real trials of the laboratory's commands, as users run them: only `STRAIGHTLINE_LONG=1`
//! (`cargo xtask test --long`) makes them.

use std::fs;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use straightline_capture::pcapng;
use straightline_lab::folder;
use straightline_testing::wait_until;

use super::{Finished, Fixture, PATCH, SECOND_PATCH, SHORT, has_two_cpus, interrupt, is_step, started};

/// Held while a trial runs: trials side by side would take each other's CPUs, and few would be valid.
static CPUS: Mutex<()> = Mutex::new(());

/// Returns a guard of the CPUs in a long run; `None` in others.
fn cpus() -> Option<MutexGuard<'static, ()>> {
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    is_long.then(|| CPUS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn a_loop_ends_with_a_line_of_json() {
    let Some(_cpus) = cpus() else { return };
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let args = ["lab", "loop", "--backend", "a", "--backend", "b", "--secs", "0.1", "--warm-up", "0.1", "--json"];
    let mut switch = started(&fixture);
    let done = fixture.execute(&args);
    let edited = fixture.execute(&[&args[..], &["--touch", "edit", "--size", "1500"]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    for (done, touch, lines) in [(done, "none", 0.0), (edited, "edit", 25.0)] {
        assert_eq!(done.code, Some(0), "{done:?}");
        let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert!(report["mpps"].as_f64() > Some(0.0) && report["lost"] == 0 && report["verified"] == 1024, "{report}");
        assert_eq!((report["touch"].as_str(), report["touched_lines_per_packet"].as_f64()), (Some(touch), Some(lines)));
    }
}

/// Each load of each kind needs one valid trial in six rounds.
#[test]
fn tunnels_are_measured_beside_patches() {
    let Some(_cpus) = cpus() else { return };
    if !has_two_cpus("tunnels_are_measured_beside_patches") {
        return;
    }
    let fixture = Fixture::new();
    let short = ["lab", "tunnel", "--rounds", "6", "--secs", "0.1", "--line", "0.02", "--json"];
    let done = fixture.execute(&[&short[..], &["--kind", "l2tpv3"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<serde_json::Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["kind"].as_str()).collect::<Vec<_>>(), [Some("plain"), Some("l2tpv3")]);
    for load in ["packets_1500", "segments_64k", "packets_64"] {
        assert!(lines[0][load]["cycles_per_byte"].as_f64() > Some(0.0), "{load}: {}", lines[0]);
        assert!(lines[0][load]["cost_to_plain"].is_null(), "{load}: {}", lines[0]);
        assert!(lines[1][load]["cost_to_plain"].as_f64() > Some(0.0), "{load}: {}", lines[1]);
        assert_eq!(lines[1][load]["cost_to_cheapest"].as_f64(), Some(1.0), "{load}: {}", lines[1]);
    }
    // Ethernet, IPv6, session and cookie.
    assert_eq!(lines[1]["overhead_bytes"].as_f64().map(f64::round), Some(14.0 + 40.0 + 4.0 + 8.0), "{}", lines[1]);
    let many = fixture.execute(&[&short[..], &["--kind", "vxlan,gtpu", "--many", "3"]].concat());
    assert_eq!(many.code, Some(0), "{many:?}");
    assert!(many.err.contains("not measured: many tunnels of the kind gtpu"), "{many:?}");
    let line: serde_json::Value = serde_json::from_str(&many.out).unwrap();
    assert_eq!((line["kind"].as_str(), line["tunnels"].as_u64()), (Some("vxlan"), Some(3)), "{line}");
    assert!(line["packets_64"]["all_of_many_to_one"].as_f64() > Some(0.0), "{line}");
}

#[test]
fn scenarios_have_a_sample_for_each_cell() {
    let Some(_cpus) = cpus() else { return };
    let fixture = Fixture::new();
    fixture.write(&[PATCH, SECOND_PATCH].concat());
    let mut switch = started(&fixture);
    let pvp = "lab pvp --backend a --backend b --backend c --backend d --mode noisy --noisy-memory 64 --noisy-lines 2 \
               --mrg off --buffer-len 1700 --header-offset 0 --queue-size 256 --size imix --seed 7";
    let vm2vm = "lab vm2vm --backend a --backend b --ring split --ring packed --size 64 --size 1514 --name other";
    let [pvp, vm2vm] = [pvp, vm2vm].map(|command| {
        let args: Vec<&str> = command.split_whitespace().chain(SHORT).collect();
        samples(&fixture.execute(&args))
    });
    switch.kill().unwrap();
    switch.wait().unwrap();
    let [sample] = &pvp[..] else { panic!("{pvp:?}") };
    assert_eq!([&sample["scenario"], &sample["variant"]], ["pvp", "backend"]);
    let cell = serde_json::json!({
        "size": "imix", "ring": "split", "load": "5kpps", "mode": "noisy", "noisy-memory": "64 KiB", "noisy-lines": "2",
        "mrg": "off", "buffer": "1700", "header": "0", "queue": "256", "seed": "7",
    });
    assert_eq!(sample["cell"], cell);
    let cells = vm2vm.iter().map(|sample| [&sample["variant"], &sample["cell"]["ring"], &sample["cell"]["size"]]);
    let cells: Vec<_> = cells.map(|cell| cell.map(|part| part.as_str().unwrap())).collect();
    let cell = |ring, size| ["other", ring, size];
    assert_eq!(cells, [cell("split", "64"), cell("split", "1514"), cell("packed", "64"), cell("packed", "1514")]);
}

#[test]
fn a_switch_of_ours_needs_no_socket() {
    let Some(_cpus) = cpus() else { return };
    let fixture = Fixture::new();
    let done = fixture.execute(&[&["lab", "pvp"][..], &SHORT].concat());
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        let samples = samples(&done);
        assert_eq!((samples.len(), samples[0]["variant"].as_str()), (1, Some("straightline")));
        assert!(samples[0]["metrics"]["switch_cycles_per_packet"].as_f64() > Some(0.0), "{samples:?}");
    } else {
        assert!(done.code == Some(1) && done.err.contains("two CPUs are needed"), "{done:?}");
    }
}

/// Returns the output of a scenario. If no sample is valid, the exit code says so.
fn samples(done: &Finished) -> Vec<serde_json::Value> {
    let samples: Vec<serde_json::Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let none_counts = samples.iter().all(|sample| !sample["invalid"].is_null());
    assert_eq!(done.code, Some(i32::from(none_counts)), "{done:?}");
    for sample in &samples {
        assert!(sample["metrics"]["sent"].as_f64() > Some(0.0), "{sample}");
        assert!(sample["metrics"]["generator_limit_mpps"].as_f64() > Some(0.0), "{sample}");
        assert_eq!(sample["cell"]["load"], "5kpps", "{sample}");
    }
    samples
}

#[test]
fn a_loop_in_which_packets_are_lost_fails_behind_its_report() {
    let Some(_cpus) = cpus() else { return };
    let fixture = Fixture::new();
    fixture.write(PATCH);
    // A few packets exceed the MTU.
    let args = ["lab", "loop", "--backend", "a", "--backend", "b", "--size", "64:100,2000:1", "--json"];
    let mut switch = started(&fixture);
    let done = fixture.execute(&[&args[..], &["--secs", "0.1", "--warm-up", "0.1"]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    assert_eq!(done.code, Some(1), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let lost = report["lost"].as_u64().filter(|&lost| lost > 0).expect("some");
    assert!(done.err.contains(&format!("error: {lost} packets of the loop are lost")), "{done:?}");
}

#[test]
fn an_experiment_with_a_switch_ends_with_what_there_is() {
    let Some(_cpus) = cpus() else { return };
    if !has_two_cpus("an_experiment_with_a_switch_ends_with_what_there_is") {
        return;
    }
    let fixture = Fixture::new();
    let args = ["lab", "exp", "width", "--quick", "--secs", "0.05", "--out", "results"];
    let mut command = fixture.command(&args);
    let mut experiment = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let samples = fixture.path("results/samples.jsonl");
    wait_until("a valid trial", || {
        assert!(experiment.try_wait().unwrap().is_none(), "the experiment has ended by itself");
        fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"mpps\""))
    });
    interrupt(&experiment);
    let done = Finished::new(&experiment.wait_with_output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(is_step(&done.err, 1) && done.err.contains("error: stopped: "), "{done:?}");
    assert!(done.out.starts_with("# width\n") && done.out.contains("| aligned |  | 60 |"), "{done:?}");
    assert!(done.out.contains(&fs::read_to_string(fixture.path("results/table.md")).unwrap()), "{done:?}");
    let results = folder::read(&fixture.path("results")).unwrap();
    let features = &results.environment.features["straightline, split"];
    assert!(features.iter().any(|feature| feature == "version-1"), "{features:?}");
    let again = fixture.execute(&args);
    assert!(again.code == Some(1) && again.err.contains("exists already"), "{again:?}");
}

#[test]
fn a_replay_of_which_something_is_lost_fails_behind_its_report() {
    let Some(_cpus) = cpus() else { return };
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let mut capture = pcapng::Writer::of_frames(fs::File::create(fixture.path("two.pcapng")).unwrap()).unwrap();
    capture.frame(0, &[1; 60]).unwrap();
    // The packet exceeds the MTU.
    capture.frame(1000, &[2; 1600]).unwrap();
    let replay = ["lab", "replay", "two.pcapng", "--backend", "a", "--backend", "b", "--quiet", "0.2", "--json"];
    let mut switch = started(&fixture);
    let done = fixture.execute(&replay);
    switch.kill().unwrap();
    switch.wait().unwrap();
    assert_eq!(done.code, Some(1), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!([&report["sent"], &report["identical"], &report["different"]], [2, 1, 0], "{report}");
    assert!(done.err.contains("2 frames were sent: 1 did not return unchanged"), "{done:?}");
}
