//! Two embedded guests that exchange numbered packets through the switch between them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use straightline_guest::{Guest, Pair};
use straightline_virtio::net_header::NetHeader;

use crate::proc;

/// Upper bound of the packets in flight from one queue pair. The other guest's rings have more
/// buffers, even for the largest size.
const WINDOW: u64 = 48;

/// Bytes of a frame in one transmit buffer. A larger frame is split into buffers of this size, and
/// its header has a buffer of its own.
const BUFFER_LEN: usize = 2036;

/// Length of a frame's header: Ethernet header, sending guest, queue pair, number.
const HEADER_LEN: usize = 14 + 2 + 8;

/// Two embedded guests, and the numbers of their packets so far.
pub(crate) struct GuestPair {
    pub(crate) guests: [Guest; 2],
    /// Packets sent, by guest and pair.
    sent: [Vec<u64>; 2],
    /// Packets that have arrived, by sending guest and pair.
    arrived: [Vec<u64>; 2],
    /// Probes by sending guest.
    probes: [Probes; 2],
    /// Bytes without a period. Each frame contains a part of them.
    noise: Vec<u8>,
}

/// Counts of the probes, and the number of the last probe that arrived.
#[derive(Clone, Copy, Default)]
struct Probes {
    sent: u64,
    arrived: u64,
    last: Option<u64>,
}

/// Looks for a probe before another one is sent.
const LOOKS: u32 = 1000;

/// The value of a probe in place of the queue pair.
const PROBE: usize = 255;

impl GuestPair {
    pub(crate) fn new(mut guests: [Guest; 2]) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let noise = (0..0x1_4000).map(|_| next()).collect();
        let none = guests.each_mut().map(|guest| vec![0; guest.pairs().len()]);
        Self { guests, sent: none.clone(), arrived: none, probes: [Probes::default(); 2], noise }
    }

    /// Sends probes until one has arrived in each direction. The switch between the guests may need
    /// some time, and drop earlier packets.
    pub(crate) fn warm_up(&mut self) -> Result<()> {
        for at in 0..2 {
            for pair in 0..self.sent[at].len() {
                let what = format!("a probe of pair {pair} of guest {at} arrives");
                proc::until(&what, || self.probe(at, pair))?;
            }
        }
        Ok(())
    }

    /// Sends a probe, and looks whether it arrives. When the last probe has arrived, no probe is in flight.
    fn probe(&mut self, at: usize, pair: usize) -> Result<Option<()>> {
        let number = self.probes[at].sent;
        let frame = self.frame(at, PROBE, number, 60);
        ensure!(self.guests[at].pairs()[pair].send(&NetHeader::default(), &frame), "no transmit buffer");
        self.probes[at].sent += 1;
        self.wait_free_buffers()?;
        // A switch that has taken the probe may still drop it.
        for _ in 0..LOOKS {
            self.collect()?;
            if self.probes[at].last == Some(number) {
                return Ok(Some(()));
            }
            proc::pause(Duration::from_micros(100))?;
        }
        Ok(None)
    }

    /// Lets both guests send `count` packets by each pair, with these lengths in turn. All arrive,
    /// in order for each pair and unchanged, and all transmit buffers come back.
    pub(crate) fn exchange(&mut self, count: u64, lens: &[usize]) -> Result<()> {
        let goal = self.sent.clone().map(|pairs| pairs.iter().map(|sent| sent + count).collect::<Vec<_>>());
        let all = proc::until_moved("all packets have arrived", || {
            loop {
                for (at, goal) in goal.iter().enumerate() {
                    for (pair, &goal) in goal.iter().enumerate() {
                        while self.sent[at][pair] < goal.min(self.arrived[at][pair] + WINDOW) {
                            if !self.send(at, pair, lens) {
                                break;
                            }
                        }
                        self.guests[at].pairs()[pair].flush();
                    }
                }
                if self.collect()? == 0 {
                    return Ok((self.arrived == goal).then_some(()));
                }
            }
        });
        if let Err(error) = all {
            let spare: Vec<usize> = self.guests.iter_mut().flat_map(|g| g.pairs()).map(|pair| pair.spare()).collect();
            let Self { sent, arrived, .. } = self;
            return Err(error.context(format!("sent {sent:?}, arrived {arrived:?}, wanted {goal:?}, spare {spare:?}")));
        }
        self.wait_free_buffers()
    }

    /// Lets one guest send as many packets as the other's receive ring has buffers, before the
    /// other one reads any. All arrive, so no buffer of the ring is lost.
    pub(crate) fn fill(&mut self) -> Result<()> {
        for at in 0..2 {
            let buffers = self.guests[1 - at].pairs()[0].size();
            for _ in 0..buffers {
                let free = || format!("guest {at} has {} free transmit buffers", self.guests[at].spare());
                ensure!(self.guests[at].spare() > 0, "{}", free());
                ensure!(self.send(at, 0, &[200]), "guest {at} has free transmit buffers, but cannot send");
                // One packet at a time: with a burst, a third-party switch may read the ring once
                // and drop the rest.
                self.wait_free_buffers()?;
            }
            let goal = self.sent[at][0];
            let all = proc::until_moved("all packets have arrived", || {
                self.collect()?;
                Ok((self.arrived[at][0] >= goal).then_some(()))
            });
            all.with_context(|| format!("{} of {goal} have arrived: a buffer is lost", self.arrived[at][0]))?;
        }
        Ok(())
    }

    /// Lets each guest send `count` packets that the other one does not read yet.
    pub(crate) fn send_some(&mut self, count: u64) -> Result<()> {
        for at in 0..2 {
            for _ in 0..count {
                ensure!(self.send(at, 0, &[1000]), "no free transmit buffer");
            }
            self.guests[at].flush();
        }
        Ok(())
    }

    /// Returns the packets that a guest has sent and received by all its pairs, including probes.
    pub(crate) fn counts(&self, at: usize) -> (u64, u64) {
        let sent = self.sent[at].iter().sum::<u64>() + self.probes[at].sent;
        let received = self.arrived[1 - at].iter().sum::<u64>() + self.probes[1 - at].arrived;
        (sent, received)
    }

    fn send(&mut self, at: usize, pair: usize, lens: &[usize]) -> bool {
        let number = self.sent[at][pair];
        let len = lens[usize::try_from(number).unwrap_or(0) % lens.len()];
        let frame = self.frame(at, pair, number, len);
        let pair_of = &mut self.guests[at].pairs()[pair];
        let sent = if len <= BUFFER_LEN {
            pair_of.send(&NetHeader::default(), &frame)
        } else {
            let header = NetHeader::default().to_bytes();
            let buffers: Vec<&[u8]> = std::iter::once(&header[..]).chain(frame.chunks(BUFFER_LEN)).collect();
            pair_of.send_chain(&buffers, false)
        };
        self.sent[at][pair] += u64::from(sent);
        sent
    }

    /// Returns the frame that guest `at` sends by `pair` as its packet `number`.
    fn frame(&self, at: usize, pair: usize, number: u64, len: usize) -> Vec<u8> {
        let mut frame = Vec::with_capacity(len);
        let [one, other] = [at, 1 - at].map(|n| u8::try_from(n + 1).unwrap_or(0));
        frame.extend([2, 0, 0, 0, 0, other, 2, 0, 0, 0, 0, one, 0x88, 0xb5]);
        frame.extend([one, u8::try_from(pair).unwrap_or(255)]);
        frame.extend(number.to_be_bytes());
        let start = usize::try_from(number % 8191).unwrap_or(0) * 7;
        frame.extend(&self.noise[start..][..len - HEADER_LEN]);
        frame
    }

    /// Reads the packets that have arrived, and checks each byte.
    fn collect(&mut self) -> Result<usize> {
        let mut frames = Vec::new();
        for at in 0..2 {
            for pair in self.guests[at].pairs() {
                take(pair, at, &mut frames);
            }
        }
        for (at, frame) in &frames {
            let from = 1 - at;
            ensure!(frame.len() > HEADER_LEN, "guest {at} received a frame of at most {HEADER_LEN} bytes: {frame:?}");
            let pair = usize::from(frame[15]);
            if pair == PROBE {
                let number = u64::from_be_bytes(frame[16..24].try_into()?);
                let probes = &mut self.probes[from];
                (probes.arrived, probes.last) = (probes.arrived + 1, Some(number));
                continue;
            }
            let Some(expected) = self.arrived[from].get(pair).copied() else {
                bail!("guest {at} received a frame from pair {pair}, which does not exist: {frame:?}")
            };
            let right = self.frame(from, pair, expected, frame.len());
            ensure!(
                *frame == right,
                "guest {at} received {} bytes that are not packet {expected} of pair {pair}: {:?}",
                frame.len(),
                &frame[..HEADER_LEN]
            );
            self.arrived[from][pair] += 1;
        }
        Ok(frames.len())
    }

    /// Waits until both guests have all their transmit buffers.
    pub(crate) fn wait_free_buffers(&mut self) -> Result<()> {
        for pair in self.guests.iter_mut().flat_map(|guest| guest.pairs()) {
            let all = proc::until_moved("all transmit buffers have come back", || {
                pair.flush();
                Ok((pair.spare() == usize::from(pair.size())).then_some(()))
            });
            all.with_context(|| format!("{} of {} transmit buffers came back", pair.spare(), pair.size()))?;
        }
        Ok(())
    }
}

fn take(pair: &mut Pair, at: usize, frames: &mut Vec<(usize, Vec<u8>)>) {
    let level = pair.level();
    pair.receive(64, |_, buffers| {
        let mut frame = Vec::new();
        for buffer in buffers {
            let from = frame.len();
            frame.resize(from + buffer.len() as usize, 0);
            buffer.read(level, &mut frame[from..]);
        }
        frames.push((at, frame));
    });
}
