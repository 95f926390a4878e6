use std::os::unix::net::UnixStream;

use straightline_testing::wait_until;

use super::Fixture;
use super::run::{CONFIG, Running};

const MORE: &str = "\
[port.vm3]
kind = \"vhost-user\"
socket = \"@/vm3\"
[bridge.lan]
ports = [\"vm3\"]
";

fn started() -> (Fixture, Running) {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    (fixture, running)
}

fn ports(fixture: &Fixture) -> Vec<String> {
    let done = fixture.execute(&["ports", "--json", "--api", "api"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let ports = json["ports"].as_array().unwrap().iter();
    ports.map(|port| port["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_dry_run_tells_what_would_change_and_changes_nothing() {
    let (fixture, _running) = started();
    let dry_run = |file: &str| {
        fixture.write(file);
        fixture.execute(&["reload", "--dry-run", "--api", "api"])
    };
    let done = dry_run(CONFIG);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "nothing would change\n", ""));
    let done = dry_run(&format!("{CONFIG}{MORE}"));
    let expected = "port \"vm3\" added\nbridge \"lan\" added: vm3\n\
                    a reload would do this; packets would wait meanwhile in bridge \"lan\"\n";
    assert_eq!((done.code, done.out.as_str()), (Some(0), expected), "{done:?}");
    assert_eq!(ports(&fixture), ["vm1", "vm2"]);
    assert!(!fixture.path("vm3").exists());
    let more = format!("{CONFIG}{MORE}");
    fixture.write(&more);
    let done = fixture.execute(&["reload", "--dry-run", "--json", "--api", "api"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&json["dry_run"], &json["pauses"][0]), (&true.into(), &"bridge \"lan\"".into()), "{json}");
    // What a reload refuses, a dry run refuses too: also rights that the sandbox has given up.
    let done = dry_run(&CONFIG.replace("[port.vm2]", "perms = \"0660\"\n[port.vm2]"));
    assert!(done.code == Some(1) && done.err.contains("perms: all ports had \"0600\""), "{done:?}");
    let done = dry_run(&CONFIG.replace("[switch]", "[switch]\nidle = \"spin\""));
    assert!(done.code == Some(1) && done.err.contains("idle cannot change while the switch runs"), "{done:?}");
    let done = dry_run("nonsense");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("straightline.toml:1") || done.err.contains(":1:"), "{done:?}");
}

#[test]
fn it_tells_what_changed() {
    let (fixture, running) = started();
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "nothing changed\n", ""));
    fixture.write(&format!("{CONFIG}{MORE}"));
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert_eq!(
        (done.code, done.out.as_str()),
        (Some(0), "port \"vm3\" added\nbridge \"lan\" added: vm3\n"),
        "{done:?}"
    );
    UnixStream::connect(fixture.path("vm3")).unwrap();
    fixture.write(&CONFIG.replace("[port.vm2]", "mtu = 9000\n[port.vm2]"));
    let done = fixture.execute(&["reload", "--json", "--api", "api"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let change = |at: usize| {
        let change = &json["changes"][at];
        ["kind", "name", "change", "detail"].map(|key| change[key].as_str().unwrap().to_owned())
    };
    assert_eq!(change(0), ["port", "vm1", "remade", "mtu 1500 is now 9000; its guest must connect again"]);
    assert_eq!(change(1), ["port", "vm3", "removed", ""]);
    assert_eq!(change(2), ["bridge", "lan", "removed", ""]);
    assert!(!fixture.path("vm3").exists());
    assert_eq!(ports(&fixture), ["vm1", "vm2"]);
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(0));
    assert!(done.err.contains("reload: port \"vm1\" made anew: mtu 1500"), "{done:?}");
}

#[test]
fn a_bad_file_leaves_the_old_one_running() {
    let (fixture, running) = started();
    for (text, part) in [
        (format!("{CONFIG}{MORE}ageing = 0\n"), "switch.toml:16: ageing"),
        (CONFIG.replace("\"vm2\"]", "\"vm9\"]"), "switch.toml:10: port \"vm9\" in patch \"a\": no such port"),
        (
            CONFIG.replace("[switch]\n", "[switch]\nidle = \"spin\"\n"),
            "switch.toml: [switch]: idle cannot change while the switch runs",
        ),
        ("[".to_owned(), "switch.toml:1: not TOML"),
        (format!("{CONFIG}{}", MORE.replace("@/vm3", "@/switch.toml")), "switch.toml:13: socket"),
    ] {
        fixture.write(&text);
        let done = fixture.execute(&["reload", "--api", "api"]);
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
        assert!(done.err.contains(part), "{done:?}");
        assert_eq!(ports(&fixture), ["vm1", "vm2"]);
    }
    std::fs::remove_file(fixture.path("switch.toml")).unwrap();
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert!(done.code == Some(1) && done.err.contains("cannot read it"), "{done:?}");
    for socket in ["vm1", "vm2"] {
        UnixStream::connect(fixture.path(socket)).unwrap();
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn sighup_does_the_same_and_the_log_says_what() {
    let (fixture, running) = started();
    let until = |what: &str, expected: &[&str]| {
        wait_until(what, || {
            let ports = ports(&fixture);
            if ports == expected { Ok(()) } else { Err(ports) }
        });
    };
    fixture.write(&format!("{CONFIG}{MORE}"));
    running.signal("HUP");
    until("vm3 is there", &["vm1", "vm2", "vm3"]);
    fixture.write(CONFIG);
    running.signal("HUP");
    until("vm3 is gone", &["vm1", "vm2"]);
    fixture.write("[port.x]\n");
    running.signal("HUP");
    fixture.wait_for_event("the reload fails", |event| event["kind"] == "reload-failed");
    assert_eq!(ports(&fixture), ["vm1", "vm2"]);
    running.signal("TERM");
    let done = running.finish();
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    for part in ["reload: port \"vm3\" added", "reload: port \"vm3\" removed"] {
        assert!(done.err.contains(part), "{part} in {done:?}");
    }
}
