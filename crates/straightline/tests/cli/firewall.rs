//! The page `docs/firewall.md`, as printed.

use std::fs;
use std::path::PathBuf;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{arrived, mac, send, take, wait_until};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::{MacAddr, vlan};

use super::run::Running;
use super::{Fixture, without_ages};

/// Returns the blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/firewall.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

/// Runs the commands of a block, but for the one that starts the switch.
fn execute(fixture: &Fixture, block: &str) -> String {
    let mut out = String::new();
    for line in block.lines().filter(|line| !line.starts_with("straightline run")) {
        let parts = line.split('"').enumerate();
        let words = parts.flat_map(|(at, part)| -> Vec<&str> {
            if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
        });
        let words: Vec<_> = words.skip(1).collect();
        let done = fixture.execute(&words);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        out += &done.out;
    }
    out
}

/// Waits until a command shows these parts.
fn shows(fixture: &Fixture, command: &str, parts: &[&str]) {
    wait_until(&format!("{command} shows {parts:?}"), || {
        let shown = execute(fixture, &format!("straightline {command} --api api.sock"));
        if parts.iter().all(|part| shown.contains(part)) { Ok(()) } else { Err(shown) }
    });
}

const WEB: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// Returns a segment from the client to the web server, or back.
fn tcp(is_back: bool, port: u16, flags: Flags, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let client = ([192, 0, 2, 7].into(), 50_000, mac(9));
    let server = ([10, 0, 0, 1].into(), port, WEB);
    let [from, to] = if is_back { [server, client] } else { [client, server] };
    let transport = Transport::Tcp { src_port: from.1, dst_port: to.1, seq, ack, flags, window: 8192 };
    let tags = [None; vlan::MAX_TAGS];
    let headers = Frame { src: from.2, dst: to.2, tags, net: Net::v4(from.0, to.0), transport, payload_len: 0 };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Complete { payload_sum: 0 }).expect("enough space");
    bytes
}

#[test]
fn groups_decide_and_are_explained_as_the_page_says() {
    let fixture = Fixture::new();
    let [config, sandbox] = &blocks("toml")[..] else { panic!("other blocks") };
    let [start, explain, look, reload, commands, list, sets, delete] = &blocks("sh")[..] else {
        panic!("other commands")
    };
    fs::write(fixture.path("sandbox.toml"), sandbox).unwrap();
    execute(&fixture, "straightline check sandbox.toml");
    fs::write(fixture.path("firewall.toml"), config).unwrap();
    execute(&fixture, start);
    let _running = Running::start_as(fixture.command(&["run", "firewall.toml"]));
    let texts = blocks("text");
    let printed = |begin: &str| texts.iter().find(|text| text.starts_with(begin)).expect("a block of the page");
    assert_eq!(execute(&fixture, explain), *printed("tcp to 10.0.0.2"));

    let options = GuestOptions { buffer_len: 2048, ..GuestOptions::default() };
    let guest = |name: &str| Guest::connect(&fixture.path(&format!("{name}.sock")), &options).unwrap();
    let [mut web, mut uplink] = ["web1", "uplink"].map(guest);
    let synack = Flags::SYN.with(Flags::ACK);
    send(&mut uplink, &tcp(false, 80, Flags::SYN, [100, 0]));
    take(&mut web, 1);
    send(&mut web, &tcp(true, 80, synack, [500, 101]));
    take(&mut uplink, 1);
    send(&mut uplink, &tcp(false, 80, Flags::ACK, [101, 501]));
    take(&mut web, 1);
    send(&mut uplink, &tcp(false, 8080, Flags::SYN, [100, 0]));
    shows(&fixture, "drops", &["denied"]);
    assert_eq!(arrived(&mut web).len(), 0, "it was dropped");
    let looks: Vec<_> = look.lines().collect();
    wait_until("the connections are those of the page", || {
        let shown = execute(&fixture, looks[0]);
        if without_ages(&shown) == without_ages(printed("port  connections")) { Ok(()) } else { Err(shown) }
    });
    shows(&fixture, "events", &["tcp from 192.0.2.7 port 8080", "no rule of \"in\" allows it"]);
    execute(&fixture, &looks[1..].join("\n"));

    let other = config.replace("tcp 80,443 from any", "tcp 443 from any");
    fs::write(fixture.path("firewall.toml"), other).unwrap();
    let shown = execute(&fixture, reload);
    assert_eq!(shown.matches("group \"web\"").count(), 2, "{shown}");
    // Its connection is one that is denied now.
    send(&mut web, &tcp(true, 80, Flags::ACK, [501, 101]));
    wait_until("the connection is gone", || {
        let shown = execute(&fixture, "straightline connections web1 --api api.sock");
        if shown.contains("192.0.2.7") { Err(shown) } else { Ok(()) }
    });
    // The answer of another connection comes, and nothing before it.
    send(&mut uplink, &tcp(false, 443, Flags::SYN, [100, 0]));
    take(&mut web, 1);
    send(&mut web, &tcp(true, 443, synack, [500, 101]));
    assert_eq!(take(&mut uplink, 1)[0].1, tcp(true, 443, synack, [500, 101]));
    assert_eq!(execute(&fixture, commands), "group ssh: set\nuplink: ssh\n");
    assert_eq!(execute(&fixture, list), *printed("group  owner"));
    assert_eq!(execute(&fixture, sets), *printed("name       owner"));
    assert_eq!(execute(&fixture, delete), "uplink: no groups: all its packets pass\ngroup ssh: deleted\n");
}
