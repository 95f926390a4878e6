use super::admission::Rate;
use super::*;
use crate::entries::STATE;
use crate::key::{Direction, Ends};
use crate::transport::Segment;
use proptest::prelude::*;
use straightline_wire::tcp::Flags;

const SECRET: Secret = Secret([3, 5, 7, 11]);
const SYN: u8 = Flags::SYN.0;
const ACK: u8 = Flags::ACK.0;

/// A segment, in relation to what both sides have sent so far.
#[derive(Clone, Copy, Debug)]
struct Act {
    side: Side,
    flags: u8,
    seq: i32,
    ack: i32,
    len: u32,
    window: u16,
    later: u32,
}

fn acts() -> impl Strategy<Value = Act> {
    let side = prop_oneof![Just(Side::Local), Just(Side::Remote)];
    let flags =
        prop_oneof![30 => Just(ACK), 6 => Just(ACK | Flags::PSH.0), 1 => any::<u8>(), 1 => Just(ACK | 1), 1 => Just(4)];
    let near = || prop_oneof![20 => Just(0), 6 => -3..4, 2 => -70_000..70_000, 1 => any::<i32>()];
    let len = prop_oneof![6 => Just(0_u32), 6 => 1..3000_u32, 1 => 0..200_000_u32];
    let window = prop_oneof![6 => any::<u16>(), 1 => Just(0)];
    let later = prop_oneof![8 => 0..3_u32, 1 => 0..200_000_u32];
    (side, flags, near(), near(), len, window, later).prop_map(|(side, flags, seq, ack, len, window, later)| Act {
        side,
        flags,
        seq,
        ack,
        len,
        window,
        later,
    })
}

/// Both sides of a TCP connection, as far as their sequence numbers go.
struct Sides {
    next: [u32; 2],
}

impl Sides {
    fn segment(&mut self, act: Act) -> Segment {
        let own = act.side as usize;
        let seq = self.next[own].wrapping_add_signed(act.seq);
        let ack = self.next[1 - own].wrapping_add_signed(act.ack);
        let segment = Segment { flags: act.flags, seq, ack, window: act.window, len: act.len, scale: None };
        if act.seq == 0 {
            self.next[own] = segment.end();
        }
        segment
    }
}

fn opened(direction: Direction, segment: &Segment) -> (Connections, u32, Tag) {
    let connections = Connections::new(PortShare::new(8));
    let ends = Ends { local: [10, 0, 0, 1], remote: [10, 0, 0, 2], local_port: 1, remote_port: 2 };
    let key = Key::v4(0, 0, IpProtocol::TCP, ends);
    let packet = Transport::Tcp(*segment);
    let opening =
        Opening { direction, opener: 0, is_trusted: false, generation: 1, rule: 1, packet: &packet, pickup: true };
    let Ok(Opened::New((at, tag))) = connections.open(&key, &opening, &Settings::default(), &SECRET, 0) else {
        panic!("a new connection")
    };
    (connections, at, tag)
}

fn words(connections: &Connections, at: u32) -> [u64; STATE] {
    std::array::from_fn(|word| connections.entries.peek(at, word))
}

proptest! {
    /// The path of most packets does the same as the reference, to each word.
    #[test]
    fn the_fast_path_agrees_with_the_reference(
        inbound in any::<bool>(), pickup in prop::bool::weighted(0.2), starts in any::<[u32; 2]>(),
        scales in any::<[Option<u8>; 2]>(), acts in prop::collection::vec(acts(), 1..60),
    ) {
        let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        let opener = direction.opener();
        let other = if opener == Side::Local { Side::Remote } else { Side::Local };
        let mut sides = Sides { next: starts };
        let act = |side, flags| Act { side, flags, seq: 0, ack: 0, len: 0, window: 5000, later: 1 };
        let mut first = sides.segment(act(opener, if pickup { ACK } else { SYN }));
        first.scale = scales[0];
        let answer = act(other, if pickup { ACK } else { SYN | ACK });
        let common = Common { settings: Settings::default(), secret: SECRET };
        let (fast, at, tag) = opened(direction, &first);
        let (slow, slow_at, slow_tag) = opened(direction, &first);
        let mut now = 0;
        for (n, act) in [answer, act(opener, ACK)].into_iter().chain(acts).enumerate() {
            let mut segment = sides.segment(act);
            segment.scale = scales[1].filter(|_| n == 0);
            let packet = Transport::Tcp(segment);
            now += act.later;
            let verdict = fast.advance(at, tag, act.side, &packet, &common, now);
            let entry = slow.entries.lock(slow_at, slow_tag).expect("it goes on");
            let expected = advance_by_any(&entry, act.side, &packet, &common.settings, &slow.crowded, now);
            drop(entry);
            prop_assert_eq!(verdict, expected.verdict);
            if expected.ends {
                prop_assert_eq!(fast.entries.tag(at), None);
                break;
            }
            prop_assert_eq!(words(&fast, at), words(&slow, slow_at), "after {:?}", packet);
        }
    }
}

/// A limit of new connections lets a second's worth pass at once, and then so many a second.
#[test]
fn a_rate_grows_back() {
    let mut rate = Rate { allowance: 5000, since: None };
    assert_eq!((0..9).filter(|_| rate.take(5, 0)).count(), 5);
    assert_eq!((0..9).filter(|_| rate.take(5, 400)).count(), 2);
    assert_eq!((0..9).filter(|_| rate.take(5, 399)).count(), 0, "another worker's clock is behind");
    assert_eq!((0..9).filter(|_| rate.take(5, 100_000)).count(), 5, "never more than a second's worth");
    assert_eq!((0..9).filter(|_| rate.take(0, 200_000)).count(), 0);
    // After 25 days without one, and where the clock begins again.
    assert_eq!((0..9).filter(|_| rate.take(5, (1 << 31) + 300_000)).count(), 5);
    assert_eq!((0..9).filter(|_| rate.take(5, 1000)).count(), 5);
}
