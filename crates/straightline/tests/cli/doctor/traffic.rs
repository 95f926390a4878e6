//! Drops, moves and drift, at a switch that runs.

use super::*;
use std::thread;
use std::time::{Duration, Instant};

use straightline_virtio::net_header::NetHeader;

/// The fields of a port in the API's answer that a test waits for.
pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn ask(fixture: &Fixture, command: &str) -> serde_json::Value {
    serde_json::from_str(&fixture.execute(&[command, "--json", "--api", "api"]).out).unwrap()
}

fn guest(fixture: &Fixture, name: &str) -> Guest {
    Guest::connect(&fixture.path(name), &GuestOptions::default()).unwrap()
}

/// Sends a broadcast frame from this address.
fn send(guest: &mut Guest, source: u8) {
    let mut frame = vec![0; 100];
    frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, source, 0x88, 0xb5]);
    wait_for("the ring takes no packet", || {
        let is_sent = guest.send(&NetHeader::default(), &frame);
        guest.flush();
        is_sent
    });
}

#[test]
fn a_port_whose_source_check_eats_all_packets() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replacen("[port.vm1]", "[port.vm1]\nsource-check = \"mac\"\nmac = \"02:00:00:00:00:07\"", 1));
    let _running = Running::start(&fixture);
    let mut sender = guest(&fixture, "vm1");
    let _receiver = guest(&fixture, "vm2");
    (0..40).for_each(|_| send(&mut sender, 1));
    wait_for("no drops", || ask(&fixture, "ports")["ports"][0]["drops"]["spoofed"] == 40);
    let checks = doctor(&fixture);
    has(
        &checks,
        "drops",
        "fail",
        "port vm1: 40 of 40 packets dropped as spoofed",
        "straightline capture vm1 --dropped",
    );
    has(&checks, "drops", "fail", "in the time of this look", "`allowed-macs`");
}

#[test]
fn two_guests_with_one_address() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("[patch.a]", "[bridge.a]"));
    let _running = Running::start(&fixture);
    let mut guests = [guest(&fixture, "vm1"), guest(&fixture, "vm2")];
    let checks = doctor(&fixture);
    assert!(of(&checks, "moves").iter().all(|check| check["result"] == "pass"), "{checks:#?}");
    for turn in 1..=6_u64 {
        send(&mut guests[usize::from(turn % 2 == 0)], 9);
        wait_for("the address does not move", || ask(&fixture, "status")["moves"][0]["count"] == turn - 1);
    }
    wait_for("no events", || ask(&fixture, "events")["events"].to_string().matches("\"moved\"").count() == 5);
    has(
        &doctor(&fixture),
        "moves",
        "warn",
        "02:00:00:00:00:09 moves to and fro between ports vm1, vm2",
        "a MAC address of its own",
    );
}

#[test]
fn a_file_that_was_edited_and_not_reloaded() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let is_passed = || of(&doctor(&fixture), "drift").iter().all(|check| check["result"] == "pass");
    assert!(is_passed());
    fixture.write(&CONFIG.replacen("[port.vm1]", "[port.vm1]\nmtu = 1400", 1));
    has(&doctor(&fixture), "drift", "warn", "was edited, and not reloaded", "then: straightline reload");
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(0));
    assert!(is_passed());
    fixture.write("nonsense");
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(1));
    let checks = json(&fixture.execute(&["doctor", "switch.toml", "--json", "--api", "api"]));
    has(&checks, "drift", "fail", "its reload failed", "straightline check ");
    // Another file than the switch's.
    fs::write(fixture.path("other.toml"), fs::read(fixture.path("switch.toml")).unwrap()).unwrap();
    let checks = json(&fixture.execute(&["doctor", "other.toml", "--json", "--api", "api"]));
    has(&checks, "drift", "warn", "another configuration file", "straightline doctor ");
}
