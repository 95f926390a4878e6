//! Drops, moves and drift, at a switch that runs.

use super::*;

use straightline_virtio::net_header::NetHeader;

/// Asks until a field of the answer has this value.
pub(super) fn wait_for(fixture: &Fixture, command: &str, field: &str, value: impl Into<serde_json::Value>) {
    let value = value.into();
    wait_until(&format!("{field} of {command} is {value}"), || {
        let answer = fixture.ask(command);
        if answer.pointer(field) == Some(&value) { Ok(()) } else { Err(answer) }
    });
}

fn guest(fixture: &Fixture, name: &str) -> Guest {
    Guest::connect(&fixture.path(name), &GuestOptions::default()).unwrap()
}

/// Sends a broadcast frame from this address.
fn send(guest: &mut Guest, source: u8) {
    let mut frame = vec![0; 100];
    frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, source, 0x88, 0xb5]);
    wait_until("the ring takes the packet", || {
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
    wait_for(&fixture, "ports", "/ports/0/drops/spoofed", 40);
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
        let at = usize::from(turn % 2 == 0);
        send(&mut guests[at], 9);
        wait_for(&fixture, "fdb", "/entries/0/port", ["vm1", "vm2"][at]);
        wait_for(&fixture, "status", "/moves/0/count", turn - 1);
    }
    wait_until("each move is an event", || {
        let events = fixture.ask("events");
        if events["events"].to_string().matches("\"moved\"").count() == 5 { Ok(()) } else { Err(events) }
    });
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
