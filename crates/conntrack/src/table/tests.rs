use super::*;
use crate::key::Ends;
use crate::transport::Segment;
use straightline_wire::IpProtocol;

const SECRET: Secret = Secret([9, 8, 7, 6]);
const SYN: u8 = 2;
const ACK: u8 = 16;

fn key(port: u16, n: u16) -> Key {
    let ends = Ends { local: [10, 0, 0, 1], remote: [192, 0, 2, 1], local_port: n, remote_port: 443 };
    Key::v4(port, 0, IpProtocol::TCP, ends)
}

fn segment(flags: u8, seq: u32, ack: u32) -> Transport {
    Transport::Tcp(Segment { flags, seq, ack, window: 1000, ..Segment::default() })
}

fn open(table: &Table, key: &Key, direction: Direction, opener: u16) -> Result<Opened, Refusal> {
    let packet = &segment(SYN, 0, 0);
    table.open(key, &Opening { direction, opener, is_trusted: false, generation: 1, rule: 5, packet, pickup: false }, 0)
}

/// Opens a connection from both sides.
fn establish(table: &Table, key: &Key, direction: Direction, opener: u16) {
    assert!(open(table, key, direction, opener).is_ok());
    let other = if direction == Direction::Outbound { Side::Remote } else { Side::Local };
    for (side, packet) in [(other, segment(SYN | ACK, 0, 1)), (direction.opener(), segment(ACK, 1, 1))] {
        let entry = table.find_one(key, 0).expect("it is known");
        assert!(matches!(table.advance(entry, side, &packet, 0), Verdict::Pass(_)));
    }
}

#[test]
fn a_successor_goes_on() {
    let share = PortShare::new(32);
    let table = Table::new(Settings::default(), SECRET, &[(1, share), (2, share), (3, share)]);
    for port in 1..=3 {
        (0..8).for_each(|n| establish(&table, &key(port, n), Direction::Outbound, 0));
        (8..12).for_each(|n| establish(&table, &key(port, n), Direction::Inbound, 7));
        (12..16).for_each(|n| assert!(open(&table, &key(port, n), Direction::Outbound, 0).is_ok()));
    }
    let small = PortShare { connections: 13, ..share };
    let next = table.successor(Settings::default(), &[(1, share), (2, small), (4, share)]);
    for n in 0..16 {
        let known = [1, 2, 3, 4].map(|port| next.find_one(&key(port, n), 0).is_some());
        // There is a place for one of the connections that are not open.
        assert_eq!(known, [true, n <= 12, false, false], "connection {n}");
    }
    let counts = next.counts(2).expect("a port");
    assert_eq!((counts.open, counts.half_open_outbound, counts.inbound), (12, 1, 4));
    let list = |table: &Table| {
        let mut all: Vec<_> = table.connections(2, 0).collect();
        all.sort_by_key(|connection| connection.key.local_port());
        all
    };
    assert_eq!(list(&next), list(&table)[..13]);
    // Both have the same connections of a port with the same share.
    assert!(table.end(next.find_one(&key(1, 0), 0).expect("it is known")));
    assert_eq!(next.find_one(&key(1, 0), 0), None);
    // The state goes on.
    let entry = next.find_one(&key(2, 3), 0).expect("it is known");
    let beyond = next.advance(entry, Side::Remote, &segment(ACK, 1_000_000, 1), 0);
    assert_eq!(beyond, Verdict::Invalid(Invalid::SeqHigh));
    assert!(matches!(next.advance(entry, Side::Remote, &segment(ACK, 1, 1), 0), Verdict::Pass(_)));
}

/// A sender that fills its limit leaves others theirs, and the port its reserve.
#[test]
fn a_flood_fills_its_own_share() {
    let share = PortShare { each_opener: 20, half_open: 1000, new_per_second: u32::MAX, ..PortShare::new(200) };
    let table = Table::new(Settings::default(), SECRET, &[(1, share)]);
    (0..10).for_each(|n| establish(&table, &key(1, n), Direction::Inbound, 3));
    for n in 1000..3000 {
        assert!(open(&table, &key(1, n), Direction::Inbound, 4).is_ok(), "its oldest half-open one makes place");
    }
    let counts = table.counts(1).expect("a port");
    assert_eq!((counts.open, counts.half_open_inbound, counts.evicted), (10, 20, 1980));
    (20..30).for_each(|n| establish(&table, &key(1, n), Direction::Inbound, 3));
    assert_eq!(open(&table, &key(1, 40), Direction::Inbound, 3), Err(Refusal::Full(Full::Opener)), "none is evicted");
    (100..150).for_each(|n| establish(&table, &key(1, n), Direction::Outbound, 0));
    assert!((0..10).all(|n| table.find_one(&key(1, n), 0).is_some()));
}

fn datagram(sender: u16, n: u16) -> Key {
    let ends = Ends { local: [10, 0, 0, 1], remote: [192, 0, 2, 1], local_port: n, remote_port: sender };
    Key::v4(1, 0, IpProtocol::UDP, ends)
}

/// Sends a datagram to the port. Returns whether it passes.
fn send(table: &Table, sender: u16, n: u16, now: u32) -> bool {
    let packet = &Transport::Other;
    let key = datagram(sender, n);
    if let Some(entry) = table.find_one(&key, now) {
        return matches!(table.advance(entry, Side::Remote, packet, now), Verdict::Pass(_));
    }
    let direction = Direction::Inbound;
    let opening =
        Opening { direction, opener: sender, is_trusted: false, generation: 1, rule: 1, packet, pickup: false };
    table.open(&key, &opening, now).is_ok()
}

fn answer(table: &Table, sender: u16, n: u16, now: u32) {
    if let Some(entry) = table.find_one(&datagram(sender, n), now) {
        assert!(matches!(table.advance(entry, Side::Local, &Transport::Other, now), Verdict::Pass(_)));
    }
}

fn generous() -> Table {
    let share = PortShare { new_per_second: u32::MAX, ..PortShare::new(10_000) };
    Table::new(Settings::default(), SECRET, &[(1, share)])
}

/// Two senders take all half-open connections that they get and refresh them. A third one, which has
/// established connections, opens what it likes.
#[test]
fn two_senders_lock_no_other_out_of_what_is_half_open() {
    let table = generous();
    (0..15).for_each(|n| establish(&table, &key(1, n), Direction::Inbound, 9));
    (0..16).for_each(|n| assert!(send(&table, 1, n, 0)));
    (0..2500).for_each(|n| {
        let _ = send(&table, 2, n, 0);
    });
    for now in [1000, 2000] {
        (0..16).for_each(|n| {
            let _ = send(&table, 1, n, now);
        });
        (0..2500).for_each(|n| {
            let _ = send(&table, 2, n, now);
        });
        (0..2000).for_each(|n| assert!(send(&table, 9, n, now), "connection {n} at {now}"));
        assert!((0..16).all(|n| table.find_one(&datagram(1, n), now).is_some()), "it has fewest");
    }
    assert!((0..15).all(|n| table.find_one(&key(1, n), 0).is_some()), "none that is open is evicted");
}

/// Senders whose packets the port answers leave a part to others.
#[test]
fn senders_with_answers_lock_no_other_out() {
    let table = generous();
    for now in [0, 3000] {
        for sender in [1, 2] {
            for n in 0..1800 {
                if send(&table, sender, n, now) {
                    answer(&table, sender, n, now);
                }
            }
        }
    }
    let count = |sender, state| {
        let is_one = |c: &Connection| c.opener == sender && c.state == state;
        table.connections(1, 3000).filter(is_one).count()
    };
    assert!([1, 2].iter().all(|sender| count(*sender, State::Stream) > 1000));
    (0..600).for_each(|n| assert!(send(&table, 3, n, 3000), "connection {n}"));

    // Exchanges that have just begun make place for those who have fewer, until all have the same.
    let table = generous();
    for sender in 0..40 {
        for n in 0..2500 {
            if send(&table, sender, n, 0) {
                answer(&table, sender, n, 0);
            }
        }
        assert!(count_of(&table, sender) > 3750 / 42, "sender {sender}");
    }
    (0..100).for_each(|n| establish(&table, &key(1, n), Direction::Inbound, 50));
}

fn count_of(table: &Table, sender: u16) -> usize {
    table.connections(1, 0).filter(|connection| connection.opener == sender).count()
}

/// A port, its clock, and stations that talk to it.
struct Server {
    table: Table,
    now: u32,
}

impl Server {
    fn new(connections: u32) -> Self {
        let table = Table::new(Settings::default(), SECRET, &[(1, PortShare::new(connections))]);
        Server { table, now: 0 }
    }

    fn later(&mut self, time: u32) {
        self.now += time;
        self.table.sweep(self.now, 50_000);
    }

    /// Returns whether a packet passes. It opens a connection if it must.
    fn pass(&self, key: &Key, side: Side, sender: Sender, packet: &Transport) -> bool {
        if let Some(entry) = self.table.find_one(key, self.now) {
            return matches!(self.table.advance(entry, side, packet, self.now), Verdict::Pass(_));
        }
        let direction = if side == Side::Local { Direction::Outbound } else { Direction::Inbound };
        let Sender { port: opener, is_trusted } = sender;
        let opening = Opening { direction, opener, is_trusted, generation: 1, rule: 1, packet, pickup: false };
        self.table.open(key, &opening, self.now).is_ok()
    }

    fn ask(&self, key: &Key, sender: Sender) -> bool {
        self.pass(key, Side::Remote, sender, &Transport::Other)
    }

    /// Returns whether an answer belongs to a connection.
    fn answer(&self, key: &Key) -> bool {
        self.is_known(key) && self.pass(key, Side::Local, Sender::default(), &Transport::Other)
    }

    fn is_known(&self, key: &Key) -> bool {
        self.table.find_one(key, self.now).is_some()
    }

    /// Returns the established connections of a sender.
    fn count(&self, sender: Sender) -> usize {
        let is_one = |c: &Connection| c.opener == sender.port && c.state == State::Established;
        self.table.connections(1, self.now).filter(is_one).count()
    }

    /// Opens a TCP connection to the server.
    fn connect(&self, key: &Key, sender: Sender) -> bool {
        self.pass(key, Side::Remote, sender, &segment(SYN, 0, 0))
            && self.pass(key, Side::Local, sender, &segment(SYN | ACK, 0, 1))
            && self.pass(key, Side::Remote, sender, &segment(ACK, 1, 1))
            && self.is_known(key)
    }
}

#[derive(Clone, Copy, Default)]
struct Sender {
    port: u16,
    is_trusted: bool,
}

/// The network behind a trusted port.
const UPLINK: Sender = Sender { port: 7, is_trusted: true };
const NEIGHBOUR: Sender = Sender { port: 8, is_trusted: false };
const OTHER: Sender = Sender { port: 9, is_trusted: false };

/// A key of a station outside, to this port of the server.
fn from(n: u32, protocol: IpProtocol, local_port: u16) -> Key {
    let [a, b, c, _] = (n << 8).to_be_bytes();
    let ends = Ends { local: [10, 0, 0, 1], remote: [a, b, c, 1], local_port, remote_port: 4000 };
    Key::v4(1, 0, protocol, ends)
}

/// A key of a station of a network.
fn in_network(network: u16, n: u16) -> Key {
    let [a, b] = network.to_be_bytes();
    let [c, d] = n.to_be_bytes();
    let ends = Ends { local: [10, 0, 0, 1], remote: [9, a, b, d], local_port: 80, remote_port: c.into() };
    Key::v4(1, 0, IpProtocol::TCP, ends)
}

fn question(n: u32) -> Key {
    from(n, IpProtocol::UDP, 53)
}

fn page(n: u32) -> Key {
    from(n, IpProtocol::TCP, 80)
}

/// A server of DNS and HTTP behind one uplink gets many questions. It answers each, and connections begin.
#[test]
fn questions_close_no_server() {
    let mut server = Server::new(10_000);
    for second in 0..60 {
        for n in 0..2000 {
            let question = question(second * 2000 + n);
            assert!(server.ask(&question, UPLINK) && server.answer(&question), "second {second}");
        }
        assert!(server.connect(&page(second), UPLINK), "second {second}");
        server.later(1000);
    }
    assert!((0..60).all(|n| server.is_known(&page(n))));
}

/// Forged questions that nobody answers, or with a second one after two seconds, close it neither. A stream
/// with packets goes on.
#[test]
fn forged_sources_close_no_server() {
    for is_answered in [false, true] {
        let mut server = Server::new(10_000);
        let stream = from(1 << 20, IpProtocol::UDP, 443);
        assert!(server.ask(&stream, UPLINK) && server.answer(&stream));
        for second in 0..150 {
            for age in [0, 3] {
                for n in 0..500 {
                    let forged = from((second + 3 - age) * 500 + n, IpProtocol::UDP, 443);
                    assert!(server.ask(&forged, UPLINK));
                    assert!(!is_answered || server.answer(&forged));
                }
            }
            let honest = question(1_000_000 + second);
            assert!(server.ask(&honest, UPLINK) && server.answer(&honest), "second {second}");
            assert!(server.connect(&page(second), UPLINK), "second {second}");
            assert!(server.answer(&stream) && server.ask(&stream, UPLINK), "second {second}");
            server.later(1000);
        }
        assert!((0..150).all(|n| server.is_known(&page(n))));
    }
}

/// A machine that resolves many names opens connections besides.
#[test]
fn own_questions_block_no_own_connections() {
    let mut server = Server::new(10_000);
    for second in 0..60 {
        for n in 0..2000 {
            let ends = Ends { local: [10, 0, 0, 1], remote: [9; 4], local_port: n, remote_port: 53 };
            let key =
                Key::v4(1, 0, IpProtocol::UDP, Ends { local: [10, 0, 1, u8::try_from(second).expect("few")], ..ends });
            assert!(server.pass(&key, Side::Local, Sender::default(), &Transport::Other));
            // One of ten has no answer.
            assert!(n % 10 == 0 || server.pass(&key, Side::Remote, Sender::default(), &Transport::Other));
        }
        establish(&server.table, &key(1, u16::try_from(second).expect("few")), Direction::Outbound, 0);
        // Neither do they block the connections of others.
        assert!(server.connect(&page(second), UPLINK), "second {second}");
        server.later(1000);
    }
}

/// In the part for whoever comes, a TCP connection takes the place of an exchange, and no exchange that of
/// an established connection. A quarter stays for each.
#[test]
fn tcp_takes_places_of_exchanges() {
    let server = Server { table: generous(), now: 0 };
    assert!((0..5000).all(|n| server.ask(&from(n, IpProtocol::UDP, 9), NEIGHBOUR)));
    let exchanges = || server.table.connections(1, 0).filter(|c| !c.state.is_tcp()).count();
    assert_eq!(exchanges(), 3750);
    let networks = |n: u32| Sender { port: u16::try_from(n % 5).expect("few"), is_trusted: false };
    assert!((0..3750).all(|n| server.connect(&page(n), networks(n))));
    assert_eq!(exchanges(), 1250);
    assert!(!server.connect(&page(9999), networks(1)), "no exchange goes below its quarter");
    assert!((5000..9000).all(|n| server.ask(&from(n, IpProtocol::UDP, 9), NEIGHBOUR)));
    assert_eq!(exchanges(), 1250);
    assert!((0..3750).all(|n| server.is_known(&page(n))));
}

/// An exchange of DNS ends soon after its answer, and not while a question is open.
#[test]
fn an_exchange_of_dns_lives_as_long_as_a_question_is_open() {
    let mut server = Server::new(1000);
    let key = question(1);
    assert!(server.ask(&key, UPLINK) && server.answer(&key));
    server.later(1000);
    assert!(server.is_known(&key));
    server.later(1000);
    assert!(!server.is_known(&key));
    // Two questions of one socket. An answer that comes twice counts once for each that is open.
    for answers in 1..3 {
        assert!(server.ask(&key, UPLINK));
        assert!(server.ask(&key, UPLINK) && server.answer(&key));
        server.later(4000);
        assert!(server.answer(&key), "the second answer, {answers}");
        assert!((1..answers).all(|_| server.answer(&key)));
        assert!(server.ask(&key, UPLINK));
        server.later(29_000);
        assert!(server.answer(&key), "an answer after 29 seconds");
        server.later(2000);
        assert!(!server.is_known(&key));
    }
    // Its own questions, and exchanges of other services.
    let ends = Ends { local: [10, 0, 0, 1], remote: [9; 4], local_port: 4000, remote_port: 53 };
    let own = Key::v4(1, 0, IpProtocol::UDP, ends);
    assert!(server.pass(&own, Side::Local, UPLINK, &Transport::Other));
    server.later(29_000);
    assert!(server.is_known(&own) && server.pass(&own, Side::Remote, UPLINK, &Transport::Other));
    let other = from(1, IpProtocol::UDP, 123);
    assert!(server.ask(&other, UPLINK) && server.answer(&other));
    server.later(2000);
    assert!(!server.is_known(&own) && server.is_known(&other));
}

/// Where a share is not divided by protocols, port 53 is a port as any other.
#[test]
fn an_exchange_of_dns_lives_as_others_in_a_plain_share() {
    let mut server = Server::new(1000);
    let share = PortShare { by_protocol: false, ..PortShare::new(1000) };
    server.table = Table::new(Settings::default(), SECRET, &[(1, share)]);
    let key = question(1);
    assert!(server.ask(&key, UPLINK) && server.answer(&key) && server.answer(&key));
    server.later(29_000);
    assert!(server.answer(&key));
}

/// A connection of a network that gets no more takes no place of another.
#[test]
fn a_refused_connection_ends_no_other() {
    let share = PortShare { new_per_second: u32::MAX, half_open: 1000, ..PortShare::new(10_000) };
    let server = Server { table: Table::new(Settings::default(), SECRET, &[(1, share)]), now: 0 };
    let known = (0..3750).take_while(|n| server.connect(&in_network(1, *n), UPLINK)).count();
    assert!((0..1000).all(|n| server.pass(&page(n), Side::Remote, NEIGHBOUR, &segment(SYN, 0, 0))));
    assert!((4000..4100).all(|n| !server.connect(&in_network(1, n), UPLINK)));
    assert!((0..1000).all(|n| server.is_known(&page(n))));
    assert_eq!(server.count(UPLINK), known);
}

/// When 7/8 of the places are taken, exchanges that do not last end after five seconds.
#[test]
fn a_crowded_share_keeps_no_idle_exchange() {
    let mut server = Server::new(1000);
    let most = 375 * 7 / 8;
    let exchange = |n| from(n, IpProtocol::UDP, 123);
    assert!(server.ask(&exchange(0), UPLINK) && server.answer(&exchange(0)));
    server.later(2000);
    assert!(server.ask(&exchange(0), UPLINK), "it is a stream");
    assert!((1..most).all(|n| server.ask(&exchange(n), UPLINK)));
    server.later(5000);
    assert!((0..most).all(|n| server.is_known(&exchange(n))));
    assert!(server.ask(&exchange(most), UPLINK), "now it is crowded");
    server.later(0);
    assert!(server.is_known(&exchange(0)) && server.is_known(&exchange(most)));
    assert!((1..most).all(|n| !server.is_known(&exchange(n))));
    // Places are free again.
    server.later(5000);
    assert!(server.is_known(&exchange(most)));
}

/// Ports that are not trusted have what others do not want. Then all have the same: the idlest ones go.
#[test]
fn neighbours_give_back_what_is_more_than_their_part() {
    let mut server = Server { table: generous(), now: 0 };
    assert!((0..3750).all(|n| server.connect(&page(n), NEIGHBOUR)));
    assert!(!server.connect(&page(3750), NEIGHBOUR), "none of its own is evicted");
    // The first ones have packets.
    server.later(1000);
    assert!((0..100).all(|n| server.pass(&page(n), Side::Remote, NEIGHBOUR, &segment(ACK, 1, 1))));
    assert!((4000..4000 + 1875).all(|n| server.connect(&page(n), OTHER)));
    assert!((0..100).all(|n| server.is_known(&page(n))), "the idlest have gone");
    assert!(!server.connect(&page(8000), OTHER), "none has more than another");
    assert_eq!([NEIGHBOUR, OTHER].map(|sender| server.count(sender)), [1875, 1875]);
    let third = Sender { port: 10, is_trusted: false };
    assert!((8000..8000 + 1250).all(|n| server.connect(&page(n), third)));
    assert!(!server.connect(&page(9999), third));
    assert_eq!([NEIGHBOUR, OTHER, third].map(|sender| server.count(sender)), [1250; 3]);
    // Half-open connections count for the port that wants a place.
    let flood = Sender { port: 11, is_trusted: false };
    for n in 20_000..24_000 {
        assert!(server.pass(&page(n), Side::Remote, flood, &segment(SYN, 0, 0)));
    }
    assert!([NEIGHBOUR, OTHER, third].into_iter().all(|sender| server.count(sender) >= 937));
}

/// Clients behind an uplink and one neighbour do not lock out others behind the uplink. A neighbour keeps its
/// part, too.
#[test]
fn an_uplink_and_a_neighbour_close_no_server() {
    for uplink_is_first in [true, false] {
        let server = Server { table: generous(), now: 0 };
        let connect = |sender: Sender, network: u16| {
            (0..3750).take_while(|n| server.connect(&in_network(network, *n), sender)).count()
        };
        let [one, two] = if uplink_is_first { [UPLINK, NEIGHBOUR] } else { [NEIGHBOUR, UPLINK] };
        let counts = [connect(one, 1), connect(two, 2)];
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
        assert!((0..300).all(|n| server.connect(&page(n), UPLINK)), "the uplink is first: {uplink_is_first}");
        assert!((0..300).all(|n| server.is_known(&page(n))));
        assert!((3..20).all(|network| connect(UPLINK, network) > 0 || network > 8));
        assert!(server.count(NEIGHBOUR) >= 1250, "{}", server.count(NEIGHBOUR));
        assert!((500..510).all(|n| server.connect(&page(n), OTHER)));
    }
}

/// A machine that has lent itself what it may leaves the rest to more than one sender.
#[test]
fn a_machine_with_many_own_connections_serves_several_senders() {
    let server = Server { table: generous(), now: 0 };
    (0..6250).for_each(|n| establish(&server.table, &key(1, n), Direction::Outbound, 0));
    assert_eq!((0..3750).take_while(|n| server.connect(&page(*n), NEIGHBOUR)).count(), 1250);
    assert!((4000..4600).all(|n| server.connect(&page(n), OTHER)));
    assert!((5000..5200).all(|n| server.connect(&page(n), UPLINK)));
    assert!((5000..5200).all(|n| server.is_known(&page(n))));
}

/// Behind trusted ports, each network leaves a part of what is left, so a few never have all. They keep what
/// they have.
#[test]
fn networks_behind_an_uplink_leave_a_part() {
    let server = Server { table: generous(), now: 0 };
    let counts: Vec<_> = (1..=20)
        .map(|network| (0..3750).take_while(|n| server.connect(&in_network(network, *n), UPLINK)).count())
        .collect();
    assert_eq!(counts[..4], [1641, 821, 410, 205]);
    assert!(counts[..8].iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(server.count(UPLINK), counts.iter().sum::<usize>());
    // A part is for other ports.
    assert!((0..468).all(|n| server.connect(&page(n), OTHER)));
    assert!((0..200).all(|n| server.connect(&page(1000 + n), NEIGHBOUR)));
    assert_eq!(server.count(UPLINK), counts.iter().sum::<usize>(), "none is evicted for another port");
}

/// Of IPv6, prefixes that one owner may have count together.
#[test]
fn prefixes_of_one_owner_leave_a_part() {
    let server = Server { table: generous(), now: 0 };
    let of = |prefix: u8, n: u16| {
        let [a, b] = n.to_be_bytes();
        let mut ends = Ends { local: [0xfd; 16], remote: [0x20; 16], local_port: 80, remote_port: 4000 };
        ends.remote[6..10].copy_from_slice(&[prefix, 0, a, b]);
        Key::v6(1, 0, IpProtocol::TCP, ends)
    };
    for prefix in 0..16 {
        (0..1000).for_each(|n| {
            let _ = server.connect(&of(prefix, n), UPLINK);
        });
    }
    assert_eq!(server.count(UPLINK), 1641);
    assert!((0..1000).all(|n| server.connect(&page(n), NEIGHBOUR)));
    assert!((2000..2500).all(|n| server.connect(&page(n), UPLINK)));
}

/// Half-open connections are not counted for a network: their addresses may be forged. The handshake shows it,
/// and many that are finished at once have no more.
#[test]
fn a_network_that_finishes_many_handshakes_at_once_leaves_a_part() {
    let server = Server { table: generous(), now: 0 };
    let of = |n: u32| from(1, IpProtocol::TCP, u16::try_from(n).expect("few"));
    assert!((0..2500).all(|n| server.pass(&of(n), Side::Remote, UPLINK, &segment(SYN, 0, 0))));
    assert!((0..2500).all(|n| server.pass(&of(n), Side::Local, UPLINK, &segment(SYN | ACK, 0, 1))));
    let finished = (0..2500)
        .filter(|n| server.pass(&of(*n), Side::Remote, UPLINK, &segment(ACK, 1, 1)) && server.is_known(&of(*n)));
    assert_eq!(finished.count(), 1641);
    assert!(server.connect(&page(2), UPLINK), "other networks connect");
}

/// A flood of datagrams uses no allowance of connections.
#[test]
fn datagrams_use_no_allowance_of_tcp() {
    let server = Server::new(1000);
    let passed = (0..5000).filter(|n| server.ask(&question(*n), UPLINK)).count();
    assert_eq!(passed, 1000, "a second's worth");
    assert!(server.connect(&page(1), UPLINK));
}

/// Outbound connections have places of the inbound half until others want them.
#[test]
fn borrowed_places_go_back() {
    let server = Server { table: generous(), now: 0 };
    let own = |n: u32| {
        let [_, _, a, b] = n.to_be_bytes();
        let ends = Ends { local: [10, 0, a, b], remote: [9; 4], local_port: 5, remote_port: 123 };
        Key::v4(1, 0, IpProtocol::UDP, ends)
    };
    assert!((0..9000).all(|n| server.pass(&own(n), Side::Local, Sender::default(), &Transport::Other)));
    let count = || server.table.connections(1, 0).filter(|c| c.direction == Direction::Outbound).count();
    assert_eq!(count(), 6250);
    assert!((0..1800).all(|n| server.connect(&page(n), NEIGHBOUR) && server.connect(&page(2000 + n), OTHER)));
    assert!(count() >= 5000 - 1250 && (0..1800).all(|n| server.is_known(&page(n))));
}

/// An ICMP error passes if it quotes what the side has sent, and nobody has acknowledged.
#[test]
fn errors_quote_data_in_flight() {
    let table = Table::new(Settings::default(), SECRET, &[(1, PortShare::new(8))]);
    establish(&table, &key(1, 5), Direction::Outbound, 0);
    let entry = table.find_one(&key(1, 5), 0).expect("it is known");
    let data = Transport::Tcp(Segment { flags: ACK, seq: 1, ack: 1, window: 1000, len: 300, scale: None });
    assert!(matches!(table.advance(entry, Side::Local, &data, 0), Verdict::Pass(_)));
    let quoted = |side, seq| matches!(table.related(entry, side, seq), Verdict::Pass(_));
    for (seq, passes) in [(0, false), (1, true), (300, true), (301, false), (1 << 31, false)] {
        assert_eq!(quoted(Side::Local, Some(seq)), passes, "{seq}");
    }
    assert!(!quoted(Side::Remote, Some(0)), "nothing of it is in flight");
    assert!(!quoted(Side::Local, None), "no sequence number");
    assert!(matches!(table.advance(entry, Side::Remote, &segment(ACK, 1, 201), 0), Verdict::Pass(_)));
    assert_eq!([1, 200, 201, 300].map(|seq| quoted(Side::Local, Some(seq))), [false, false, true, true]);

    let udp = Key::v4(1, 0, IpProtocol::UDP, Ends { local: [1; 4], remote: [2; 4], local_port: 1, remote_port: 2 });
    let packet = &Transport::Other;
    let opening = Opening {
        direction: Direction::Inbound,
        opener: 1,
        is_trusted: false,
        generation: 1,
        rule: 1,
        packet,
        pickup: false,
    };
    let Ok(Opened::New(entry)) = table.open(&udp, &opening, 0) else { panic!("a connection") };
    assert!(matches!(table.related(entry, Side::Remote, None), Verdict::Pass(_)));
    assert_eq!(table.related(entry, Side::Local, None), Verdict::Invalid(Invalid::Quoted), "it has sent nothing");
}

/// A sweep looks at a bounded number of entries, and comes to all of them.
#[test]
fn sweeps_are_bounded() {
    let share = PortShare { new_per_second: u32::MAX, half_open: 1000, ..PortShare::new(1000) };
    let table = Table::new(Settings::default(), SECRET, &[(1, share), (2, share), (5, share)]);
    for port in [1, 2, 5] {
        (0..100).for_each(|n| assert!(open(&table, &key(port, n), Direction::Outbound, 0).is_ok()));
    }
    let half_open = |port| table.counts(port).expect("a port").half_open_outbound;
    assert_eq!(table.sweep(1000, 10_000), 300);
    assert_eq!([1, 2, 5].map(half_open), [100; 3]);
    let timeout = Settings::default().timeouts.tcp_syn_sent;
    for left in (0..300).rev().step_by(50) {
        assert_eq!(table.sweep(timeout, 50), 50);
        assert_eq!([1, 2, 5].map(half_open).iter().sum::<u32>(), left - 49);
    }
}

/// Workers send packets of the same connections, open and end them, and control sweeps. At the end, the
/// counts are those of the connections that are left.
#[test]
fn workers_share_it() {
    let share = PortShare { new_per_second: u32::MAX, half_open: 12, each_opener: 6, openers: 4, ..PortShare::new(24) };
    let table = Table::new(Settings::default(), SECRET, &[(1, share)]);
    let work = |worker: u32| {
        let mut seed = u64::from(worker) + 1;
        for step in 0..30_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [n, what, flags, ..] = seed.to_be_bytes();
            let key = key(1, u16::from(n % 40));
            let now = step * 10;
            let side = if n % 40 < 20 { Side::Local } else { Side::Remote };
            let flags = [SYN, SYN | ACK, ACK, ACK, 17, 4][usize::from(flags) % 6];
            let packet = segment(flags, u32::from(flags == ACK), u32::from(flags != SYN));
            match table.find_one(&key, now) {
                Some(entry) if what < 4 => drop(table.end(entry)),
                Some(entry) if what < 20 => drop(table.renew(entry, step, step)),
                Some(entry) => {
                    let side = if what % 2 == 0 { Side::Local } else { Side::Remote };
                    let _ = table.advance(entry, side, &packet, now);
                }
                None => {
                    let direction = if side == Side::Local { Direction::Outbound } else { Direction::Inbound };
                    let opener = u16::from(n % 4);
                    let packet = &segment(SYN, 0, 0);
                    let opening =
                        Opening { direction, opener, is_trusted: false, generation: 1, rule: 1, packet, pickup: false };
                    if let Ok(Opened::New(entry)) = table.open(&key, &opening, now) {
                        assert_eq!((entry.port(), entry.direction()), (1, direction));
                    }
                }
            }
            if what > 250 {
                table.sweep(now, 8);
                table.connections(1, now).for_each(|connection| assert_eq!(connection.key.port(), 1));
            }
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|worker| drop(scope.spawn(move || work(worker)))));
    let counts = table.counts(1).expect("a port");
    let left: Vec<_> = table.connections(1, 0).collect();
    let inbound = left.iter().filter(|connection| connection.direction == Direction::Inbound).count();
    let all = counts.open + counts.half_open_outbound + counts.half_open_inbound + counts.closed;
    assert_eq!((all as usize, counts.inbound as usize), (left.len(), inbound));
    let mut keys: Vec<_> = left.iter().map(|connection| connection.key.local_port()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), left.len(), "none is there twice");
    assert!(left.iter().all(|connection| table.find_one(&connection.key, 0).is_some()));
    table.end_port(1);
    let counts = table.counts(1).expect("a port");
    assert_eq!(
        [counts.open, counts.half_open_outbound, counts.half_open_inbound, counts.closed, counts.inbound],
        [0; 5]
    );
    (0..24).for_each(|n| assert!(open(&table, &key(1, 100 + n), Direction::Outbound, 0).is_ok() || n >= 12));
}
