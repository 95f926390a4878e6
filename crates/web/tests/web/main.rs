//! The server with a fake switch: replies and refusals, many clients, a real Prometheus.

mod load;
mod prometheus;
mod replies;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use straightline_api::{
    Drops, Events, Fdb, Joined, JoinedKind, Link, Neighbours, Node, Port, Ports, Queue, Runtime, Status, Tables, Worker,
};
use straightline_web::{Server, WebOptions};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A fake switch: a thread that answers like the API of a switch with two ports.
struct Switch {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// The number of answers.
    asked: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    fn start(path: &Path) -> Self {
        Self::start_with(path, Link::Down)
    }

    /// Starts a switch with this link of its second port.
    fn start_with(path: &Path, second: Link) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::clone(&stop);
        let counter = Arc::clone(&asked);
        let thread = std::thread::spawn(move || {
            let answers = answers(second);
            for client in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let mut client = client.unwrap();
                let mut line = String::new();
                BufReader::new(&client).read_line(&mut line).unwrap();
                let request: serde_json::Value = serde_json::from_str(&line).unwrap();
                let answer = format!("{{\"ok\":{}}}\n", answers[request["cmd"].as_str().unwrap()]);
                let _ = client.write_all(answer.as_bytes());
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { path: path.to_owned(), stop, asked, thread: Some(thread) }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread waits for a client.
        drop(UnixStream::connect(&self.path));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the answers to all commands, as JSON, with this link of the second port.
fn answers(second: Link) -> HashMap<&'static str, String> {
    let port = |name: &str, link| Port {
        name: name.to_owned(),
        kind: "vhost-user".to_owned(),
        link,
        reason: (link == Link::Down).then(|| "no frontend is connected".to_owned()),
        queues: vec![Queue::default()],
        joined: Some(Joined { kind: JoinedKind::Bridge, name: "lan".to_owned() }),
        ..Port::default()
    };
    let ports = Ports { ports: vec![port("vm1", Link::Up), port("vm2", second)] };
    let nodes = vec![Node { worker: Some(0), ..Node::new("lan", 2, 64, 640) }];
    let runtime = Runtime { workers: vec![Worker { busy_s: 1.0, ..Worker::default() }], nodes, cleared: None };
    let status = Status { version: "9".to_owned(), uptime_s: 1.0, ports: 2, ..Status::default() };
    let json = |value: io::Result<serde_json::Value>| {
        let mut value = value.unwrap();
        value["time"] = 1.5.into();
        value.to_string()
    };
    fn value(answer: impl serde::Serialize) -> io::Result<serde_json::Value> {
        Ok(serde_json::to_value(answer)?)
    }
    [
        ("status", json(value(status))),
        ("ports", json(value(ports))),
        ("fdb", json(value(Fdb::default()))),
        ("neighbours", json(value(Neighbours::default()))),
        ("runtime", json(value(runtime))),
        ("drops", json(value(Drops::default()))),
        ("tables", json(value(Tables::default()))),
        ("events", json(value(Events { last: 7, events: Vec::new() }))),
    ]
    .into()
}

/// The time of a server, which stands still until a test moves it.
#[derive(Clone)]
struct Time {
    begun: Instant,
    passed: Arc<Mutex<Duration>>,
}

impl Time {
    fn new() -> Self {
        // The time is the subject: a moved clock begins at the present time.
        Self { begun: Instant::now(), passed: Arc::default() }
    }

    /// Returns how far the test has moved it.
    fn passed(&self) -> Duration {
        *self.passed.lock().unwrap()
    }

    fn advance(&self, by: Duration) {
        *self.passed.lock().unwrap() += by;
    }

    /// Lets a server tell the age of its answers by this time.
    fn set(&self, server: Server) -> Server {
        let time = self.clone();
        server.with_clock(move || time.begun + time.passed())
    }
}

/// A server on a thread of this process, with the folder of its switch's socket.
struct Web {
    folder: TempDir,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    fn start() -> Self {
        Self::start_with(|server| server)
    }

    /// Starts a server that `prepare` has changed.
    fn start_with(prepare: impl FnOnce(Server) -> Server) -> Self {
        let folder = TempDir::new().unwrap();
        let api = folder.path().join("api");
        let options = WebOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            api,
            allow_hosts: Vec::new(),
            evpn: Some(folder.path().join("evpn")),
        };
        let server = prepare(Server::bind(&options).unwrap());
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let stopped = async {
                let _ = stopped.await;
            };
            server.run_until(stopped).unwrap();
        });
        Self { folder, address, stop: Some(stop), thread: Some(thread) }
    }

    fn switch(&self) -> Switch {
        Switch::start(&self.folder.path().join("api"))
    }

    fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Sends the text of a request, and returns the reply.
    fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a reply, not {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the server has panicked");
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    /// Status line and headers, in lower case.
    head: String,
    body: String,
}

/// Reports that this machine cannot run a test, in the line that `cargo xtask test` counts as a
/// skip. On a machine of continuous integration, `cargo xtask test` then fails.
fn skip(test: &str, why: &str) {
    // `println!` is not used, because libtest captures it. The newline comes first, because libtest
    // may have begun a line already.
    let _ = writeln!(io::stdout(), "\nskipped {test}: {why}");
}
