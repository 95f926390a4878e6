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
    table.open(key, &Opening { direction, opener, generation: 1, rule: 5, packet, pickup: false }, 0)
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
    let opening = Opening { direction, opener: sender, generation: 1, rule: 1, packet, pickup: false };
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
    for sender in [1, 2] {
        for now in [0, 3000] {
            for n in 0..2500 {
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
        assert!(count_of(&table, sender) > 5000 / 42, "sender {sender}");
    }
    (0..100).for_each(|n| establish(&table, &key(1, n), Direction::Inbound, 50));
}

fn count_of(table: &Table, sender: u16) -> usize {
    table.connections(1, 0).filter(|connection| connection.opener == sender).count()
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
    let opening = Opening { direction: Direction::Inbound, opener: 1, generation: 1, rule: 1, packet, pickup: false };
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
                    let opening = Opening { direction, opener, generation: 1, rule: 1, packet, pickup: false };
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
