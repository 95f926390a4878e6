//! Frontends that cause a log line and a reason with each message or connection, while the log is
//! not read.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use straightline_guest::GuestOptions;
use straightline_switch::LogWriter;
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, Message, Request};

use crate::common::{BASIC, PATIENCE};
use crate::scene::Scene;

/// Name of the attacked port. No other test has a port with this name.
const NAME: &str = "flooded";
const PORT: usize = 4;

/// Lines that a port may log at once (`port/src/vhost_user/control/log_limit.rs`). After that, one line a
/// second.
const BURST: u64 = 20;

/// Lines about the attacked port.
static LINES: AtomicU64 = AtomicU64::new(0);

/// Counts the lines about the attacked port and passes all lines on.
struct Counting(Arc<LogWriter>);

impl Write for Counting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if String::from_utf8_lossy(line).contains(&format!("port={NAME:?}")) {
            LINES.fetch_add(1, Ordering::Relaxed);
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
        let log = Arc::new(LogWriter::new(writer.into()));
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
    log_to_a_full_pipe();
    let scene = Scene::with_spare_port(NAME);
    let (began, lines) = (Instant::now(), LINES.load(Ordering::Relaxed));
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
    let logged = LINES.load(Ordering::Relaxed) - lines;
    // The limit is a token bucket: the burst, one line for each second, and one for the current
    // second.
    let most = BURST + began.elapsed().as_secs() + 1;
    assert!((BURST..=most).contains(&logged), "{logged} lines; at most {most}");
    let reasons = scene.rig.port(PORT).reasons;
    assert_eq!(reasons.len(), 10, "no more are kept: {reasons:?}");
    // The next frontend at the port is served.
    let guest = scene.rig.guest(PORT, &GuestOptions::default());
    scene.rig.wait_up(PORT);
    drop(guest);
    scene.victims.go_on();
    scene.end();
}
