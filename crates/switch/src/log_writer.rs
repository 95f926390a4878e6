//! Writes log lines to a descriptor whose reader may stop reading, such as standard error.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

/// Bytes of lines that the queue holds at most.
const MAX_QUEUED_BYTES: usize = 256 << 10;

/// Writes log lines without blocking the thread that logs.
///
/// Until [`Self::start`], each line is written at once. From then on, lines wait in a bounded queue
/// for a thread that writes them. A line that finds the queue full is dropped and counted. The log
/// reports the count when it continues.
///
/// Each call of `write` on `&LogWriter` is one line, as `tracing_subscriber` writes them.
#[derive(Debug)]
pub struct LogWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    out: File,
    state: Mutex<State>,
    /// Signalled when the thread has work.
    work: Condvar,
    /// Signalled when the thread has no work left.
    idle: Condvar,
    /// The clock of [`LogWriter::flush`]. The thread waits for lines and for its reader only.
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    /// True once the thread runs.
    started: bool,
    lines: VecDeque<Vec<u8>>,
    /// Bytes in `lines`.
    bytes: usize,
    /// True while the thread works on something that it took.
    busy: bool,
    /// Lines dropped since the start.
    dropped: u64,
    /// Dropped lines that the log has reported.
    reported: u64,
}

/// The thread's next piece of work.
enum Work {
    Write(Vec<u8>),
    /// Report this number of lines dropped since the start.
    Report(u64),
}

impl LogWriter {
    /// Creates a writer to `out`.
    pub fn new(out: OwnedFd, clock: Clock) -> Self {
        LogWriter(Arc::new(Shared {
            out: out.into(),
            state: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            clock,
        }))
    }

    /// Starts the thread. It ends with the process.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.run())?;
        self.0.state().started = true;
        Ok(())
    }

    /// Waits until all lines are written, but at most for `limit`. Returns whether all lines are
    /// written.
    pub fn flush(&self, limit: Duration) -> bool {
        let Shared { idle, clock, .. } = &*self.0;
        clock.wait_while(idle, self.0.state(), clock.now() + limit, |state| !state.is_idle()).is_idle()
    }
}

impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if !state.started {
            drop(state);
            self.0.write(line);
        } else if state.push(line) {
            self.0.work.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn run(&self) {
        loop {
            match self.next() {
                Work::Write(line) => self.write(&line),
                // The report goes through the log, so that the line looks like the others.
                Work::Report(dropped) => {
                    tracing::warn!("{dropped} log lines were dropped since the start: standard error was not read");
                }
            }
        }
    }

    fn next(&self) -> Work {
        let mut state = self.state();
        state.busy = false;
        loop {
            if let Some(work) = state.take() {
                return work;
            }
            self.idle.notify_all();
            state = self.work.wait(state).ignore_poison();
        }
    }

    /// Writes the whole line, however long that takes.
    fn write(&self, mut line: &[u8]) {
        while !line.is_empty() {
            match (&self.out).write(line) {
                Ok(count) => line = line.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process has made the descriptor non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], None);
                }
                // An error cannot be reported: this is the log.
                Err(_) => return,
            }
        }
    }
}

impl State {
    /// Queues a line, or counts it as dropped. Returns whether the thread has work now.
    fn push(&mut self, line: &[u8]) -> bool {
        if self.bytes + line.len() > MAX_QUEUED_BYTES {
            self.dropped += 1;
            return false;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        true
    }

    /// Takes the next work. A report of dropped lines comes after the lines that were queued before
    /// them.
    fn take(&mut self) -> Option<Work> {
        let work = if let Some(line) = self.lines.pop_front() {
            self.bytes -= line.len();
            Work::Write(line)
        } else if self.reported < self.dropped {
            self.reported = self.dropped;
            Work::Report(self.dropped)
        } else {
            return None;
        };
        self.busy = true;
        Some(work)
    }

    fn is_idle(&self) -> bool {
        !self.busy && self.lines.is_empty() && self.reported == self.dropped
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A full pipe and the number of bytes in it.
    fn full_pipe() -> (io::PipeReader, OwnedFd, usize) {
        let (reader, writer) = io::pipe().unwrap();
        let size = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
        (&writer).write_all(&vec![b'x'; size]).unwrap();
        (reader, writer.into(), size)
    }

    #[test]
    fn lines_are_written_at_once_before_the_start() {
        let (mut reader, writer) = io::pipe().unwrap();
        let log = LogWriter::new(writer.into(), Clock::real());
        (&log).write_all(b"one\n").unwrap();
        let mut line = [0; 4];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"one\n");
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_dropped_is_counted() {
        let (mut reader, writer, size) = full_pipe();
        let log = LogWriter::new(writer, Clock::real());
        log.start().unwrap();
        // Write twice as many lines as the queue holds. The thread may have taken the first line or
        // not.
        let line = [&[b'y'; 1023][..], b"\n"].concat();
        let fits = MAX_QUEUED_BYTES / line.len();
        for _ in 0..2 * fits {
            (&log).write_all(&line).unwrap();
        }
        let dropped = log.0.state().dropped;
        assert!(dropped == fits as u64 || dropped + 1 == fits as u64, "{dropped}");
        assert!(log.0.state().bytes <= MAX_QUEUED_BYTES);
        assert!(!log.flush(Duration::ZERO), "a line is in the way");
        // Once a process reads, everything that was queued arrives.
        let queued = 2 * fits - usize::try_from(dropped).unwrap();
        let mut all = vec![0; size + queued * line.len()];
        reader.read_exact(&mut all).unwrap();
        assert!(all[size..].chunks(line.len()).all(|chunk| chunk == line));
        assert!(log.flush(Duration::from_secs(60)));
        assert_eq!(log.0.state().reported, dropped);
    }

    #[test]
    fn a_pipe_that_is_non_blocking_loses_nothing() {
        let (mut reader, writer, size) = full_pipe();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let log = LogWriter::new(writer, Clock::real());
        log.start().unwrap();
        (&log).write_all(b"late\n").unwrap();
        let mut all = vec![0; size + 5];
        reader.read_exact(&mut all).unwrap();
        assert_eq!(&all[size..], b"late\n");
    }

    #[test]
    fn a_reader_that_is_gone_is_no_obstacle() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let log = LogWriter::new(writer.into(), Clock::real());
        (&log).write_all(b"one\n").unwrap();
        log.start().unwrap();
        (&log).write_all(b"two\n").unwrap();
        assert!(log.flush(Duration::from_secs(60)));
    }
}
