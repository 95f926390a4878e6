//! The traffic of the demo without its time: by packets, and by a clock that a test moves.

use straightline_testing::wait_until;

use super::*;

/// Packets of each direction.
const PACKETS: u64 = 2000;

/// Carries packets in both directions, and waits for the last one. Nothing counts as lost meanwhile, as
/// the clock stands still.
fn carry_packets(ends: impl Ends, mut wire: Option<Wire>, source: &dyn Source, nodes: &[&str]) {
    let mut traffic = Traffic::new(Clock::moved(), ends, Arc::default());
    let mut turns = |traffic: &mut Traffic<_>| {
        // Packets need several turns, and the switch runs between two questions.
        for _ in 0..64 {
            traffic.turn(0).expect("sound ends");
            if let Some(wire) = &mut wire {
                wire.turn(0).expect("a sound wire");
                wire.wake();
            }
        }
        traffic.check().expect("no failure");
    };
    let came = |traffic: &Traffic<_>, least: u64| traffic.directions.iter().all(|way| way.arrived.packets >= least);
    wait_until("packets pass in both directions", || {
        turns(&mut traffic);
        came(&traffic, PACKETS)
    });
    traffic.is_ending = true;
    wait_until("the last packets have come", || {
        turns(&mut traffic);
        traffic.is_over()
    });
    assert_eq!(traffic.lost_and_late(), [0, 0]);
    let live = [&traffic.live.packets, &traffic.live.lost].map(|count| count.load(Ordering::Relaxed));
    assert!(live[0] >= 2 * PACKETS && live[1] == 0, "{live:?}");
    let costs = || cycles(&source.runtime());
    wait_until("each node has counted packets", || {
        nodes.iter().all(|node| costs().get(*node).is_some_and(|&n| n > 0.0))
    });
}

#[test]
fn two_guests_lose_nothing() {
    let (_folder, switch, ends) = guests::start().expect("two guests");
    let nodes = ["left-rx", "right-rx", "patch.demo", "left-tx", "right-tx", "turn-end"];
    carry_packets(ends, None, &*switch.source(), &nodes);
    switch.stop();
}

/// Kinds that carry Ethernet and IP, in UDP and in IP.
#[test]
fn two_guests_lose_nothing_in_a_tunnel() {
    for kind in ["l2tpv3", "vxlan", "gtpu"] {
        let (_folder, switch, ends, wire) = tunnel::start(kind.parse().expect(kind)).expect("a tunnel");
        let nodes = ["a-rx", "patch.left", "encap.t1", "nic0-tx", "nic1-rx", "decap.right", "patch.right", "b-tx"];
        carry_packets(ends, Some(wire), &*switch.source(), &nodes);
        switch.stop();
    }
}

/// Ends between which these packets of direction 0 are dropped. All others arrive in the next turn.
struct Dropping {
    drops: fn(u64) -> bool,
    sent: [u64; 2],
    under_way: [Vec<u64>; 2],
}

impl Ends for Dropping {
    fn title(&self) -> String {
        "two ends".to_owned()
    }

    fn window(&self) -> u64 {
        8
    }

    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize> {
        for _ in 0..most {
            let number = self.sent[direction];
            self.sent[direction] += 1;
            if direction == 1 || !(self.drops)(number) {
                self.under_way[direction].push(number);
            }
        }
        Ok(most)
    }

    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()> {
        self.under_way[direction].drain(..).for_each(|number| arrived.note_number(number, 60));
        Ok(())
    }
}

/// A window that nothing leaves would stop the traffic. So packets count as lost after half a second in
/// which none has arrived, and no earlier.
#[test]
fn what_does_not_arrive_in_time_is_lost() {
    let clock = Clock::moved();
    let ends = Dropping { drops: |number| (100..108).contains(&number), sent: [0; 2], under_way: Default::default() };
    let mut traffic = Traffic::new(clock.clone(), ends, Arc::default());
    let turn = |traffic: &mut Traffic<Dropping>, wait: Duration| {
        clock.advance(wait);
        for _ in 0..100 {
            traffic.turn(0).expect("sound ends");
        }
        traffic.check().expect("no failure");
        let lost = traffic.live.lost.load(Ordering::Relaxed);
        (traffic.directions[0].arrived.packets, traffic.directions[1].arrived.packets > 0, lost)
    };
    // Eight are missing, so nothing more is sent in this direction.
    assert_eq!(turn(&mut traffic, Duration::ZERO), (100, true, 0));
    assert_eq!(turn(&mut traffic, PATIENCE), (100, true, 0));
    assert_eq!(turn(&mut traffic, Duration::from_nanos(1)), (100, true, 8));
    let (came, _, lost) = turn(&mut traffic, Duration::ZERO);
    assert!(came > 100 && lost == 8, "{came}, {lost}");
    assert_eq!(traffic.lost_and_late(), [8, 0]);
}
