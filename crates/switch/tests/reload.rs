//! Reloads of a switch while packets pass: the unchanged parts lose nothing. These tests have a
//! process of their own, because some count its open descriptors.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use straightline_config::{
    BridgeConfig, Config, Mac, MacPrefix, PatchConfig, PortConfig, SourceCheckConfig, StaticEntry, WhenFull,
};
use straightline_guest::{Guest, GuestOptions, Sequence, Stream};
use straightline_packet::IgnorePoison;
use straightline_switch::api::{Change, ChangeKind, Changed, Link};
use straightline_testing::{
    BROADCAST, Rig, Victims, arrived, bridge, frame, mac, nothing, nothing_at, patch, rig, send, take, vhost_user,
    wait_until,
};

const ROUNDS: u16 = 50;

/// Some tests count the open descriptors of the entire process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().ignore_poison()
}

/// Returns the running switch's configuration, changed.
fn changed(rig: &Rig, change: impl FnOnce(&mut Config)) -> Config {
    let mut config = rig.switch.config();
    change(&mut config);
    config
}

fn reload(rig: &Rig, change: impl FnOnce(&mut Config)) -> Vec<(ChangeKind, String, Changed)> {
    let changes = rig.switch.reload(&changed(rig, change)).expect("a reload");
    changes.changes.into_iter().map(|Change { kind, name, change, .. }| (kind, name, change)).collect()
}

fn beside(rig: &Rig, name: &str) -> PortConfig {
    PortConfig::vhost_user(name, rig.socket(0).with_file_name(name))
}

fn port(rig: &Rig, name: &str) -> straightline_switch::api::Port {
    let ports = rig.switch.source().ports().ports;
    ports.into_iter().find(|port| port.name == name).expect("the port")
}

fn known(rig: &Rig) -> Vec<(String, String)> {
    let mut known: Vec<_> = rig.switch.source().fdb().entries.into_iter().map(|e| (e.mac, e.port)).collect();
    known.sort();
    known
}

fn at(n: u8, port: &str) -> (String, String) {
    (mac(n).to_string(), port.to_owned())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc").count()
}

fn names(ports: &[&str]) -> Vec<String> {
    ports.iter().map(|&name| name.to_owned()).collect()
}

/// Tests a bridge that others join and leave, a patch that stays, and one that comes and goes:
/// fifty times, under load.
fn under_load(workers: &[usize], full: WhenFull) {
    let rig = rig(7, |config| {
        config.switch.workers = workers.to_vec();
        config.patches.push(PatchConfig { full, ..patch(0, 1) });
        config.bridges.push(BridgeConfig { name: "lan".to_owned(), ports: names(&["p2", "p3"]), ..bridge(0) });
        config.bridges.push(BridgeConfig { name: "other".to_owned(), ports: names(&["p4", "p5"]), ..bridge(0) });
    });
    let on_patch = Victims::start(&rig, 0, 1);
    // Its ports stay, and so do its learned addresses, while others join it and leave.
    let on_bridge = Victims::start(&rig, 2, 3);
    // No reload changes this patch.
    let mut quiet = [4, 5].map(|port| rig.guest(port, &GuestOptions::default()));
    send(&mut quiet[0], &frame(BROADCAST, mac(1), 60, 1));
    take(&mut quiet[1], 1);
    let stays = rig.guest(6, &GuestOptions::default());
    let before = (descriptors(), threads());
    for round in 0..ROUNDS {
        reload(&rig, |config| {
            config.ports.push(beside(&rig, "new"));
            config.bridges[0].ports.extend(names(&["new", "p6"]));
            config.bridges[0].ageing = 300 + u32::from(round);
        });
        let newcomer = Guest::connect(&rig.socket(0).with_file_name("new"), &GuestOptions::default()).expect("a guest");
        on_patch.go_on();
        let mtu = 2000 + round;
        let made = reload(&rig, |config| {
            let new = config.port_index("new").expect("it");
            config.ports[new].mtu = mtu;
            config.bridges[0].ports.retain(|port| port != "p6" && port != "new");
            let full = if round % 2 == 0 { WhenFull::Wait } else { WhenFull::Drop };
            config.patches.push(PatchConfig { name: "x".to_owned(), ports: ["new".to_owned(), "p6".to_owned()], full });
        });
        assert!(made.contains(&(ChangeKind::Port, "new".to_owned(), Changed::Remade)), "{made:?}");
        assert!(made.contains(&(ChangeKind::Port, "p6".to_owned(), Changed::Moved)), "{made:?}");
        drop(newcomer);
        on_bridge.go_on();
        reload(&rig, |config| {
            config.ports.retain(|port| port.name != "new");
            config.patches.pop();
        });
        assert_eq!(port(&rig, "p6").link, Link::Up, "its guest was connected all the time");
    }
    on_patch.go_on();
    on_bridge.go_on();
    assert!(known(&rig).contains(&at(1, "p4")), "{:?}", known(&rig));
    // A port's thread closes its socket only when it runs.
    wait_until("nothing is left of the others", || (descriptors(), threads()) == before);
    for name in ["p0", "p1", "p2", "p3", "p4", "p5"] {
        assert!(port(&rig, name).drops.is_empty(), "{:?}", port(&rig, name));
    }
    on_patch.finish();
    on_bridge.finish();
    drop(stays);
}

#[test]
fn others_come_and_go_on_the_same_worker() {
    let _alone = alone();
    under_load(&[], WhenFull::Drop);
}

#[test]
fn others_come_and_go_on_several_workers() {
    let _alone = alone();
    // The same CPU may be named only once; with one CPU there is only one worker.
    let cpus: Vec<_> = (0..std::thread::available_parallelism().map_or(1, Into::into)).take(2).collect();
    under_load(&cpus, WhenFull::Wait);
}

/// A guest's packets while its own port moves between bridges, on two workers: none is lost on the
/// way from its ring.
#[test]
fn a_port_that_moves_loses_none_of_its_guests_packets() {
    let _alone = alone();
    let cpus: Vec<_> = (0..std::thread::available_parallelism().map_or(1, Into::into)).take(2).collect();
    let rig = rig(3, |config| {
        config.switch.workers = cpus;
        config.bridges.push(BridgeConfig { name: "a".to_owned(), ports: names(&["p0", "p1"]), ..bridge(0) });
        config.bridges.push(BridgeConfig { name: "b".to_owned(), ports: names(&["p2"]), ..bridge(0) });
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sinks = [1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    let mut stream = Stream::prepare(&mut source, mac(0xe1), BROADCAST, &[60, 1514, 566]).expect("a stream");
    let mut seen = Sequence::default();
    let mut pump = |source: &mut Guest, seen: &mut Sequence, more: bool| {
        while more && stream.sent() - seen.packets < 128 && stream.send(source) {}
        source.flush();
        for sink in &mut sinks {
            let level = sink.level();
            sink.receive(64, |_, parts| seen.note(level, parts));
        }
        stream.sent()
    };
    for round in 0..ROUNDS {
        let upto = seen.packets + 200;
        wait_until("the stream goes on", || {
            pump(&mut source, &mut seen, true);
            seen.packets >= upto
        });
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        reload(&rig, |config| {
            config.bridges[from].ports.retain(|port| port != "p0");
            config.bridges[to].ports.push("p0".to_owned());
        });
    }
    // The guest's address is known only at the last place.
    wait_until("it is heard there", || {
        pump(&mut source, &mut seen, true);
        known(&rig) == [at(0xe1, "p0")]
    });
    let mut sent = 0;
    wait_until("all have arrived", || {
        sent = pump(&mut source, &mut seen, false);
        seen.packets == sent
    });
    // The packets came through either sink, so not all are in order. Each came once.
    assert_eq!(seen.lost(sent), 0);
    rig.no_drops();
}

#[test]
fn a_bridge_keeps_what_still_holds() {
    let _alone = alone();
    let (rig, mut guests) = {
        let rig = rig(4, |config| config.bridges.push(bridge(4)));
        let guests: Vec<_> = (0..4).map(|port| rig.guest(port, &GuestOptions::default())).collect();
        (rig, guests)
    };
    for (n, guest) in (1..).zip(&mut guests) {
        send(guest, &frame(BROADCAST, mac(n), 60, u64::from(n)));
    }
    wait_until("all are known", || known(&rig).len() == 4);
    guests.iter_mut().for_each(|guest| {
        take(guest, 3);
    });
    // One address leaves, and one becomes static at another port.
    let changes = reload(&rig, |config| {
        config.bridges[0].ports.retain(|port| port != "p3");
        let mac = Mac::new(mac(3).0).expect("a station");
        config.bridges[0].statics = vec![StaticEntry { mac, port: "p0".to_owned(), vlan: None }];
    });
    assert_eq!(
        changes,
        [(ChangeKind::Port, "p3".to_owned(), Changed::Moved), (ChangeKind::Bridge, "lan".to_owned(), Changed::Changed)]
    );
    assert_eq!(known(&rig), [at(1, "p0"), at(2, "p1"), at(3, "p0")]);
    // A smaller limit keeps the addresses heard last; none is learned beyond it.
    reload(&rig, |config| config.bridges[0].limit = 2);
    assert_eq!(known(&rig).len(), 2);
    send(&mut guests[0], &frame(mac(2), mac(77), 60, 1));
    wait_until("it arrives", || !arrived(&mut guests[1]).is_empty() || !arrived(&mut guests[2]).is_empty());
    assert_eq!(known(&rig).len(), 2);
    // A port that is made anew has no guest.
    reload(&rig, |config| (config.bridges[0].limit, config.ports[0].mtu) = (64, 2000));
    assert!(known(&rig).iter().all(|(mac, port)| port != "p0" || *mac == straightline_testing::mac(3).to_string()));
    rig.wait_down(0, "no frontend has connected");
    drop(guests.remove(0));
    rig.guest(0, &GuestOptions::default());
}

/// Sends a broadcast from a station behind one guest, which all others get.
fn tell(guests: &mut [Guest], from: usize, src: u8) {
    let told = frame(BROADCAST, mac(src), 60, src.into());
    send(&mut guests[from], &told);
    for (port, guest) in guests.iter_mut().enumerate() {
        assert!(port == from || take(guest, 1)[0].1 == told);
    }
}

/// The addresses that a guest may claim change while it is connected. An address that it stole
/// before is forgotten.
#[test]
fn what_a_port_may_claim_changes_and_its_guest_stays() {
    let _alone = alone();
    let rig = rig(3, |config| config.bridges.push(bridge(3)));
    let mut guests = [0, 1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    tell(&mut guests, 1, 2);
    tell(&mut guests, 0, 2);
    tell(&mut guests, 2, 3);
    assert_eq!(known(&rig), [at(2, "p0"), at(3, "p2")], "it is stolen");
    let change = [(ChangeKind::Port, "p0".to_owned(), Changed::Changed)];
    let check = SourceCheckConfig { macs: vec![MacPrefix::exact(mac(1))], ips: None };
    assert_eq!(reload(&rig, |config| config.ports[0].source_check = Some(check)), change);
    assert_eq!(known(&rig), [at(3, "p2")], "who it is behind is known again when it sends");
    assert_eq!(["p0", "p1"].map(|name| port(&rig, name).source_check), ["mac", "off"]);
    tell(&mut guests, 0, 1);
    tell(&mut guests, 1, 2);
    send(&mut guests[0], &frame(BROADCAST, mac(2), 60, 6));
    rig.wait_drops(0, "spoofed", 1);
    nothing_at(&rig.switch, &mut guests[1..]);
    assert_eq!(known(&rig), [at(1, "p0"), at(2, "p1"), at(3, "p2")]);
    assert_eq!(reload(&rig, |config| config.ports[0].source_check = None), change);
    tell(&mut guests, 0, 2);
    assert_eq!(known(&rig), [at(1, "p0"), at(2, "p0"), at(3, "p2")]);
}

#[test]
fn what_joins_a_patch_that_waits_waits() {
    let _alone = alone();
    let rig = rig(2, |_| ());
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    send(&mut a, &frame(mac(1), mac(2), 60, 1));
    rig.wait_drops(0, "not-connected", 1);
    reload(&rig, |config| config.patches.push(PatchConfig { full: WhenFull::Wait, ..patch(0, 1) }));
    for n in 0..20 {
        send(&mut a, &frame(mac(1), mac(2), 900, n));
    }
    nothing(&rig.switch, &mut b);
    // Free buffers wake the worker: it watches for them now.
    b.give(usize::MAX);
    b.flush();
    take(&mut b, 20);
    reload(&rig, |config| config.patches[0].full = WhenFull::Drop);
    send(&mut a, &frame(mac(1), mac(2), 900, 1));
    take(&mut b, 1);
    assert_eq!(rig.drops(0, "not-connected"), 1);
}

#[test]
fn an_error_changes_nothing() {
    let _alone = alone();
    let rig = rig(3, |config| config.patches.push(patch(0, 1)));
    let victims = Victims::start(&rig, 0, 1);
    let running = rig.switch.config();
    let dir = rig.socket(0).parent().expect("a folder").to_owned();
    std::fs::write(dir.join("file"), "").expect("a file");
    let fails = |words: &str, change: &dyn Fn(&mut Config)| {
        let before = (descriptors(), threads());
        let error = rig.switch.reload(&changed(&rig, change)).expect_err(words);
        let error = format!("{error:#}");
        assert!(error.contains(words), "{error}");
        assert_eq!(rig.switch.config(), running);
        // A port's thread closes its socket only when it runs.
        wait_until(&format!("nothing is left of it: {words}"), || (descriptors(), threads()) == before);
        victims.go_on();
    };
    // In each of these reloads, a possible change comes before the impossible one.
    let good = |config: &mut Config| {
        config.ports.push(PortConfig::vhost_user("good", dir.join("good")));
        config.patches.push(PatchConfig { ports: ["good".to_owned(), "p2".to_owned()], ..patch(2, 2) });
    };
    let bad = |config: &mut Config, path: &Path| config.ports.push(PortConfig::vhost_user("bad", path));
    fails("a file that is not a socket is there", &|config| {
        good(config);
        bad(config, &dir.join("file"));
    });
    fails("/no/folder", &|config| {
        good(config);
        bad(config, Path::new("/no/folder/s"));
    });
    assert!(!dir.join("good").exists(), "there is a rollback of what was begun");
    let api = ["api", "api-group", "api-perms", "api-read-only", "api-read-only-group", "api-read-only-perms"];
    for key in ["workers", "idle", "copies"].into_iter().chain(api) {
        fails(&format!("[switch]: {key} cannot change while the switch runs"), &|config| {
            good(config);
            match key {
                "workers" => config.switch.workers = vec![0],
                "idle" => config.switch.idle = straightline_config::Idle::Spin,
                "api" => config.switch.api = Some("/a".into()),
                "api-group" => config.switch.api_group = Some(0),
                "api-perms" => config.switch.api_perms = Some(0o666),
                "api-read-only" => config.switch.api_read_only = Some("/a".into()),
                "api-read-only-group" => config.switch.api_read_only_group = Some(0),
                "api-read-only-perms" => config.switch.api_read_only_perms = Some(0o600),
                _ => config.switch.copies = straightline_config::Copies::Two,
            }
        });
    }
    // A port that must end before its socket is free for another one: it comes back.
    fails("guests of p2 must connect again", &|config| {
        good(config);
        config.ports[2].mtu = 9000;
        let next = PortConfig::vhost_user("next", rig.socket(2));
        config.ports[2] = PortConfig::vhost_user("p2", dir.join("p2-moved"));
        config.ports.push(next.clone());
        // Two ports cannot have the same socket. A checked configuration never contains that, but
        // the system may refuse a socket as well.
        config.ports.push(PortConfig { name: "after".to_owned(), ..next });
    });
    let _again = rig.guest(2, &GuestOptions::default());
    rig.wait_up(2);
    victims.finish();
}

/// Lets the process open nothing while `f` runs.
fn without_descriptors<T>(f: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    // Every descriptor below this number is open.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).expect("a limit");
    let done = f();
    setrlimit(Resource::Nofile, before).expect("the limit as before");
    done
}

/// p2 to p4 are made anew in one reload, which fails because of p4's folder. Each comes back on its
/// own: some at once, and the others as soon as they can.
#[test]
fn ports_of_a_reload_that_fails_come_back_one_by_one() {
    let _alone = alone();
    let rig = rig(5, |config| {
        for (port, folder) in [(3, "gone"), (4, "gone-too")] {
            let socket = &mut vhost_user(&mut config.ports[port]).socket;
            let folder = socket.with_file_name(folder);
            std::fs::create_dir(&folder).expect("a folder");
            *socket = folder.join("s");
        }
        config.patches.push(patch(0, 1));
    });
    let victims = Victims::start(&rig, 0, 1);
    let dir = rig.socket(0).parent().expect("a folder").to_owned();
    let folders = [dir.join("gone"), dir.join("gone-too")];
    let is_reached = |port: usize| {
        let mut config = rig.switch.config();
        UnixStream::connect(&vhost_user(&mut config.ports[port]).socket).is_ok()
    };
    let anew = |config: &mut Config| [2, 3, 4].into_iter().for_each(|port| config.ports[port].mtu = 9000);
    for folder in &folders {
        std::fs::rename(folder, folder.with_extension("away")).expect("it was there");
    }
    let error = format!("{:#}", rig.switch.reload(&changed(&rig, anew)).expect_err("there is no folder"));
    for words in [
        "guests of p2 must connect again",
        "port \"p3\" is down until it can listen again",
        "port \"p4\" is down until it can listen again",
        "No such file",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(is_reached(2), "the folder of this port is there");
    for port in [3, 4] {
        rig.wait_down(port, "cannot listen again");
        rig.wait_down(port, "No such file or directory");
    }
    victims.go_on();
    // By itself.
    std::fs::rename(folders[0].with_extension("away"), &folders[0]).expect("it was there");
    wait_until("the port listens again by itself", || is_reached(3));
    wait_until("its status says so", || rig.port(3).reason.is_some_and(|why| !why.contains("cannot listen")));
    rig.wait_down(4, "cannot listen again");
    // The next reload brings it back, and changes nothing else. After that, all of the
    // configuration is possible.
    std::fs::rename(folders[1].with_extension("away"), &folders[1]).expect("it was there");
    assert_eq!(reload(&rig, |_| ()), []);
    assert!(is_reached(4));
    assert_eq!(reload(&rig, anew).len(), 3);
    assert!([2, 3, 4].into_iter().all(is_reached));
    victims.finish();
}

#[test]
fn ports_come_back_when_there_are_descriptors_again() {
    let _alone = alone();
    let rig = rig(4, |config| config.patches.push(patch(0, 1)));
    let victims = Victims::start(&rig, 0, 1);
    let anew = changed(&rig, |config| [2, 3].into_iter().for_each(|port| config.ports[port].mtu = 9000));
    let error = without_descriptors(|| {
        let error = rig.switch.reload(&anew).expect_err("nothing can be opened");
        for port in [2, 3] {
            rig.wait_down(port, "Too many open files");
        }
        victims.go_on();
        // A reload that needs nothing new does not fail.
        rig.switch.reload(&rig.switch.config()).expect("nothing is changed");
        rig.wait_down(2, "Too many open files");
        format!("{error:#}")
    });
    assert!(error.contains("port \"p3\" is down until it can listen again"), "{error}");
    for port in [2, 3] {
        wait_until("the port listens again", || UnixStream::connect(rig.socket(port)).is_ok());
    }
    rig.switch.reload(&anew).expect("descriptors");
    for port in [2, 3] {
        rig.guest(port, &GuestOptions::default());
    }
    victims.finish();
}

#[test]
fn permissions_change_while_the_guest_is_connected() {
    let _alone = alone();
    use std::os::unix::fs::PermissionsExt;
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let victims = Victims::start(&rig, 0, 1);
    let mode = || std::fs::metadata(rig.socket(0)).expect("the socket").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let changes = reload(&rig, |config| vhost_user(&mut config.ports[0]).perms = 0o666);
    assert_eq!(changes, [(ChangeKind::Port, "p0".to_owned(), Changed::Changed)]);
    assert_eq!(mode(), 0o666);
    victims.finish();
}

/// Sums continue: drops for a port that is gone, and the work of nodes.
#[test]
fn figures_stay_in_the_sums() {
    let _alone = alone();
    let rig = rig(3, |config| config.patches.push(patch(0, 1)));
    let mut guests = [0, 1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    send(&mut guests[2], &frame(mac(1), mac(2), 60, 1));
    rig.wait_drops(2, "not-connected", 1);
    for n in 0..10 {
        send(&mut guests[0], &frame(mac(1), mac(2), 60, n));
    }
    take(&mut guests[1], 10);
    let packets = |name: &str| {
        let nodes = rig.switch.source().runtime().nodes;
        nodes.into_iter().find(|node| node.name == name).map(|node| node.packets)
    };
    assert_eq!(packets("patch.0-1"), Some(10));
    reload(&rig, |config| {
        config.ports.pop();
        config.patches[0].full = WhenFull::Wait;
    });
    assert_eq!((packets("patch.0-1"), packets("p2-rx")), (Some(10), None));
    assert_eq!(packets("(removed)"), Some(2), "its input's and its sink's");
    let drops = rig.switch.source().drops().drops;
    let drops: Vec<_> = drops.iter().map(|drop| (drop.port.as_str(), drop.reason.as_str(), drop.count)).collect();
    assert_eq!(drops, [("(removed)", "not-connected", 1)]);
    send(&mut guests[0], &frame(mac(1), mac(2), 60, 1));
    take(&mut guests[1], 1);
    assert_eq!(packets("patch.0-1"), Some(11));
}
