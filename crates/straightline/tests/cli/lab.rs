mod long;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use straightline_lab::folder::{self, Writer};
use straightline_lab::traffic::capture::Capture;
use straightline_report::results::{Environment, FORMAT, Sample};
use straightline_switch::api;
use straightline_testing::wait_until;

use super::{Finished, Fixture, has_two_cpus};

/// Patch of the ports `a` and `b`. Packets wait while a ring is full, because the switch may be
/// descheduled on a busy machine.
const PATCH: &str = "[switch]
api = \"@/api\"
[port.a]
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
    wait_until("the switch's sockets exist", || ports.clone().all(|socket| fixture.path(socket).exists()));
    switch
}

/// Runs a command with packets through the switch, and interrupts it. More packets have passed by then
/// than fit into the rings, and the patches wait for free buffers, so some have returned.
fn interrupted(fixture: &Fixture, args: &[&str]) -> Finished {
    let passed = || {
        let runtime = api::ask::<api::Runtime>(&fixture.path("api")).ok()?;
        runtime.nodes.iter().map(|node| node.packets).max()
    };
    let before = wait_until("the switch answers", passed);
    let mut running = fixture.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("packets pass", || {
        running.try_wait().unwrap().is_some() || passed().is_some_and(|passed| passed > before + 3000)
    });
    // If the command has ended, its output says why.
    if running.try_wait().unwrap().is_none() {
        interrupt(&running);
    }
    Finished::new(&running.wait_with_output().unwrap())
}

fn interrupt(running: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_loop_says_why_it_cannot_begin() {
    let fixture = Fixture::new();
    let args = ["lab", "loop", "--backend", "a", "--backend", "b", "--secs", "0.1", "--warm-up", "0.1", "--json"];
    let absent = fixture.execute(&args);
    assert_eq!(absent.code, Some(1), "{absent:?}");
    assert!(absent.out.is_empty() && absent.err.contains("error: no backend answers: is it running"), "{absent:?}");
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

/// The experiment needs no switch, and its trials take an hour, so only the signal can end the first one.
#[test]
fn an_experiment_that_is_interrupted_ends_with_what_there_is() {
    if !has_two_cpus("an_experiment_that_is_interrupted_ends_with_what_there_is") {
        return;
    }
    let fixture = Fixture::new();
    let args = ["lab", "exp", "cold", "--quick", "--secs", "3600", "--out", "results"];
    let mut experiment = fixture.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(experiment.stderr.take().unwrap());
    let mut said = String::new();
    while !is_step(&said, 1) {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "the experiment has ended by itself: {said}");
    }
    interrupt(&experiment);
    stderr.read_to_string(&mut said).unwrap();
    let done = Finished::new(&experiment.wait_with_output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(said.contains("error: stopped: 0 of ") && !is_step(&said, 2), "{said}");
    assert!(done.out.starts_with("# cold\n"), "{done:?}");
    assert!(done.out.contains(&std::fs::read_to_string(fixture.path("results/table.md")).unwrap()), "{done:?}");
    let results = folder::read(&fixture.path("results")).unwrap();
    let [sample] = &results.samples[..] else { panic!("{results:?}") };
    let why = sample.validity.reason().unwrap();
    assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 3600.0 s"), "{why}");
    assert!(sample.metrics.contains_key("node_cycles_per_packet"), "{sample:?}");
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
    let generate = ["lab", "generate", "--backend", "a", "--backend", "b"];
    let times = ["--warm-up", "0", "--secs", "3600", "--rate", "20kpps", "--queue-size", "256", "--json"];
    let streams = ["--stream", "size=imix,src-port=step:1-99", "--stream", "size=80,vlan=random:1-9,weight=2"];
    let done = interrupted(&fixture, &[&generate[..], &times, &streams].concat());
    let impossible = fixture.execute(&[&generate[..], &["--rate", "1000gbit"]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    let sample: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let figure = |name: &str| sample["metrics"][name].as_f64().unwrap();
    // Packets under way at a stop count as lost.
    assert_eq!([figure("duplicates"), figure("corrupt"), figure("foreign")], [0.0; 3], "{sample}");
    assert!(figure("sent") > figure("lost") && figure("generator_limit_mpps") > 0.0, "{sample}");
    assert!(figure("latency_max_us") > 0.0 && sample["latency"]["steps"].is_array(), "{sample}");
    assert!(sample["invalid"].as_str().unwrap().ends_with(" of 3600.0 s"), "{sample}");
    assert!(done.code == Some(1) && done.err.contains("not a valid trial: interrupted, after "), "{done:?}");
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
    // It ends when all frames have returned.
    let replay = ["lab", "replay", "--backend", "a", "--backend", "b", "--quiet", "120", "--speed", "50", "--json"];
    let mut switch = started(&fixture);
    let rest = [tunnels, "--rate", "1kpps", "--write", "tunnels.pcapng"];
    let by_rate = fixture.execute(&[&replay[..8], &rest].concat());
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
fn a_replay_that_is_refused_leaves_an_old_file_as_it_is() {
    let fixture = Fixture::new();
    fs::write(fixture.path("back.pcapng"), "of before").unwrap();
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/captures/wireshark.pcap");
    let refused = fixture.execute(&["lab", "replay", capture, "--backend", "nobody", "--write", "back.pcapng"]);
    assert!(refused.code == Some(1) && refused.err.contains("no backend answers"), "{refused:?}");
    assert_eq!(fs::read_to_string(fixture.path("back.pcapng")).unwrap(), "of before");
}

/// Arguments for the shortest possible run.
const SHORT: [&str; 9] = ["--rate", "5kpps", "--secs", "0.1", "--warm-up", "0.1", "--rounds", "1", "--json"];

/// Arguments for a run that only a signal ends.
const ENDLESS: [&str; 9] = ["--rate", "20kpps", "--secs", "3600", "--warm-up", "0", "--rounds", "1", "--json"];

/// Returns the only sample of a scenario that was interrupted.
fn interrupted_sample(done: &Finished) -> serde_json::Value {
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("error: stopped: 0 of 1 parts were measured"), "{done:?}");
    let sample: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert!(sample["invalid"].as_str().unwrap().ends_with(" of 3600.0 s"), "{sample}");
    assert!(sample["metrics"]["mpps"].as_f64() > Some(0.0), "{sample}");
    assert!(sample["metrics"]["generator_limit_mpps"].as_f64() > Some(0.0), "{sample}");
    sample
}

#[test]
fn what_differs_from_a_usual_scenario_is_in_its_cell() {
    let fixture = Fixture::new();
    fixture.write(&[PATCH, SECOND_PATCH].concat());
    let mut switch = started(&fixture);
    let pvp = "lab pvp --backend a --backend b --backend c --backend d --mode noisy --noisy-memory 64 --noisy-lines 2 \
               --mrg off --buffer-len 1700 --header-offset 0 --queue-size 256 --size imix --seed 7";
    let args: Vec<&str> = pvp.split_whitespace().chain(ENDLESS).collect();
    let sample = interrupted_sample(&interrupted(&fixture, &args));
    switch.kill().unwrap();
    switch.wait().unwrap();
    assert_eq!([&sample["scenario"], &sample["variant"]], ["pvp", "backend"]);
    let cell = serde_json::json!({
        "size": "imix", "ring": "split", "load": "20kpps", "mode": "noisy", "noisy-memory": "64 KiB", "noisy-lines": "2",
        "mrg": "off", "buffer": "1700", "header": "0", "queue": "256", "seed": "7",
    });
    assert_eq!(sample["cell"], cell);
}

#[test]
fn a_folder_of_samples_becomes_a_report() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let external = ["lab", "patch-external", "--backend", "a", "--backend", "b", "--queue-size", "256"];
    let mut switch = started(&fixture);
    let args = [&external[..], &["--out", "results", "--name", "other"], &ENDLESS].concat();
    let sample = interrupted_sample(&interrupted(&fixture, &args));
    switch.kill().unwrap();
    switch.wait().unwrap();
    let folder = folder::read(&fixture.path("results")).unwrap();
    let [kept] = &folder.samples[..] else { panic!("{folder:?}") };
    assert_eq!(serde_json::to_value(kept).unwrap(), sample);
    assert_eq!(sample["variant"], "other");
    assert!(folder.environment.features.contains_key("other, split"), "{:?}", folder.environment);
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
