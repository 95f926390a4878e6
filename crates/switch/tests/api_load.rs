//! The API under many clients, of which some never read and some disappear: others are served, and
//! the process keeps neither memory nor descriptors.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use straightline_switch::api::{
    ApiServer, Drops, Events, EventsRequest, Fdb, FdbEntry, Neighbours, Ports, Readiness, Refusal, Request,
    RequestError, Runtime, Source, Status, Stream, ask, stream,
};
use straightline_testing::wait_until;

/// A switch whose answer to `fdb` is larger than a socket's buffer, and whose streams have no end.
struct Large;

/// A stream that always has more.
struct Endless(UnixStream);

impl Stream for Endless {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::Descriptor(self.0.as_fd())
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        output.extend_from_slice(&[b'x'; 1 << 16]);
        output.push(b'\n');
        true
    }
}

impl Source for Large {
    fn ports(&self) -> Ports {
        Ports::default()
    }
    fn runtime(&self) -> Runtime {
        Runtime::default()
    }
    fn drops(&self) -> Drops {
        Drops::default()
    }
    fn fdb(&self) -> Fdb {
        let entry = |n| FdbEntry {
            vlan: 1,
            bridge: "lan".to_owned(),
            mac: format!("{n:012x}"),
            port: "vm1".to_owned(),
            age_s: 1.5,
            is_static: false,
            is_owned: false,
        };
        Fdb { entries: (0..5000).map(entry).collect(), ..Fdb::default() }
    }
    fn neighbours(&self) -> Neighbours {
        Neighbours::default()
    }
    fn status(&self) -> Status {
        Status { version: "1".to_owned(), ..Status::default() }
    }
    fn events(&self, since: u64) -> Events {
        Events { last: since, events: Vec::new() }
    }
    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        let (readable, writer) = UnixStream::pair().expect("a pair");
        // A hangup is readable.
        drop(writer);
        Ok((self.events(since), Box::new(Endless(readable))))
    }
}

fn follow() -> Request {
    Request::Events(EventsRequest { since: 0, follow: true })
}

/// Connects, and sends this.
fn send(path: &Path, bytes: &[u8]) -> UnixStream {
    let mut client = UnixStream::connect(path).expect("the server listens");
    client.write_all(bytes).expect("a free buffer");
    client
}

/// Clients of every bad kind, and good ones among them that all get their answers.
fn round(path: &Path) {
    // These never read. The first ones are disconnected in a second, the others stay.
    let silent: Vec<_> = (0..4).map(|_| send(path, b"{\"cmd\":\"fdb\"}\n")).collect();
    let half: Vec<_> = (0..4).map(|_| send(path, b"{\"cmd\":\"sta")).collect();
    let deaf: Vec<_> = (0..8).map(|_| stream(path, &follow()).expect("a stream")).collect();
    let good = |_| {
        let path = path.to_owned();
        thread::spawn(move || {
            for n in 0..250 {
                match n % 50 {
                    0 => assert_eq!(ask::<Fdb>(&path).expect("an answer").entries.len(), 5000),
                    _ => assert_eq!(ask::<Status>(&path).expect("an answer").version, "1"),
                }
            }
        })
    };
    let good: Vec<_> = (0..2).map(good).collect();
    // One connection may ask as often as it likes.
    let mut many = BufReader::new(UnixStream::connect(path).expect("the server listens"));
    for n in 0..500 {
        let (request, part) =
            if n % 2 == 0 { ("{\"cmd\":\"ports\"}\n", "\"ok\"") } else { ("{}\n", "\"bad-request\"") };
        many.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let mut line = String::new();
        many.read_line(&mut line).expect("an answer");
        assert!(line.contains(part), "{line}");
    }
    // These disappear: in a request, in an answer, in a stream, and before its first line.
    for _ in 0..20 {
        drop(send(path, b"{\"cmd\":"));
        let mut client = send(path, b"{\"cmd\":\"fdb\"}\n");
        client.read_exact(&mut [0; 10]).expect("an answer");
        drop(client);
        match stream(path, &follow()) {
            Ok(mut reader) => reader.read_exact(&mut [0; 100_000]).expect("a stream"),
            // The server has not noticed yet that earlier ones have gone.
            Err(RequestError::Refused { message, .. }) => assert!(message.contains("try again"), "{message}"),
            Err(error) => panic!("{error}"),
        }
        drop(send(path, b"{\"cmd\":\"events\",\"follow\":true}\n"));
    }
    good.into_iter().for_each(|client| client.join().expect("all its answers"));
    drop((silent, half, deaf));
}

/// Returns the number of open descriptors, and the process's own memory in KiB.
fn held() -> (usize, u64) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    (descriptors, memory.trim().trim_end_matches(" kB").parse().expect("a number"))
}

/// Returns what is held when as few descriptors are open as before.
fn held_at_rest(descriptors: usize) -> u64 {
    wait_until(&format!("no more than {descriptors} descriptors are open"), || {
        let (now, memory) = held();
        if now <= descriptors { Ok(memory) } else { Err(now) }
    })
}

#[test]
fn many_clients_of_which_some_are_bad_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("api");
    let _handle = ApiServer::bind(&path).expect("a socket").serve(Arc::new(Large)).expect("a thread");
    let (descriptors, _) = held();
    round(&path);
    let before = held_at_rest(descriptors);
    (0..3).for_each(|_| round(&path));
    let after = held_at_rest(descriptors);
    // One round has answers of far more than that.
    assert!(after < before + (16 << 10), "{before} KiB at first, {after} KiB at the end");
}
