//! Sends the frames of a capture unchanged, and compares the returned frames with them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use az::SaturatingAs;
use serde::Serialize;
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::{Endpoint, EventLoop, Received, TestPort};
use straightline_virtio::net_header::NetHeader;

use super::rate::Rate;
use crate::convert::{float, seconds};
use crate::traffic::capture::{Capture, Captured};

/// The most packets that a turn sends through a port, and takes from a port.
const BURST: usize = 64;

/// If a frame is later than this, all following frames are delayed by the same time.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Time to wait for duplicates after all frames have returned.
const STRAGGLERS: Duration = Duration::from_millis(10);

/// If a port takes nothing for this time, it counts as one that will never take the next frame.
const PATIENCE: Duration = Duration::from_secs(2);

/// The times at which frames are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The captured times, at this multiple of the captured speed.
    Captured(f64),
    /// This rate.
    Rate(Rate),
}

/// Results of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Frames that were sent.
    pub sent: u64,
    /// Number of sent frames that returned with the same bytes.
    pub identical: u64,
    /// Number of frames that came again after they had returned as often as they were sent.
    pub duplicates: u64,
    /// Number of received frames that differ from every sent frame.
    pub different: u64,
    /// Seconds from the first frame to the last.
    pub secs: f64,
    /// Seconds by which the last frame was late, because the port or this process did not keep up.
    pub late_secs: f64,
}

impl Replayed {
    /// Returns the number of sent frames that have not returned unchanged.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.identical)
    }

    /// Describes what is wrong with the received frames; `None` if each frame returned once,
    /// unchanged.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let wrong = [
            (self.lost(), "did not return unchanged"),
            (self.duplicates, "returned more often than sent"),
            (self.different, "were never sent"),
        ];
        let wrong: Vec<_> =
            wrong.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!wrong.is_empty()).then(|| format!("{} frames were sent: {}", self.sent, wrong.join(", ")))
    }
}

/// A replay: sends a capture's frames through the first port, and receives on all ports.
#[derive(Debug)]
pub struct Replay<P> {
    ports: Vec<P>,
    /// Each frame with its sending time, in cycles after the first frame.
    frames: Vec<(u64, Vec<u8>)>,
    /// The number of repetitions, and the seconds that each repetition takes.
    times: usize,
    lap: f64,
    /// For each frame, how often it was sent and how often it returned.
    balance: HashMap<Vec<u8>, [u64; 2]>,
    next: usize,
    /// The number of finished repetitions, and the end of the last one, in cycles after the first
    /// frame.
    laps: usize,
    lap_due: u64,
    /// The sending time of the first frame. A delay of all following frames is added to it.
    start: Option<u64>,
    first: u64,
    last: u64,
    /// The time of the last return of a frame that was still missing.
    heard: u64,
    /// The time since which the port does not take the next frame; `None` if it does.
    stuck: Option<u64>,
    /// True if frames have sending times; false at maximum rate.
    paced: bool,
    catch_up: u64,
    patience: u64,
    quiet: u64,
    stragglers: u64,
    hertz: f64,
    /// Received frames, if they are kept.
    kept: Option<Vec<Captured>>,
    scratch: Vec<u8>,
    report: Replayed,
    over: bool,
}

impl<P: TestPort> Replay<P> {
    /// Makes a replay that sends a capture `times` times. After the last frame was sent, the replay
    /// ends when no missing frame has returned for `quiet`. If all frames have returned, it ends a
    /// hundredth of a second later. Other frames, which may come forever, do not prolong it.
    /// Received frames are kept if `keep` is set.
    ///
    /// # Errors
    /// There is no port, or a frame cannot be sent.
    pub fn new(
        ports: Vec<P>,
        capture: &Capture,
        timing: Timing,
        times: usize,
        quiet: Duration,
        keep: bool,
    ) -> anyhow::Result<Replay<P>> {
        ensure!(!ports.is_empty(), "a replay needs a port");
        for (number, frame) in (1..).zip(&capture.frames) {
            let len = frame.bytes.len();
            ensure!(
                len >= 14,
                "frame {number} has {len} bytes: a frame needs at least the 14 bytes of an Ethernet header"
            );
        }
        let hertz = hertz();
        let (frames, lap) = schedule(capture, timing, hertz);
        Ok(Replay {
            ports,
            balance: frames.iter().map(|(_, frame)| (frame.clone(), [0, 0])).collect(),
            times: if frames.is_empty() { 0 } else { times },
            lap,
            next: 0,
            laps: 0,
            lap_due: 0,
            start: None,
            first: 0,
            last: 0,
            heard: 0,
            stuck: None,
            paced: timing != Timing::Rate(Rate::Max),
            catch_up: cycles(CATCH_UP.as_secs_f64() * hertz),
            patience: cycles(PATIENCE.as_secs_f64() * hertz),
            quiet: cycles(quiet.as_secs_f64() * hertz),
            stragglers: cycles(quiet.min(STRAGGLERS).as_secs_f64() * hertz),
            hertz,
            kept: keep.then(Vec::new),
            scratch: Vec::new(),
            report: Replayed::default(),
            over: false,
            frames,
        })
    }

    /// Returns the results so far, and the received frames with times in nanoseconds since the
    /// first frame was sent.
    #[must_use]
    pub fn report(self) -> (Replayed, Vec<Captured>) {
        (self.report, self.kept.unwrap_or_default())
    }

    /// Runs the replay to its end, or until `stop` is set. If `cpu` is set, the calling thread is
    /// pinned to this CPU meanwhile. If the run ends with an error, the results so far are returned
    /// beside the error.
    pub fn run(mut self, cpu: Option<usize>, stop: &AtomicBool) -> (Replayed, Vec<Captured>, anyhow::Result<()>) {
        let events = EventLoop { cpu, stop: Some(stop), ..EventLoop::default() };
        let (_, ended) = events.run(&mut [&mut self]);
        let ended = ended.and_then(|_| if self.over { Ok(()) } else { Err(anyhow!("interrupted")) });
        let (report, kept) = self.report();
        (report, kept, ended)
    }

    fn send(&mut self, now: u64) -> anyhow::Result<usize> {
        let mut count = 0;
        while count < BURST {
            let Some((due, frame)) = self.frames.get(self.next).filter(|_| self.laps < self.times) else { break };
            let start = *self.start.get_or_insert(now);
            let due = due.saturating_add(self.lap_due);
            let Some(late) = now.saturating_sub(start).checked_sub(due) else { break };
            if !self.ports[0].send(self.next, &NetHeader::default(), frame, &[]) {
                let since = *self.stuck.get_or_insert(now);
                if now.saturating_sub(since) > self.patience {
                    let number = self.next + 1;
                    let len = frame.len();
                    bail!(
                        "frame {number}, of {len} bytes, could not be sent: the port takes no more frames, or none \
                     of this length"
                    );
                }
                break;
            }
            self.stuck = None;
            if let Some([sent, _]) = self.balance.get_mut(frame.as_slice()) {
                *sent += 1;
            }
            if self.next == 0 && self.laps == 0 {
                self.first = now;
            }
            if let Some(shift) = late.checked_sub(self.catch_up).filter(|_| self.paced) {
                // All following frames are delayed by the same time.
                self.start = Some(start + shift);
                self.report.late_secs += seconds(shift, self.hertz);
            }
            self.next += 1;
            if self.next == self.frames.len() {
                (self.next, self.laps) = (0, self.laps + 1);
                self.lap_due = cycles(float(u64::try_from(self.laps)?) * self.lap * self.hertz);
            }
            self.last = now;
            count += 1;
        }
        // This call also reports what the port found wrong with the frames to send.
        self.ports[0].flush()?;
        if count > 0 {
            self.report.sent += u64::try_from(count)?;
            self.report.secs = seconds(self.last - self.first, self.hertz);
        }
        Ok(count)
    }

    fn receive(&mut self, now: u64) -> anyhow::Result<usize> {
        let Replay { ports, balance, kept, scratch, report, first, hertz, .. } = self;
        let mut moved = 0;
        let before = report.identical;
        for port in ports {
            moved += port.receive(BURST, &mut |frame: &dyn Received| {
                scratch.resize(frame.len(), 0);
                let read = frame.read(0, scratch);
                scratch.truncate(read);
                match balance.get_mut(scratch.as_slice()) {
                    Some([sent, come]) if *come < *sent => {
                        *come += 1;
                        report.identical += 1;
                    }
                    Some(_) => report.duplicates += 1,
                    None => report.different += 1,
                }
                if let Some(kept) = kept {
                    let since = seconds(now.saturating_sub(*first), *hertz) * 1e9;
                    kept.push(Captured { at: cycles(since), bytes: scratch.clone() });
                }
            })?;
        }
        // Only missing frames prolong the wait: they come at most as often as they were sent. Other
        // frames and duplicates may come forever.
        if self.report.identical > before {
            self.heard = now;
        }
        Ok(moved)
    }
}

impl<P: TestPort> Endpoint for Replay<P> {
    fn turn(&mut self, now: u64) -> anyhow::Result<usize> {
        let moved = self.receive(now)? + self.send(now)?;
        let all = self.laps == self.times;
        let none_lost = self.report.lost() == 0;
        let silence = now.saturating_sub(self.heard.max(self.last));
        // A backend may only pause. Frames that it has not taken yet are not lost.
        self.over = all
            && silence >= if none_lost { self.stragglers } else { self.quiet }
            && (none_lost || silence >= self.patience || !self.ports[0].is_sending()?);
        Ok(moved)
    }

    fn wake(&mut self) {
        self.ports.iter_mut().for_each(TestPort::wake);
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.ports.iter_mut().try_for_each(|port| port.check().context("while a capture was replayed"))
    }

    /// Returns whether all frames were sent and no more frames are expected.
    fn is_over(&self) -> bool {
        self.over
    }
}

/// Returns the sending time of each frame, in cycles after the first frame, and the seconds after
/// which the capture repeats.
fn schedule(capture: &Capture, timing: Timing, hertz: f64) -> (Vec<(u64, Vec<u8>)>, f64) {
    let first = capture.frames.first().map_or(0, |frame| frame.at);
    let since = |frame: &Captured| float(frame.at.saturating_sub(first)) / 1e9;
    let mut clock = 0.0_f64;
    let to_packet = |frame: &Captured| {
        let due = match timing {
            // Times in a capture may go back. Sending times do not.
            Timing::Captured(speed) => clock.max(since(frame) / speed),
            Timing::Rate(_) => clock,
        };
        let len = float(frame.bytes.len().saturating_as::<u64>());
        clock = match timing {
            Timing::Captured(_) => due,
            Timing::Rate(rate) => clock + rate.pps(len).map_or(0.0, |pps| 1.0 / pps),
        };
        (cycles(due * hertz), frame.bytes.clone())
    };
    let frames: Vec<_> = capture.frames.iter().map(to_packet).collect();
    // The next repetition begins one mean gap after the last frame.
    let gaps = float(u64::try_from(frames.len()).unwrap_or(1)).max(2.0) - 1.0;
    let lap = match timing {
        Timing::Captured(_) => clock + clock / gaps,
        Timing::Rate(_) => clock,
    };
    (frames, lap)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn cycles(n: f64) -> u64 {
    n.round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::Echo;
    use super::*;
    use straightline_guest::endpoints::Receiver;

    /// Frames at 0, 100 and 300 microseconds, the third before the second.
    fn capture() -> Capture {
        let frame = |at: u64, byte: u8, len: usize| Captured { at: 1_000_000_000_000 + at, bytes: vec![byte; len] };
        Capture { frames: vec![frame(0, 1, 60), frame(300_000, 2, 1000), frame(100_000, 3, 61)], shortened: 0 }
    }

    fn run(timing: Timing, times: usize) -> (Replayed, Vec<Captured>) {
        run_by(Echo::default(), timing, times)
    }

    fn run_by<P: TestPort>(port: P, timing: Timing, times: usize) -> (Replayed, Vec<Captured>) {
        let mut replay =
            Replay::new(vec![port], &capture(), timing, times, Duration::from_millis(1), true).expect("a replay");
        let hertz = hertz();
        for turn in 0..100_000_u32 {
            replay.turn(1_000_000 + cycles(f64::from(turn) * 1e-6 * hertz)).expect("a turn");
            if replay.is_over() {
                return replay.report();
            }
        }
        panic!("after a tenth of a second it is not over: {:?}", replay.report().0)
    }

    #[test]
    fn a_capture_comes_back_byte_for_byte() {
        let (report, kept) = run(Timing::Captured(1.0), 1);
        assert_eq!((report.sent, report.identical, report.duplicates, report.different), (3, 3, 0, 0));
        let bytes: Vec<_> = kept.into_iter().map(|frame| frame.bytes).collect();
        assert_eq!(bytes, capture().frames.into_iter().map(|frame| frame.bytes).collect::<Vec<_>>());
        assert!((report.secs - 300e-6).abs() < 5e-6, "{report:?}");
        let (report, _) = run(Timing::Captured(10.0), 2);
        // Two repetitions of 30, with a mean gap of 15 between them.
        assert!(report.sent == 6 && (report.secs - 75e-6).abs() < 5e-6, "{report:?}");
        let (report, _) = run(Timing::Rate(Rate::Pps(1e5)), 4);
        assert!(report.sent == 12 && (report.secs - 110e-6).abs() < 5e-6, "{report:?}");
        let (report, _) = run(Timing::Rate(Rate::Max), 2);
        assert!(report.secs < 1e-6 && report.identical == 6 && report.late_secs < 1e-6, "{report:?}");
    }

    /// A port whose frames return with faults. The fields have the numbers, from 1 on, of the
    /// frames that are lost, changed, or returned again later. The port may also receive foreign
    /// frames, forever.
    #[derive(Default)]
    struct Faulty {
        echo: Echo,
        lost: usize,
        changed: usize,
        again: usize,
        sent: usize,
        /// A duplicate, and the number of calls of `receive` before it comes.
        later: Option<(usize, Vec<u8>)>,
        chatters: bool,
    }

    impl TestPort for Faulty {
        fn free_buffers(&mut self) -> usize {
            self.echo.free_buffers()
        }

        fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
            self.sent += 1;
            if self.sent == self.lost {
                return true;
            }
            let mut frame = frame.to_vec();
            if self.sent == self.changed {
                frame[20] ^= 1;
            }
            let sent = self.echo.send(template, header, &frame, patches);
            if self.sent == self.again {
                self.later = Some((100, frame));
            }
            sent
        }

        fn flush(&mut self) -> anyhow::Result<()> {
            self.echo.flush()
        }

        fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
            match self.later.take() {
                Some((0, frame)) => assert!(self.echo.send(99, &NetHeader::default(), &frame, &[])),
                later => self.later = later.map(|(calls, frame)| (calls - 1, frame)),
            }
            if self.chatters {
                assert!(self.echo.send(98, &NetHeader::default(), &[0xff; 60], &[]));
            }
            self.echo.receive(most, each)
        }
    }

    #[test]
    fn what_does_not_come_back_as_it_was_is_counted_and_said() {
        let (report, _) =
            run_by(Faulty { lost: 1, changed: 2, again: 3, ..Faulty::default() }, Timing::Captured(1.0), 1);
        assert_eq!((report.sent, report.identical, report.lost()), (3, 1, 2));
        assert_eq!((report.duplicates, report.different), (1, 1));
        let fault = report.fault().expect("it is not as it was");
        assert!(
            fault.starts_with("3 frames") && fault.contains("2 did not") && fault.contains("1 returned more"),
            "{fault}"
        );
        assert!(fault.ends_with("1 were never sent"), "{fault}");
        // The duplicate of the last frame comes when all frames have returned.
        let (report, _) = run_by(Faulty { again: 3, ..Faulty::default() }, Timing::Captured(1.0), 1);
        assert_eq!((report.identical, report.duplicates), (3, 1));
        assert_eq!(report.fault().expect("one came twice"), "3 frames were sent: 1 returned more often than sent");
        assert_eq!(run(Timing::Captured(1.0), 1).0.fault(), None);
    }

    #[test]
    fn it_ends_whatever_else_comes() {
        for lost in [0, 1] {
            let port = Faulty { chatters: true, lost, ..Faulty::default() };
            let (report, _) = run_by(port, Timing::Captured(1.0), 1);
            assert_eq!((report.sent, report.lost() == 1, report.duplicates), (3, lost == 1, 0));
            assert!(report.different > 1000, "{report:?}");
        }
    }

    #[test]
    fn a_capture_that_is_sent_for_ever_is_held_once() {
        let ports = vec![Echo::default()];
        let timing = Timing::Rate(Rate::Pps(1e6));
        let mut replay = Replay::new(ports, &capture(), timing, usize::MAX, Duration::ZERO, false).expect("a replay");
        let start = 1_000_000;
        (0..=1000_u32).for_each(|n| _ = replay.turn(start + cycles(f64::from(n) * 1e-6 * hertz())).expect("a turn"));
        assert!(!replay.is_over());
        let (report, _) = replay.report();
        assert!(report.sent.abs_diff(1001) <= 1 && report.duplicates == 0 && report.different == 0, "{report:?}");
    }

    #[test]
    fn frames_that_are_none_are_refused() {
        let runt = Capture { frames: vec![Captured { at: 0, bytes: vec![0; 13] }], shortened: 0 };
        let ports = vec![Echo::default()];
        let error = Replay::new(ports, &runt, Timing::Captured(1.0), 1, Duration::ZERO, false).expect_err("a runt");
        assert!(error.to_string().contains("frame 1 has 13 bytes"), "{error}");
        let none: Vec<Echo> = Vec::new();
        assert!(Replay::new(none, &capture(), Timing::Captured(1.0), 1, Duration::ZERO, false).is_err());
    }
}
