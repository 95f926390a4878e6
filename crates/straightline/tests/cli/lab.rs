use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use straightline_capture::pcapng;
use straightline_lab::folder::{self, Writer};
use straightline_lab::traffic::capture::Capture;
use straightline_report::results::{Environment, FORMAT, Sample};

use super::{Finished, Fixture, has_two_cpus};

/// Patch of the ports `a` and `b`. Packets wait while a ring is full, because the switch may be
/// descheduled on a busy machine.
const PATCH: &str = "[port.a]
kind = \"vhost-user\"
socket = \"@/a\"
[port.b]
kind = \"vhost-user\"
socket = \"@/b\"
[patch.p]
ports = [\"a\", \"b\"]
full = \"wait\"
";

/// Second patch, of the ports `c` and `d`.
const SECOND_PATCH: &str = "[port.c]
kind = \"vhost-user\"
socket = \"@/c\"
[port.d]
kind = \"vhost-user\"
socket = \"@/d\"
[patch.q]
ports = [\"c\", \"d\"]
full = \"wait\"
";

/// Starts the switch and waits until its sockets exist.
fn started(fixture: &Fixture) -> Child {
    let mut switch = fixture.command(&["run", "switch.toml"]);
    let switch = switch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let config = fs::read_to_string(fixture.path("switch.toml")).unwrap();
    let ports = ["a", "b", "c", "d"].iter().filter(|port| config.contains(&format!("[port.{port}]")));
    for _ in 0..1000 {
        if ports.clone().all(|socket| fixture.path(socket).exists()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    switch
}

#[test]
fn a_loop_ends_with_a_line_of_json_or_says_why_not() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let args = ["lab", "loop", "--backend", "a", "--backend", "b", "--secs", "0.1", "--warm-up", "0.1", "--json"];
    let absent = fixture.execute(&args);
    assert_eq!(absent.code, Some(1), "{absent:?}");
    assert!(absent.out.is_empty() && absent.err.contains("error: no backend answers: is it running"), "{absent:?}");
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

#[test]
fn a_loop_in_which_packets_are_lost_fails_behind_its_report() {
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
fn experiments_are_listed_and_what_cannot_be_is_said() {
    let fixture = Fixture::new();
    let list = fixture.execute(&["lab", "exp", "--list"]);
    assert_eq!(list.code, Some(0), "{list:?}");
    for name in ["memcpy", "header-align", "touch", "width"] {
        assert!(list.out.lines().any(|line| line.starts_with(name)), "{list:?}");
    }
    let unknown = fixture.execute(&["lab", "exp", "memory"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("no experiment \"memory\"; the experiments are memcpy, "), "{unknown:?}");
    assert_eq!(fixture.execute(&["lab", "exp"]).code, Some(2));
    assert_eq!(fixture.execute(&["lab", "exp", "memcpy", "--all"]).code, Some(2));
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        let bound = fixture.execute(&["lab", "exp", "memcpy", "--bound", env!("CARGO_BIN_EXE_straightline")]);
        assert_eq!(bound.code, Some(1), "{bound:?}");
        assert!(bound.err.contains("is no bound: it copies packets"), "{bound:?}");
        let cell = fixture.execute(&["lab", "exp", "width", "--cell", "size=61", "--out", "results"]);
        assert_eq!(cell.code, Some(1), "{cell:?}");
        assert!(cell.err.contains("width has no cell with size=61") && cell.err.contains("size=60|1020|1514"));
        assert!(!fixture.path("results").exists(), "{cell:?}");
    } else {
        let alone = fixture.execute(&["lab", "exp", "memcpy"]);
        assert!(alone.code == Some(1) && alone.err.contains("two CPUs are needed"), "{alone:?}");
    }
}

/// Returns whether a line of progress shows this step.
fn is_step(text: &str, step: usize) -> bool {
    text.lines().any(|line| line.starts_with('[') && line.contains(&format!(" s] {step} of ")))
}

#[test]
fn an_experiment_that_is_interrupted_ends_with_what_there_is() {
    if !has_two_cpus("an_experiment_that_is_interrupted_ends_with_what_there_is") {
        return;
    }
    let fixture = Fixture::new();
    let args = ["lab", "exp", "width", "--quick", "--secs", "0.05", "--out", "results"];
    let mut command = fixture.command(&args);
    let mut experiment = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let samples = fixture.path("results/samples.jsonl");
    // On a busy machine the first trials may be invalid.
    while !std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"mpps\"")) {
        assert!(experiment.try_wait().unwrap().is_none(), "the experiment has ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(experiment.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = Finished::new(&experiment.wait_with_output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(is_step(&done.err, 1) && done.err.contains("error: stopped: "), "{done:?}");
    assert!(done.out.starts_with("# width\n") && done.out.contains("| aligned |  | 60 |"), "{done:?}");
    assert!(done.out.contains(&std::fs::read_to_string(fixture.path("results/table.md")).unwrap()), "{done:?}");
    let results = folder::read(&fixture.path("results")).unwrap();
    let features = &results.environment.features["straightline, split"];
    assert!(features.iter().any(|feature| feature == "version-1"), "{features:?}");
    let again = fixture.execute(&args);
    assert!(again.code == Some(1) && again.err.contains("exists already"), "{again:?}");
}

#[test]
fn what_cannot_be_measured_leaves_no_folder() {
    let fixture = Fixture::new();
    for (wrong, value, code) in
        [("--queue-size", "100", 2), ("--size", "20", 2), ("--size", "9300", 2), ("--cpu", "100000", 1)]
    {
        let refused = fixture.execute(&["lab", "vm2vm", wrong, value, "--out", "results"]);
        assert!(refused.code == Some(code) && refused.err.contains("error: "), "{refused:?}");
        assert!(!fixture.path("results").exists(), "{wrong} {value}: {refused:?}");
    }
}

#[test]
fn an_experiment_of_which_nothing_counts_does_not_keep_the_others_from_their_turn() {
    if !has_two_cpus("an_experiment_of_which_nothing_counts_does_not_keep_the_others_from_their_turn") {
        return;
    }
    let fixture = Fixture::new();
    let args = ["lab", "exp", "--all", "--quick", "--rounds", "1", "--secs", "0.01", "--out", "results"];
    // Without a folder for sockets, each trial fails when it starts. Only `cold` has no switch.
    let done = Finished::new(&fixture.command(&args).env("TMPDIR", "/nonexistent").output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    let names =
        ["memcpy", "header-align", "offload", "touch", "width", "prefetch", "batch", "levels", "noisy", "tunnel"];
    let error = format!("error: no valid trial of {}; reasons are listed above", names.join(", "));
    assert!(done.err.contains(&error), "{}", done.err);
    for name in names {
        assert!(done.out.contains(&format!("# {name}\n")), "{name} in {}", done.out);
        let results = folder::read(&fixture.path("results").join(name)).unwrap();
        assert!(!results.samples.is_empty() && results.samples.iter().all(|s| !s.is_valid()), "{results:?}");
    }
    let cold = folder::read(&fixture.path("results/cold")).unwrap();
    assert!(cold.samples.iter().any(|sample| sample.is_valid()), "{cold:?}");
    fs::remove_dir_all(fixture.path("results/cold")).unwrap();
    let report = fixture.execute(&["lab", "report", "results"]);
    assert_eq!((report.code, report.out.lines().next()), (Some(0), Some("results/index.html")), "{report:?}");
    let page = fs::read_to_string(fixture.path("results/index.html")).unwrap();
    assert!(names.iter().all(|name| page.contains(&format!(">{name}</a>"))), "{names:?}");
    let compare = fixture.execute(&["lab", "compare", "results", "results"]);
    assert!(compare.code == Some(1) && compare.err.contains("A has no valid trials"), "{compare:?}");
}

/// On a busy machine the trial with a line may not be valid, because the line is not the limit, or nothing
/// came in so short a time. Other trials are made again then.
#[test]
fn tunnels_are_measured_beside_patches() {
    if !has_two_cpus("tunnels_are_measured_beside_patches") {
        return;
    }
    let fixture = Fixture::new();
    let short = ["lab", "tunnel", "--rounds", "1", "--secs", "0.05", "--line", "0.02", "--json"];
    let mut tries = std::iter::repeat_with(|| fixture.execute(&[&short[..], &["--kind", "l2tpv3"]].concat())).take(3);
    let is_known = |line: &str| {
        line.contains("load=line") && ["of the line was used", "packets came from"].iter().any(|why| line.contains(why))
    };
    let is_good = |done: &Finished| {
        let mut invalid = done.err.lines().filter(|line| line.contains("is not valid"));
        done.code == Some(0) || done.err.contains("no valid trial") && invalid.all(is_known)
    };
    let done = tries.find(is_good).expect("all trials but those with a line are valid");
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
    let mut tries =
        std::iter::repeat_with(|| fixture.execute(&[&short[..], &["--kind", "vxlan,gtpu", "--many", "3"]].concat()))
            .take(3);
    let many = tries.find(|many| many.code == Some(0)).expect("all trials are valid");
    assert!(many.err.contains("not measured: many tunnels of the kind gtpu"), "{many:?}");
    let line: serde_json::Value = serde_json::from_str(&many.out).unwrap();
    assert_eq!((line["kind"].as_str(), line["tunnels"].as_u64()), (Some("vxlan"), Some(3)), "{line}");
    assert!(line["packets_64"]["all_of_many_to_one"].as_f64() > Some(0.0), "{line}");
}

#[test]
fn nothing_is_measured_where_one_of_all_has_no_place() {
    if !has_two_cpus("nothing_is_measured_where_one_of_all_has_no_place") {
        return;
    }
    let fixture = Fixture::new();
    results(&fixture, "results/noisy", "noisy", "6.1", &[]);
    let refused = fixture.execute(&["lab", "exp", "--all", "--quick", "--out", "results"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.err.contains("results/noisy/environment.json exists already"), "{refused:?}");
    assert!(!is_step(&refused.err, 1) && !fixture.path("results/memcpy").exists(), "{refused:?}");
}

#[test]
fn sets_of_folders_are_compared_scenario_by_scenario() {
    let fixture = Fixture::new();
    let slow = [4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.8];
    for (set, factor) in [("a", 1.0), ("b", 1.25)] {
        for name in ["pvp", "vm2vm"] {
            results(&fixture, &format!("{set}/{name}"), name, "6.1", &slow.map(|mpps| mpps * factor));
        }
    }
    let table = fixture.execute(&["lab", "compare", "a", "b"]);
    assert_eq!((table.code, table.out.matches("faster").count()), (Some(0), 2), "{table:?}");
    for part in ["A: a, ", "pvp, mpps", "vm2vm, mpps"] {
        assert!(table.out.contains(part), "{part} in {}", table.out);
    }
}

/// Writes a folder of results, with one round for each value.
fn results(fixture: &Fixture, name: &str, scenario: &str, kernel: &str, values: &[f64]) {
    let environment = Environment { format: FORMAT, kernel: kernel.to_owned(), ..Environment::default() };
    let mut writer = Writer::create(&fixture.path(name), environment).unwrap();
    for (round, &mpps) in (1..).zip(values) {
        let cell = BTreeMap::from([("size".to_owned(), "64".to_owned())]);
        let metrics = BTreeMap::from([("mpps".to_owned(), mpps)]);
        let sample =
            Sample { scenario: scenario.into(), variant: "plain".into(), round, cell, metrics, ..Sample::default() };
        writer.write(&sample).unwrap();
    }
}

#[test]
fn folders_are_compared_or_refused() {
    let fixture = Fixture::new();
    let slow = [4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.8];
    results(&fixture, "slow", "pvp", "6.1", &slow);
    results(&fixture, "fast", "pvp", "6.2", &slow.map(|mpps| mpps * 1.25));
    let table = fixture.execute(&["lab", "compare", "slow", "fast"]);
    assert_eq!((table.code, table.err.as_str()), (Some(0), ""), "{table:?}");
    for part in ["differ in kernel", "A: 6.1", "B: 6.2", "pvp, mpps", "size=64 plain", "4.000 (7)", "1.250", "faster"] {
        assert!(table.out.contains(part), "{part} in {}", table.out);
    }
    let json = fixture.execute(&["lab", "compare", "fast", "slow", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["figures"][0]["verdict"], "slower", "{json}");
    assert_eq!(json["figures"][0]["cell"]["size"], "64", "{json}");
    assert_eq!(json["environment"][0]["field"], "kernel", "{json}");

    for format in [&[][..], &["--json"]] {
        let typo = fixture.execute(&[&["lab", "compare", "slow", "fast", "--metric", "mmps"][..], format].concat());
        assert_eq!(typo.code, Some(1), "{typo:?}");
        assert!(
            typo.err.starts_with("error: A and B have no metric \"mmps\"") && typo.err.contains("A has mpps"),
            "{typo:?}"
        );
    }

    fs::write(fixture.path("fast/samples.jsonl"), "{}\n").unwrap();
    let refused = fixture.execute(&["lab", "compare", "slow", "fast"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    for part in ["error: fast/samples.jsonl:1: column ", "missing field `scenario`"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
}

#[test]
fn what_is_generated_comes_back() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let mut switch = started(&fixture);
    let backends = ["--backend", "a", "--backend", "b"];
    let times = ["--warm-up", "0.1", "--secs", "0.2", "--rate", "5kpps", "--json"];
    let streams = ["--stream", "size=imix,src-port=step:1-99", "--stream", "size=80,vlan=random:1-9,weight=2"];
    let done = fixture.execute(&[&["lab", "generate"][..], &backends, &times, &streams].concat());
    let impossible = fixture.execute(&[&["lab", "generate"][..], &backends, &["--rate", "1000gbit"]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    // On a busy machine the generator may not reach the rate. This test does not depend on the
    // rate.
    let sample: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let figure = |name: &str| sample["metrics"][name].as_f64().unwrap();
    assert_eq!([figure("lost"), figure("corrupt"), figure("foreign")], [0.0; 3], "{sample}");
    assert!(figure("sent") > 0.0 && figure("generator_limit_mpps") > 0.0, "{sample}");
    assert!(figure("latency_max_us") > 0.0 && sample["latency"]["steps"].is_array(), "{sample}");
    assert_eq!(done.code, Some(i32::from(!sample["invalid"].is_null())), "{done:?}");
    assert_eq!(impossible.code, Some(1));
    assert!(impossible.out.contains("more than the generator makes"), "{impossible:?}");
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    let fixture = Fixture::new();
    for kind in ["af-packet", "af-xdp"] {
        let interface = format!("{kind}:no-such-one");
        let generate = fixture.execute(&["lab", "generate", "--interface", &interface]);
        assert!(generate.code == Some(1) && generate.err.contains("no-such-one"), "{generate:?}");
        let both = ["--interface", &interface, "--interface", &interface];
        let pvp = fixture.execute(&[&["lab", "pvp"][..], &both, &SHORT].concat());
        assert_eq!(pvp.code, Some(1), "{pvp:?}");
        if has_two_cpus("an_interface_that_does_not_exist_is_named") {
            assert!(pvp.out.contains("interface no-such-one does not exist"), "{pvp:?}");
        }
    }
}

#[test]
fn a_capture_is_replayed_and_written() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/captures/wireshark.pcap");
    let tunnels = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/captures/tunnels.pcap");
    let replay = ["lab", "replay", "--backend", "a", "--backend", "b", "--speed", "50", "--json"];
    let mut switch = started(&fixture);
    let rest = [tunnels, "--rate", "1kpps", "--write", "tunnels.pcapng"];
    let by_rate = fixture.execute(&[&replay[..6], &rest].concat());
    let done = fixture.execute(&[&replay[..], &[capture, "--write", "back.pcapng"]].concat());
    let again = fixture.execute(&[&replay[..], &["back.pcapng"]].concat());
    let absent = fixture.execute(&[&replay[..], &["absent.pcap"]].concat());
    let none = fixture.execute(&[&replay[..], &["switch.toml"]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    for done in [done, again] {
        assert_eq!(done.code, Some(0), "{done:?}");
        let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!([&report["sent"], &report["identical"], &report["different"]], [4, 4, 0], "{report}");
    }
    assert_eq!(by_rate.code, Some(0), "{by_rate:?}");
    assert!(by_rate.out.contains("15 returned unchanged, 0 did not return"), "{by_rate:?}");
    let [sent, back] = [tunnels.into(), fixture.path("tunnels.pcapng")].map(|path| {
        let frames = Capture::open(&path).unwrap().frames;
        frames.into_iter().map(|frame| frame.bytes).collect::<Vec<_>>()
    });
    assert_eq!((sent.len(), sent), (15, back));
    assert!(absent.code == Some(1) && absent.err.contains("absent.pcap"), "{absent:?}");
    assert!(none.code == Some(1) && none.err.contains("neither a pcap nor a pcapng"), "{none:?}");
}

#[test]
fn a_replay_of_which_something_is_lost_fails_behind_its_report() {
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

#[test]
fn a_replay_that_is_refused_leaves_an_old_file_as_it_is() {
    let fixture = Fixture::new();
    fs::write(fixture.path("back.pcapng"), "of before").unwrap();
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/captures/wireshark.pcap");
    let refused = fixture.execute(&["lab", "replay", capture, "--backend", "nobody", "--write", "back.pcapng"]);
    assert!(refused.code == Some(1) && refused.err.contains("no backend answers"), "{refused:?}");
    assert_eq!(fs::read_to_string(fixture.path("back.pcapng")).unwrap(), "of before");
}

/// Returns the output of a scenario. On a busy machine there may be no valid sample; the exit code
/// says so.
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

/// Arguments for the shortest possible run.
const SHORT: [&str; 9] = ["--rate", "5kpps", "--secs", "0.1", "--warm-up", "0.1", "--rounds", "1", "--json"];

#[test]
fn scenarios_have_a_sample_for_each_cell() {
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

#[test]
fn a_folder_of_samples_becomes_a_report() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let external = ["lab", "patch-external", "--backend", "a", "--backend", "b", "--out", "results"];
    let mut switch = started(&fixture);
    let samples = samples(&fixture.execute(&[&external[..], &SHORT].concat()));
    switch.kill().unwrap();
    switch.wait().unwrap();
    let folder = folder::read(&fixture.path("results")).unwrap();
    assert_eq!((samples.len(), folder.samples.len()), (1, 1));
    assert_eq!(serde_json::to_value(&folder.samples[0]).unwrap(), samples[0]);
    assert!(folder.environment.features.contains_key("backend, split"), "{:?}", folder.environment);
    let report = fixture.execute(&["lab", "report", "results", "--out", "page"]);
    assert_eq!((report.code, report.err.as_str()), (Some(0), ""), "{report:?}");
    assert_eq!(report.out, "page/index.html\npage/report.md\npage/samples.csv\n");
    for file in report.out.lines() {
        assert!(fs::read_to_string(fixture.path(file)).unwrap().contains("patch-external"), "{file}");
    }
    let absent = fixture.execute(&["lab", "report", "absent"]);
    assert!(absent.code == Some(1) && absent.err.contains("absent"), "{absent:?}");
}

#[test]
fn a_guest_ends_with_a_line_of_json() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let mut switch = started(&fixture);
    let guest = ["lab", "guest", "--backend", "a", "--mode", "rxonly", "--touch", "read", "--secs", "0.1", "--json"];
    let done = fixture.execute(&guest);
    switch.kill().unwrap();
    switch.wait().unwrap();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!([&report["mode"], &report["touch"], &report["ring"]], ["rxonly", "read", "split"], "{report}");
    assert_eq!(report["notes"], serde_json::json!([["packets touched", 0]]), "{report}");
    assert_eq!(report["ports"].as_array().map(Vec::len), Some(1), "{report}");
    let absent = fixture.execute(&guest);
    assert!(absent.code == Some(1) && absent.err.contains("no backend answers"), "{absent:?}");
}
