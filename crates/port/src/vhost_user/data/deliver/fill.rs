//! The loop over a batch: each packet by the fastest way that takes it.

use straightline_packet::{Checksum, PacketId, Reason, Turn};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{Device, Ring};

use super::buffers::Buffers;
use super::filling::{Filling, Refused, Sum};
use super::looks::Looks;
use super::marks::mark;
use super::{plain, runs};
use crate::vhost_user::data::HEADER;
use crate::vhost_user::data::delivery_plan::{Planned, PlannedRun};
use crate::vhost_user::data::link::Link;
use crate::vhost_user::data::queue::Inner;

/// Reserves and copies the whole frame; nothing is visible yet.
pub(super) fn fill<'t>(
    inner: &mut Inner,
    link: &'t Link,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    wait: bool,
    looks: &mut Looks,
    without_vanished: bool,
) -> Sum {
    let Inner { ring, firsts, plan, runs, piece, .. } = inner;
    plan.clear();
    runs.clear();
    match ring {
        Ring::Split(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), looks);
            fill_into(Filling { link, turn, ids, buffers, plan, runs, piece, wait }, without_vanished)
        }
        Ring::Packed(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), looks);
            fill_into(Filling { link, turn, ids, buffers, plan, runs, piece, wait }, without_vanished)
        }
    }
}

fn fill_into(mut filling: Filling<'_, '_, impl Device>, without_vanished: bool) -> Sum {
    let (ids, wait, mark) = (filling.ids, filling.wait, filling.turn.mark());
    let mut sum =
        Sum { packets: 0, bytes: 0, body: 0, drops: [0; Reason::ALL.len()], left_from: None, short: 0, broken: None };
    // Where memory has vanished, each packet is looked at.
    let coalesces = filling.link.receiver.takes_tcp() && !without_vanished;
    let (mut at, mut looked) = (0, 0);
    loop {
        if filling.buffers.looks.are_spent() {
            filling.drop_rest(at, Reason::ManyDescriptors, without_vanished, &mut sum);
            break;
        }
        if !without_vanished {
            at += plain::deliver(&mut filling, at, looked, &mut sum);
        }
        let Some(&id) = ids.get(at) else { break };
        if coalesces && at >= looked {
            let (count, planned) = filling.merge(at, &mut sum);
            looked = at + count;
            if planned {
                at = looked;
            }
            // What stays single may be common.
            continue;
        }
        match filling.add(id, without_vanished, &mut sum) {
            Ok(()) => {}
            Err(Refused::Dropped(Reason::NoBuffer)) if wait && !filling.buffers.never_suffice(0) => {
                sum.left_from = Some(at);
                // With what a packet that was cut had taken and gave back.
                sum.short = filling.buffers.ring.known();
                break;
            }
            Err(Refused::Dropped(reason)) => sum.drops[reason as usize] += 1,
            Err(Refused::Broken(message)) => {
                let rest = ids.len() - at;
                sum.drops[Reason::LinkDown as usize] += u32::try_from(rest).unwrap_or(u32::MAX);
                sum.broken = Some(message);
                break;
            }
        }
        at += 1;
        if filling.buffers.dry && !wait {
            // For each packet that follows, the driver's line would be taken away from it again while it gives buffers.
            filling.drop_rest(at, Reason::NoBuffer, without_vanished, &mut sum);
            break;
        }
    }
    filling.copy();
    filling.turn.unstage(mark);
    sum
}

impl<R: Device> Filling<'_, '_, R> {
    /// Reserves buffers for a packet, to be copied later; or cuts it, and copies the pieces now.
    #[inline(never)]
    fn add(&mut self, id: PacketId, without_vanished: bool, sum: &mut Sum) -> Result<(), Refused> {
        if let Some(plan) = self.pieces(id, without_vanished).map_err(Refused::Dropped)? {
            return self.cut(id, plan, sum);
        }
        let len = self.turn.len(id);
        let (to, chains) = self.reserve(len)?;
        self.plan.push(Planned { id, to, chains, is_run: false });
        sum.packets += 1;
        sum.bytes += u64::from(len);
        sum.body += u64::from(self.turn.body_len(id));
        Ok(())
    }

    /// Drops the packets of the frame from place `at` on for `reason`, each as many times as it is for this guest; those that
    /// are not for it at all, for a reason of their own.
    #[cold]
    fn drop_rest(&self, at: usize, reason: Reason, without_vanished: bool, sum: &mut Sum) {
        for &id in self.ids.get(at..).unwrap_or_default() {
            let (reason, n) = match self.pieces(id, without_vanished) {
                Ok(plan) => (reason, plan.map_or(1, |plan| plan.left())),
                Err(reason) => (reason, 1),
            };
            sum.drops[reason as usize] += n;
        }
    }

    /// Copies all packets that were planned.
    fn copy(&mut self) {
        let partial = self.link.receiver.takes_partial();
        let mut runs = self.runs.iter();
        for &Planned { id, ref to, chains, is_run } in self.plan.iter() {
            if is_run {
                if let Some(PlannedRun { run, places }) = runs.next() {
                    let ids = &self.ids[places.clone()];
                    runs::copy(self.turn, run, ids, self.piece, to.clone(), chains);
                }
                continue;
            }
            let mut offload = self.turn.offload(id);
            let finish = !partial && offload.checksum != Checksum::Complete;
            if finish {
                offload.checksum = Checksum::Complete;
            }
            *self.turn.front_mut::<LEN>(id) = NetHeader::for_receiver(offload, chains).to_bytes();
            self.turn.store::<LEN>(id, to.clone(), finish);
        }
        if let Some(log) = &self.link.log {
            let marks = log.after_writes();
            let mut runs = self.runs.iter();
            for Planned { id, to, is_run, .. } in self.plan.iter() {
                let run = if *is_run { runs.next() } else { None };
                let len = run.map_or_else(|| self.turn.len(*id), |planned| planned.run.len()) + HEADER;
                mark(&marks, &self.link.memory, self.turn.staged_at(to.clone()), len);
            }
        }
        self.plan.clear();
    }
}
