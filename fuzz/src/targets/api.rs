//! Fuzz target: requests to the API, in chunks.
//!
//! Invariants:
//! - Each answer is a line of JSON that is either `ok`, or `error` with the code of a client's mistake.
//! - A request that is understood is the same one after writing it as JSON.
//! - A stream is the last answer, and the client gets all of it.
//! - A client that sends nothing gets nothing.
//! - The server continues.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use crate::reached;
use straightline_switch::api::{
    ApiHandle, ApiServer, Drops, ErrorCode, Events, Fdb, Neighbours, Ports, Readiness, Refusal, Request, Runtime,
    Source, Status, Stream,
};

struct Nothing;

impl Source for Nothing {
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
        Fdb::default()
    }
    fn neighbours(&self) -> Neighbours {
        Neighbours::default()
    }
    fn status(&self) -> Status {
        Status::default()
    }
    fn events(&self, since: u64) -> Events {
        Events { last: since, events: Vec::new() }
    }
    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        let (readable, writer) = UnixStream::pair().expect("a pair");
        // A hangup is readable.
        drop(writer);
        Ok((self.events(since), Box::new(Lines { readable, left: LINES })))
    }
}

/// The number of lines of a stream.
const LINES: usize = 3;

/// A stream with a line for each call.
struct Lines {
    readable: UnixStream,
    left: usize,
}

impl Stream for Lines {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::Descriptor(self.readable.as_fd())
    }
    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        output.extend_from_slice(b"{\"stream\":true}\n");
        self.left -= 1;
        self.left > 0
    }
}

struct Server {
    folder: tempfile::TempDir,
    _handle: ApiHandle,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ApiServer::bind(&folder.path().join("api")).expect("a socket");
    Server { _handle: server.serve(Arc::new(Nothing)).expect("a thread"), folder }
});

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    // A byte of 255, which no text has, ends a chunk.
    let chunks: Vec<_> = data.split(|&byte| byte == 255).collect();
    let mut stream = UnixStream::connect(SERVER.folder.path().join("api")).expect("the server continues");
    for chunk in &chunks {
        // The server may have closed the connection.
        if stream.write_all(chunk).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // A server that closes with unread bytes resets the connection; the answers before are checked.
    let _ = stream.read_to_end(&mut answer);
    if chunks.iter().all(|chunk| chunk.is_empty()) {
        assert!(answer.is_empty(), "nothing was asked");
    }
    let lines = answer.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut streamed = 0;
    for line in lines {
        let json: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        let object = json.as_object().expect("an object");
        if object.contains_key("stream") {
            reached("a stream");
            streamed += 1;
        } else if object.contains_key("ok") {
            assert!(object.len() == 1 && streamed == 0, "{json}");
            reached("an answer");
        } else {
            assert!(object.contains_key("error") && streamed == 0, "{json}");
            let code: ErrorCode = serde_json::from_value(json["code"].clone()).expect("a code");
            let expected = [ErrorCode::BadRequest, ErrorCode::UnknownCommand, ErrorCode::ReadOnly, ErrorCode::Busy];
            assert!(expected.contains(&code), "{json}");
            reached("an error");
        }
    }
    assert!(streamed == 0 || streamed == LINES, "{streamed} lines of a stream");
    for line in chunks.concat().split(|&byte| byte == b'\n') {
        if let Ok(request) = Request::parse(line) {
            let json = serde_json::to_vec(&request).expect("JSON");
            assert_eq!(Request::parse(&json).expect("a request"), request);
        }
    }
}
