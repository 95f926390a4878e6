//! Pings: echo requests of an underlay, and the stream of their ends.

use std::time::Duration;

use straightline_config::{Config, Machine};
use straightline_graph::Clock;
use straightline_switch::api::{ErrorCode, PingLine, PingRequest, Stream};
use straightline_switch::{StartOptions, Switch};
use straightline_testing::host::Host;
use straightline_testing::wait_moving;

const PORT: &str = "[port.nic]\ninterface = \"nic0\"\nkind = \"af-packet\"\n";
const WAN: &str = "[underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\"]\n";
const LAN: &str = "[underlay.lan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\"]\n";

fn config(underlay: &str) -> Config {
    let text = format!("{PORT}{underlay}");
    let loaded = Config::parse("f.toml", &text, &Machine::this()).unwrap_or_else(|errors| panic!("{errors}"));
    loaded.config
}

/// A switch whose underlay `wan` is in a network where nobody is.
fn alone(host: &Host, clock: &Clock) -> Switch {
    host.ip("link add nic0 type veth peer name nic1");
    host.ip("link set nic0 up");
    host.ip("link set nic1 up");
    let options = StartOptions { clock: clock.clone(), ..StartOptions::default() };
    Switch::start_by(&config(WAN), options).expect("a switch")
}

fn request(count: u32, timeout_ms: u32) -> PingRequest {
    let address = std::net::Ipv4Addr::new(192, 0, 2, 2).into();
    PingRequest { underlay: "wan".to_owned(), address, count, interval_ms: 10, timeout_ms }
}

/// Lets the time pass, and reads the stream until it ends.
fn rest(clock: &Clock, stream: &mut dyn Stream) -> Vec<PingLine> {
    let mut output = Vec::new();
    wait_moving(clock, Duration::from_millis(10), "the end of the ping", || !stream.fill(&mut output));
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[test]
fn a_ping_ends_after_its_count_and_when_a_reload_removes_its_underlay() {
    let Some(host) = Host::new("a_ping_ends_after_its_count_and_when_a_reload_removes_its_underlay") else { return };
    let clock = Clock::moved();
    let switch = alone(&host, &clock);
    let (answer, mut stream) = switch.ping(&request(2, 10)).expect("a ping");
    assert_eq!((answer.source.as_str(), answer.next_hop.as_str()), ("192.0.2.1", "192.0.2.2"));
    let silent = |seq| PingLine::NextHopUnknown { seq, next_hop: "192.0.2.2".to_owned() };
    assert_eq!(rest(&clock, &mut *stream), [silent(1), silent(2)]);

    let (_, mut stream) = switch.ping(&request(10_000, 10)).expect("a ping");
    let hops = || switch.source().neighbours().neighbours;
    assert!(hops().iter().any(|hop| hop.ip == "192.0.2.2"), "a ping's next hop is shown: {:?}", hops());
    switch.reload(&config(LAN)).expect("a reload");
    let lines = rest(&clock, &mut *stream);
    let Some(PingLine::Failed { error }) = lines.last() else { panic!("{lines:?}") };
    assert_eq!(error, "no such underlay \"wan\"; underlays are lan");
    drop(stream);
    wait_moving(&clock, Duration::from_secs(1), "the next hop is forgotten", || hops().is_empty());
}

#[test]
fn a_ping_out_of_range_is_refused() {
    let Some(host) = Host::new("a_ping_out_of_range_is_refused") else { return };
    let clock = Clock::moved();
    let switch = alone(&host, &clock);
    for (request, words) in [
        (request(0, 10), "\"count\" of 0 is out of range: use 1 to 10000"),
        (request(10_001, 10), "\"count\" of 10001"),
        (request(1, 9), "\"timeout_ms\" of 9"),
        (PingRequest { interval_ms: 3_600_001, ..request(1, 10) }, "\"interval_ms\" of 3600001"),
    ] {
        let refusal = switch.ping(&request).map(drop).expect_err("a refusal");
        assert_eq!(refusal.code, ErrorCode::BadRequest);
        assert!(refusal.error.contains(words), "{refusal}");
    }
    let unknown = PingRequest { underlay: "lan".to_owned(), ..request(1, 10) };
    let refusal = switch.ping(&unknown).map(drop).expect_err("a refusal");
    assert_eq!((refusal.code, refusal.culprit.as_deref()), (ErrorCode::UnknownUnderlay, Some("lan")));
    // Each client has a ping at a time, but all clients share the underlay's places.
    let held: Vec<_> = (0..16).map(|_| switch.ping(&request(1, 1000)).expect("a ping")).collect();
    assert_eq!(switch.ping(&request(1, 10)).map(drop).expect_err("a refusal").code, ErrorCode::Busy);
    drop(held);
    switch.ping(&request(1, 10)).expect("a ping");
}
