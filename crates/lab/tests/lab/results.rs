//! Folders of results: what was written is read, and everything else is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use straightline_lab::folder::{self, Writer, write_report};
use straightline_lab::machine;
use straightline_lab::rounds::{Cell, Measured, Plan, Record, Shown, Stop, Variant};
use straightline_report::results::{Environment, FORMAT, Latency, Results, Sample, Validity, series};
use tempfile::TempDir;

fn sample(round: u32, variant: &str, mpps: f64) -> Sample {
    Sample {
        scenario: "pvp".into(),
        round,
        variant: variant.into(),
        cell: BTreeMap::from([("size".into(), "64".into())]),
        metrics: BTreeMap::from([("mpps".into(), mpps)]),
        ..Sample::default()
    }
}

fn environment() -> Environment {
    Environment { format: FORMAT, kernel: "6.1".into(), ..Environment::default() }
}

/// A folder as an older version wrote it, with fewer fields, byte for byte.
const OLD_ENVIRONMENT: &str = r#"{"format":1,"program":"0.1.0","taken":"2026-11-21T12:00:00Z","command":["lab"],"cpu":"A CPU","flags":["avx2"],"microcode":null,"cpus":"0-1","smt":null,"caches":{},"kernel":"6.1","governor":null,"transparent_huge_pages":"madvise","huge_pages":{},"simd":"avx2","features":{},"peers":{}}
"#;
const OLD_SAMPLE: &str = r#"{"scenario":"pvp","round":1,"variant":"plain","cell":{"size":"64"},"metrics":{"mpps":4.25}}
"#;

/// Makes a folder with two samples, one of which has all possible fields.
fn folder() -> (TempDir, Vec<Sample>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(&folder.path().join("results"), environment()).expect("made");
    let full = Sample {
        cycles: BTreeMap::from([("copy".into(), 41.5)]),
        latency: Some(Latency { steps: vec![(1000, 7), (u64::MAX, 1)] }),
        carried: Some(false),
        validity: Validity::SpoiltByLoad("sent 3 % too little".into()),
        ..sample(1, "wide", 0.1 + 0.2)
    };
    let samples = vec![sample(1, "plain", 4.25), full];
    for sample in &samples {
        writer.write(sample).expect("written");
    }
    (folder, samples)
}

fn refusal(folder: &Path) -> String {
    let error = folder::read(&folder.join("results")).expect_err("refused");
    format!("{error:#}")
}

#[test]
fn what_was_written_is_read_at_any_time() {
    let (folder, samples) = folder();
    let path = folder.path().join("results");
    let read = folder::read(&path).expect("as it was written");
    assert_eq!((read.samples, read.environment), (samples, environment()));

    let error = Writer::create(&path, environment()).expect_err("there is one").to_string();
    assert!(error.contains("environment.json exists already"), "{error}");

    // A writer that is still open, as after an interrupted run, has kept nothing back.
    let open = folder.path().join("open");
    let mut writer = Writer::create(&open, environment()).expect("made");
    assert_eq!(folder::read(&open).expect("an empty one").samples, []);
    writer.write(&sample(1, "plain", 1.0)).expect("written");
    writer.negotiated("plain", &["VIRTIO_F_VERSION_1"]).expect("written");
    writer.negotiated("plain", &["VIRTIO_F_VERSION_1"]).expect("known already");
    writer.peer("testpmd", "DPDK 22.11").expect("written");
    let read = folder::read(&open).expect("as it is now");
    assert_eq!(read.samples, [sample(1, "plain", 1.0)]);
    assert_eq!(read.environment.features["plain"], ["VIRTIO_F_VERSION_1"]);
    assert_eq!(read.environment.peers["testpmd"], "DPDK 22.11");
}

/// Settings of made-up trials, which a stop ends.
#[derive(Default)]
struct Settings {
    is_stopped: std::cell::Cell<bool>,
}

impl Stop for Settings {
    fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }
}

/// A variant whose trial number `n`, from 1, has this rate and validity.
fn made_up(
    name: &'static str,
    trial: impl Fn(usize, &Settings) -> (Option<f64>, Validity) + 'static,
) -> Variant<'static, Settings> {
    let made = std::cell::Cell::new(0);
    Variant::new(name, move |settings: &Settings| {
        made.set(made.get() + 1);
        let (mpps, validity) = trial(made.get(), settings);
        let metrics = mpps.map(|mpps| ("mpps".to_owned(), mpps)).into_iter().collect();
        Ok(Measured { metrics, validity, ..Measured::default() })
    })
}

/// From the plan to the report: trials of each validity, one that is made again, and a stop in the middle.
#[test]
fn a_run_of_each_kind_of_trial_becomes_a_report() {
    let variants = [
        made_up("sound", |n, _| (Some(if n == 1 { 4.0 } else { 5.0 }), Validity::Valid)),
        made_up("late", |n, _| match n {
            1 => (Some(1.0), Validity::SpoiltByLoad("this thread was descheduled".to_owned())),
            _ => (Some(8.0), Validity::Valid),
        }),
        made_up("corrupt", |_, _| (None, Validity::SpoiltByBackend("7 packets came with other bytes".to_owned()))),
        made_up("stopped", |n, settings| match n {
            1 => (Some(2.0), Validity::Valid),
            _ => {
                settings.is_stopped.set(true);
                (Some(3.0), Validity::Interrupted("interrupted, after 0.5 of 1.0 s".to_owned()))
            }
        }),
    ];
    let cells = vec![Cell::new([("size", &64)], variants)];
    let plan = Plan { name: "made-up", shown: vec![Shown::MPPS], cells, left_out: Vec::new() };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results");
    let mut writer = Writer::create(&path, environment()).expect("made");
    let outcome = plan.run(3, &Settings::default(), &mut crate::experiments::Quiet, &mut |record| match record {
        Record::Sample(sample) => writer.write(sample),
        other => panic!("{other:?}"),
    });
    // The second round begins with the second variant, and its last but one is stopped.
    let outcome = outcome.expect("written");
    assert_eq!((outcome.planned, outcome.made, outcome.valid, outcome.invalid), (12, 6, 4, 4));
    let read = folder::read(&path).expect("as it was written");
    let words: Vec<_> = read.samples.iter().map(|s| (s.round, s.variant.as_str(), s.validity.word())).collect();
    let expected = [
        (1, "sound", "valid"),
        (1, "late", "spoilt-by-load"),
        (1, "late", "valid"),
        (1, "corrupt", "spoilt-by-backend"),
        (1, "stopped", "valid"),
        (2, "late", "valid"),
        (2, "corrupt", "spoilt-by-backend"),
        (2, "stopped", "interrupted"),
    ];
    assert_eq!(words, expected);
    let files = write_report(&path, None, None).expect("a report");
    let text = |name: &str| {
        let file = files.iter().find(|file| file.ends_with(name)).expect(name);
        fs::read_to_string(file).expect(name)
    };
    let markdown = text("report.md");
    for why in ["this thread was descheduled", "7 packets came with other bytes", "interrupted, after 0.5 of 1.0 s"] {
        assert!(markdown.contains(why) && text("index.html").contains(why), "{why} in {markdown}");
    }
    let csv = text("samples.csv");
    assert!(["4", "8", "2"].iter().all(|mpps| csv.contains(&format!(",{mpps}"))), "{csv}");
}

#[test]
fn this_machine_is_kept_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = machine::environment();
    assert!(here.kernel.contains('.') && !here.command.is_empty() && !here.simd.is_empty(), "{here:?}");
    // A build that copies nothing reports that.
    assert_eq!(here.program, straightline_switch::VERSION);
    Writer::create(&folder.path().join("results"), here.clone()).expect("made");
    let read = folder::read(&folder.path().join("results")).expect("as it was written");
    assert_eq!(read.environment, here);
    assert_eq!(here.differences(&read.environment), []);
}

#[test]
fn the_sets_of_this_repository_are_read() {
    for sets in ["full", "zen4"] {
        let sets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments").join(sets);
        let mut folders = 0;
        for set in fs::read_dir(sets).expect("the sets in this repository") {
            let set = set.expect("an entry").path();
            if !set.is_dir() {
                continue;
            }
            let read = folder::read(&set).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(!read.samples.is_empty(), "{}", set.display());
            folders += 1;
        }
        assert!(folders > 0);
    }
}

#[test]
fn samples_without_the_word_have_a_validity_and_no_booleans_as_metrics() {
    let (folder, _) = folder();
    let path = folder.path().join("results");
    let lines = [
        ("mpps", r#""invalid":"interrupted, after 3.1 of 9.0 s""#),
        ("at_least", r#""invalid":"no load up to 9969100 packets a second is too high""#),
        ("mpps", r#""invalid":"the trial took 1.1 s instead of 1.0 s: this thread was descheduled""#),
        ("carried", r#""invalid":"nothing has come from /a for 100 ms""#),
    ];
    let line = |(metric, invalid): (&str, &str)| {
        format!(r#"{{"scenario":"pvp","round":1,"variant":"a","cell":{{}},"metrics":{{"{metric}":1.0}},{invalid}}}"#)
            + "\n"
    };
    fs::write(path.join("samples.jsonl"), lines.map(line).concat()).expect("written");
    let samples = folder::read(&path).expect("without what is new").samples;
    let words: Vec<_> = samples.iter().map(|sample| sample.validity.word()).collect();
    assert_eq!(words, ["interrupted", "lower-bound", "spoilt-by-load", "spoilt-by-backend"]);
    let metrics: Vec<_> = samples.iter().map(|sample| sample.metrics.len()).collect();
    assert_eq!((metrics, samples[3].carried), (vec![1, 0, 1, 0], Some(true)));
    // What is read is written with the word, and read again.
    let again = folder.path().join("again");
    let mut writer = Writer::create(&again, environment()).expect("made");
    samples.iter().for_each(|sample| writer.write(sample).expect("written"));
    let text = fs::read_to_string(again.join("samples.jsonl")).expect("text");
    assert!(text.contains(r#""validity":"interrupted","invalid":"interrupted, after 3.1 of 9.0 s"}"#), "{text}");
    assert_eq!(folder::read(&again).expect("as it was written").samples, samples);
}

#[test]
fn folders_from_before_there_were_more_fields_are_read() {
    let (folder, _) = folder();
    let path = folder.path().join("results");
    fs::write(path.join("environment.json"), OLD_ENVIRONMENT).expect("written");
    fs::write(path.join("samples.jsonl"), OLD_SAMPLE).expect("written");
    let Results { environment: old, samples, .. } = folder::read(&path).expect("without what is new");
    assert_eq!(samples, [sample(1, "plain", 4.25)]);
    assert_eq!((old.taken.as_str(), old.command.join(" ").as_str()), ("2026-11-21T12:00:00Z", "lab"));
    let expected = Environment {
        format: FORMAT,
        program: "0.1.0".into(),
        taken: old.taken.clone(),
        command: old.command.clone(),
        cpu: "A CPU".into(),
        flags: vec!["avx2".into()],
        cpus: "0-1".into(),
        kernel: "6.1".into(),
        transparent_huge_pages: Some("madvise".into()),
        simd: "avx2".into(),
        ..Environment::default()
    };
    assert_eq!(old, expected);
    let built = Environment { commit: Some("c0ffee".into()), ..old.clone() };
    assert_eq!(old.differences(&built).iter().map(|d| d.second.as_str()).collect::<Vec<_>>(), ["c0ffee"]);
    let new = Environment { used_cpus: BTreeMap::from([("switch".into(), "1".into())]), ..old.clone() };
    let differences = old.differences(&new);
    let [difference] = &differences[..] else { panic!("{differences:?}") };
    assert_eq!((difference.field.as_str(), difference.second.as_str()), ("used_cpus", "switch = 1"));
}

#[test]
fn what_is_no_number_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(folder.path(), environment()).expect("made");
    for (bad, why) in [
        (sample(1, "plain", f64::NAN), "mpps is NaN"),
        (sample(1, "plain", f64::INFINITY), "mpps is inf"),
        (sample(0, "plain", 1.0), "rounds start from 1"),
    ] {
        let error = format!("{:#}", writer.write(&bad).expect_err("refused"));
        assert!(error.contains(why), "{error}");
    }
    writer.write(&sample(1, "plain", 1.0)).expect("written");
    assert_eq!(folder::read(folder.path()).expect("one line").samples.len(), 1);
}

#[test]
fn a_folder_that_is_not_understood_is_refused_with_the_place() {
    // The file, the replacement in it, and the words of the refusal.
    let cases: [(&str, &str, &str, &[&str]); 16] = [
        (
            "environment.json",
            "\"format\": 1",
            "\"format\": 2",
            &["environment.json:2: the results have format 2", "reads format 1"],
        ),
        ("environment.json", "\"format\": 1,", "", &["missing field `format`", "\"format\": 1"]),
        ("environment.json", "\"format\": 1", "\"format\": \"1\"", &["environment.json:2: invalid type"]),
        ("environment.json", "\"kernel\": \"6.1\"", "\"kernal\": \"6.1\"", &["unknown field `kernal`"]),
        ("environment.json", "{", "[", &["environment.json:2: invalid type"]),
        ("samples.jsonl", "\"variant\":\"wide\"", "\"variant\":wide", &["samples.jsonl:2: column"]),
        (
            "samples.jsonl",
            "\"variant\":\"wide\"",
            "\"varient\":\"wide\"",
            &["samples.jsonl:2", "unknown field `varient`"],
        ),
        (
            "samples.jsonl",
            "\"round\":1,\"variant\":\"plain\"",
            "\"variant\":\"plain\"",
            &["samples.jsonl:1", "missing field `round`"],
        ),
        (
            "samples.jsonl",
            "\"round\":1,\"variant\":\"plain\"",
            "\"round\":0,\"variant\":\"plain\"",
            &["samples.jsonl:1", "start from 1"],
        ),
        ("samples.jsonl", "4.25", "1e999", &["samples.jsonl:1", "number out of range"]),
        ("samples.jsonl", "4.25", "null", &["samples.jsonl:1", "invalid type: null"]),
        ("samples.jsonl", "\"valid\"", "\"sound\"", &["samples.jsonl:1", "\"sound\": use valid, lower-bound"]),
        ("samples.jsonl", "\"valid\"", "\"interrupted\"", &["samples.jsonl:1", "`invalid` is missing"]),
        ("samples.jsonl", "spoilt-by-load", "valid", &["samples.jsonl:2", "`invalid` has a reason"]),
        ("samples.jsonl", "}\n{", "}{", &["samples.jsonl:1", "trailing characters"]),
        ("samples.jsonl", "}\n{", "}\n\n{", &["samples.jsonl:2", "EOF"]),
    ];
    for (file, from, to, says) in cases {
        let (folder, _) = folder();
        let path = folder.path().join("results").join(file);
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let refusal = refusal(folder.path());
        assert!(says.iter().all(|part| refusal.contains(part)), "{from} -> {to}: {refusal}");
    }
}

#[test]
fn a_folder_with_a_file_missing_or_cut_is_refused() {
    for file in ["environment.json", "samples.jsonl"] {
        let (folder, _) = folder();
        let path = folder.path().join("results").join(file);
        fs::remove_file(&path).expect("removed");
        assert!(refusal(folder.path()).contains(&format!("{file}; a folder of results has")));

        // Cut anywhere except between two lines of samples, it is not read as if nothing were
        // missing.
        let (folder, samples) = self::folder();
        let path = folder.path().join("results").join(file);
        let whole = fs::read(&path).expect("bytes");
        for len in 0..whole.len() - 1 {
            fs::write(&path, &whole[..len]).expect("written");
            match folder::read(&folder.path().join("results")) {
                Ok(read) => assert!(
                    file == "samples.jsonl"
                        && (len == 0 || whole[len - 1] == b'\n')
                        && samples.starts_with(&read.samples)
                ),
                Err(error) => assert!(format!("{error:#}").contains(file), "{error:#}"),
            }
        }
        fs::write(&path, b"\xff\xfe\n").expect("written");
        assert!(refusal(folder.path()).contains(file));
    }
}

/// Makes a folder in a folder, with a sample of this scenario.
fn part(folder: &Path, name: &str, scenario: &str, change: impl FnOnce(&mut Environment)) {
    let mut environment = environment();
    change(&mut environment);
    let mut writer = Writer::create(&folder.join(name), environment).expect("made");
    writer.write(&Sample { scenario: scenario.to_owned(), ..sample(1, "plain", 1.0) }).expect("written");
}

#[test]
fn folders_of_one_run_are_read_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let on = |environment: &mut Environment, taken: &str, features: [(&str, &str); 2]| {
        (environment.taken, environment.command) = (taken.to_owned(), vec!["lab".to_owned()]);
        environment.features = features.map(|(with, feature)| (with.to_owned(), vec![feature.to_owned()])).into();
    };
    part(path, "width", "width", |e| on(e, "2026-11-21T13:00:00Z", [("split", "csum"), ("packed", "in-order")]));
    part(path, "touch", "touch", |e| on(e, "2026-11-21T12:00:00Z", [("split", "csum"), ("packed", "mrg-rxbuf")]));
    // Other files that may be there.
    fs::create_dir(path.join("notes")).expect("made");
    fs::write(path.join("index.html"), "").expect("written");
    let read = folder::read(path).expect("both");
    assert_eq!(read.samples.iter().map(|sample| sample.scenario.as_str()).collect::<Vec<_>>(), ["touch", "width"]);
    assert_eq!(
        (read.environment.taken.as_str(), read.environment.command),
        ("2026-11-21T12:00:00Z", vec!["lab".into()])
    );
    let features: Vec<_> = read.environment.features.iter().map(|(with, all)| format!("{with}: {}", all[0])).collect();
    assert_eq!(features, ["packed: mrg-rxbuf", "packed, in width: in-order", "split: csum"]);

    // The folders were measured by several commands. Each command is listed once.
    let again = |name: &str, command: &str| {
        part(path, name, name, |e| e.command = vec!["lab".to_owned(), command.to_owned()]);
    };
    again("noisy", "noisy");
    again("prefetch", "other");
    again("offload", "other");
    assert_eq!(folder::read(path).expect("all").environment.command.join(" "), "lab noisy ; lab other ; lab");
    fs::remove_dir_all(path.join("offload")).expect("removed");

    // A folder that was never finished is not ignored.
    let damaged = path.join("offload");
    fs::create_dir(&damaged).expect("made");
    fs::write(damaged.join("samples.jsonl"), "").expect("written");
    let error = format!("{:#}", folder::read(path).expect_err("half a folder"));
    assert!(error.contains("offload/environment.json; a folder of results has"), "{error}");
}

#[test]
fn folders_that_do_not_belong_together_are_refused_with_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    part(path, "monday", "pvp", |_| ());
    part(path, "tuesday", "pvp", |_| ());
    let error = folder::read(path).expect_err("one scenario twice").to_string();
    for part in ["pvp is both in ", "monday and in ", "use one of ", "/tuesday"] {
        assert!(error.contains(part), "{error}");
    }
    fs::remove_dir_all(path.join("tuesday")).expect("removed");
    part(path, "wednesday", "vm2vm", |environment| environment.kernel = "6.2".into());
    let error = folder::read(path).expect_err("two kernels").to_string();
    for part in ["monday and ", "/wednesday differ in kernel", "use one of "] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn nothing_is_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    part(path, "set/width", "width", |_| ());
    part(path, "own", "pvp", |_| ());
    let refused = |name: &str| {
        Writer::check(&path.join(name)).expect_err("whoever reads one passes over the other");
        Writer::create(&path.join(name), environment()).expect_err("the same").to_string()
    };
    let error = refused("set");
    assert!(error.contains("set has folders of results in it") && error.ends_with("/set/width"), "{error}");
    assert!(refused("own/width").contains("own/width would be in a folder that has results of its own"));
    assert!(!path.join("own/width").exists() && !path.join("set/samples.jsonl").exists());
    Writer::check(&path.join("set/touch")).expect("beside the other");

    // As after a copy by the user.
    for file in ["environment.json", "samples.jsonl"] {
        fs::copy(path.join("own").join(file), path.join("set").join(file)).expect("copied");
    }
    let error = folder::read(&path.join("set")).expect_err("both").to_string();
    assert!(error.contains("set has samples of its own") && error.contains("use one of "), "{error}");
    assert!(error.contains("/set/width, or move"), "{error}");
}

#[test]
fn what_cannot_be_looked_at_is_not_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    part(path, "width", "width", |_| ());
    std::os::unix::fs::symlink("nowhere", path.join("gone")).expect("a link");
    assert_eq!(folder::read(path).expect("one folder").samples.len(), 1);
    // Links to themselves cannot be followed, not even by root.
    for unreadable in ["touch", "offload/environment.json"] {
        let link = path.join(unreadable);
        fs::create_dir_all(link.parent().expect("a folder")).expect("made");
        std::os::unix::fs::symlink(&link, &link).expect("a link");
        let error = format!("{:#}", folder::read(path).expect_err("nobody knows what is there"));
        assert!(error.contains("cannot examine ") && error.contains(unreadable), "{error}");
        fs::remove_file(link).expect("removed");
    }
}

#[test]
fn samples_are_found_by_place_and_only_those_that_count() {
    let mut results = Results::default();
    for round in 1..=2 {
        results.samples.push(sample(round, "plain", f64::from(round)));
        results.samples.push(sample(round, "wide", 10.0));
    }
    results.samples[2].validity = Validity::SpoiltByBackend("the backend was silent".into());
    let places = results.places();
    let names: Vec<_> = places.iter().map(|(place, samples)| (place.variant.as_str(), samples.len())).collect();
    assert_eq!(names, [("plain", 2), ("wide", 2)]);
    assert_eq!(series(places[0].1.iter().copied(), "mpps"), [(1, 1.0)]);
    assert_eq!(series(places[1].1.iter().copied(), "mpps"), [(1, 10.0), (2, 10.0)]);
    assert_eq!(series(places[1].1.iter().copied(), "gbit_per_s"), []);
}
