//! The node in a switch between two guests: its packets, its configuration and its counters.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use macswap::MacSwap;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::Switch;
use straightline_switch::config::{Config, Kinds, Machine};
use straightline_testing::wait_until;
use straightline_virtio::net_header::NetHeader;

fn text(dir: &Path, prefetch: &str, nodes: &str) -> String {
    let port = |name: &str| {
        let socket = dir.join(name);
        format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = {socket:?}\nnodes = {nodes}\n")
    };
    let node = format!("[node.swap]\nkind = \"macswap\"\n{prefetch}\n");
    format!("[switch]\napi = {:?}\n", dir.join("api"))
        + &port("a")
        + &port("b")
        + "[patch.p]\nports = [\"a\", \"b\"]\n"
        + &node
}

fn config(text: &str) -> Config {
    let kinds = Kinds::new().with("macswap", |keys| MacSwap { prefetch: keys.integer("prefetch", 0..=8, 4) });
    Config::parse_with("switch.toml", text, &Machine::this(), &kinds).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// Makes a numbered frame. Its length depends on the number.
fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![number; 14 + 15 * usize::from(number)];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

fn swapped(number: u8) -> Vec<u8> {
    let mut frame = frame(number);
    frame[..12].rotate_left(6);
    frame
}

/// Sends `count` frames from one guest to the other. Returns the frames that arrive.
fn pass(from: &mut Guest, to: &mut Guest, count: u8) -> Vec<Vec<u8>> {
    let mut arrived = Vec::new();
    for number in 0..count {
        assert!(from.send(&NetHeader::default(), &frame(number)), "its ring has free descriptors for all");
    }
    from.flush();
    wait_until("all frames arrive", || {
        let level = to.level();
        to.receive(usize::MAX, |_, segments| {
            let mut bytes = Vec::new();
            for segment in segments {
                let at = bytes.len();
                bytes.resize(at + segment.len() as usize, 0);
                segment.read(level, &mut bytes[at..]);
            }
            arrived.push(bytes);
        });
        if arrived.len() < usize::from(count) { Err(format!("{} of {count}", arrived.len())) } else { Ok(()) }
    });
    from.flush();
    arrived
}

fn connect(dir: &Path) -> [Guest; 2] {
    ["a", "b"].map(|name| Guest::connect(&dir.join(name), &GuestOptions::default()).expect("a guest"))
}

#[test]
fn what_passes_the_node_has_its_addresses_swapped() {
    let dir = tempfile::tempdir().expect("a folder");
    let switch = Switch::start(&config(&text(dir.path(), "prefetch = 8", "[\"swap\"]"))).expect("a switch");
    let [mut a, mut b] = connect(dir.path());
    let expected: Vec<_> = (0..100).map(swapped).collect();
    assert_eq!(pass(&mut a, &mut b, 100), expected);
    assert_eq!(pass(&mut b, &mut a, 100), expected);
    // A worker counts packets when it has delivered them.
    let runtime = wait_until("both nodes have counted the frames", || {
        let runtime = switch.source().runtime();
        if runtime.nodes[2..4].iter().all(|node| node.packets == 200) { Ok(runtime) } else { Err(runtime) }
    });
    let names: Vec<_> = runtime.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a-rx", "b-rx", "node.swap", "patch.p", "b-tx", "a-tx", "turn-end"], "one for both ports");
    assert!(runtime.nodes[2].cycles_per_packet > 0.0);
}

#[test]
fn the_node_comes_goes_and_changes_while_guests_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let switch = Switch::start(&config(&text(dir.path(), "", "[]"))).expect("a switch");
    let [mut a, mut b] = connect(dir.path());
    let change = |prefetch: &str, nodes: &str| -> Vec<String> {
        let changes = switch.reload(&config(&text(dir.path(), prefetch, nodes))).expect("a valid configuration");
        changes.changes.iter().map(ToString::to_string).collect()
    };
    assert_eq!(pass(&mut a, &mut b, 3), [0, 1, 2].map(frame));
    let ports = ["a", "b"].map(|port| format!("port {port:?} changed: its packets pass swap now"));
    assert_eq!(change("", "[\"swap\"]"), ports);
    assert_eq!(pass(&mut a, &mut b, 3), [0, 1, 2].map(swapped));
    assert_eq!(change("prefetch = 4", "[\"swap\"]"), [""; 0], "that is the default");
    assert_eq!(change("prefetch = 0", "[\"swap\"]"), ["node \"swap\" changed: macswap, prefetch 0"]);
    assert_eq!(pass(&mut b, &mut a, 3), [0, 1, 2].map(swapped));
    assert_eq!(change("prefetch = 0", "[]").len(), 2);
    assert_eq!(pass(&mut b, &mut a, 3), [0, 1, 2].map(frame));
}

/// The running program, which ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // A program that has ended already cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_is_the_switch() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("switch.toml");
    std::fs::write(&file, text(dir.path(), "prefetch = 1", "[\"swap\"]")).expect("a file");
    let program = || Command::new(env!("CARGO_BIN_EXE_macswap"));
    let mut running = Program(program().arg("run").arg(&file).stdout(Stdio::piped()).spawn().expect("the program"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let [mut a, mut b] = connect(dir.path());
    assert_eq!(pass(&mut a, &mut b, 9), (0..9).map(swapped).collect::<Vec<_>>());
    let ask = |command: &str| {
        let output =
            program().args([command, "--json", "--api"]).arg(dir.path().join("api")).output().expect("an answer");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    wait_until("the node has counted the frames", || {
        let nodes = ask("runtime")["nodes"].as_array().expect("nodes").clone();
        let swap = nodes.iter().find(|node| node["name"] == "node.swap").expect("the node");
        if swap["packets"] == 9 { Ok(()) } else { Err(swap.clone()) }
    });

    std::fs::write(&file, text(dir.path(), "prefetch = 9", "[\"swap\"]")).expect("a file");
    let refused = program().args(["reload", "--api"]).arg(dir.path().join("api")).output().expect("an answer");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("prefetch 9 in node \"swap\": out of range; it must be 0 to 8"), "{why}");
    std::fs::write(&file, text(dir.path(), "prefetch = 2", "[\"swap\"]")).expect("a file");
    let changes = ask("reload")["changes"].clone();
    assert_eq!(
        (changes[0]["kind"].as_str(), changes[0]["detail"].as_str()),
        (Some("node"), Some("macswap, prefetch 2"))
    );
}
