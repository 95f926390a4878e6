use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::Fixture;
use super::run::{CONFIG, Running};

#[test]
fn the_report_has_all_parts_but_no_secret_and_is_for_its_owner() {
    let fixture = Fixture::new();
    fixture.write(&format!("{CONFIG}\n# cookie = \"0011223344556677\"\n"));
    let running = Running::start(&fixture);
    let done = fixture.execute(&["bugreport", "switch.toml", "--output", "report.txt"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.starts_with("written: report.txt; look through it"), "{done:?}");
    let path = fixture.path("report.txt");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    for part in
        ["doctor", "configuration switch.toml", "status", "ports", "drops", "runtime", "neighbours", "fdb", "events"]
    {
        assert!(text.contains(&format!("\n## {part}\n\n")), "{part}: {text}");
    }
    for known in ["[port.vm1]", "vm2  vhost-user  down", "no drops", "/proc/version", "# cookie = (left out)"] {
        assert!(text.contains(known), "{known}: {text}");
    }
    assert!(!text.contains("0011223344556677"), "{text}");
    let done = fixture.execute(&["bugreport", "switch.toml", "--output", "report.txt"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.starts_with("error: cannot make report.txt; name another file with --output"), "{done:?}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn without_a_switch_the_parts_say_why_they_are_missing() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["bugreport", "none.toml", "--api", "none.sock", "--output", "-"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.contains("## configuration none.toml\n\nNo such file"), "{}", done.out);
    assert!(done.out.contains("## ports\n\nno switch listens on"), "{}", done.out);
}
