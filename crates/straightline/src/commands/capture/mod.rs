//! `straightline capture`: packets of ports of a running switch, as pcapng.

mod file;
mod order;
mod rotation;

use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use az::SaturatingAs;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use straightline_api::StreamEnd;
use straightline_capture::pcapng::{Direction, Interface, Statistics, Writer};
use straightline_capture::record::{Packet, Place, Record};
use straightline_graph::Clock;
use straightline_switch::api::{self, CaptureRequest, Request, StreamReader};

use crate::cli::{Capture, CaptureDirection};
use crate::output;
pub(super) use file::write_to_pipe;
use file::{CaptureFile, WriteError, handle_size_limit};
use order::Order;
use rotation::Rotation;

/// Time at the end for packets that are on their way. The switch looks for them every 5 ms.
const END_TIME: Duration = Duration::from_millis(100);

/// Ticks at the end after which all earlier packets are here.
const END_TICKS: u32 = 3;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

pub(crate) fn execute(args: &Capture) -> anyhow::Result<()> {
    let to_stdout = args.write.as_deref().is_none_or(|path| path == Path::new("-"));
    ensure!(
        !to_stdout || !std::io::stdout().is_terminal(),
        "standard output is a terminal: write to a file with `-w FILE`, or send the packets to a program, for \
         example `straightline capture {} | tshark -r -`",
        args.ports.join(" ")
    );
    ensure!(
        !to_stdout || args.rotate_size.is_none(),
        "--rotate-size makes several files: name them with `-w FILE`, not standard output"
    );
    // Signal handlers are set up first, so that even an early signal is not lost.
    let is_stuck = Arc::new(AtomicBool::new(false));
    let signalled = signals(&is_stuck)?;
    let filter = args.filter.as_ref().map(ToString::to_string);
    let (received, delivered) = match args.direction {
        Some(CaptureDirection::In) => (true, false),
        Some(CaptureDirection::Out) => (false, true),
        Some(CaptureDirection::Both) => (true, true),
        None => (args.dropped.is_none(), args.dropped.is_none()),
    };
    let ports = args.ports.clone();
    let dropped = args.dropped.clone();
    let request = CaptureRequest { ports, received, delivered, dropped, filter, snaplen: args.snaplen };
    let stream = api::stream(&args.api, &Request::Capture(request.clone()))?;
    let answer: api::Capture = serde_json::from_str(stream.answer()).context("the switch's answer has another form")?;
    handle_size_limit()?;
    let mut rotation = None;
    let file = match (&args.write, args.rotate_size) {
        (Some(path), Some(size)) => {
            let rotation = rotation.insert(Rotation::new(path, size, args.files));
            CaptureFile::create(&rotation.next(), is_stuck)?
        }
        (Some(path), None) if !to_stdout => CaptureFile::create(path, is_stuck)?,
        _ => CaptureFile::stdout(is_stuck),
    };
    let mut session = Session::begin(answer, file, rotation, request, args)?;
    let done = session.run(stream, &signalled);
    session.end(done)
}

/// Returns a socket that is readable after SIGINT or SIGTERM. While `is_stuck` is set, a signal ends
/// the process at once.
pub(super) fn signals(is_stuck: &Arc<AtomicBool>) -> anyhow::Result<UnixStream> {
    let (signalled, write) = UnixStream::pair().context("cannot set up signal handlers")?;
    for signal in [SIGTERM, SIGINT] {
        let is_stuck = Arc::clone(is_stuck);
        signal_hook::flag::register_conditional_shutdown(signal, 1, is_stuck)
            .context("cannot set up signal handlers")?;
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("cannot set up signal handlers")?;
    }
    Ok(signalled)
}

/// Ends a stream after a signal, or when reading the socket of [`signals`] times out. Returns whether
/// that has happened.
pub(super) fn end_with_signal(mut signalled: UnixStream, ender: StreamEnd) -> Arc<AtomicBool> {
    let was_ended = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let was_ended = Arc::clone(&was_ended);
        move || {
            let signal = signalled.read(&mut [0]);
            let is_timeout = signal.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if is_timeout || signal.is_ok_and(|count| count > 0) {
                was_ended.store(true, Ordering::Relaxed);
                // After an error the stream has ended already.
                let _ = ender.end();
            }
        }
    });
    was_ended
}

/// A capture that runs.
struct Session {
    answer: api::Capture,
    writer: Writer<CaptureFile>,
    order: Order,
    /// The ports, as each file names them.
    interfaces: Vec<Interface>,
    request: CaptureRequest,
    statistics: Vec<Statistics>,
    /// Packets that may still be written.
    left: u64,
    /// The time at which the capture ends by itself.
    deadline: Option<Instant>,
    /// The further files, if the capture makes several.
    rotation: Option<Rotation>,
    /// The statistics when the present file began, and that time.
    before: Vec<Statistics>,
    began: u64,
    /// Packets in earlier files.
    earlier: u64,
    clock: Clock,
}

/// The way in which a capture ends.
enum End {
    /// The user has ended it, or it has as many packets as the user wants.
    Wanted,
    /// The reader of our output has gone.
    ReaderGone,
    /// The switch has closed the connection.
    SwitchGone,
}

impl Session {
    /// Starts the file.
    fn begin(
        answer: api::Capture,
        file: CaptureFile,
        rotation: Option<Rotation>,
        request: CaptureRequest,
        args: &Capture,
    ) -> anyhow::Result<Self> {
        let interface =
            |port: &api::CaptureInterface| Interface { name: port.name.clone(), description: port.kind.clone() };
        let interfaces: Vec<_> = answer.interfaces.iter().map(interface).collect();
        let names: Vec<_> = answer.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        output::message("capturing", &format_args!("{}; end with Ctrl-C", names.join(", ")));
        let clock = Clock::real();
        let deadline = args.seconds.map(|time| clock.now() + time);
        let writer = start_file(file, &interfaces, &request)?;
        let statistics = vec![Statistics::default(); interfaces.len()];
        let before = statistics.clone();
        let order = Order::new(answer.workers);
        let left = args.count.unwrap_or(u64::MAX);
        let began = nanoseconds(&clock);
        Ok(Session {
            answer,
            writer,
            order,
            interfaces,
            request,
            statistics,
            left,
            deadline,
            rotation,
            before,
            began,
            earlier: 0,
            clock,
        })
    }

    /// Ends the file and begins another one, if it is full.
    fn rotate_if_full(&mut self) -> anyhow::Result<()> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        let file = self.writer.get_mut();
        if !file.has_packets() || !rotation.is_full(file.len()) {
            return Ok(());
        }
        let path = rotation.next();
        let is_stuck = file.is_stuck();
        self.finish()?;
        self.earlier += self.writer.get_mut().packets();
        self.writer = start_file(CaptureFile::create(&path, is_stuck)?, &self.interfaces, &self.request)?;
        (self.before, self.began) = (self.statistics.clone(), nanoseconds(&self.clock));
        Ok(())
    }

    /// Receives records until the capture ends.
    fn run(&mut self, mut stream: StreamReader, signalled: &UnixStream) -> anyhow::Result<End> {
        let mut input = Vec::with_capacity(2 * CHUNK);
        // The end that the user wants, and the ticks until then.
        let mut ending: Option<(Instant, u32)> = None;
        loop {
            if let Some((deadline, ticks)) = ending
                && (ticks >= END_TICKS || self.clock.now() >= deadline)
            {
                return Ok(End::Wanted);
            }
            if ending.is_none() && self.deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
                ending = Some((self.clock.now() + END_TIME, 0));
            }
            let has_more = !stream.buffered().is_empty();
            if !has_more && let Some(end) = self.hand_over()? {
                return Ok(end);
            }
            let until = match (has_more, ending) {
                (true, _) => Some(self.clock.now()),
                (false, Some((deadline, _))) => Some(deadline),
                (false, None) => self.deadline,
            };
            let mut fds = vec![PollFd::new(signalled, PollFlags::IN), PollFd::new(&stream, PollFlags::IN)];
            // Without this, a capture of a quiet port would outlive its reader until the next packet.
            fds.extend(self.writer.get_mut().fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty())));
            match self.clock.poll(&mut fds, until) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for packets"),
            }
            let [is_signalled, is_readable, has_no_reader] =
                std::array::from_fn(|n| fds.get(n).is_some_and(|fd| !fd.revents().is_empty()));
            if has_no_reader {
                return Ok(End::ReaderGone);
            }
            if is_signalled && ending.is_none() {
                let _ = (&*signalled).read(&mut [0; 8]);
                ending = Some((self.clock.now() + END_TIME, 0));
            }
            if has_more || is_readable {
                let from = input.len();
                input.resize(from + CHUNK, 0);
                let count = stream.read(&mut input[from..]);
                input.truncate(from + count.as_ref().map_or(0, |count| *count));
                match count {
                    Ok(0) => return Ok(End::SwitchGone),
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(End::SwitchGone),
                    Err(error) => return Err(error).context("cannot read from the switch"),
                }
                let ticks = self.take(&mut input)?;
                if let Some(end) = self.hand_over_if_long()? {
                    return Ok(end);
                }
                if self.left == 0 && ending.is_none() {
                    // The counts of the last packets are on their way.
                    ending = Some((self.clock.now() + END_TIME, 0));
                } else if let Some((_, counted)) = &mut ending {
                    *counted += ticks;
                }
            }
        }
    }

    /// Takes all whole records from the beginning of `input`. Returns the number of ticks.
    fn take(&mut self, input: &mut Vec<u8>) -> anyhow::Result<u32> {
        let mut at = 0;
        let mut ticks = 0;
        while let Some((record, len)) = Record::parse(&input[at..]).context("the switch sent something else")? {
            at += len;
            match record {
                Record::Packet(packet) if self.order.is_needed() => self.order.add(&packet),
                Record::Packet(packet) => self.write(&packet)?,
                Record::Counts { interface, selected, missed } => {
                    if let Some(statistics) = self.statistics.get_mut(usize::from(interface)) {
                        (statistics.selected, statistics.missed) = (selected, missed);
                    }
                }
                Record::Port { interface, is_present } => self.tell_port(interface, is_present),
                Record::Tick { time } => {
                    ticks += 1;
                    self.order.tick(time);
                }
                Record::Nothing => {}
            }
            while let Some(packet) = self.order.next() {
                self.write(&packet.as_packet())?;
            }
        }
        input.drain(..at);
        Ok(ticks)
    }

    /// Adds a packet to the file.
    fn write(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        if self.left > 0 {
            self.rotate_if_full()?;
        }
        let Some(statistics) = self.statistics.get_mut(usize::from(packet.interface)) else {
            bail!("the switch sent a packet of interface {}, which was not asked for", packet.interface)
        };
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        statistics.written += 1;
        let reason = |reason: u8| self.answer.reasons.get(usize::from(reason)).map_or("unknown", String::as_str);
        let (direction, comment) = match packet.place {
            Place::Received => (Direction::Inbound, None),
            Place::Delivered => (Direction::Outbound, None),
            Place::Dropped { reason: why, on_way_in } => {
                let direction = if on_way_in { Direction::Inbound } else { Direction::Outbound };
                (direction, Some(format!("dropped: {}", reason(why))))
            }
        };
        let Packet { interface, time, len, bytes, .. } = *packet;
        self.writer.packet(interface.into(), time, len, bytes, direction, comment.as_deref())?;
        self.writer.get_mut().count_packet();
        Ok(())
    }

    fn tell_port(&self, interface: u16, is_present: bool) {
        if let Some(port) = self.answer.interfaces.get(usize::from(interface)) {
            if is_present {
                output::message("note", &format_args!("port {} is there again", port.name))
            } else {
                output::message("warning", &format_args!("port {} is gone; the capture waits for it", port.name))
            }
        }
    }

    /// Hands everything to the file. Returns the end of the capture if the file's reader has gone.
    fn hand_over(&mut self) -> Result<Option<End>, WriteError> {
        self.hand_over_beyond(0)
    }

    fn hand_over_if_long(&mut self) -> Result<Option<End>, WriteError> {
        self.hand_over_beyond(CHUNK)
    }

    fn hand_over_beyond(&mut self, len: usize) -> Result<Option<End>, WriteError> {
        match self.writer.get_mut().hand_over(len) {
            Ok(()) => Ok(None),
            Err(error) if error.is_broken_pipe() => Ok(Some(End::ReaderGone)),
            Err(error) => Err(error),
        }
    }

    /// Ends the file, and says how many packets it has.
    fn end(mut self, done: anyhow::Result<End>) -> anyhow::Result<()> {
        self.order.end();
        let done = done.and_then(|end| {
            while let Some(packet) = self.order.next() {
                self.write(&packet.as_packet())?;
            }
            Ok(end)
        });
        let missed: u64 = self.statistics.iter().map(|statistics| statistics.missed).sum();
        let finished = if done.is_ok() { self.finish() } else { Ok(()) };
        let written = self.earlier + self.writer.get_mut().packets();
        let parts = self.answer.interfaces.iter().zip(&self.statistics);
        let parts: Vec<_> = parts.map(|(port, of)| format!("{} {}", port.name, of.written)).collect();
        // After a fault, not all packets of the statistics are in the file.
        let parts = if parts.len() > 1 && done.is_ok() { format!(" ({})", parts.join(", ")) } else { String::new() };
        let advice = if missed > 0 { "; capture less with --filter or --snaplen" } else { "" };
        let packets = if written == 1 { "packet" } else { "packets" };
        let files = match self.rotation.as_ref().map_or(1, Rotation::made) {
            1 => String::new(),
            files => format!(", in {files} files"),
        };
        output::message("captured", &format_args!("{written} {packets}{parts}, {missed} missed{files}{advice}"));
        finished?;
        match done? {
            End::Wanted | End::ReaderGone => Ok(()),
            End::SwitchGone => {
                bail!("the switch has ended, or has closed the connection; the file is complete up to then")
            }
        }
    }

    /// Writes the end of the file: the statistics of its own time.
    fn finish(&mut self) -> anyhow::Result<()> {
        let of_file = |(now, before): (&Statistics, &Statistics)| Statistics {
            selected: now.selected.saturating_sub(before.selected),
            missed: now.missed.saturating_sub(before.missed),
            written: now.written.saturating_sub(before.written),
        };
        let of_file: Vec<_> = self.statistics.iter().zip(&self.before).map(of_file).collect();
        self.writer.statistics(&of_file, self.began, nanoseconds(&self.clock))?;
        match self.writer.get_mut().hand_over(0) {
            Err(error) if !error.is_broken_pipe() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Writes the header of a file.
fn start_file(
    file: CaptureFile,
    interfaces: &[Interface],
    request: &CaptureRequest,
) -> anyhow::Result<Writer<CaptureFile>> {
    let mut writer = Writer::new(file, interfaces, request.snaplen, request.filter.as_deref())?;
    match writer.get_mut().hand_over(0) {
        Err(error) if !error.is_broken_pipe() => Err(error.into()),
        _ => Ok(writer),
    }
}

/// Returns the time in nanoseconds since 1970.
fn nanoseconds(clock: &Clock) -> u64 {
    let since = clock.time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().saturating_as::<u64>()
}
