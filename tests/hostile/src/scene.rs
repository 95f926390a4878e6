//! An attacker beside a good guest, and victims on other ports of the same worker.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use straightline_config::Config;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{Rig, Victims, arrived, frame, mac, patch, rig, send, take, vhost_user, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::ring::{Descriptor, WRITE};

pub use straightline_guest::Ring;

use crate::attacker::{Attacker, Layout};

/// Ports 0 (the attacker's) and 1 (a good guest's) are patched, and so are 2 and 3 (the victims').
pub struct Scene {
    /// The switch.
    pub rig: Rig,
    /// The good guest that the attacker's port is patched to.
    pub good: Guest,
    /// The guests whose traffic no attack may disturb.
    pub victims: Victims,
    layout: Layout,
    /// Additional features that the attacker negotiates.
    features: u64,
    /// Queue pairs that the attacker's port offers. The attacker uses all of them.
    queues: u16,
    round: u64,
}

/// Returns a valid descriptor: 100 bytes of the attacker's first buffer.
pub fn valid(guest: &Guest, ring: Ring) -> Descriptor {
    let flags = if ring == Ring::Receive { WRITE } else { 0 };
    Descriptor { addr: guest.buffer_address(ring, 0), len: 100, flags, next: 0 }
}

/// The expected outcome of an attack.
pub enum Outcome {
    /// The packet is dropped for this reason, and the port stays up.
    Dropped(&'static str),
    /// The port goes down, with these words in its reason.
    Down(&'static str),
}
pub use Outcome::{Down, Dropped};

/// Measures as [`Scene::measure_gap`] does, for the victims of another scene.
pub fn measure_gap<T>(victims: &Victims, what: &str, attack: impl FnOnce() -> T) -> T {
    // The time is the subject: a gap is compared with one of a time without an attack.
    const QUIET: Duration = Duration::from_millis(200);
    if !crate::is_long() {
        let done = attack();
        victims.go_on();
        return done;
    }
    let ((), without) = victims.longest_gap(|| std::thread::sleep(QUIET));
    let (done, with) = victims.longest_gap(attack);
    // The test harness captures `eprintln!`, so the line is written directly.
    let _ = writeln!(std::io::stderr(), "{what}: the victims' longest gap is {without:?} without, {with:?} with it");
    done
}

impl Scene {
    /// Returns a scene with an attacker whose rings are split.
    #[expect(clippy::new_without_default, reason = "it starts a switch, which no default does")]
    pub fn new() -> Scene {
        Scene::with_layout(Layout::Split)
    }

    /// Returns a scene with an attacker whose rings have this layout.
    pub fn with_layout(layout: Layout) -> Scene {
        Scene::with_queues(layout, 1)
    }

    /// Returns a scene with an attacker that also negotiates in-order use of descriptors.
    pub fn in_order(layout: Layout) -> Scene {
        Scene { features: f::VIRTIO_F_IN_ORDER, ..Scene::with_layout(layout) }
    }

    /// Returns a scene whose good guest has additional features.
    pub fn with_good_features(layout: Layout, features: u64) -> Scene {
        Scene::between(layout, 1, features)
    }

    /// Returns a scene with an attacker that has `queues` queue pairs.
    pub fn with_queues(layout: Layout, queues: u16) -> Scene {
        Scene::between(layout, queues, 0)
    }

    /// Returns a scene with a fifth port (4), which has this name and is in no patch.
    pub fn with_spare_port(name: &str) -> Scene {
        Scene::build(5, Layout::Split, 1, &GuestOptions::default(), |config| {
            name.clone_into(&mut config.ports[4].name);
        })
    }

    fn between(layout: Layout, queues: u16, features: u64) -> Scene {
        let features = features | GuestOptions::default().features;
        Scene::with_good_guest(layout, queues, &GuestOptions { features, ..GuestOptions::default() }, |_| ())
    }

    /// Returns a scene with these options of the good guest, and a changed configuration of the
    /// switch.
    pub fn with_good_guest(
        layout: Layout,
        queues: u16,
        good: &GuestOptions,
        change: impl FnOnce(&mut Config),
    ) -> Scene {
        Scene::build(4, layout, queues, good, change)
    }

    fn build(
        ports: usize,
        layout: Layout,
        queues: u16,
        good: &GuestOptions,
        change: impl FnOnce(&mut Config),
    ) -> Scene {
        let rig = rig(ports, |config| {
            let port = vhost_user(&mut config.ports[0]);
            (port.packed, port.queues) = (layout == Layout::Packed, Some(queues));
            config.patches.push(patch(0, 1));
            config.patches.push(patch(2, 3));
            change(config);
        });
        let victims = Victims::start(&rig, 2, 3);
        let good = rig.guest(1, good);
        Scene { rig, good, victims, layout, features: 0, queues, round: 0 }
    }

    /// Connects a guest at the attacker's port that has published nothing yet.
    pub fn attacker(&self) -> Attacker {
        self.attacker_with(0)
    }

    /// Connects a guest with additional features, like [`Scene::attacker`].
    pub fn attacker_with(&self, features: u64) -> Attacker {
        let features = features | self.features | GuestOptions::default().features | f::VIRTIO_F_INDIRECT_DESC;
        let ring_size = 16;
        let queue_pairs = self.queues;
        let options = GuestOptions { features, queue_pairs, ring_size, withhold: true, ..GuestOptions::default() };
        Attacker::connect(self.rig.socket(0), self.layout, &options)
    }

    /// Connects a guest at the attacker's port whose drivers keep every rule, with all its queue
    /// pairs.
    pub fn compliant_guest(&self) -> Guest {
        let layout = if self.layout == Layout::Packed { f::VIRTIO_F_RING_PACKED } else { 0 };
        let features = GuestOptions::default().features | layout;
        self.rig.guest(0, &GuestOptions { features, queue_pairs: self.queues, ..GuestOptions::default() })
    }

    /// Runs an attack by the transmit ring: `f` writes and publishes the descriptors.
    pub fn sends(&mut self, what: &str, outcome: &Outcome, f: impl FnOnce(&Attacker)) {
        let guest = self.attacker();
        let before = self.dropped();
        f(&guest);
        self.expect_and_recover(what, outcome, before, guest);
    }

    /// Runs an attack by the receive ring, which takes effect when a packet is delivered.
    pub fn receives(&mut self, what: &str, outcome: &Outcome, f: impl FnOnce(&Attacker)) {
        let guest = self.attacker();
        let before = self.dropped();
        f(&guest);
        send(&mut self.good, &frame(mac(1), mac(2), 700, 1));
        self.expect_and_recover(what, outcome, before, guest);
    }

    /// Returns the drops of the attacker's port, by reason.
    pub fn dropped(&self) -> BTreeMap<String, u64> {
        self.rig.port(0).drops
    }

    /// Asserts the outcome of an attack. The victims must not be affected, and after `guest` has
    /// left, the next guest at its port must be served.
    pub fn expect_and_recover(
        &mut self,
        what: &str,
        outcome: &Outcome,
        before: BTreeMap<String, u64>,
        guest: impl Sized,
    ) {
        self.expect_outcome(what, outcome, before);
        drop(guest);
        self.recovers(what);
    }

    /// Waits for the outcome of an attack. The victims must not be affected.
    pub fn expect_outcome(&mut self, what: &str, outcome: &Outcome, before: BTreeMap<String, u64>) {
        match *outcome {
            Dropped(reason) => {
                let before = before.get(reason).copied().unwrap_or(0);
                wait_until(&format!("{what}: dropped as {reason}"), || self.rig.drops(0, reason) > before);
                self.rig.wait_up(0);
            }
            Down(words) => wait_until(&format!("{what}: down because of {words}"), || {
                let port = self.rig.port(0);
                if port.reason.as_deref().is_some_and(|why| why.contains(words)) { Ok(()) } else { Err(Box::new(port)) }
            }),
        }
        self.victims.go_on();
    }

    /// Waits until all packets of the attacker have arrived at the good guest, and drops them.
    pub fn settle(&mut self) {
        self.rig.wait_down(0, "waiting for a frontend");
        // After two rounds of the victims' packets, all packets that were taken before are delivered.
        self.victims.go_on();
        arrived(&mut self.good);
    }

    /// Asserts that a new guest at the attacker's port works in both directions, and that no packet
    /// of the attacker arrives.
    pub fn recovers(&mut self, what: &str) {
        let mut newcomer = self.rig.guest(0, &GuestOptions::default());
        self.round += 1;
        let there = frame(mac(2), mac(1), 1300, self.round);
        send(&mut newcomer, &there);
        assert!(take(&mut self.good, 1)[0].1 == there, "{what}");
        let back = frame(mac(1), mac(2), 1400, self.round);
        send(&mut self.good, &back);
        assert!(take(&mut newcomer, 1)[0].1 == back, "{what}");
        self.victims.go_on();
    }

    /// Runs an attack. In the long run, it prints the victims' longest gap between two packets without
    /// the attack and with it. The gap is information: no test asserts a time. [`Scene::end`] asserts
    /// that nothing is lost.
    pub fn measure_gap<T>(&self, what: &str, attack: impl FnOnce(&Scene) -> T) -> T {
        measure_gap(&self.victims, what, || attack(self))
    }

    /// Ends the scene. Asserts that the victims have lost nothing.
    pub fn end(self) {
        assert!(self.rig.port(2).drops.is_empty() && self.rig.port(3).drops.is_empty());
        self.victims.finish();
    }
}
