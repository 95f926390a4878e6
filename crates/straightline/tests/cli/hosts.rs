//! The page `docs/hosts.md`, as printed. The NICs of both hosts are sockets, and the test is the wire.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_api::Stations;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{BROADCAST, arrived, frame, mac, pause, send, take, wait_until};
use straightline_wire::{EtherType, arp, ethernet};

use super::run::Running;
use super::{Fixture, without_ages};

/// Returns the blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

/// Runs the commands of a block.
fn execute(fixture: &Fixture, block: &str) -> String {
    let mut out = String::new();
    for line in block.lines() {
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        let done = fixture.execute(&words);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        out += &done.out;
    }
    out
}

/// Returns a question of VM 1 for the address of VM 2.
fn question() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    ethernet::Repr { dst: BROADCAST, src: mac(1), ether_type: EtherType::ARP }.emit(&mut bytes).unwrap();
    let repr = arp::Repr {
        operation: arp::Operation::REQUEST,
        sender_mac: mac(1),
        sender_ip: [10, 0, 0, 1].into(),
        target_mac: Default::default(),
        target_ip: [10, 0, 0, 2].into(),
    };
    repr.emit(&mut bytes[14..]).unwrap();
    bytes
}

#[test]
fn two_hosts_are_joined_by_hand_as_the_page_says() {
    let fixture = Fixture::new();
    let configs = blocks("toml");
    let [add, look, delete] = &blocks("sh")[..] else { panic!("other commands") };
    for (name, config) in ["a", "b"].iter().zip(&configs) {
        let nic = format!("kind = \"vhost-user\"\nsocket = \"nic-{name}.sock\"");
        let config = config.replace("kind = \"af-packet\"\ninterface = \"eth1\"", &nic);
        assert!(config.contains(&nic));
        fs::write(fixture.path(&format!("{name}.toml")), config).unwrap();
    }
    let _running = ["a.toml", "b.toml"].map(|file| Running::start_as(fixture.command(&["run", file])));
    let guest = |name: &str| Guest::connect(&fixture.path(name), &GuestOptions::default()).unwrap();
    let mut wire = ["nic-a.sock", "nic-b.sock"].map(guest);
    let mut vms = ["vm1.sock", "vm2.sock"].map(guest);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for from in 0..2 {
                    for (_, bytes) in arrived(&mut wire[from]) {
                        send(&mut wire[1 - from], &bytes);
                    }
                }
                pause();
            }
        });
        let _stop = Stop(&stop);
        assert_eq!(execute(&fixture, add), "1 added\n".repeat(4));
        let is_up = |api: &str| {
            let ports = execute(&fixture, &format!("straightline ports vx0 --json --api {api}"));
            ports.contains("\"link\":\"up\"")
        };
        for api in ["a.sock", "b.sock"] {
            wait_until("the tunnel is up", || is_up(api));
        }
        send(&mut vms[0], &question());
        let answer = take(&mut vms[0], 1).remove(0).1;
        let reply = arp::Header::new_checked(&answer[14..]).unwrap();
        assert_eq!((reply.sender_mac(), reply.operation()), (mac(2), arp::Operation::REPLY));
        // VM 2 gets these packets and nothing before them, so the question was not flooded.
        for (from, to, sender, receiver) in [(1, 2, 0, 1), (2, 1, 1, 0), (1, 2, 0, 1)] {
            let packet = frame(mac(to), mac(from), 1464, from.into());
            send(&mut vms[sender], &packet);
            let got = take(&mut vms[receiver], 1).remove(0).1;
            assert_eq!(got, packet);
        }
        let printed = blocks("text");
        wait_until("the tables are those of the page", || {
            let shown = execute(&fixture, look);
            if without_ages(&shown) == without_ages(&printed[0]) { Ok(()) } else { Err(shown) }
        });
        // A file of more stations than a request holds, and one with a mistake.
        let address = |n: u32| format!("02:00:00:00:{:02x}:{:02x}", 1 + n / 256, n % 256);
        let line = |n: u32| format!("{{\"mac\":\"{}\",\"port\":\"vx0\",\"remote\":\"192.0.2.2\"}}\n", address(n));
        let file: String = (0..1200).map(line).collect();
        fs::write(fixture.path("stations.json"), &file).unwrap();
        let replace = "station replace lan --file stations.json --owner file2 --api a.sock";
        assert_eq!(execute(&fixture, &format!("straightline {replace}")), "1200 added\n");
        // An answer holds 500 of them.
        let listed = execute(&fixture, "straightline station list lan --json --api a.sock");
        let listed: Stations = serde_json::from_str(&listed).unwrap();
        let of_file = listed.stations.iter().filter(|station| station.owner == "file2").map(|station| &*station.mac);
        assert!(of_file.eq((0..1200).map(address)), "{listed:?}");
        assert_eq!(listed.total, listed.stations.len() as u64);
        fs::write(fixture.path("stations.json"), file.replace(":01:63", ":01:62")).unwrap();
        let words: Vec<_> = replace.split(' ').collect();
        let done = fixture.execute(&words);
        assert!(done.code == Some(1) && done.err.contains("station 99 (02:00:00:00:01:62): named twice"), "{done:?}");
        assert_eq!(
            execute(&fixture, &format!("straightline {}", replace.replace("stations.json", "/dev/null"))),
            "1200 deleted\n"
        );
        assert_eq!(execute(&fixture, delete), "1 deleted\n".repeat(2));
        let left = execute(&fixture, "straightline remote list vx0 --api a.sock");
        assert_eq!(left, "vx0: no remotes\n");
    });
}

/// Ends the wire when the test ends, in whatever way.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
