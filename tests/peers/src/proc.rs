//! A child process in a process group of its own. Its output goes to memory and to a log file, and
//! it always ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal};

/// Limit of each wait. Only a failing test waits so long, so it allows for emulated guests on the busiest
/// machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Set by SIGINT, SIGTERM and SIGHUP. Every wait then ends with an error, and the guards stop all
/// processes.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into an error of the test that is running.
pub(crate) fn catch_interrupts() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Returns true if a signal asked the harness to end.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Sleeps in small steps. Returns an error if the harness is interrupted.
pub(crate) fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        if interrupted() {
            bail!("interrupted");
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Calls `probe` every 50 ms until it returns a value. The error contains `what`, the event that
/// did not happen.
pub(crate) fn until<T>(what: &str, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(PATIENCE, what, probe)
}

/// Waits as [`until`] does, with another limit: for work that takes long by itself, or for a report.
pub(crate) fn until_within<T>(limit: Duration, what: &str, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    ask(limit, Duration::from_millis(50), what, probe)
}

/// Waits as [`until`] does, for packets that the test itself moves. It pauses only so long that the
/// switch, which may share our CPU, runs.
pub(crate) fn until_moved<T>(what: &str, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    ask(PATIENCE, Duration::from_micros(20), what, probe)
}

fn ask<T>(limit: Duration, between: Duration, what: &str, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() > end {
            bail!("this did not happen within {} s: {what}", limit.as_secs());
        }
        pause(between)?;
    }
}

/// Characters of a child's output in the error of a wait for a text.
const SHOWN: usize = 500;

/// The output of a child so far.
#[derive(Default)]
struct Output {
    text: Mutex<String>,
    grown: Condvar,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running child. Dropping it kills its whole process group.
pub(crate) struct Proc {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: Arc<Output>,
    // Separate, because two streams in one text would split each other's lines.
    errors: Arc<Output>,
}

impl Proc {
    /// Starts `command` with standard output and error copied to `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let mut file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        writeln!(file, "# {command:?}")?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        let output = Arc::new(Output::default());
        let errors = Arc::new(Output::default());
        if let Some(stream) = child.stdout.take() {
            collect(stream, file.try_clone()?, &output);
        }
        if let Some(stream) = child.stderr.take() {
            collect(stream, file, &errors);
        }
        Ok(Self { name: name.to_owned(), stdin: child.stdin.take(), child, output, errors })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time (user and system) of the process, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // The second field, the name, may contain spaces; utime and stime are fields 14 and 15
        // (proc(5)).
        let (_, rest) = stat.rsplit_once(") ").context("/proc/PID/stat contains no name")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |n: usize| {
            Ok::<u64, anyhow::Error>(fields.get(n - 3).context("/proc/PID/stat has too few fields")?.parse()?)
        };
        Ok(field(14)? + field(15)?)
    }

    /// Returns the state of the process for the report of a failure: whether it sleeps, its signals,
    /// its CPU time, and the bytes of its standard input that it has not read.
    pub(crate) fn state(&self) -> String {
        let unread = self.stdin.as_ref().and_then(|stdin| rustix::io::ioctl_fionread(stdin).ok());
        let folder = Path::new("/proc").join(self.id().to_string());
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let status = read("status");
        let keys = ["State:", "SigPnd:", "ShdPnd:", "SigBlk:", "voluntary_ctxt_switches:"];
        let lines: Vec<String> = status
            .lines()
            .filter(|line| keys.iter().any(|key| line.starts_with(key)))
            .map(|line| line.replace('\t', " "))
            .collect();
        let wchan = read("wchan");
        let ticks = self.cpu_ticks().unwrap_or_default();
        format!("{}; in {wchan}; {ticks} ticks of 10 ms; {unread:?} bytes of its input unread", lines.join("; "))
    }

    /// Returns the length of its standard output so far: the position at which the next answer
    /// begins.
    pub(crate) fn mark(&self) -> usize {
        self.output.lock().len()
    }

    /// Returns its whole standard output and standard error.
    pub(crate) fn texts(&self) -> (String, String) {
        (self.output.lock().clone(), self.errors.lock().clone())
    }

    /// Writes a line to the standard input of the process.
    pub(crate) fn send_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("standard input is closed")?;
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdin.flush())
            .with_context(|| format!("cannot write to the standard input of {}", self.name))
    }

    /// Waits until `find` returns a value for its standard output after `mark`.
    pub(crate) fn wait_text<T>(&mut self, what: &str, mark: usize, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.wait_text_within(PATIENCE, what, mark, find)
    }

    /// Waits as [`Self::wait_text`] does, with another limit.
    pub(crate) fn wait_text_within<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mark: usize,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            // Ask for the end first, so that the last output of an ended process is still searched.
            let ended = self.child.try_wait()?;
            if ended.is_some() {
                std::thread::sleep(Duration::from_millis(100));
            }
            {
                let text = self.output.lock();
                if let Some(value) = find(text.get(mark..).unwrap_or_default()) {
                    return Ok(value);
                }
                if ended.is_none() {
                    let step = Duration::from_millis(50);
                    drop(self.output.grown.wait_timeout(text, step).unwrap_or_else(PoisonError::into_inner));
                }
            }
            if let Some(status) = ended {
                bail!("{} ended ({status}) before {what}", self.name);
            }
            if interrupted() {
                bail!("interrupted");
            }
            if Instant::now() > end {
                let text = self.output.lock();
                let since = text.get(mark..).unwrap_or_default();
                let shown = since.char_indices().rev().nth(SHOWN).map_or(since, |(at, _)| &since[at..]);
                bail!("{}: this did not happen within {} s: {what}; it wrote {shown:?}", self.name, limit.as_secs());
            }
        }
    }

    /// Returns the exit status, or `None` while the process runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends a signal to the process, not to its group.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(rustix::process::kill_process(self.pid()?, signal)?)
    }

    /// Waits until the process has ended.
    pub(crate) fn wait_end(&mut self) -> Result<ExitStatus> {
        self.wait_end_within(PATIENCE)
    }

    /// Waits until the process has ended, with another limit.
    pub(crate) fn wait_end_within(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} ends", self.name);
        until_within(limit, &what, || self.ended())
    }

    /// Kills the process and its group.
    pub(crate) fn kill(&mut self) {
        // An error means that the group has already ended.
        if let Ok(pid) = self.pid() {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.child.id())?).ok_or_else(|| anyhow!("no process id"))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a command that runs `program` by the command `prefix`, or by itself if that is empty.
pub(crate) fn command(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    let [first, rest @ ..] = prefix else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Runs a command to its end, and returns its exit code, standard output and standard error.
pub(crate) fn run(command: &mut Command) -> Result<(Option<i32>, String, String)> {
    run_within(PATIENCE, command)
}

/// Runs a command as [`run`] does, with another limit.
pub(crate) fn run_within(limit: Duration, command: &mut Command) -> Result<(Option<i32>, String, String)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let out = child.stdout.take();
    let err = child.stderr.take();
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // After an error, the text so far is the output; the exit code shows a failure.
            let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(out.map(|s| Box::new(s) as Box<dyn Read + Send>));
    let err = reader(err.map(|s| Box::new(s) as Box<dyn Read + Send>));
    let status = until_within(limit, &format!("{command:?} ends"), || Ok(child.try_wait()?));
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok((status?.code(), text(out), text(err)))
}

fn collect(mut from: impl Read + Send + 'static, mut log: File, output: &Arc<Output>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut bytes = [0_u8; 4096];
        while let Ok(n) = from.read(&mut bytes) {
            let Some(got) = bytes.get(..n).filter(|got| !got.is_empty()) else {
                break;
            };
            // The log is only for people: a full disk must not change the result of a test.
            let _ = log.write_all(got);
            let text = String::from_utf8_lossy(got).replace('\r', "");
            output.lock().push_str(&text);
            output.grown.notify_all();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_talks_and_its_group_dies_with_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo child $!; read line; echo got $line; exit 3"]);
        let mut child = Proc::start("sh", command, &log).expect("starts");
        let waiter: u32 = child
            .wait_text("its child's id", 0, |t| t.strip_prefix("child ")?.lines().next()?.parse().ok())
            .expect("speaks");
        child.send_line("hello").expect("listens");
        child.wait_text("an answer", 0, |t| t.contains("got hello").then_some(())).expect("answers");
        assert_eq!(child.wait_end().expect("ends").code(), Some(3));
        let error = child.wait_text("more", child.mark(), |_| None::<()>).expect_err("it has ended");
        assert!(error.to_string().contains("ended"), "{error}");
        drop(child);
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{waiter}/stat")).unwrap_or_default();
            Ok((stat.is_empty() || stat.contains(") Z ")).then_some(()))
        };
        until("the grandchild is gone", gone).expect("killed with its group");
        assert!(std::fs::read_to_string(log).expect("a log").contains("got hello"));
    }

    #[test]
    fn run_gives_code_and_both_streams() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 7"]);
        let got = run(&mut command).expect("runs");
        assert_eq!(got, (Some(7), "out\n".to_owned(), "err\n".to_owned()));
    }

    #[test]
    fn run_ends_what_takes_too_long() {
        let error = run_within(Duration::ZERO, Command::new("sleep").arg("600")).expect_err("too long");
        assert!(error.to_string().contains("not happen within"), "{error}");
    }
}
