//! The error message for each mistake.

use straightline_packet::Level;

use super::{Fixture, Mechanism, SandboxConfig, errors, good, one_error, parse};

#[test]
fn syntax() {
    one_error("[switch]\nidle = \n", 2, &["not TOML"]);
    one_error("[switch]\nidle = \"spin\"\nidle = \"sleep\"\n", 3, &["twice"]);
    one_error("[port.a]\n[port.a]\n", 2, &["twice"]);
    assert_eq!(errors("a = \nb = \n").len(), 2);
    let deep = format!("a = {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(parse(&deep).is_err());
}

#[test]
fn sections_and_keys() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    one_error("[prot.a]\n", 1, &["unknown section \"prot\"; did you mean \"port\"?"]);
    one_error("[vlan.a]\n", 1, &["sections are switch, port, underlay, patch, bridge, node"]);
    one_error("workers = [0]\n", 1, &["outside any section", "[switch]"]);
    one_error("[switch]\nworker = [0]\n", 2, &["unknown key \"worker\" in [switch]; did you mean \"workers\"?"]);
    one_error(
        &format!("{port}sokcet = \"x\"\n"),
        4,
        &["unknown key \"sokcet\" in port \"p\"; did you mean \"socket\"?"],
    );
    one_error(&format!("{port}colour = \"red\"\n"), 4, &["keys are kind, socket, owner"]);
    let bridge = "[bridge.b]\nports = [\"p\"]\n";
    one_error(&format!("{port}{bridge}aging = 3\n"), 6, &["did you mean \"ageing\"?"]);
    one_error(&format!("{port}{bridge}full = \"wait\"\n"), 6, &["unknown key \"full\" in bridge \"b\"; keys are"]);
    one_error("port = 3\n", 1, &["port is an integer; write a section [port.NAME]"]);
    one_error("switch = [1]\n", 1, &["[switch] must be a section, not an array"]);
    one_error("[[switch]]\n", 1, &["[switch] must be a section"]);
    one_error("[port]\nkind = \"vhost-user\"\n", 2, &["\"kind\" in [port] is a string", "[port.NAME]"]);
}

#[test]
fn sandboxes() {
    let wrong = |value: &str, parts: &[&str]| one_error(&format!("[switch]\nsandbox = {value}\n"), 2, parts);
    wrong("true", &["sandbox in [switch] is a boolean; it must be an array of strings, for example sandbox = [\"capa"]);
    wrong("[1]", &["sandbox in [switch] holds an integer"]);
    wrong("[\"secomp\"]", &["\"secomp\" in sandbox of [switch]: unknown; did you mean \"seccomp\"?"]);
    wrong("[\"selinux\"]", &["known are capabilities, landlock, seccomp"]);
    wrong("[\"seccomp\", \"seccomp\"]", &["\"seccomp\" in sandbox of [switch]: named twice"]);
    let read = |value: &str| good(&format!("[switch]\nsandbox = {value}\n")).config.switch.sandbox;
    assert_eq!(read("[]"), SandboxConfig { mechanisms: vec![], required: true });
    let two = vec![Mechanism::Landlock, Mechanism::Seccomp];
    assert_eq!(read("[\"seccomp\", \"landlock\"]"), SandboxConfig { mechanisms: two, required: true });
    let all = good("").config.switch.sandbox;
    assert_eq!((all.mechanisms.as_slice(), all.required), (&Mechanism::ALL[..], false));
}

#[test]
fn names() {
    let fixture = Fixture::new();
    let port = |name: &str| format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{}\"\n", fixture.path("s"));
    one_error(&port("\"a b\""), 1, &["port \"a b\": not a valid name; use 1 to 32 of A-Z a-z 0-9 _ . -"]);
    one_error(&port("\"\""), 1, &["not a valid name"]);
    one_error(&port("\"\\u001b[2J\""), 1, &["\"\\u{1b}[2J\""]);
    one_error(&port(&"x".repeat(33)), 1, &["not a valid name"]);
    good(&port(&"x".repeat(32)));
    good(&port("\"a.b_C-9\""));
}

#[test]
fn types() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    for (key, value, part) in [
        ("mtu", "\"1500\"", "mtu in port \"p\" is a string; it must be an integer"),
        ("mtu", "1500.0", "is a float"),
        ("mac", "1", "mac in port \"p\" is an integer; it must be a string, for example mac = \"52:54:00:00:00:01\""),
        ("packed", "1", "it must be true or false"),
        ("perms", "0o660", "perms in port \"p\" is an integer; it must be a string, for example perms = \"0660\""),
        ("owner", "[]", "is an array"),
        ("queues", "{}", "is a table"),
        ("offloads", "\"csum\"", "it must be an array of strings"),
        ("offloads", "[1]", "offloads in port \"p\" holds an integer; it must hold strings"),
        ("mode", "2020-01-01", "is a date"),
    ] {
        one_error(&format!("{port}{key} = {value}\n"), 4, &[part]);
    }
    one_error("[switch]\nworkers = 1\n", 2, &["it must be an array of integers, for example workers = [0]"]);
    one_error("[switch]\nworkers = [\"0\"]\n", 2, &["holds a string"]);
    one_error("[switch]\nidle = true\n", 2, &["idle in [switch] is a boolean; it must be a string"]);
    one_error("[switch]\ncopies = \"1\"\n", 2, &["must be an integer"]);
    let bridge = format!("{port}[bridge.b]\nports = ");
    one_error(&format!("{bridge}\"p\"\n"), 5, &["ports in bridge \"b\" is a string"]);
    one_error(&format!("{bridge}[\"p\"]\nstatic = []\n"), 6, &["must be a table, for example static = {"]);
    one_error(&format!("{bridge}[\"p\"]\nstatic = {{ \"02:00:00:00:00:01\" = 1 }}\n"), 6, &["must be a port's name"]);
}

#[test]
fn numbers() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    for mtu in ["67", "9217", "-1", "99999999999999999999", "65536"] {
        one_error(
            &format!("{port}mtu = {mtu}\n"),
            4,
            &[&format!("mtu {mtu} in port \"p\": out of range; it must be 68 to 9216")],
        );
    }
    for mtu in ["68", "9216"] {
        good(&format!("{port}mtu = {mtu}\n"));
    }
    one_error("[switch]\ncopies = 3\n", 2, &["copies 3", "1 to 2"]);
    for queues in ["0", "128"] {
        one_error(&format!("{port}queues = {queues}\n"), 4, &[&format!("queues {queues}"), "1 to 127"]);
    }
    let bridge = format!("{port}[bridge.b]\nports = [\"p\"]\n");
    one_error(&format!("{bridge}ageing = 0\n"), 6, &["ageing 0", "1 to 1000000"]);
    one_error(&format!("{bridge}connections = 0\n"), 6, &["connections 0", "1 to 16000000"]);
    one_error(&format!("{bridge}limit = 0\n"), 6, &["limit 0", "1 to 1048576"]);
}

#[test]
fn instruction_sets() {
    let level = |key: &str| good(&format!("[switch]\n{key}\n")).config.switch.level();
    assert_eq!(level("simd = \"auto\""), Level::detect());
    for set in Level::supported() {
        assert_eq!(level(&format!("simd = \"{set}\"")), set);
    }
    for name in Level::NAMES {
        if !Level::supported().any(|set| set.name() == name) {
            one_error(
                &format!("[switch]\nsimd = \"{name}\"\n"),
                2,
                &[name, "this machine does not have it; it has scalar"],
            );
        }
    }
    one_error("[switch]\nsimd = \"avx3\"\n", 2, &["simd \"avx3\" in [switch]: unknown; did you mean \"avx2\"?"]);
    one_error("[switch]\nsimd = \"libc\"\n", 2, &["known are auto, scalar, sse2, avx2, avx512, avx512-copies, neon"]);
    one_error("[switch]\nsimd = 2\n", 2, &["it must be a string, for example simd = \"auto\""]);
}

#[test]
fn other_copies() {
    let level = |key: &str| good(&format!("[switch]\n{key}\n")).config.switch.level();
    assert_eq!(level("copy = \"kernel\"\nsimd = \"scalar\""), Level::Scalar);
    for copy in Level::for_comparison() {
        assert_eq!(level(&format!("copy = \"{copy}\"")), copy);
    }
    for name in Level::COMPARISONS {
        if !Level::for_comparison().any(|copy| copy.name() == name) {
            one_error(
                &format!("[switch]\ncopy = \"{name}\"\n"),
                2,
                &[name, "this machine does not have it; it has libc"],
            );
        }
    }
    one_error("[switch]\ncopy = \"memcpy\"\n", 2, &["copy \"memcpy\" in [switch]: unknown", "kernel, libc, bytes"]);
    one_error("[switch]\ncopy = \"libc\"\nsimd = \"auto\"\n", 3, &["copy \"libc\" takes no instruction set"]);
    one_error("[switch]\ncopy = 2\n", 2, &["it must be a string, for example copy = \"kernel\""]);
}

#[test]
fn cpus() {
    one_error("[switch]\nworkers = [0, 7]\n", 2, &["CPU 7", "no such CPU online; usable are 0-1"]);
    one_error("[switch]\nworkers = [2]\n", 2, &["CPU 2", "may not run on it; it may use 0-1"]);
    one_error("[switch]\nworkers = [1, 1]\n", 2, &["CPU 1", "named twice"]);
    one_error("[switch]\nworkers = [-1]\n", 2, &["-1 in workers", "out of range"]);
    one_error("[switch]\nworkers = []\n", 2, &["is empty", "at least one"]);
}

#[test]
fn words() {
    let port = Fixture::new().port("p").replace("/p\"", "\"");
    one_error("[switch]\nidle = \"slep\"\n", 2, &["idle \"slep\" in [switch]: unknown; did you mean \"sleep\"?"]);
    one_error(&format!("{port}mode = \"peer\"\n"), 4, &["known are server, client"]);
    one_error(
        &format!("{port}offloads = [\"csun\"]\n"),
        4,
        &["offload \"csun\" in port \"p\": unknown; did you mean \"csum\"?"],
    );
    one_error(&format!("{port}offloads = [\"gro\"]\n"), 4, &["offloads are csum, tso, uso"]);
    one_error(&format!("{port}offloads = [\"csum\", \"csum\"]\n"), 4, &["named twice"]);
    one_error(
        "[port.p]\nkind = \"memif\"\nsocket = \"/tmp/x\"\nifname = \"t0\"\n",
        2,
        &["kind \"memif\"", "known are vhost-user, tap, af-packet, af-xdp"],
    );
    one_error("[port.p]\nsocket = \"/tmp/x\"\n", 1, &["port \"p\" has no \"kind\"", "kind = \"vhost-user\""]);
}

#[test]
fn addresses() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    one_error(&format!("{port}mac = \"52:54:00\"\n"), 4, &["mac \"52:54:00\" in port \"p\"", "six bytes"]);
    one_error(&format!("{port}mac = \"01:00:5e:00:00:01\"\n"), 4, &["multicast", "unicast"]);
    one_error(&format!("{port}mac = \"00:00:00:00:00:00\"\n"), 4, &["all zeros"]);
    let bridge = format!("{port}[bridge.b]\nports = [\"p\"]\n");
    for (entry, part) in [
        ("\"x\" = \"p\"", "static entry \"x\" in bridge \"b\""),
        ("\"03:00:00:00:00:00\" = \"p\"", "multicast"),
        ("\"02:00:00:00:00:0a\" = \"p\", \"02:00:00:00:00:0A\" = \"p\"", "has an entry already"),
        ("\"02:00:00:00:00:0a\" = \"q\"", "not a port of this bridge; its ports are p"),
    ] {
        one_error(&format!("{bridge}static = {{ {entry} }}\n"), 6, &[part]);
    }
    let two = "static = { \"02:00:00:00:00:0a\" = \"p\", \"02:00:00:00:00:0b\" = \"p\" }\n";
    one_error(&format!("{bridge}{two}limit = 1\n"), 7, &["limit 1 in bridge \"b\"", "2 static entries", "at least 2"]);

    let pair =
        format!("{}mac = \"02:00:00:00:00:01\"\n{}mac = \"02:00:00:00:00:01\"\n", fixture.port("p"), fixture.port("q"));
    good(&pair);
    one_error(
        &format!("{pair}[patch.a]\nports = [\"p\", \"q\"]\n"),
        8,
        &["port \"p\" of the same patch \"a\" has it too"],
    );
}

#[test]
fn source_checks() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    let on = format!("{port}mac = \"02:00:00:00:00:01\"\nsource-check = \"mac\"\n");
    one_error(
        &format!("{port}source-check = \"macs\"\n"),
        4,
        &["source-check \"macs\" in port \"p\": unknown; did you mean \"mac\"?"],
    );
    one_error(
        &format!("{port}source-check = true\n"),
        4,
        &["source-check in port \"p\" is a boolean; it must be a string"],
    );
    // All packets of the port would be dropped.
    for keys in ["", "allowed-macs = []\n"] {
        let text = format!("{port}source-check = \"mac\"\n{keys}");
        one_error(&text, 4, &["source-check \"mac\" in port \"p\": no address is allowed", "add for example mac = "]);
    }
    // One mistake has one error.
    one_error(&format!("{port}mac = \"x\"\nsource-check = \"mac\"\n"), 4, &["mac \"x\""]);
    one_error(&format!("{port}source-check = \"mac\"\nallowed-macs = [\"x\"]\n"), 5, &["\"x\" in allowed-macs"]);
    for (check, line) in [("", 4), ("source-check = \"off\"\n", 5)] {
        for list in ["allowed-macs = [\"02:00:00:00:00:01\"]", "allowed-ips = [\"10.0.0.1\"]"] {
            let key = list.split(' ').next().expect("a key");
            let expected = format!("{key} in port \"p\" needs source-check = \"mac\"");
            one_error(&format!("{port}{check}{list}\n"), line, &[&expected]);
        }
    }
    for (entry, part) in [
        ("52:54:00", "\"52:54:00\" in allowed-macs of port \"p\": not an Ethernet address"),
        ("01:00:5e:00:00:00/24", "a multicast address"),
        ("00:00:00:00:00:00", "all zeros"),
        ("00:00:5e:00:01:00/39", "bits are set behind the first 39"),
        ("00:00:5e:00:01:00/49", "not a valid prefix length; it must be 8 to 48"),
        ("02:00:00:00:00:00/7", "it must be 8 to 48"),
        ("02:00:00:00:00:00/", "it must be 8 to 48"),
        ("02:00:00:00:00:00/+8", "it must be 8 to 48"),
        ("02:00:00:00:00:01/48\", \"02:00:00:00:00:01", "named twice"),
    ] {
        one_error(&format!("{on}allowed-macs = [\"{entry}\"]\n"), 6, &[part]);
    }
    for (entry, part) in [
        ("10.0.0", "\"10.0.0\" in allowed-ips of port \"p\": not an IP address; write for example 10.0.0.5"),
        ("10.0.0.1/24", "bits are set behind the first 24"),
        ("10.0.0.0/33", "it must be 0 to 32"),
        ("fd00::1/64", "bits are set behind the first 64"),
        ("fd00::/129", "it must be 0 to 128"),
        ("fd00::/256", "it must be 0 to 128"),
        ("::1\", \"0:0::1", "named twice"),
    ] {
        one_error(&format!("{on}allowed-ips = [\"{entry}\"]\n"), 6, &[part]);
    }
    one_error(&format!("{on}allowed-ips = []\n"), 6, &["allowed-ips in port \"p\": none named"]);
    one_error(
        &format!("{on}allowed-ips = \"10.0.0.1\"\n"),
        6,
        &["it must be an array of strings, for example allowed-ips"],
    );
    let many: Vec<_> = (0..257).map(|n| format!("\"10.0.{}.{}\"", n / 256, n % 256)).collect();
    one_error(&format!("{on}allowed-ips = [{}]\n", many.join(",")), 6, &["257 entries; at most 256"]);
}

#[test]
fn use_of_ports() {
    let fixture = Fixture::new();
    let ports = fixture.ports(&["p", "q", "r"]);
    let join = |sections: &str| format!("{ports}{sections}");
    let twice = join("[patch.a]\nports = [\"p\", \"q\"]\n[bridge.b]\nports = [\"r\", \"q\"]\n");
    one_error(&twice, 13, &["port \"q\" in bridge \"b\": already in patch \"a\" (line 11)"]);
    let earlier = join("[bridge.b]\nports = [\"r\", \"q\"]\n[patch.a]\nports = [\"p\", \"q\"]\n");
    one_error(&earlier, 13, &["port \"q\" in patch \"a\": already in bridge \"b\" (line 11)"]);
    one_error(&join("[bridge.b]\nports = [\"r\", \"r\"]\n"), 11, &["port \"r\" in bridge \"b\": named twice"]);
    one_error(&join("[patch.a]\nports = [\"r\", \"r\"]\n"), 11, &["named twice"]);
    one_error(&join("[patch.a]\nports = [\"p\"]\n"), 11, &["ports of patch \"a\": 1 named", "exactly 2"]);
    one_error(&join("[patch.a]\nports = [\"p\", \"q\", \"r\"]\n"), 11, &["3 named", "exactly 2"]);
    one_error(&join("[patch.a]\n"), 10, &["patch \"a\" has no \"ports\""]);
    one_error(&join("[bridge.b]\nports = []\n"), 11, &["ports of bridge \"b\": none named"]);
    one_error(&join("[bridge.b]\n"), 10, &["bridge \"b\" has no \"ports\""]);
    one_error("[bridge.b]\nports = [\"x\"]\n", 2, &["no such port; there is no section [port.NAME]"]);
    one_error(&join("[patch.a]\nports = [\"p\", \"x\"]\n[bridge.a]\nports = [\"q\"]\n"), 11, &["port \"x\""]);
}

#[test]
fn sockets() {
    let fixture = Fixture::new();
    let port = |name: &str, path: &str| format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{path}\"\n");
    one_error("[port.p]\nkind = \"vhost-user\"\n", 1, &["port \"p\" has no \"socket\""]);
    one_error(&port("p", &format!("/tmp/{}", "x".repeat(103))), 3, &["108 bytes long; a socket path has at most 107"]);
    good(&port("p", &format!("/tmp/{}", "x".repeat(102))));
    one_error(&port("p", "/no/such/folder/s"), 3, &["cannot use its folder \"/no/such/folder\"", "create it first"]);
    let api = "[switch]\napi = \"/no/such/folder/api\"\n";
    let all = [api, &port("p", "/no/such/folder/p"), &port("q", "/no/such/folder/q")].concat();
    one_error(&all, 2, &["of the API", "\"/no/such/folder\"", "create it first"]);
    let others = [port("p", "/no/such/folder/p"), port("q", "/no/such/other/q")].concat();
    assert_eq!(errors(&others).len(), 2, "two folders are two mistakes");
    one_error(&port("p", ""), 3, &["names no file"]);
    one_error(&port("p", "/tmp/a\\u0000b"), 3, &["NUL"]);
    let dotted = fixture.path("./s");
    let same = port("p", &fixture.path("s")) + &port("q", &dotted);
    one_error(&same, 6, &["socket", "of port \"q\"", "port \"p\" has it already (line 3)"]);
    let api = format!("{}[switch]\napi = \"{}\"\n", port("p", &fixture.path("s")), fixture.path("s"));
    one_error(&api, 5, &["of the API: port \"p\" has it already (line 3)"]);
    one_error("[switch]\napi = \"/no/such/folder/s\"\n", 2, &["of the API", "folder"]);
    one_error(&format!("{}[switch]\napi = 3\n", fixture.port("p")), 5, &["api in [switch] is an integer"]);
    let switch = |keys: &str| format!("[switch]\napi = \"{}\"\n{keys}\n", fixture.path("api"));
    let same = format!("api-read-only = \"{}\"", fixture.path("api"));
    one_error(&switch(&same), 3, &["of the API that only answers questions: the API has it already (line 2)"]);
    one_error(&switch("api-read-only = \"/no/such/folder/s\""), 3, &["only answers questions", "folder"]);
    one_error(&switch("api-perms = \"rw\""), 3, &["api-perms \"rw\" in [switch]: not permission bits", "\"0660\""]);
    one_error(
        &switch("api-group = \"no-such-group\""),
        3,
        &["api-group \"no-such-group\" in [switch]", "no such group"],
    );
    for key in ["api-group = \"root\"", "api-perms = \"0660\""] {
        one_error(&format!("[switch]\n{key}\n"), 2, &["there is no \"api\" to which it applies"]);
    }
    let read_only = |keys: &str| format!("[switch]\napi-read-only = \"{}\"\n{keys}\n", fixture.path("ro"));
    let group = "api-read-only-group";
    one_error(&read_only(&format!("{group} = \"no-such-group\"")), 3, &[group, "no such group"]);
    one_error(&read_only("api-read-only-perms = \"7777\""), 3, &["api-read-only-perms", "not permission bits"]);
    for key in ["api-read-only-group = \"root\"", "api-read-only-perms = \"0660\""] {
        one_error(&switch(key), 3, &["there is no \"api-read-only\" to which it applies"]);
    }
}

#[test]
fn who_may_connect() {
    let fixture = Fixture::new();
    let port = fixture.port("p");
    one_error(
        &format!("{port}owner = \"no-such-user-here\"\n"),
        4,
        &["owner \"no-such-user-here\" in port \"p\": this machine has no such user"],
    );
    one_error(&format!("{port}group = \"no-such-group-here\"\n"), 4, &["no such group"]);
    for perms in ["", "66", "0888", "1777", "00660", "rw-rw----", "+660", "0o660"] {
        one_error(&format!("{port}perms = \"{perms}\"\n"), 4, &["perms", "octal, for example \"0660\""]);
    }
}

#[test]
fn whoever_connects_makes_no_socket() {
    let fixture = Fixture::new();
    let port = fixture.port("p") + "mode = \"client\"\n";
    for key in ["owner = \"root\"", "group = \"root\"", "perms = \"0660\""] {
        one_error(&format!("{port}{key}\n"), 5, &["in port \"p\": a port of mode \"client\" makes no socket"]);
        good(&format!("{}mode = \"server\"\n{key}\n", fixture.port("p")));
    }
    let two = format!("{port}{}", port.replace("[port.p]", "[port.q]"));
    one_error(&two, 7, &["port \"p\" has it already (line 3)"]);
    let long = "x".repeat(108);
    let text = format!("[port.p]\nkind = \"vhost-user\"\nsocket = \"/{long}\"\nmode = \"client\"\n");
    one_error(&text, 3, &["109 bytes long"]);
}

#[test]
fn both_mistakes_of_a_patch_are_told() {
    let text = "[patch.a]\nports = [\"x\", \"y\", 3]\n";
    let errors = errors(text);
    for part in ["3 named", "port \"x\"", "port \"y\"", "holds an integer"] {
        assert!(errors.iter().any(|error| error.contains(part)), "no {part} in {errors:#?}");
    }
}

#[test]
fn interfaces() {
    let tap = |port: &str, name: &str| format!("[port.{port}]\nkind = \"tap\"\nname = \"{name}\"\n");
    one_error("[port.p]\nkind = \"tap\"\n", 1, &["port \"p\" has no \"name\"", "name = \"sl0\""]);
    one_error("[port.p]\nkind = \"af-xdp\"\n", 1, &["port \"p\" has no \"interface\"", "interface = \"eth1\""]);
    for (name, part) in [
        ("a-name-of-16-byt", "the name has 16 bytes; the kernel allows 15"),
        ("a b", "no slash, colon or white space"),
        ("..", "no interface can have this name"),
    ] {
        one_error(&tap("p", name), 3, &[part]);
    }
    let both = format!("{}[port.q]\nkind = \"af-packet\"\ninterface = \"sl0\"\n", tap("p", "sl0"));
    one_error(&both, 6, &["interface \"sl0\" of port \"q\"", "port \"p\" has it already (line 3)"]);
    let waits = format!("{}{}[patch.x]\nports = [\"p\", \"q\"]\nfull = \"wait\"\n", tap("p", "sl0"), tap("q", "sl1"));
    one_error(&waits, 9, &["full = \"wait\" in patch \"x\"", "port \"p\" is no vhost-user port", "\"drop\""]);
}

#[test]
fn af_xdp_ports() {
    let port = |key: &str| format!("[port.p]\nkind = \"af-xdp\"\ninterface = \"eth1\"\n{key}\n");
    one_error(&port("queues = 0"), 4, &["queues", "1 to 64"]);
    one_error(&port("queues = 65"), 4, &["queues", "1 to 64"]);
    one_error(&port("steal = \"some\""), 4, &["\"some\"", "all, address"]);
    one_error(
        &port("steal = \"address\""),
        4,
        &["steal = \"address\" in port \"p\" needs an underlay", "or use \"all\""],
    );
    one_error(&port("zero-copy = true"), 4, &["zero-copy in port \"p\" is a boolean"]);
    one_error(&port("zero-copy = \"always\""), 4, &["\"always\"", "allow, require, off"]);
    one_error(
        &port("name = \"eth1\""),
        4,
        &["unknown key \"name\" in port \"p\"", "interface, queues, steal, zero-copy"],
    );
}

#[test]
fn keys_of_taps_and_packet_sockets() {
    let tap = "[port.p]\nkind = \"tap\"\nname = \"sl0\"\n";
    one_error(
        &format!("{tap}socket = \"/tmp/x\"\n"),
        4,
        &["unknown key \"socket\" in port \"p\"", "keys are kind, name"],
    );
    one_error(&format!("{tap}queues = 0\n"), 4, &["queues 0 in port \"p\"", "1 to 127"]);
    one_error(&format!("{tap}persist = \"yes\"\n"), 4, &["persist in port \"p\" is a string", "true or false"]);
    one_error(&format!("{tap}owner = \"nobody-of-this-name\"\n"), 4, &["owner \"nobody-of-this-name\" in port \"p\""]);
    one_error(&format!("{tap}bridge = \"a bridge\"\n"), 4, &["bridge \"a bridge\" in port \"p\"", "white space"]);
    one_error(&format!("{tap}offloads = [\"gro\"]\n"), 4, &["offload \"gro\" in port \"p\"", "csum, tso, uso"]);
    one_error(&format!("{tap}mac = \"01:00:00:00:00:00\"\n"), 4, &["mac \"01:00:00:00:00:00\" in port \"p\""]);
    let packet = "[port.p]\nkind = \"af-packet\"\ninterface = \"eth1\"\n";
    one_error(&format!("{packet}queues = 128\n"), 4, &["queues 128", "1 to 127"]);
    one_error(
        &format!("{packet}offloads = []\n"),
        4,
        &["unknown key \"offloads\"", "keys are kind, interface, queues"],
    );
}

#[test]
fn vlans_and_other_rules_of_bridge_ports() {
    let fixture = Fixture::new();
    let lan = |keys: &str| {
        format!("{}{keys}\n{}[bridge.lan]\nports = [\"p\", \"q\"]\n", fixture.port("p"), fixture.port("q"))
    };
    let wrong = |keys: &str, line: usize, parts: &[&str]| one_error(&lan(keys), line, parts);
    wrong("vlan = 0", 4, &["vlan 0 in port \"p\": out of range; it must be 1 to 4094"]);
    wrong("vlan = 4095", 4, &["out of range"]);
    wrong(
        "vlan = 1\nqinq = 2",
        5,
        &["qinq in port \"p\": the port has vlan, too; a port has one of vlan, trunk and qinq"],
    );
    wrong("trunk = [1]\nvlan = 1", 4, &["trunk in port \"p\": the port has vlan, too"]);
    wrong("trunk = 1", 4, &["it must be a list of VLANs", "trunk = [10, \"100-199\"]"]);
    wrong("trunk = []", 4, &["no VLAN named"]);
    for element in ["0", "4095", "\"10\"", "\"20-10\"", "\"1-4095\"", "true"] {
        wrong(
            &format!("trunk = [{element}]"),
            4,
            &["an element of trunk in port \"p\": it must be a VLAN from 1 to 4094"],
        );
    }
    wrong("trunk = [10, \"5-15\"]", 4, &["VLAN 10 is named twice"]);
    wrong("vlan = 2\nnative-vlan = 1", 5, &["native-vlan in port \"p\" needs trunk"]);
    wrong("trunk = [2]\nnative = \"tagged\"", 5, &["native in port \"p\" needs native-vlan"]);
    wrong("trunk = [2]\nnested-tags = true", 5, &["nested-tags in port \"p\" needs native-vlan"]);
    wrong(
        "trunk = [2]\nnative-vlan = 1\nnative = \"tagged\"\nnested-tags = true",
        7,
        &["nested-tags in port \"p\" has no effect with native = \"tagged\"; remove one of them"],
    );
    wrong("vlan = 2\ntag = \"802.1ad\"", 5, &["tag in port \"p\" needs trunk"]);
    wrong("trunk = [2]\npriority = 3", 5, &["priority in port \"p\" needs vlan, qinq, native-vlan"]);
    wrong("dscp = 64", 4, &["dscp 64 in port \"p\": out of range; it must be 0 to 63"]);
    wrong("dscp = \"EF\"", 4, &["dscp \"EF\" in port \"p\": unknown; known are cs0"]);
    wrong("dscp = \"voice\"", 4, &["dscp \"voice\" in port \"p\": unknown; known are cs0, le"]);
    wrong("expedited = \"ef\"", 4, &["expedited in port \"p\" is a string; it must be a list of names and integers"]);
    wrong("expedited = []", 4, &["expedited in port \"p\": no class named; remove the key"]);
    wrong(
        "expedited = [\"ef\", 64]",
        4,
        &["an element of expedited in port \"p\": it must be 0 to 63, or one of cs0, le, cs1"],
    );
    wrong("expedited = [-1]", 4, &["an element of expedited in port \"p\": it must be 0 to 63"]);
    wrong("expedited = [\"ef\", 46]", 4, &["expedited in port \"p\": class ef is named twice; name it once"]);
    wrong("dscp = true", 4, &["dscp in port \"p\" is a boolean; it must be an integer or a name"]);
    wrong("mac-limit-action = \"drop\"", 4, &["needs mac-limit"]);
    wrong("learning = false\nmac-limit = 3", 5, &["no effect with learning = false"]);
    wrong("storm = { multicast = 10 }", 4, &["multicast in storm of port \"p\"", "\"500/s\""]);
    wrong("storm = { all = \"1/s\" }", 4, &["known are broadcast, multicast and unknown"]);

    wrong("move-limit = 0", 4, &["move-limit", "out of range"]);

    let patch = format!("{}vlan = 3\n{}[patch.x]\nports = [\"p\", \"q\"]\n", fixture.port("p"), fixture.port("q"));
    one_error(&patch, 4, &["vlan in port \"p\": only a bridge heeds it, and the port is in patch \"x\""]);
    one_error(&format!("{}isolated = true\n", fixture.port("p")), 4, &["isolated in port \"p\"", "is in no bridge"]);
}

#[test]
fn static_entries_in_vlans() {
    let fixture = Fixture::new();
    let lan = |keys: &str, entry: &str| {
        let ports = format!("{}{keys}\n{}vlan = 20\n", fixture.port("p"), fixture.port("q"));
        format!("{ports}[bridge.lan]\nports = [\"p\", \"q\"]\nstatic = {{ \"02:00:00:00:00:01\" = {entry} }}\n")
    };
    let wrong = |keys: &str, entry: &str, parts: &[&str]| one_error(&lan(keys, entry), 11, parts);
    wrong("trunk = [10]", "\"p\"", &["port \"p\" is a trunk without native-vlan; name the VLAN"]);
    wrong("trunk = [10]", "{ port = \"p\", vlan = 11 }", &["port \"p\" is not in VLAN 11"]);
    wrong("vlan = 10", "{ port = \"p\", vlan = 0 }", &["its value must be a port's name"]);
    wrong("vlan = 10", "{ port = \"p\", vlans = 10 }", &["its value must be a port's name"]);
    wrong("trunk = [10]", "[{ port = \"p\", vlan = 10 }, { port = \"p\", vlan = 10 }]", &["named twice"]);
    let read = |keys: &str, entry: &str| good(&lan(keys, entry)).config.bridges[0].statics.clone();
    let both = read("trunk = [10, 20]", "[{ port = \"p\", vlan = 10 }, { port = \"q\", vlan = 20 }]");
    let places: Vec<_> = both.iter().map(|entry| (entry.port.as_str(), entry.vlan.map(|vlan| vlan.get()))).collect();
    assert_eq!(places, [("p", Some(10)), ("q", Some(20))]);
    assert_eq!(read("vlan = 10", "\"p\"")[0].vlan, None);
}

#[test]
fn ports_that_fall_into_the_default_vlan_are_worth_a_warning() {
    let fixture = Fixture::new();
    let text = format!("{}{}vlan = 5\n[bridge.lan]\nports = [\"p\", \"q\"]\n", fixture.port("p"), fixture.port("q"));
    let loaded = good(&text);
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("f.toml:1: bridge \"lan\" has VLANs, so its port \"p\" without vlan"),
        "{warnings:?}"
    );
}

#[test]
fn an_access_vlan_that_is_native_on_a_trunk_is_worth_a_warning() {
    let fixture = Fixture::new();
    let warnings = |p: &str, q: &str| -> Vec<String> {
        let text =
            format!("{}{p}\n{}{q}\n[bridge.lan]\nports = [\"p\", \"q\"]\n", fixture.port("p"), fixture.port("q"));
        let warnings = good(&text).warnings;
        warnings.iter().map(|warning| warning.to_string().lines().next().unwrap_or("").to_owned()).collect()
    };
    let found = warnings("trunk = [10]\nnative-vlan = 5", "vlan = 5");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("f.toml:5: native-vlan of port \"p\": access port \"q\" is in VLAN 5"), "{found:?}");
    assert!(found[0].contains("write native = \"tagged\""), "{found:?}");
    let customer = warnings("trunk = [10]\nnative-vlan = 5", "qinq = 5");
    assert_eq!(customer.len(), 1, "{customer:?}");
    assert!(
        customer[0].starts_with("f.toml:5: native-vlan of port \"p\": qinq port \"q\" is in VLAN 5"),
        "{customer:?}"
    );
    assert!(customer[0].contains("native = \"tagged\"") && customer[0].contains("nested-tags = true"), "{customer:?}");
    let default = warnings("trunk = [10]\nnative-vlan = 1", "");
    assert!(default.iter().any(|warning| warning.contains("access port \"q\" is in VLAN 1")), "{default:?}");
    for (p, q) in [
        ("trunk = [10]\nnative-vlan = 5\nnative = \"tagged\"", "vlan = 5"),
        ("trunk = [10]\nnative-vlan = 5", "vlan = 10"),
        ("trunk = [10]\nnative-vlan = 5\nnative = \"tagged\"", "qinq = 5"),
        ("trunk = [10]\nnative-vlan = 5\nnested-tags = true", "qinq = 5"),
        ("trunk = [10]\nnative-vlan = 5\nnested-tags = true", "trunk = [5]"),
    ] {
        assert_eq!(warnings(p, q), [""; 0], "{p} {q}");
    }
}

#[test]
fn rates() {
    let fixture = Fixture::new();
    let lan = |keys: &str| format!("{}{keys}\n[bridge.lan]\nports = [\"p\"]\n", fixture.port("p"));
    let wrong = |keys: &str, line: usize, parts: &[&str]| one_error(&lan(keys), line, parts);
    wrong(
        "rate-in = \"0 bit/s\"",
        4,
        &["rate-in \"0 bit/s\" in port \"p\": too low; it must be 600 kbit/s to 1 Tbit/s"],
    );
    wrong("share = 0", 4, &["share 0 in port \"p\": out of range; it must be 1 to 10"]);
    wrong("share = 11", 4, &["out of range"]);
    wrong("rate-in = \"1 packet/s\"", 4, &["it must be 50 packet/s to 1G packet/s"]);
    wrong("rate-in = \"900 Tbit/s\"", 4, &["too high"]);
    wrong("rate-out = \"1 GB/s\"", 4, &["rate-out \"1 GB/s\" in port \"p\": not a rate; write a rate such as"]);
    wrong("rate-in = 7", 4, &["rate-in in port \"p\" is an integer", "rate-in = \"1 Gbit/s\""]);
    wrong("rate-in = []", 4, &["the list is empty"]);
    wrong("rate-in = [\"1 Gbit/s\", \"2 Gbit/s\"]", 4, &["a second value of this unit"]);
    wrong(
        "rate-in = \"1 Gbit/s\"\nburst = \"1 kB\"",
        5,
        &["burst of 1000 bytes in port \"p\": the longest frame has 1518 bytes"],
    );
    wrong("rate-in = \"1 Gbit/s\"\nburst = \"0 packet\"", 5, &["not possible; it must be 1 to"]);
    wrong("rate-in = \"1 Gbit/s\"\nburst = \"64 packet\"", 5, &["no rate of this section is in packets"]);
    wrong("rate-in = \"1 Gbit/s\"\nburst = \"1 Gbit\"", 5, &["not a burst; write a burst such as"]);
    wrong("burst = \"1 MB\"", 4, &["burst in port \"p\" needs rate-in or rate-out"]);
    wrong("rate-in = \"tenant\"", 4, &["rate \"tenant\" of port \"p\": no such rate; there is no section [rate.NAME]"]);
    let shared = "rate-in = \"t\"\nburst = \"1 MB\"\n[rate.t]\nrate = \"1 Gbit/s\"";
    wrong(shared, 5, &["burst in port \"p\" needs rate-in or rate-out with a rate of its own"]);
    wrong("rate-in = \"t\"\n[rate.t]", 5, &["rate \"t\" has no \"rate\""]);
    wrong("rate-in = \"t\"\n[rate.t]\nrate = \"1 bit/s\"", 6, &["rate \"1 bit/s\" in rate \"t\": too low"]);
    wrong("rate-in = \"t\"\n[rate.t]\nrate = \"1 Gbit/s\"\nports = 3", 7, &["unknown key \"ports\" in rate \"t\""]);
    wrong("rate-in = \"s\"\n[rate.t]\nrate = \"1 Gbit/s\"", 4, &["no such rate; rates are t"]);
}

#[test]
fn rates_and_their_bursts() {
    use straightline_graph::{Limit, RateLimits};

    use crate::{PortRate, rate_text};
    let fixture = Fixture::new();
    let lan = |keys: &str| good(&format!("{}{keys}\n[bridge.lan]\nports = [\"p\"]\n", fixture.port("p")));
    let loaded = lan("rate-in = [\"1 Gbit/s\", \"100k packet/s\"]\nrate-out = \"1 Gbit/s\"");
    let port = &loaded.config.ports[0];
    let limit = |per_second, burst| Some(Limit { per_second, burst });
    let limits = RateLimits { bytes: limit(125_000_000, 500_000), packets: limit(100_000, 400) };
    assert_eq!(rate_text(&limits), "1 Gbit/s, 100k packet/s");
    assert_eq!(port.rate_in, Some(PortRate::Own(limits)));
    // Where packets are dropped, more of them pass at once.
    let limits = RateLimits { bytes: limit(125_000_000, 12_500_000), packets: None };
    assert_eq!(port.rate_out, Some(PortRate::Own(limits)));
    let loaded = lan("rate-in = \"t\"\n[rate.t]\nrate = \"600 kbit/s\"\n[rate.u]\nrate = \"50 packet/s\"");
    assert_eq!(loaded.config.ports[0].rate_in, Some(PortRate::Shared("t".to_owned())));
    assert_eq!(loaded.config.rates[0].limits, RateLimits { bytes: limit(75_000, 65_536), packets: None });
    let warning = loaded.warnings[0].to_string();
    assert!(warning.starts_with("f.toml:7: rate \"u\" is in rate-in or rate-out of no port; it limits nothing"));
    let loaded = lan("rate-in = \"10 Gbit/s\"\nburst = \"64 KiB\"");
    assert!(loaded.warnings[0].to_string().contains("the rate brings 1250000 bytes in a millisecond"));
}

#[test]
fn mistakes_in_the_bindings_of_a_bridge() {
    let fixture = Fixture::new();
    let bridge = |keys: &str| format!("{}[bridge.lan]\nports = [\"p\"]\n{keys}\n", fixture.port("p"));
    let wrong = |keys: &str, parts: &[&str]| {
        let text = bridge(&format!("neighbour-suppression = true\n{keys}"));
        one_error(&text, 7, parts);
    };
    wrong("bindings = { \"10.0.0\" = \"02:00:00:00:00:05\" }", &["binding \"10.0.0\" in bridge \"lan\""]);
    wrong("bindings = { \"10.0.0.5\" = \"02:00\" }", &["\"02:00\" is not an Ethernet address"]);
    wrong("bindings = { \"10.0.0.5\" = 5 }", &["its value must be a MAC address, for example bindings ="]);
    let twice = "[\"02:00:00:00:00:05\", { mac = \"02:00:00:00:00:06\" }]";
    wrong(&format!("bindings = {{ \"10.0.0.5\" = {twice} }}"), &["named twice in this VLAN"]);
    wrong("api-stations = -1", &["api-stations", "out of range"]);
    let alone = bridge("bindings = { \"10.0.0.5\" = \"02:00:00:00:00:05\" }");
    one_error(&alone, 6, &["without effect; set neighbour-suppression = true"]);
    let good = "bindings = { \"fd00::5\" = { mac = \"02:00:00:00:00:05\", vlan = 10 } }";
    let loaded = parse(&bridge(&format!("neighbour-suppression = true\n{good}"))).expect("a right file");
    let known = loaded.config.bridges[0].bindings[0];
    assert_eq!((known.vlan.map(|vlan| vlan.get()), known.ip), (Some(10), "fd00::5".parse().expect("an address")));
}
