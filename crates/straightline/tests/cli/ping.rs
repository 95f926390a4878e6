//! Tests of `ping`: an underlay on one end of a veth pair, and the kernel of another namespace on
//! the other.

use serde_json::{Value, json};

use super::opener::{Namespace, has_root_and, in_namespace};
use super::run::Running;
use super::{Finished, Fixture};

const CONFIG: &str = "\
[switch]
api = \"@/api\"
api-read-only = \"@/read-only\"
[port.nic]
kind = \"af-packet\"
interface = \"sl0\"
[port.t1]
kind = \"vxlan\"
underlay = \"wan\"
vni = 5
remote = \"192.0.2.9\"
mtu = 1400
[bridge.lan]
ports = [\"t1\"]
[underlay.wan]
port = \"nic\"
address = [\"192.0.2.1/24\", \"2001:db8::1/64\"]
";

/// A switch whose underlay reaches another host, 192.0.2.2 and 2001:db8::2.
struct Net {
    fixture: Fixture,
    _switch: Running,
    far: Namespace,
    _near: Namespace,
}

impl Net {
    fn new(test: &str) -> Net {
        let fixture = Fixture::new();
        let near = Namespace::new(test);
        let far = Namespace::new(&format!("{test}-far"));
        near.ip(&format!("link add sl0 type veth peer name sl1 netns {}", far.name()));
        near.ip("link set sl0 up");
        far.ip("link set sl1 up");
        far.ip("addr add 192.0.2.2/24 dev sl1");
        far.ip("addr add 2001:db8::2/64 dev sl1 nodad");
        fixture.write(CONFIG);
        let switch = in_namespace(&fixture, &near);
        Net { fixture, _switch: switch, far, _near: near }
    }

    fn ping(&self, args: &str) -> Finished {
        let args: Vec<_> = ["ping", "--api", "api"].into_iter().chain(args.split(' ')).collect();
        self.fixture.execute(&args)
    }
}

#[test]
fn it_shows_who_answers_and_how_fast() {
    if !has_root_and("it_shows_who_answers_and_how_fast", &["ip"]) {
        return;
    }
    let net = Net::new("ping");
    for (address, source) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        let done = net.ping(&format!("wan {address} --count 3 --interval 0.05 --timeout 60"));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.err, format!("pinging: {address} from {source} of wan; end with Ctrl-C\n"));
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines.len(), 4, "{done:?}");
        for (seq, line) in (1..).zip(&lines[..3]) {
            let start = format!("reply from {address}: seq={seq} time=");
            assert!(line.starts_with(&start) && line.ends_with(" ms"), "{done:?}");
        }
        assert!(lines[3].starts_with("3 sent, 3 received, 0 % lost, min/avg/max "), "{done:?}");
    }
    let done = net.ping("wan 192.0.2.2 --count 2 --interval 0.01 --timeout 60 --json");
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((done.code, lines.len()), (Some(0), 2), "{done:?}");
    for (seq, line) in (1..).zip(&lines) {
        assert_eq!((&line["kind"], &line["seq"]), (&json!("reply"), &json!(seq)), "{done:?}");
        assert!(line["time_ms"].as_f64().unwrap() > 0.0, "{done:?}");
    }
    assert!(done.err.contains("\npinged: 2 sent, 2 received, 0 % lost"), "{done:?}");
}

#[test]
fn it_fails_and_says_who_is_silent() {
    if !has_root_and("it_fails_and_says_who_is_silent", &["ip"]) {
        return;
    }
    let net = Net::new("silence");
    let done = net.ping("wan 192.0.2.3 --count 2 --interval 0.05 --timeout 0.1");
    let lines: Vec<_> = (1..=2).map(|seq| format!("next hop 192.0.2.3 does not answer ARP: seq={seq}\n")).collect();
    assert_eq!((done.code, done.out), (Some(1), lines.concat() + "0 sent, 0 received, 100 % lost\n"));
    let done = net.ping("wan 2001:db8::3 --count 1 --timeout 0.1");
    assert!(done.out.starts_with("next hop 2001:db8::3 does not answer neighbour discovery: seq=1\n"), "{done:?}");

    // Its neighbours find the other host, but it answers no echo request.
    assert_eq!(net.ping("wan 192.0.2.2 --count 1 --timeout 60").code, Some(0));
    net.far.sysctl("net/ipv4/icmp_echo_ignore_all", "1");
    let done = net.ping("wan 192.0.2.2 --count 1 --timeout 0.1");
    let out = "no reply from 192.0.2.2: seq=1\n1 sent, 0 received, 100 % lost\n";
    assert_eq!((done.code, done.out.as_str()), (Some(1), out));
}

#[test]
fn what_cannot_be_pinged_is_refused() {
    if !has_root_and("what_cannot_be_pinged_is_refused", &["ip"]) {
        return;
    }
    let net = Net::new("refused");
    for (args, error) in [
        ("wam 192.0.2.2", "no such underlay \"wam\"; underlays are wan"),
        ("wan 192.0.2.1", "192.0.2.1 is an address of underlay \"wan\" itself"),
        ("wan 192.0.2.255", "192.0.2.255 is not the address of a single station"),
        ("wan 198.51.100.7", "underlay \"wan\" has no next hop to 198.51.100.7"),
        ("wan 192.0.2.2 --api read-only", "this socket only answers questions"),
    ] {
        let args: Vec<_> = ["ping"].into_iter().chain(args.split(' ')).collect();
        let api: &[&str] = if args.contains(&"--api") { &[] } else { &["--api", "api"] };
        let done = net.fixture.execute(&[&args, api].concat());
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
        assert!(done.err.contains(error), "{done:?}");
    }
    for args in ["wan example.com", "wan 192.0.2.2 --count 0", "wan 192.0.2.2 --timeout 0"] {
        assert_eq!(net.ping(args).code, Some(2), "{args}");
    }
}
