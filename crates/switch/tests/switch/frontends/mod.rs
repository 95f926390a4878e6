//! The handshake of each program that speaks vhost-user to us, played message by message as in its
//! source.

mod device;
mod scripted;
mod table;
mod wire;

use std::cell::RefCell;

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{Rig, frame, mac, patch, rig, send, take, vhost_user, wait_until};
use straightline_virtio::vhost_user::NetConfig;

use scripted::Scripted;
use table::{Pairs, QueueNumUse, ROWS, Row};

/// Packets that each pair sends.
const EACH: u64 = 8;
/// Flows towards the program's guest: enough for each of its pairs to have one.
const FLOWS: u8 = 64;

/// The program at port 0, our guest at port 1, and two more whose packets show that the worker has
/// taken turns.
struct Scene {
    rig: Rig,
    peer: Guest,
    turns: RefCell<[Guest; 2]>,
}

impl Scene {
    fn new(queues: Option<u16>) -> Scene {
        let rig = rig(4, |config| {
            config.patches.extend([patch(0, 1), patch(2, 3)]);
            vhost_user(&mut config.ports[0]).queues = queues;
        });
        let guest = |port| rig.guest(port, &GuestOptions::default());
        let peer = guest(1);
        let turns = RefCell::new([guest(2), guest(3)]);
        Scene { rig, peer, turns }
    }

    fn start(&self, row: Row, pairs: u16) -> anyhow::Result<Scripted> {
        Scripted::start(self.rig.socket(0), row, pairs, &posted, &|| self.worker_turns())
    }

    /// Exchanges packets of each pair with the peer. Returns the number that arrived at each.
    fn exchange(&mut self, program: &mut Scripted, pairs: u16) -> anyhow::Result<Vec<usize>> {
        let mut sent = std::mem::take(&mut program.posted);
        for pair in 0..pairs {
            for n in 0..EACH {
                let frame = frame(mac(1), mac(2), 100, 1000 * u64::from(pair) + n);
                program.send(pair, &frame)?;
                sent.push(frame);
            }
        }
        // Pairs overtake one another.
        let mut arrived: Vec<_> = take(&mut self.peer, sent.len()).into_iter().map(|(_, frame)| frame).collect();
        arrived.sort();
        sent.sort();
        anyhow::ensure!(arrived == sent, "packets change on their way");
        let mut got = vec![0; usize::from(pairs)];
        for flow in 0..FLOWS {
            let sent = frame(mac(flow), mac(100), 80, flow.into());
            send(&mut self.peer, &sent);
            let mut arrived = Ok(Vec::new());
            wait_until("a packet arrives", || {
                for (got, pair) in got.iter_mut().zip(0..) {
                    arrived = program.receive(pair);
                    *got += arrived.as_ref().map_or(0, Vec::len);
                    if arrived.as_ref().map_or(true, |frames| !frames.is_empty()) {
                        return true;
                    }
                }
                false
            });
            anyhow::ensure!(arrived? == [sent], "a packet changes on its way");
        }
        Ok(got)
    }

    /// Returns when the worker has polled every ring since the call.
    fn worker_turns(&self) {
        let [left, right] = &mut *self.turns.borrow_mut();
        for seed in 0..2 {
            send(left, &frame(mac(3), mac(2), 100, seed));
            take(right, 1);
        }
    }
}

/// Returns packets that a pair sends before its rings are enabled.
fn posted(pair: u16) -> Vec<u8> {
    frame(mac(1), mac(2), 100, u64::from(pair))
}

/// Plays everything: the handshake, every queue that the program uses, packets through each of
/// them.
fn run(row: Row, queues: Option<u16>, pairs: u16) {
    let Row { name, source, .. } = row;
    let what = format!("{name} with {pairs} queue pairs ({source})");
    let mut scene = Scene::new(queues);
    let mut program = scene.start(row, pairs).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    scene.rig.wait_up(0);

    if let Some(NetConfig { mac, status, max_virtqueue_pairs, mtu }) = program.config() {
        assert_eq!((mac[0] & 3, status & 1, mtu), (2, 1, 1500), "{what}: a local MAC address, the link is up");
        assert!(row.pairs == Pairs::Own || max_virtqueue_pairs == pairs, "{what}: {max_virtqueue_pairs} are told");
    }
    let acks = program.use_all_pairs().unwrap_or_else(|error| panic!("{what}: {error:#}"));
    assert!(acks.iter().all(|&ack| ack == 0), "{what}: commands are acknowledged: {acks:?}");

    let exchanged = scene.exchange(&mut program, pairs);
    let got = exchanged.unwrap_or_else(|error| panic!("{what}: {error:#}"));
    assert!(got.iter().all(|&got| got > 0), "{what}: packets for each pair: {got:?}");

    if !row.again.is_empty() {
        let back = program.come_back(scene.rig.socket(0), &posted, &|| scene.worker_turns());
        back.unwrap_or_else(|error| panic!("{what}, again: {error:#}"));
        scene.rig.wait_up(0);
        program.use_all_pairs().unwrap_or_else(|error| panic!("{what}, again: {error:#}"));
        let exchanged = scene.exchange(&mut program, pairs);
        let got = exchanged.unwrap_or_else(|error| panic!("{what}, again: {error:#}"));
        assert!(got.iter().all(|&got| got > 0), "{what}, again: packets for each pair: {got:?}");
    }
    scene.rig.no_drops();
}

fn row(name: &str) -> Row {
    *ROWS.iter().find(|row| row.name == name).expect("a row")
}

/// Plays each program with one queue pair, and with several: with a port that tells its guest the
/// number, or, if the program counts itself, with one that does not.
fn run_all(row: Row) {
    run(row, None, 1);
    run(row, (row.pairs == Pairs::Ours).then_some(3), 3);
}

#[test]
fn qemu_7_2() {
    run_all(row("QEMU 7.2"));
}

#[test]
fn qemu_10_0() {
    run_all(row("QEMU 10.0"));
}

#[test]
fn cloud_hypervisor_40() {
    run_all(row("Cloud Hypervisor v40.0"));
}

#[test]
fn cloud_hypervisor_53() {
    run_all(row("Cloud Hypervisor v53.0"));
}

#[test]
fn cloud_hypervisor_main() {
    run_all(row("Cloud Hypervisor main"));
}

#[test]
fn crosvm() {
    run_all(row("crosvm"));
}

#[test]
fn dpdk_virtio_user() {
    run_all(row("DPDK virtio-user"));
}

#[test]
fn rust_vmm() {
    run_all(row("rust-vmm"));
}

#[test]
fn user_mode_linux() {
    run_all(row("User Mode Linux"));
}

#[test]
fn a_port_of_two_pairs_says_so_to_whoever_asks_for_three() {
    for row in ROWS.into_iter().filter(|row| matches!(row.counts, QueueNumUse::Pairs | QueueNumUse::Rings)) {
        let scene = Scene::new(Some(2));
        let error = scene.start(row, 3).err().expect("refused").to_string();
        let words = match row.counts {
            QueueNumUse::Pairs => "you are asking more queues than supported: 2",
            _ => "requested too many queues (6) since the backend only supports ",
        };
        assert!(error.starts_with(words), "{}: {error}", row.name);
        run(row, Some(2), 2);
    }
}

#[test]
fn virtio_user_does_not_ask_and_is_told_by_the_port_s_reason() {
    let scene = Scene::new(Some(2));
    assert!(scene.start(row("DPDK virtio-user"), 3).is_err());
    scene.rig.wait_down(0, "SET_VRING_CALL for ring 5; there are 5 rings");
}
