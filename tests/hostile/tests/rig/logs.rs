//! Frontends that cause a log line and a reason with each message or connection, while the log is
//! not read.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use hostile::scene::Scene;
use straightline_guest::GuestOptions;
use straightline_packet::IgnorePoison;
use straightline_switch::LogWriter;
use straightline_testing::{BASIC, PATIENCE};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, Message, Request};

/// Name of the attacked port.
const NAME: &str = "flooded";
const PORT: usize = 4;

/// Lines that a port may log at once (`port/src/vhost_user/control/log_limit.rs`). After that, one line a
/// second.
const BURST: u64 = 20;

/// Lines about each port, by its name.
static LINES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn lines() -> MutexGuard<'static, BTreeMap<String, u64>> {
    LINES.lock().ignore_poison()
}

/// The lines about a port from now on. No other test has a port with its name.
pub(crate) struct LogLines {
    name: &'static str,
    began: Instant,
    before: u64,
}

impl LogLines {
    /// Begins to count, before the port is made.
    pub(crate) fn of(name: &'static str) -> LogLines {
        log_to_a_full_pipe();
        // The time is the subject: it limits the lines.
        LogLines { name, began: Instant::now(), before: Self::count(name) }
    }

    /// Asserts that the port has logged no more lines than its limit allows. It was given reasons
    /// for more.
    pub(crate) fn are_limited(&self) {
        let logged = Self::count(self.name) - self.before;
        // The time is the subject: it limits the lines. It is read last, so a pause only raises the bound.
        // The limit is a token bucket: the burst, one line for each second, and one for the current
        // second.
        let most = BURST + self.began.elapsed().as_secs() + 1;
        assert!((BURST..=most).contains(&logged), "{logged} lines; at most {most}");
    }

    fn count(name: &str) -> u64 {
        lines().get(name).copied().unwrap_or(0)
    }
}

/// Counts the lines about each port and passes all lines on.
struct Counting(Arc<LogWriter>);

impl Write for Counting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if let Some((name, _)) = text.split_once("port=\"").and_then(|(_, rest)| rest.split_once('"')) {
            *lines().entry(name.to_owned()).or_default() += 1;
        }
        (&*self.0).write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the process log to a full pipe that is never read.
fn log_to_a_full_pipe() {
    static READER: OnceLock<PipeReader> = OnceLock::new();
    READER.get_or_init(|| {
        let (reader, writer) = io::pipe().expect("a pipe");
        let size = rustix::pipe::fcntl_getpipe_size(&writer).expect("its size");
        (&writer).write_all(&vec![0; size]).expect("as much as fits");
        let log = Arc::new(LogWriter::new(writer.into(), straightline_graph::Clock::real()));
        log.start().expect("a thread");
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Counting(Arc::clone(&log)));
        subscriber.init();
        reader
    });
}

/// Connects, and sends an invalid message.
fn connect_and_err(scene: &Scene) {
    let mut stream = UnixStream::connect(scene.rig.socket(PORT)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let mut message = Message::request(Request::GetFeatures, Vec::new()).to_bytes();
    // Version 0 does not exist.
    message[4] = 0;
    stream.write_all(&message).expect("sent");
    assert_eq!(stream.read(&mut [0]).expect("the port closes the connection"), 0);
}

#[test]
fn frontends_that_cause_a_line_each() {
    let lines = LogLines::of(NAME);
    let scene = Scene::with_spare_port(NAME);
    scene.measure_gap("a flood of log lines", |scene| {
        for _ in 0..hostile::repeats(300, 20_000) {
            connect_and_err(scene);
        }
        // A frontend that stays connected, and is refused each time.
        let mut client = FrontendClient::connect(scene.rig.socket(PORT)).expect("connect");
        client.set_timeout(Some(PATIENCE)).expect("a time limit");
        let agreed = client.handshake(BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES, u64::MAX).expect("handshake");
        client.set_features(agreed.features).expect("features");
        for n in 0..hostile::repeats(300, 20_000) {
            // Each refusal has a different reason.
            let mtu = u16::MAX - u16::try_from(n).expect("few");
            client.set_mtu(mtu).expect_err("it is above the port's");
        }
    });
    lines.are_limited();
    let reasons = scene.rig.port(PORT).reasons;
    assert_eq!(reasons.len(), 10, "no more are kept: {reasons:?}");
    // The next frontend at the port is served.
    let guest = scene.rig.guest(PORT, &GuestOptions::default());
    scene.rig.wait_up(PORT);
    drop(guest);
    scene.victims.go_on();
    scene.end();
}
