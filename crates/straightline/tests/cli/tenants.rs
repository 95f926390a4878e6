//! The page `docs/tenants.md`, as printed.

use std::fs;
use std::path::PathBuf;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{BROADCAST, frame, mac, nothing, send, take};

use super::Fixture;
use super::run::Running;

/// Returns the blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tenants.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

/// Runs the commands of a block, but for the one that starts the switch.
fn execute(fixture: &Fixture, block: &str) -> String {
    let mut out = String::new();
    for line in block.lines().filter(|line| !line.starts_with("straightline run")) {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let done = fixture.execute(&words);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        out += &done.out;
    }
    out
}

#[test]
fn two_tenants_share_a_trunk_and_see_nothing_of_each_other() {
    let fixture = Fixture::new();
    let [config, router, customer] = &blocks("toml")[..] else { panic!("other blocks") };
    let [start, look, again] = &blocks("sh")[..] else { panic!("other commands") };
    fs::write(fixture.path("tenants.toml"), config).unwrap();
    execute(&fixture, start);
    let _running = Running::start_as(fixture.command(&["run", "tenants.toml"]));
    let options = GuestOptions { buffer_len: 2048, ..GuestOptions::default() };
    let guest = |name: &str| Guest::connect(&fixture.path(&format!("{name}.sock")), &options).unwrap();
    let mut guests = ["red1", "red2", "blue1", "up"].map(guest);

    let sent = frame(BROADCAST, mac(1), 100, 1);
    let in_red = [&sent[..12], &[0x81, 0, 0, 10], &sent[12..]].concat();
    send(&mut guests[0], &sent);
    assert_eq!(take(&mut guests[1], 1)[0].1, sent);
    assert_eq!(take(&mut guests[3], 1)[0].1, in_red);
    guests.iter_mut().for_each(nothing);
    let in_blue = [&sent[..12], &[0x81, 0, 0, 20], &sent[12..]].concat();
    send(&mut guests[3], &in_blue);
    assert_eq!(take(&mut guests[2], 1)[0].1, sent);
    guests.iter_mut().for_each(nothing);

    let shown = execute(&fixture, look);
    assert!(shown.contains("vlans     trunk 10,20 (802.1Q)\n"), "{shown}");
    let stations = [("10", "red1"), ("20", "up")].map(|(vlan, port)| format!("lan       {vlan}  {}  {port}", mac(1)));
    assert!(stations.iter().all(|station| shown.contains(station)), "{shown}");

    let isolated = ["red1", "red2"].iter().fold(config.clone(), |config, port| {
        let section = format!("[port.{port}]\n");
        config.replace(&section, &format!("{section}isolated = true\n"))
    });
    fs::write(fixture.path("tenants.toml"), isolated).unwrap();
    execute(&fixture, again);
    send(&mut guests[0], &sent);
    assert_eq!(take(&mut guests[3], 1)[0].1, in_red);
    guests.iter_mut().for_each(nothing);

    // The other examples are good ports of a bridge.
    let ports = ["router", "customer", "provider"].map(|name| format!("{name:?}")).join(", ");
    fs::write(fixture.path("more.toml"), format!("{router}{customer}[bridge.lan]\nports = [{ports}]\n")).unwrap();
    let done = fixture.execute(&["check", "more.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}
