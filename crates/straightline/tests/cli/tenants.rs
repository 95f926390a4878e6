//! The page `docs/tenants.md`, as printed.

use std::fs;
use std::path::PathBuf;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{BROADCAST, arrived, frame, mac, send, take, wait_until};

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
    let [config, _, router, customer] = &blocks("toml")[..] else { panic!("other blocks") };
    let [start, look, again, ..] = &blocks("sh")[..] else { panic!("other commands") };
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
    // Each guest gets its next frame, and nothing before it.
    let mut sent = frame(BROADCAST, mac(1), 100, 2);
    let in_blue = [&sent[..12], &[0x81, 0, 0, 20], &sent[12..]].concat();
    send(&mut guests[3], &in_blue);
    assert_eq!(take(&mut guests[2], 1)[0].1, sent);

    let stations = [("10", "red1"), ("20", "up")].map(|(vlan, port)| format!("lan       {vlan}  {}  {port}", mac(1)));
    let shown = wait_until("both stations are shown", || {
        let shown = execute(&fixture, look);
        if stations.iter().all(|station| shown.contains(station)) { Ok(shown) } else { Err(shown) }
    });
    assert!(shown.contains("vlans     trunk 10,20 (802.1Q)\n"), "{shown}");

    let isolated = ["red1", "red2"].iter().fold(config.clone(), |config, port| {
        let section = format!("[port.{port}]\n");
        config.replace(&section, &format!("{section}isolated = true\n"))
    });
    fs::write(fixture.path("tenants.toml"), isolated).unwrap();
    execute(&fixture, again);
    sent = frame(BROADCAST, mac(1), 100, 3);
    let in_red = [&sent[..12], &[0x81, 0, 0, 10], &sent[12..]].concat();
    send(&mut guests[0], &sent);
    assert_eq!(take(&mut guests[3], 1)[0].1, in_red);
    // What came from the isolated port would be there before what comes from the trunk.
    sent = frame(BROADCAST, mac(2), 100, 4);
    for (vlan, receivers) in [(10, &[0, 1][..]), (20, &[2])] {
        let tagged = [&sent[..12], &[0x81, 0, 0, vlan], &sent[12..]].concat();
        send(&mut guests[3], &tagged);
        for &receiver in receivers {
            assert_eq!(take(&mut guests[receiver], 1)[0].1, sent);
        }
    }

    // The other examples are good ports of a bridge.
    let ports = ["router", "customer", "provider"].map(|name| format!("{name:?}")).join(", ");
    fs::write(fixture.path("more.toml"), format!("{router}{customer}[bridge.lan]\nports = [{ports}]\n")).unwrap();
    let done = fixture.execute(&["check", "more.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Takes frames until one is such a frame.
fn next(guest: &mut Guest, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    wait_until("the frame arrives", || arrived(guest).into_iter().map(|(_, frame)| frame).find(|frame| is_it(frame)))
}

#[test]
fn tenants_on_two_hosts_share_a_tunnel() {
    let fixture = Fixture::new();
    let [_, config, ..] = &blocks("toml")[..] else { panic!("other blocks") };
    let [.., start, look] = &blocks("sh")[..] else { panic!("other commands") };
    fs::write(fixture.path("hosts.toml"), config).unwrap();
    execute(&fixture, start);
    let _running = Running::start_as(fixture.command(&["run", "hosts.toml"]));
    let options = GuestOptions { buffer_len: 2048, ..GuestOptions::default() };
    let guest = |name: &str| Guest::connect(&fixture.path(&format!("{name}.sock")), &options).unwrap();
    let [mut red, mut blue, mut nic] = ["host-red1", "host-blue1", "nic"].map(guest);

    // The switch asks for the MAC address of the other host.
    let far = mac(9).0;
    let question = next(&mut nic, |frame| frame[12..14] == [8, 6] && frame[38..42] == [192, 0, 2, 2]);
    let link = [&question[6..12], &far, &[8, 6]].concat();
    let answer = [&[0, 1, 8, 0, 6, 4, 0, 2], &far[..], &[192, 0, 2, 2], &question[22..32], &[0; 18]].concat();
    send(&mut nic, &[link, answer].concat());
    wait_until("the tunnel is up", || {
        let ports = execute(&fixture, "straightline ports fabric --json --api hosts.sock");
        if ports.contains("\"link\":\"up\"") { Ok(()) } else { Err(ports) }
    });
    let sent = frame(BROADCAST, mac(1), 100, 1);
    let mut outers = Vec::new();
    for (guest, vni) in [(&mut red, 10_010_u32), (&mut blue, 10_020)] {
        send(guest, &sent);
        let outer = next(&mut nic, |frame| frame[12..14] == [8, 0]);
        assert_eq!((&outer[..6], &outer[36..38]), (&far[..], &4789_u16.to_be_bytes()[..]));
        assert_eq!(
            (&outer[42..50], &outer[50..]),
            (&[&[8, 0, 0, 0], &(vni << 8).to_be_bytes()[..]].concat()[..], &sent[..])
        );
        outers.push(outer);
    }
    // Each tenant gets the answer in its own network, and nothing before it. Two words that change places
    // leave the checksum as it is, and so do addresses.
    let mut answer = sent.clone();
    answer[60..64].rotate_left(2);
    for (guest, outer) in [&mut red, &mut blue].into_iter().zip(&outers) {
        let link = [&outer[6..12], &outer[..6], &outer[12..26]].concat();
        let addresses = [&outer[30..34], &outer[26..30]].concat();
        send(&mut nic, &[&link, &addresses, &outer[34..50], &answer].concat());
        assert_eq!(take(guest, 1)[0].1, answer);
    }
    let shown = execute(&fixture, look);
    assert!(shown.contains("vlans     10,20 by network identifier\n"), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("VLAN 10 is vni 10010, VLAN 20 is vni 10020"), "{shown}");
}
