//! Two workers compared with one, round by round: ratios within a round are meaningful even on a
//! busy machine.
//!
//! `cargo bench -p straightline-switch --bench workers`; without `--bench`, one short round of each.
//! No guest runs: each thread is a worker that also drives rings of embedded guests, one to send
//! and one to receive. So two CPUs are enough. In case `one`, a single thread works. In the other
//! cases two threads work, each with as much work as the one thread:
//!
//! - `apart`: each has a patch of its own.
//! - `pairs`: both have one patch, and a queue pair each of its ports.
//! - `crossing`: each has a patch of its own, and the other one's guest receives what it delivers.
//! - `shared`: both deliver to the only receive ring, and wait for its lock.
//!
//! A line has the median rate of both threads together, in million packets per second. Then comes
//! the ratio to `one` in the same round: the median, the smallest and the largest. The last column
//! has the median ratio in the best tenth of all rounds. On a shared machine, a descheduled thread
//! costs its own work if the workers are apart. If one worker receives what the other delivers, it
//! costs the work of both. There, the best tenth is the meaningful value.

use std::env;
use std::io::{self, Write};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, QueueAssignment, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions, Pair};
use straightline_nodes::Patch;
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};

/// Packets that a guest sends between two turns.
const BURST: usize = 64;

/// The guest and pair through which a thread sends, and those through which it receives.
type Ends = [(usize, usize); 2];

/// This thread receives for both threads.
const NONE: (usize, usize) = (usize::MAX, 0);

/// The work of two workers (or one).
struct Case {
    name: &'static str,
    /// Ports in patches of two: for each, its pairs, their rx workers, and the workers that own the
    /// receive rings.
    ports: &'static [(u16, [usize; 2], [usize; 2])],
    /// The ends of each thread.
    ends: &'static [Ends],
}

const CASES: [Case; 5] = [
    Case { name: "one", ports: &[(1, [0, 0], [0, 0]), (1, [0, 0], [0, 0])], ends: &[[(0, 0), (1, 0)]] },
    Case {
        name: "apart",
        ports: &[(1, [0, 0], [0, 0]), (1, [0, 0], [0, 0]), (1, [1, 1], [1, 1]), (1, [1, 1], [1, 1])],
        ends: &[[(0, 0), (1, 0)], [(2, 0), (3, 0)]],
    },
    Case {
        name: "pairs",
        ports: &[(2, [0, 1], [0, 1]), (2, [0, 1], [0, 1])],
        ends: &[[(0, 0), (1, 0)], [(0, 1), (1, 1)]],
    },
    Case {
        name: "crossing",
        ports: &[(1, [0, 0], [0, 0]), (1, [0, 0], [0, 0]), (1, [1, 1], [1, 1]), (1, [1, 1], [1, 1])],
        ends: &[[(0, 0), (3, 0)], [(2, 0), (1, 0)]],
    },
    Case {
        name: "shared",
        ports: &[(2, [0, 1], [0, 1]), (1, [0, 0], [0, 0])],
        ends: &[[(0, 0), (1, 0)], [(0, 1), NONE]],
    },
];

/// Its ports, workers and guests.
struct World {
    workers: Vec<Worker>,
    guests: Vec<Guest>,
    ends: &'static [Ends],
    _ports: Vec<VhostUser>,
    _dir: tempfile::TempDir,
}

fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = env::args().skip(1).collect();
    let measure = asked.iter().any(|word| word == "--bench") && !asked.iter().any(|word| word == "--test");
    let (rounds, time) = if measure { (200, 5) } else { (1, 1) };
    let mut out = io::stdout().lock();
    writeln!(out, "{:>8}  {:>10}  Mpps, times one (smallest-largest), in the best tenth", "bytes", "")?;
    for len in [60, 1514] {
        let mut worlds = CASES.iter().map(|case| World::new(case, len)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut rates = vec![Vec::new(); CASES.len()];
        for round in 0..rounds {
            for turn in 0..CASES.len() {
                let at = (turn + round) % CASES.len();
                rates[at].push(worlds[at].run(len, round, Duration::from_millis(time)));
            }
        }
        let mut one = rates[0].clone();
        one.sort_by(f64::total_cmp);
        for (case, own) in CASES.iter().zip(&rates) {
            let mut ratios: Vec<_> = own.iter().zip(&rates[0]).map(|(own, one)| own / one).collect();
            ratios.sort_by(f64::total_cmp);
            let mut own = own.clone();
            own.sort_by(f64::total_cmp);
            let mid = ratios.len() / 2;
            let last = ratios.len() - 1;
            let spread = format!("{:.2} ({:.2}-{:.2})", ratios[mid], ratios[0], ratios[last]);
            let best = own[last - last / 10] / one[last - last / 10];
            writeln!(out, "{len:>8}  {:>10}  {:.2}, {spread}, {best:.2}", case.name, own[mid])?;
        }
    }
    Ok(())
}

impl World {
    fn new(case: &Case, len: u32) -> anyhow::Result<World> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let drops: Vec<Arc<Drops>> = case.ports.iter().map(|_| Arc::default()).collect();
        let index = |at: usize| u16::try_from(at).map(PortIndex);
        let mut ports = Vec::new();
        for (at, (pairs, rx_workers, tx_workers)) in case.ports.iter().enumerate() {
            let config = VhostUserConfig {
                queues: Some(*pairs),
                ..VhostUserConfig::new(format!("p{at}"), dir.path().join(format!("p{at}")))
            };
            let port = VhostUser::open(config, index(at)?, Arc::clone(&drops[at]), &rcu, Arc::clone(&waiter))?;
            // The rx workers of the patch's other port deliver to this one.
            let (peer_pairs, peer, _) = case.ports[at ^ 1];
            let mut delivering = peer[..usize::from(peer_pairs)].to_vec();
            delivering.sort_unstable();
            delivering.dedup();
            let (rx_workers, tx_workers) =
                (rx_workers[..usize::from(*pairs)].to_vec(), tx_workers[..usize::from(*pairs)].to_vec());
            port.assign_queues(QueueAssignment { rx_workers, tx_workers, delivering });
            ports.push(port);
        }
        let mut workers = Vec::new();
        for worker in 0..case.ends.len() {
            let mut graph = Graph::new();
            for at in (0..ports.len()).step_by(2) {
                let served = [ports[at].for_worker(worker), ports[at + 1].for_worker(worker)];
                let edges = served.clone().map(|port| graph.output(port, false));
                let node = graph.node("patch", Box::new(Patch::new(index(at)?)), &edges);
                // A worker that is not the rx worker of any of a port's pairs does not poll the
                // port.
                for (at, port) in [at, at + 1].into_iter().zip(served) {
                    let (pairs, rx_workers, _) = case.ports[at];
                    if rx_workers[..usize::from(pairs)].contains(&worker) {
                        graph.input(port, node);
                    }
                }
            }
            let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
            workers.push(Worker::new(graph, arena, Arc::clone(&waiter), Arc::<WorkerStats>::default(), Idle::Spin));
        }
        let mut guests = Vec::new();
        for (at, (pairs, ..)) in case.ports.iter().enumerate() {
            let options = GuestOptions { queue_pairs: *pairs, ..GuestOptions::default() };
            let mut guest = Guest::connect(&dir.path().join(format!("p{at}")), &options)?;
            // The packets are written once. They belong to different flows, so that they are spread
            // over the pairs.
            for pair in guest.pairs() {
                for buffer in 0..pair.size() {
                    let level = pair.level();
                    let Some(segment) = pair.buffer(buffer) else { continue };
                    let mut bytes = vec![0; 12 + len as usize];
                    bytes[12..24].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                    bytes[24..28].copy_from_slice(&[0x88, 0xb5, buffer.to_le_bytes()[0], buffer.to_le_bytes()[1]]);
                    segment.write(level, &bytes);
                }
            }
            guests.push(guest);
        }
        Ok(World { workers, guests, ends: case.ends, _ports: ports, _dir: dir })
    }

    /// Returns the million packets per second that its guests receive, in about this time.
    fn run(&mut self, len: u32, round: usize, time: Duration) -> f64 {
        let threads = self.workers.len();
        let mut pairs: Vec<Vec<Option<&mut Pair>>> =
            self.guests.iter_mut().map(|guest| guest.pairs().iter_mut().map(Some).collect()).collect();
        let mut take = |(guest, pair): (usize, usize)| pairs.get_mut(guest)?.get_mut(pair)?.take();
        let ends: Vec<_> = self.ends.iter().map(|&[send, receive]| (take(send), take(receive))).collect();
        let start = Barrier::new(threads);
        let rates: Vec<f64> = std::thread::scope(|scope| {
            let work = self.workers.iter_mut().zip(ends).enumerate();
            let threads: Vec<_> = work
                .map(|(at, (worker, (send, receive)))| {
                    let start = &start;
                    scope.spawn(move || {
                        pin((at + round) % 2);
                        start.wait();
                        drive(worker, send, receive, len, time)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).collect()
        });
        rates.iter().sum()
    }
}

fn drive(
    worker: &mut Worker,
    mut send: Option<&mut Pair>,
    mut receive: Option<&mut Pair>,
    len: u32,
    time: Duration,
) -> f64 {
    let began = Instant::now();
    let mut got = 0.0;
    while began.elapsed() < time {
        for _ in 0..16 {
            if let Some(pair) = &mut send {
                for _ in 0..BURST.min(pair.spare()) {
                    pair.send_next(12 + len);
                }
                pair.flush();
            }
            worker.turn();
            if let Some(pair) = &mut receive {
                got += f64::from(u32::try_from(pair.receive(4 * BURST, |_, _| ())).unwrap_or(0));
            }
        }
    }
    got / began.elapsed().as_secs_f64() / 1e6
}

/// A machine with one CPU measures nothing here; the bench still runs there.
fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
