//! The guest: its memory, driver, queues and rings.

use az::SaturatingAs;
use straightline_api::Link;

use super::{Check, program};
use crate::facts::{Facts, Memory, PortFacts, Program};

/// Packets dropped for want of a buffer, for each packet delivered, above which rings are too
/// small.
const DROP_SHARE: f64 = 0.001;

/// Packets dropped for want of a buffer, above which that share says something.
const FEW_DROPS: u64 = 100;

/// Seconds after which a guest has given buffers.
const START_S: f64 = 10.0;

/// Packets to a guest without any buffer that say something.
const FEW_LOST: u64 = 10;

/// The size of a ring that a guest can have in QEMU.
const LARGE_RING: u32 = 1024;

pub(super) const MEMORY: Check = Check {
    name: "guest-memory",
    passes: "the memory of each guest is shared with the switch",
    absent: "no VM is known that uses a socket of a port",
    run: |facts, outcome| {
        for port in facts.ports.iter().filter(|port| port.port.has_frontend()) {
            for peer in outcome.known(port.subject(), &port.peers).into_iter().flatten() {
                let subject = format!("{}: {} (process {})", port.subject(), peer.program.name(), peer.pid);
                match outcome.known(&subject, &peer.memory) {
                    Some(Memory::Shared) => outcome.pass(),
                    Some(Memory::Private(option)) => outcome.fail(
                        format!("{}: the memory of {} is not shared", port.subject(), peer.program.name()),
                        format!("process {} lacks {option}: the switch cannot see the guest's packets", peer.pid),
                        match peer.program {
                            Program::Qemu => {
                                "-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem"
                                    .to_owned()
                            }
                            _ => format!("start the VM with {option}"),
                        },
                    ),
                    None => {}
                }
            }
            if let Some(packets) = never_moved(port) {
                outcome.fail(
                    format!("{}: the link is up, and nothing passes", port.subject()),
                    format!(
                        "the rings have shown no packet and no buffer for {:.0} s, and {packets} of {packets} packets to \
                         it were dropped: the guest's memory is probably not shared (`share=off`), or its driver hangs",
                        port.port.link_since_s
                    ),
                    "start the VM with shared memory: `share=on` (QEMU), `shared=on` (Cloud Hypervisor)",
                );
            }
        }
    },
};

/// Returns the packets that were lost for want of a buffer at a guest that has never given one, nor
/// sent a packet, though its link is up. A driver gives buffers before anything else.
fn never_moved(port: &PortFacts) -> Option<u64> {
    let dropped = port.port.drops.get("no-buffer").copied().unwrap_or(0);
    let has_moved = port.port.queues.iter().any(|queue| queue.rx.packets + queue.tx.packets > 0);
    let is_long = port.port.link == Link::Up && port.port.link_since_s >= START_S;
    (is_long && !has_moved && dropped >= FEW_LOST).then_some(dropped)
}

pub(super) const DRIVER: Check = Check {
    name: "driver",
    passes: "each guest has a modern driver, without a virtual IOMMU",
    absent: "no guest is connected",
    run: |facts, outcome| {
        for port in facts.running_ports(outcome).iter().filter(|port| port.port.has_frontend()) {
            let subject = port.subject();
            let fix = port.remedy().unwrap_or_default();
            match port.port.cause.as_deref() {
                Some("legacy-driver") => {
                    outcome.fail(
                        format!("{subject}: the guest has a legacy driver, or none yet"),
                        "the switch needs VIRTIO_F_VERSION_1",
                        fix,
                    );
                    continue;
                }
                Some("iommu") => {
                    outcome.fail(
                        format!("{subject}: the device has a virtual IOMMU"),
                        "the switch does not translate addresses of a virtual IOMMU",
                        fix,
                    );
                    continue;
                }
                _ => {}
            }
            let peers = port.peers.as_ref().map_or(&[][..], |peers| peers);
            let with_iommu = peers.iter().find(|peer| peer.has_iommu == Ok(true));
            match with_iommu {
                Some(peer) if port.port.link == Link::Down => outcome.warn(
                    format!("{subject}: the device of {} has a virtual IOMMU", peer.program.name()),
                    "if the guest turns it on, the link stays down",
                    "remove `iommu_platform=on` from the VM's device",
                ),
                _ if port.port.link == Link::Up => outcome.pass(),
                _ => {}
            }
        }
    },
};

pub(super) const QUEUES: Check = Check {
    name: "queues",
    passes: "each guest uses the queue pairs that it was offered",
    absent: "no guest is connected",
    run: |facts, outcome| {
        let workers = facts.switch.as_ref().map_or(0, |switch| switch.status.workers);
        for port in facts.running_ports(outcome).iter().filter(|port| port.port.link == Link::Up) {
            let subject = port.subject();
            let name = &port.port.name;
            let Some(pairs) = port.port.queue_pairs else { continue };
            let Some(peers) = outcome.known(&subject, &port.peers) else { continue };
            let Some(peer) = peers.first() else { continue };
            let Some(&cpus) = outcome.known(&subject, &peer.cpus) else { continue };
            // The program decides the number; a port's `queues` is a limit for it.
            let offered = match (&peer.queue_pairs, pairs.offered) {
                (Ok(asked), _) => *asked,
                (Err(_), Some(offered)) => offered.into(),
                (Err(unknown), None) => {
                    outcome.unknown(&subject, unknown);
                    continue;
                }
            };
            let enabled = u32::from(pairs.enabled);
            if enabled < offered.min(cpus) {
                outcome.warn(
                    format!("{subject}: the guest uses {enabled} of {offered} queue pairs"),
                    format!("it has {cpus} virtual CPUs"),
                    format!("in the guest: ethtool -L eth0 combined {}", offered.min(cpus)),
                );
            } else if enabled < cpus && usize::from(pairs.enabled) < workers {
                let most = cpus.min(workers.saturating_as::<u32>());
                outcome.warn(
                    format!("{subject}: {enabled} queue pair for {cpus} virtual CPUs and {workers} workers"),
                    "one worker serves one queue pair",
                    program::more_pairs(&peer.program, name, most),
                );
            } else {
                outcome.pass();
            }
        }
    },
};

pub(super) const RING_SIZE: Check = Check {
    name: "ring-size",
    passes: "rings are large enough: few packets find no free buffer",
    absent: "no guest has set up its rings",
    run: ring_size,
};

fn ring_size(facts: &Facts, outcome: &mut super::CheckOutcome) {
    for facts in facts.running_ports(outcome) {
        let port = &facts.port;
        if port.ring_size == 0 {
            continue;
        }
        let dropped = port.drops.get("no-buffer").copied().unwrap_or(0);
        let delivered: u64 = port.queues.iter().map(|queue| queue.tx.packets).sum();
        #[expect(clippy::cast_precision_loss, reason = "a share is compared with a threshold")]
        let share = dropped as f64 / (delivered + dropped).max(1) as f64;
        if share <= DROP_SHARE || dropped < FEW_DROPS {
            outcome.pass();
            continue;
        }
        let fix = if port.ring_size < LARGE_RING {
            program::larger_rings(facts.program(), LARGE_RING)
        } else {
            "give the guest more CPU time, or use `full = \"wait\"` in a patch".to_owned()
        };
        outcome.warn(
            format!("{}: {:.1} % of the packets found no free buffer", facts.subject(), 100.0 * share),
            format!("no-buffer {dropped} of {}; its rings have {} entries", delivered + dropped, port.ring_size),
            fix,
        );
    }
}
