//! If a worker's turn does not end, the switch notices it, and tells the operator which node the
//! worker is in.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use straightline_config::{Config, Kinds, Machine};
use straightline_graph::{Clock, Next, Node, Watchdog};
use straightline_guest::GuestOptions;
use straightline_packet::{Batch, Packets};
use straightline_switch::api::EventKind;
use straightline_testing::{frame, mac, patch, rig_by, send, take, wait_event};

/// Says that a turn has begun, and stays in it until it is released.
#[derive(Clone)]
struct Slow(Sender<()>, Arc<Mutex<Receiver<()>>>);

impl Node for Slow {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let _ = self.0.send(());
        // Dropping the sender releases the node for good.
        let _ = self.1.lock().expect("one worker").recv();
        next.extend(0, batch.ids());
    }
}

#[test]
fn status_names_where_a_worker_stalls_and_counts_each_turn_once() {
    let (begin, begun) = channel();
    let (release, released) = channel();
    let released = Arc::new(Mutex::new(released));
    let kinds = Kinds::new().with("slow", move |_| Slow(begin.clone(), Arc::clone(&released)));
    let text = "[node.s]\nkind = \"slow\"\n";
    let nodes = Config::parse_with("slow.toml", text, &Machine::this(), &kinds).expect("a configuration").config.nodes;
    let clock = Clock::moved();
    let rig = rig_by(2, &clock, |config| {
        config.nodes = nodes;
        config.ports[0].nodes = vec!["s".to_owned()];
        config.patches.push(patch(0, 1));
    });
    let stalls = || {
        let stalls = rig.switch.source().status().stalls;
        stalls.iter().find(|stall| stall.worker == 0 && stall.port == "node.s").map_or(0, |stall| stall.count)
    };
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    for round in 1..=2 {
        assert_eq!(stalls(), round - 1);
        send(&mut source, &frame(mac(2), mac(1), 100, round));
        begun.recv().expect("the node");
        // A stall begins with the first look that sees the turn.
        clock.advance(Watchdog::PERIOD);
        clock.advance(Watchdog::PERIOD);
        assert_eq!(stalls(), round - 1);
        clock.advance(Watchdog::PERIOD);
        assert_eq!(stalls(), round);
        clock.advance(Watchdog::LIMIT);
        release.send(()).expect("the node waits");
        assert_eq!(take(&mut sink, 1).len(), 1);
    }
    wait_event(&rig.switch, "the stall is an event", |kind| {
        *kind == EventKind::Stall { worker: 0, port: "node.s".to_owned(), source: String::new() }
    });
}
