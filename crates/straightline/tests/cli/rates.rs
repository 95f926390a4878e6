//! The page `docs/rates.md`, as printed.

use std::fs;
use std::path::PathBuf;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{arrived, frame, mac, take, wait_all_back, wait_until};
use straightline_virtio::net_header::NetHeader;

use super::Fixture;
use super::run::Running;

/// Returns the blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/rates.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

/// Splits a line into words as a shell does, which knows double quotes only.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| -> Vec<&str> {
        if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
    });
    words.map(str::to_owned).collect()
}

/// Runs the commands of a block, but for the one that starts the switch.
fn execute(fixture: &Fixture, block: &str) -> String {
    let mut out = String::new();
    for line in block.lines().filter(|line| !line.starts_with("straightline run")) {
        let words = words(line);
        let words: Vec<_> = words.iter().skip(1).map(String::as_str).collect();
        let done = fixture.execute(&words);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        out += &done.out;
    }
    out
}

#[test]
fn limits_hold_and_change_as_the_page_says() {
    let fixture = Fixture::new();
    let [config, share, classes] = &blocks("toml")[..] else { panic!("other blocks") };
    for (name, text) in [("share.toml", share), ("classes.toml", classes)] {
        fs::write(fixture.path(name), text).unwrap();
        execute(&fixture, &format!("straightline check {name}"));
    }
    let [start, look, change, reload] = &blocks("sh")[..] else { panic!("other commands") };
    fs::write(fixture.path("rates.toml"), config).unwrap();
    execute(&fixture, start);
    let _running = Running::start_as(fixture.command(&["run", "rates.toml"]));
    let options = GuestOptions { buffer_len: 2048, ..GuestOptions::default() };
    let guest = |name: &str| Guest::connect(&fixture.path(&format!("{name}.sock")), &options).unwrap();
    let mut guests = ["vm1", "red1", "red2"].map(guest);
    // The switch learns the place of its station, so that nothing is flooded.
    assert!(guests[1].send(&NetHeader::default(), &frame(mac(1), mac(2), 60, 0)));
    guests[1].flush();
    take(&mut guests[0], 1);
    for n in 0..100 {
        assert!(guests[0].send(&NetHeader::default(), &frame(mac(2), mac(1), 1514, n)));
    }
    guests[0].flush();
    assert_eq!(take(&mut guests[1], 100).len(), 100);
    wait_all_back(&mut guests[0]);

    let parts = [
        "rate in   100 Mbit/s, 151,400 bytes passed, waited ",
        "rate out  200 Mbit/s, 50k packet/s, 60 bytes passed\n",
        "rate in   1 Gbit/s, shared as red, 60 bytes passed\n",
        "rate:red",
    ];
    wait_until("the limits have counted all packets", || {
        let shown = execute(&fixture, look);
        if parts.iter().all(|part| shown.contains(part)) { Ok(()) } else { Err(shown) }
    });

    let answers = execute(&fixture, change);
    assert_eq!(
        answers,
        "vm1: rate-in is 400 Mbit/s now, it was 100 Mbit/s\nThe file wins at the next reload.\nvm1: rate-out is no limit \
         now, it was 200 Mbit/s, 50k packet/s\nThe file wins at the next reload.\n"
    );
    let shown = execute(&fixture, "straightline ports --api api.sock");
    assert!(shown.contains("400 Mbit/s, until the next reload, 151,400 bytes passed"), "{shown}");
    let answer = execute(&fixture, reload);
    assert!(answer.contains("rate-in 400 Mbit/s (set by a command) is now 100 Mbit/s"), "{answer}");
    let done = fixture.execute(&["rate", "vm1", "in", "1 bit/s", "--api", "api.sock"]);
    assert!(done.code != Some(0) && done.err.contains("too low; it must be 600 kbit/s to 1 Tbit/s"), "{done:?}");
}

/// SIGTERM while packets wait in their ring: the switch ends, and the next one goes on with them. None is
/// lost, and none comes twice.
#[test]
fn packets_that_wait_outlive_the_switch() {
    // At the lowest rate, most of them wait for seconds.
    const PACKETS: u8 = 240;
    let fixture = Fixture::new();
    let port =
        |name: &str, more: &str| format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{name}.sock\"\n{more}");
    let start = |limit: &str| {
        let text = port("a", limit) + &port("b", "") + "[patch.p]\nports = [\"a\", \"b\"]\n";
        fs::write(fixture.path("wait.toml"), text).unwrap();
        Running::start_as(fixture.command(&["run", "wait.toml"]))
    };
    let running = start("rate-in = \"50 packet/s\"\nburst = \"10 packet\"\n");
    let mut guests = ["a", "b"]
        .map(|name| Guest::connect(&fixture.path(&format!("{name}.sock")), &GuestOptions::default()).unwrap());
    for n in 0..PACKETS {
        assert!(guests[0].send(&NetHeader::default(), &frame(mac(2), mac(1), 60, n.into())));
    }
    guests[0].flush();
    let mut got = Vec::new();
    wait_until("the first packets have arrived", || {
        got.extend(arrived(&mut guests[1]));
        got.len() >= 10
    });
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    got.extend(arrived(&mut guests[1]));
    let running = start("");
    // The receiver is there first.
    for (guest, name) in guests.iter_mut().zip(["a", "b"]).rev() {
        // The buffers that the first switch has used come back.
        guest.flush();
        guest.reconnect(&fixture.path(&format!("{name}.sock"))).unwrap();
    }
    let left = usize::from(PACKETS) - got.len();
    got.extend(take(&mut guests[1], left));
    assert!((0..).zip(&got).all(|(n, (_, got))| *got == frame(mac(2), mac(1), 60, n)), "in order");
    wait_all_back(&mut guests[0]);
    assert!(arrived(&mut guests[1]).is_empty(), "none comes twice");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}
