use std::process::Stdio;
use std::time::Duration;

use super::Fixture;

/// A patch of the ports `a` and `b`.
const PATCH: &str = "[port.a]
kind = \"vhost-user\"
socket = \"@/a\"
[port.b]
kind = \"vhost-user\"
socket = \"@/b\"
[patch.p]
ports = [\"a\", \"b\"]
";

#[test]
fn a_loop_ends_with_a_line_of_json_or_says_why_not() {
    let fixture = Fixture::new();
    fixture.write(PATCH);
    let args = ["lab", "loop", "--backend", "a", "--backend", "b", "--secs", "0.1", "--warm-up", "0.1", "--json"];
    let absent = fixture.execute(&args);
    assert_eq!(absent.code, Some(1), "{absent:?}");
    assert!(absent.out.is_empty() && absent.err.contains("error: no backend answers (is it running"), "{absent:?}");
    let mut switch = fixture.command(&["run", "switch.toml"]);
    let mut switch = switch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..1000 {
        if ["a", "b"].iter().all(|socket| fixture.path(socket).exists()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let done = fixture.execute(&args);
    switch.kill().unwrap();
    switch.wait().unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert!(report["mpps"].as_f64() > Some(0.0) && report["lost"] == 0 && report["verified"] == 1024, "{report}");
}
