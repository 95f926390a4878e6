//! Attacks on the groups of ports: from other stations, and from the guest whose packets they limit.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hostile::repeats;
use hostile::scene::measure_gap;
use straightline_config::{Config, Group};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::EventKind;
use straightline_testing::{
    Rig, Victims, arrived, bridge, mac, noise, patch, rig_by, send, wait_all_back, wait_event, wait_until,
};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::vlan;

/// Ports on one bridge. The target and the quiet guest have groups.
pub(crate) const ATTACKER: usize = 0;
pub(crate) const TARGET: usize = 1;
pub(crate) const QUIET: usize = 2;
pub(crate) const FRIEND: usize = 3;

/// Connections that begin during a flood. The friend's part of a share has space for those of all floods.
const CONNECTED: usize = 4;

/// Packets of a flood between two looks at the time.
const AT_ONCE: usize = 256;

/// The target's share of connections.
const SHARE: u32 = 64;

/// Ports 4 and 5, the victims', are patched, and have groups too. All ports have one worker.
pub(crate) struct Lan {
    pub(crate) rig: Rig,
    pub(crate) guests: Vec<Guest>,
    victims: Victims,
    /// A source port that no connection has yet.
    fresh: u16,
}

/// An end of a connection: a station and its port.
pub(crate) type End = (usize, u16);

pub(crate) fn number(station: usize) -> u8 {
    u8::try_from(station + 1).expect("few stations")
}

pub(crate) fn ip(station: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number(station))
}

/// Returns a frame between two stations that claims to come from an address.
pub(crate) fn from_address(src: Ipv4Addr, stations: [usize; 2], transport: Transport, payload: &[u8]) -> Vec<u8> {
    between([src, ip(stations[1])], stations, transport, payload)
}

/// Returns a frame between two stations with other addresses than theirs.
fn between(ends: [Ipv4Addr; 2], [from, to]: [usize; 2], transport: Transport, payload: &[u8]) -> Vec<u8> {
    let headers = Frame {
        src: mac(number(from)),
        dst: mac(number(to)),
        tags: [None; vlan::MAX_TAGS],
        net: Net::v4(ends[0], ends[1]),
        transport,
        payload_len: payload.len().try_into().expect("short"),
    };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    [&bytes[..], payload].concat()
}

pub(crate) fn udp((from, src_port): End, (to, dst_port): End) -> Vec<u8> {
    from_address(ip(from), [from, to], Transport::Udp { src_port, dst_port }, &[0x5a; 92])
}

pub(crate) fn tcp((from, src_port): End, (to, dst_port): End, flags: Flags, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let transport = Transport::Tcp { src_port, dst_port, seq, ack, flags, window: 8192 };
    from_address(ip(from), [from, to], transport, &[])
}

/// Returns a packet of IPv4 with another payload.
pub(crate) fn with_payload(mut frame: Vec<u8>, protocol: u8, payload: &[u8]) -> Vec<u8> {
    frame.truncate(34);
    frame[23] = protocol;
    frame[16..18].copy_from_slice(&u16::try_from(20 + payload.len()).expect("short").to_be_bytes());
    [&frame[..], payload].concat()
}

/// Returns a fragment of a packet: bytes from an offset on, up to another one.
fn part(frame: &[u8], id: u16, [begin, end]: [usize; 2], more: bool) -> Vec<u8> {
    let mut part = with_payload(frame.to_vec(), frame[23], &frame[34 + begin..34 + end]);
    let place = u16::try_from(begin / 8).expect("short") | (u16::from(more) << 13);
    part[18..20].copy_from_slice(&id.to_be_bytes());
    part[20..22].copy_from_slice(&place.to_be_bytes());
    part
}

/// A datagram that is on its way, and then its answer.
struct Exchange {
    /// Where the packet on its way comes from, and where it goes.
    ends: [End; 2],
    is_answer: bool,
    is_over: bool,
    /// Steps since it was sent.
    steps: u32,
}

impl Exchange {
    const NONE: Exchange = Exchange { ends: [(0, 0), (0, 0)], is_answer: false, is_over: true, steps: 0 };

    /// Steps after which it begins again: a packet may have found a full ring.
    const STEPS: u32 = 200;

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn begin(&mut self, guests: &mut [Guest], ends: [End; 2]) {
        send(&mut guests[ends[0].0], &udp(ends[0], ends[1]));
        *self = Exchange { ends, is_answer: false, is_over: false, steps: 0 };
    }

    /// Takes what has arrived at all guests. Returns true when that was the first answer: a packet that was
    /// sent again may come twice.
    fn step(&mut self, guests: &mut [Guest]) -> bool {
        let [from, to] = self.ends;
        let expected = udp(from, to);
        let mut has_come = false;
        for (at, guest) in guests.iter_mut().enumerate() {
            let packets = arrived(guest);
            has_come |= at == to.0 && packets.iter().any(|(_, bytes)| *bytes == expected);
        }
        if has_come && !self.is_answer {
            self.begin(guests, [to, from]);
            self.is_answer = true;
            return false;
        }
        if self.is_over || has_come {
            return !std::mem::replace(&mut self.is_over, true);
        }
        self.steps += 1;
        if self.steps == Self::STEPS {
            // With its question: a connection may have ended while it waited for the answer.
            let ends = if self.is_answer { [to, from] } else { [from, to] };
            self.begin(guests, ends);
        }
        false
    }
}

impl Lan {
    pub(crate) fn new() -> Lan {
        Self::with(|_| ())
    }

    /// Starts a switch whose configuration is changed.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Lan {
        Self::by(&Clock::real(), change)
    }

    fn by(clock: &Clock, change: impl FnOnce(&mut Config)) -> Lan {
        let rig = rig_by(6, clock, |config| {
            let guarded = Group::parse(
                "guarded",
                &["udp 9 from any", "tcp 80 from any"],
                &["udp 5300 to any", "tcp 5300 to any"],
            );
            let victims = Group::parse("victims", &["udp 2000 from any"], &["udp 2000 to any"]);
            config.groups = vec![guarded.expect("rules"), victims.expect("rules")];
            for port in [TARGET, QUIET] {
                config.ports[port].groups = vec!["guarded".to_owned()];
                config.ports[port].connections = SHARE;
            }
            for port in [4, 5] {
                config.ports[port].groups = vec!["victims".to_owned()];
            }
            // On a slow machine too, a datagram whose first part has come is known, and so are connections.
            let long = Duration::from_secs(600);
            config.firewall.timeouts = ["fragments", "udp", "udp-stream"].map(|name| (name, long)).to_vec();
            config.bridges.push(bridge(4));
            config.patches.push(patch(4, 5));
            change(config);
        });
        let guests = (0..4).map(|port| rig.guest(port, &GuestOptions::default())).collect();
        let victims = Victims::start(&rig, 4, 5);
        let mut lan = Lan { rig, guests, victims, fresh: 20_000 };
        // The bridge learns where all stations are.
        for from in 0..4 {
            let to = if from == FRIEND { ATTACKER } else { FRIEND };
            // A copy of an earlier packet may come late: the bridge floods until it has learned.
            lan.passes(from, to, &udp((from, 1000), (to, 5300)));
            lan.guests.iter_mut().for_each(|guest| _ = arrived(guest));
        }
        lan
    }

    /// Sends a packet that arrives.
    pub(crate) fn passes(&mut self, from: usize, to: usize, frame: &[u8]) {
        send(&mut self.guests[from], frame);
        wait_until("the packet arrives", || arrived(&mut self.guests[to]).iter().any(|(_, bytes)| bytes == frame));
    }

    /// Opens a connection between stations, both of which send a packet.
    pub(crate) fn connects(&mut self, from: usize, to: usize, port: u16) -> [End; 2] {
        self.fresh += 1;
        let ends = [(from, self.fresh), (to, port)];
        self.goes_on(ends);
        ends
    }

    /// Opens a TCP connection between stations.
    fn shakes_hands(&mut self, from: usize, to: usize, port: u16) {
        self.fresh += 1;
        let [client, server] = [(from, self.fresh), (to, port)];
        self.passes(from, to, &tcp(client, server, Flags::SYN, [100, 0]));
        self.passes(to, from, &tcp(server, client, Flags::SYN.with(Flags::ACK), [500, 101]));
        self.passes(from, to, &tcp(client, server, Flags::ACK, [101, 501]));
    }

    /// Opens TCP connections between stations, until the target's share is full.
    fn fills(&mut self, from: usize, to: usize, port: u16) {
        let most = u16::try_from(repeats(300, 20_000)).expect("a port");
        for source in 1..most {
            let [client, server] = [(from, source), (to, port)];
            send(&mut self.guests[from], &tcp(client, server, Flags::SYN, [100, 0]));
            let Lan { rig, guests, .. } = &mut *self;
            let mut passes = false;
            wait_until("the SYN is taken or refused", || {
                passes = !arrived(&mut guests[to]).is_empty();
                passes || rig.drops(TARGET, "connections-full") > 0
            });
            if passes {
                self.passes(to, from, &tcp(server, client, Flags::SYN.with(Flags::ACK), [500, 101]));
                self.passes(from, to, &tcp(client, server, Flags::ACK, [101, 501]));
            }
        }
        assert!(self.rig.drops(TARGET, "connections-full") > 0, "the share is full");
    }

    pub(crate) fn goes_on(&mut self, [one, other]: [End; 2]) {
        self.passes(one.0, other.0, &udp(one, other));
        self.passes(other.0, one.0, &udp(other, one));
    }

    /// Sends at least `count` packets from a station, as fast as the switch takes them. Meanwhile the friend
    /// connects to the quiet guest and to the target: each answer comes while the flood goes on. Others take
    /// what arrives.
    fn flood(&mut self, what: &str, from: usize, count: usize, frames: impl Iterator<Item = Vec<u8>>) {
        let Lan { guests, victims, fresh, .. } = self;
        let mut connected = 0;
        let mut frames = frames.enumerate();
        measure_gap(victims, what, || {
            let mut others = [QUIET, TARGET].into_iter().cycle();
            let mut exchange = Exchange::NONE;
            wait_until(&format!("{what}: {CONNECTED} connections begin and are answered meanwhile"), || {
                for (sent, frame) in frames.by_ref().take(AT_ONCE) {
                    send(&mut guests[from], &frame);
                    if exchange.is_over() && connected < CONNECTED {
                        *fresh += 1;
                        exchange.begin(guests, [(FRIEND, *fresh), (others.next().expect("a cycle"), 9)]);
                    }
                    connected += usize::from(exchange.step(guests));
                    if sent >= count && connected == CONNECTED {
                        return Ok(());
                    }
                }
                Err(connected)
            });
        });
        // The next packet finds buffers only once the flood is over.
        wait_all_back(&mut guests[from]);
        guests.iter_mut().for_each(|guest| _ = arrived(guest));
        self.victims.go_on();
    }

    /// Sends packets of which none arrives at the target. They are dropped for one of these reasons.
    pub(crate) fn refuses(&mut self, what: &str, reasons: &[&str], frames: &[Vec<u8>]) {
        self.drops(what, [ATTACKER, TARGET], TARGET, reasons, frames);
    }

    /// Sends packets from one station, of which none arrives at the other. They are dropped at a port, for
    /// one of these reasons.
    pub(crate) fn drops(
        &mut self,
        what: &str,
        [from, to]: [usize; 2],
        at: usize,
        reasons: &[&str],
        frames: &[Vec<u8>],
    ) {
        let rig = &self.rig;
        let drops = || reasons.iter().map(|reason| rig.drops(at, reason)).sum::<u64>();
        let before = drops();
        arrived(&mut self.guests[to]);
        for frame in frames {
            send(&mut self.guests[from], frame);
        }
        let count = u64::try_from(frames.len()).expect("few");
        wait_until(&format!("{what}: dropped as {reasons:?}"), || drops() >= before + count);
        assert_eq!(drops(), before + count, "{what}");
        assert_eq!(arrived(&mut self.guests[to]).len(), 0, "{what}");
        self.victims.go_on();
    }

    /// Waits for the event of the target's share, and of no other.
    fn tells_that_the_share_is_full(&self) {
        let name = format!("p{TARGET}");
        let of_target = |kind: &EventKind| matches!(kind, EventKind::ConnectionsFull { port, .. } if *port == name);
        wait_event(&self.rig.switch, "an event of the full share", of_target);
        let events = self.rig.switch.source().events(0).events;
        let all = events.iter().filter(|event| matches!(event.kind, EventKind::ConnectionsFull { .. })).count();
        assert_eq!(all, 1, "{events:?}");
    }

    pub(crate) fn end(self) {
        for port in [FRIEND, 4, 5] {
            assert!(self.rig.port(port).drops.is_empty(), "{:?}", self.rig.port(port).drops);
        }
        // While the bridge learned, packets to others came to its groups.
        assert!(self.rig.port(QUIET).drops.keys().all(|reason| reason == "denied"), "{:?}", self.rig.port(QUIET).drops);
        self.victims.finish();
    }
}

fn random_address(n: u64) -> Ipv4Addr {
    let bytes = noise(n, 8);
    Ipv4Addr::new(1 + bytes[1] % 200, bytes[3], bytes[5], bytes[7])
}

/// SYNs and datagrams from random addresses take a part of the target's share. Other ports, and the
/// target itself, have the rest.
#[test]
fn connections_from_random_addresses() {
    let mut lan = Lan::new();
    let inbound = lan.connects(FRIEND, TARGET, 9);
    let outbound = lan.connects(TARGET, FRIEND, 5300);
    for (what, transport) in [
        ("SYNs", Transport::Tcp { src_port: 7, dst_port: 80, seq: 1, ack: 0, flags: Flags::SYN, window: 1 }),
        ("datagrams", Transport::Udp { src_port: 7, dst_port: 9 }),
    ] {
        let frame = |n| from_address(random_address(n), [ATTACKER, TARGET], transport, &[]);
        lan.flood(&format!("{what} from random addresses"), ATTACKER, repeats(3000, 300_000), (0..).map(frame));
        lan.goes_on(inbound);
        lan.goes_on(outbound);
        lan.connects(FRIEND, TARGET, 9);
        lan.connects(TARGET, FRIEND, 5300);
        lan.connects(FRIEND, QUIET, 9);
    }
    lan.end();
}

/// A station that opens as many connections as it likes takes what nobody else wants.
#[test]
fn a_share_that_is_filled_from_outside() {
    let mut lan = Lan::new();
    let known = lan.connects(FRIEND, TARGET, 9);
    lan.fills(ATTACKER, TARGET, 80);
    lan.tells_that_the_share_is_full();
    lan.goes_on(known);
    for _ in 0..4 {
        lan.shakes_hands(FRIEND, TARGET, 80);
    }
    lan.connects(FRIEND, TARGET, 9);
    lan.connects(TARGET, FRIEND, 5300);
    lan.shakes_hands(TARGET, FRIEND, 5300);
    lan.connects(FRIEND, QUIET, 9);
    lan.end();
}

/// Two stations that have a half each leave a third one places, at the port and behind it.
#[test]
fn a_share_that_two_fill() {
    let mut lan = Lan::with(|config| config.ports[QUIET].groups.clear());
    // TCP has at most 24 places of the inbound half.
    for station in [ATTACKER, QUIET] {
        (0..12).for_each(|_| lan.shakes_hands(station, TARGET, 80));
    }
    (0..8).for_each(|_| lan.shakes_hands(FRIEND, TARGET, 80));
    lan.connects(FRIEND, TARGET, 9);
    lan.end();
}

/// A guest that opens connections fills its own share: its neighbours have theirs.
#[test]
fn a_share_that_is_filled_from_inside() {
    let mut lan = Lan::new();
    let quiet = lan.connects(FRIEND, QUIET, 9);
    lan.fills(TARGET, FRIEND, 5300);
    lan.tells_that_the_share_is_full();
    lan.goes_on(quiet);
    lan.connects(FRIEND, QUIET, 9);
    lan.connects(QUIET, FRIEND, 5300);
    // A quarter of each half is for exchanges, and the target's inbound half is for others.
    lan.connects(TARGET, FRIEND, 5300);
    lan.shakes_hands(FRIEND, TARGET, 80);
    lan.end();
}

/// Datagrams from random addresses behind one uplink, each with an answer, close nothing: further datagrams
/// are answered, and TCP connections begin behind the same uplink.
#[test]
fn exchanges_behind_an_uplink() {
    // Between a question and its answer no time goes by.
    let mut lan = Lan::by(&Clock::moved(), |config| config.ports[FRIEND].trusted = true);
    let open = [(FRIEND, 30_000), (TARGET, 80)];
    lan.passes(FRIEND, TARGET, &tcp(open[0], open[1], Flags::SYN, [100, 0]));
    lan.passes(TARGET, FRIEND, &tcp(open[1], open[0], Flags::SYN.with(Flags::ACK), [500, 101]));
    lan.passes(FRIEND, TARGET, &tcp(open[0], open[1], Flags::ACK, [101, 501]));
    // Fewer than the uplink may begin in a second.
    for n in 0..200 {
        let forged = random_address(n);
        let question = from_address(forged, [FRIEND, TARGET], Transport::Udp { src_port: 7, dst_port: 9 }, &[]);
        lan.passes(FRIEND, TARGET, &question);
        let ports = Transport::Udp { src_port: 9, dst_port: 7 };
        let answer = between([ip(TARGET), forged], [TARGET, FRIEND], ports, &[]);
        lan.passes(TARGET, FRIEND, &answer);
        if n % 20 == 0 {
            lan.shakes_hands(FRIEND, TARGET, 80);
            lan.connects(FRIEND, TARGET, 9);
        }
    }
    lan.passes(TARGET, FRIEND, &tcp(open[1], open[0], Flags::ACK, [501, 101]));
    lan.connects(TARGET, FRIEND, 5300);
    lan.shakes_hands(TARGET, FRIEND, 5300);
    lan.end();
}

/// Errors that nobody can know to be true: about other connections, and with guessed numbers.
#[test]
fn forged_icmp_errors() {
    let mut lan = Lan::new();
    let client: End = (FRIEND, 30_000);
    let server: End = (TARGET, 80);
    lan.passes(FRIEND, TARGET, &tcp(client, server, Flags::SYN, [100, 0]));
    lan.passes(TARGET, FRIEND, &tcp(server, client, Flags::SYN.with(Flags::ACK), [500, 101]));
    lan.passes(FRIEND, TARGET, &tcp(client, server, Flags::ACK, [101, 501]));
    let asked = lan.connects(TARGET, FRIEND, 5300);
    let error = |kind: [u8; 2], about: &[u8]| {
        let message = [&kind[..], &[0; 6], &about[14..42]].concat();
        with_payload(udp((ATTACKER, 0), (TARGET, 0)), 1, &message)
    };
    let mut forged = Vec::new();
    for kind in [[3, 1], [3, 3], [3, 4], [11, 0], [12, 0]] {
        // Sequence numbers that the target has not sent.
        forged.extend([0, 400, 600, 1 << 31].map(|seq| error(kind, &tcp(server, client, Flags::ACK, [seq, 101]))));
        // Connections that do not exist.
        forged.push(error(kind, &tcp(server, (FRIEND, 30_001), Flags::ACK, [501, 101])));
        forged.push(error(kind, &udp(asked[0], (FRIEND, 54))));
    }
    lan.refuses("forged errors", &["invalid"], &forged);
    // About packets that another station has sent, cut in the middle, about an error.
    let whole = error([3, 1], &udp(asked[0], asked[1]));
    let inner = error([3, 1], &whole);
    let hidden = [error([3, 1], &udp(asked[1], asked[0])), with_payload(whole.clone(), 1, &whole[34..34 + 30]), inner];
    lan.refuses("errors that quote nothing of the target", &["hidden"], &hidden);
    lan.passes(ATTACKER, TARGET, &whole);
    lan.goes_on(asked);
    lan.passes(TARGET, FRIEND, &tcp(server, client, Flags::ACK, [501, 101]));
    lan.end();
}

/// Fragments that put other ports into a datagram, and those that never end.
#[test]
fn fragments() {
    let mut lan = Lan::new();
    let allowed = udp((ATTACKER, 7), (TARGET, 9));
    let denied = udp((ATTACKER, 7), (TARGET, 10));
    lan.refuses(
        "a first part without its header",
        &["hidden"],
        &[part(&with_payload(allowed.clone(), 17, &allowed[34..38]), 1, [0, 4], true)],
    );
    lan.refuses("a first part to a denied port", &["denied"], &[part(&denied, 2, [0, 48], true)]);
    lan.refuses("and the rest of it", &["fragment-refused"], &[part(&denied, 2, [48, 100], false)]);
    lan.refuses("a rest that nobody knows", &["fragment-refused"], &[part(&allowed, 3, [48, 100], false)]);
    lan.passes(ATTACKER, TARGET, &part(&allowed, 4, [0, 48], true));
    let over = [part(&denied, 4, [0, 48], true), part(&denied, 4, [40, 100], false), part(&denied, 4, [8, 48], true)];
    lan.refuses("parts over the first one", &["denied"], &over[..1]);
    lan.refuses("parts over the first one", &["fragment-refused"], &over[1..]);
    lan.refuses("another first part of the same", &["fragment-refused"], &[part(&allowed, 4, [0, 48], true)]);
    let beyond = with_payload(allowed.clone(), 17, &[0; 64]);
    let mut beyond = part(&beyond, 4, [0, 64], true);
    beyond[20..22].copy_from_slice(&(0x2000_u16 | 8191).to_be_bytes());
    lan.refuses("a part beyond the longest datagram", &["fragment-refused"], &[beyond]);
    // First parts without an end, and then datagrams of another station.
    let first = allowed.clone();
    let flood = (0..=u16::MAX).cycle().map(|id| part(&first, id, [0, 48], true));
    lan.flood("first fragments", ATTACKER, repeats(3000, 60_000), flood);
    let good = udp((FRIEND, 7), (TARGET, 9));
    for id in 0..100 {
        lan.passes(FRIEND, TARGET, &part(&good, id, [0, 48], true));
        lan.passes(FRIEND, TARGET, &part(&good, id, [48, 100], false));
    }
    lan.end();
}

/// Returns a packet of IPv6 with these bytes behind its header.
fn ipv6(next_header: u8, rest: &[u8]) -> Vec<u8> {
    let address = |n: u8| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).octets();
    let mut bytes = [mac(number(TARGET)).0, mac(number(ATTACKER)).0].concat();
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(address(number(ATTACKER)));
    bytes.extend(address(number(TARGET)));
    bytes.extend(rest);
    bytes
}

/// Extension headers, of which a firewall might see another end than the receiver does.
#[test]
fn extension_headers() {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const OPTIONS: u8 = 60;
    const UDP: u8 = 17;
    let mut lan = Lan::new();
    let datagram = |port: u16| {
        [[0, 7], port.to_be_bytes(), [0, 28], [0, 1]].concat().into_iter().chain([0; 20]).collect::<Vec<u8>>()
    };
    let options = |next: u8, units: u8| [&[next, units, 1, 4][..], &vec![0; 4 + 8 * usize::from(units)]].concat();
    let good = ipv6(HOP_BY_HOP, &[options(OPTIONS, 0), options(UDP, 3), datagram(9)].concat());
    lan.passes(ATTACKER, TARGET, &good);
    let denied = [
        ipv6(HOP_BY_HOP, &[options(UDP, 0), datagram(10)].concat()),
        ipv6(OPTIONS, &[options(UDP, 20), datagram(10)].concat()),
        // Nothing follows; encrypted; a packet in a packet.
        ipv6(59, &datagram(9)),
        ipv6(50, &datagram(9)),
        ipv6(41, &good[14..]),
    ];
    lan.refuses("a denied port behind options", &["denied"], &denied);
    let segments_left = [&[UDP, 2, 0, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
    let hidden = [
        ipv6(ROUTING, &[segments_left, datagram(9)].concat()),
        // Longer than the packet, and longer than what is read.
        ipv6(OPTIONS, &[&[UDP, 255, 1, 4, 0, 0, 0, 0][..], &datagram(9)].concat()),
        ipv6(OPTIONS, &[options(OPTIONS, 60), options(UDP, 60), datagram(9)].concat()),
        // A first fragment whose options fill it.
        ipv6(FRAGMENT, &[&[OPTIONS, 0, 0, 1, 0, 0, 0, 1][..], &options(UDP, 2)].concat()),
    ];
    lan.refuses("headers that are not read", &["hidden", "denied", "fragment-refused"], &hidden);
    lan.end();
}

/// Frames whose receiver may find a packet where the groups find none.
#[test]
fn packets_in_other_frames() {
    let mut lan = Lan::new();
    let plain = udp((ATTACKER, 7), (TARGET, 9));
    let behind = |bytes: &[u8]| [&plain[..12], bytes, &plain[12..]].concat();
    let in_place = |bytes: &[u8]| [&plain[..12], bytes, &plain[14..]].concat();
    let len = u8::try_from(plain.len() - 14 + 8).expect("short");
    let frames = [
        behind(&[0x81, 0, 0, 5]),
        behind(&[0x81, 0, 0, 0, 0x81, 0, 0, 5]),
        behind(&[0x88, 0xa8, 0, 5]),
        behind(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 5]),
        behind(&[0x91, 0, 0, 5]),
        // LLC with SNAP, a frame with a length, PPPoE, MPLS.
        in_place(&[0, len, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        in_place(&[0, len - 8]),
        in_place(&[0x88, 0x64, 0x11, 0, 0, 1, 0, len, 0, 0x21]),
        in_place(&[0x88, 0x47, 0, 0, 0x11, 64]),
        // IPv4 and IPv6 in IPv4, GRE, and a protocol that nobody has.
        with_payload(plain.clone(), 4, &plain[14..]),
        with_payload(plain.clone(), 41, &plain[14..]),
        with_payload(plain.clone(), 47, &[&[0, 0, 8, 0][..], &plain[14..]].concat()),
        with_payload(plain.clone(), 255, &plain[34..]),
    ];
    lan.refuses("packets in other frames", &["denied"], &frames);
    let mut long = plain.clone();
    long[16..18].copy_from_slice(&4000_u16.to_be_bytes());
    let mut short = plain.clone();
    short[16..18].copy_from_slice(&22_u16.to_be_bytes());
    let mut options = plain.clone();
    options[14] = 0x4f;
    for (what, frame) in [("too long", long), ("too short", short), ("options", options)] {
        lan.refuses(what, &["hidden", "denied"], &[frame]);
    }
    let mut version = plain.clone();
    version[14] = 0x65;
    lan.refuses("IPv4's EtherType, version 6", &["hidden"], &[version]);
    // A priority tag is no VLAN, and no disguise.
    let denied = udp((ATTACKER, 7), (TARGET, 10));
    let tags = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(3);
    for count in 1..=4 {
        let tagged = [&denied[..12], &tags[..4 * count], &denied[12..]].concat();
        lan.refuses("behind priority tags", &["denied"], &[tagged]);
        lan.passes(ATTACKER, TARGET, &behind(&tags[..4 * count]));
    }
    lan.refuses("behind too many priority tags", &["hidden"], &[behind(&tags[..20])]);
    lan.passes(ATTACKER, TARGET, &plain);
    lan.end();
}
