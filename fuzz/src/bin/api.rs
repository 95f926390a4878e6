//! Fuzz target: requests to the API, in chunks.
//!
//! Invariants:
//! - Each answer is a line of JSON that is either `ok` or `error`.
//! - A client that sends nothing gets nothing.
//! - The server continues.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use straightline_fuzz::reached;
use straightline_switch::api::{ApiHandle, ApiServer, Drops, Fdb, Ports, Runtime, Source, Status};

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
    fn status(&self) -> Status {
        Status::default()
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

fuzz_target!(|data: &[u8]| {
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
    for line in answer.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let json: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        let object = json.as_object().expect("an object");
        assert!(object.len() == 1 && (object.contains_key("ok") || object.contains_key("error")), "{json}");
        if object.contains_key("ok") { reached!("an answer") } else { reached!("an error") }
    }
});
