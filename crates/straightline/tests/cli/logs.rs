//! What `run` writes to standard error, and what it does when nobody reads that.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::pipe::fcntl_setpipe_size;

use super::Fixture;
use super::run::{CONFIG, Running};
use super::sandbox::exchange;

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let (mut reader, writer) = io::pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command = fixture.command(&["run", "switch.toml"]);
    // A line for each message, which no limit holds back.
    command.env("RUST_LOG", "straightline=trace").stderr(writer);
    let running = Running::start_as(command);
    // GET_FEATURES (1), version 1, no payload; then a message of another version, which ends the connection.
    let question = [1_u32, 1, 0].map(u32::to_ne_bytes).concat();
    let nonsense = [1_u32, 0, 0].map(u32::to_ne_bytes).concat();
    for _ in 0..200 {
        let mut frontend = UnixStream::connect(fixture.path("vm1")).unwrap();
        frontend.write_all(&[question.as_slice(), &nonsense].concat()).unwrap();
        // An answer, then the end.
        frontend.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        frontend.read_to_end(&mut Vec::new()).unwrap();
    }
    exchange(&fixture);
    assert_eq!(fixture.execute(&["ports", "--api", "api"]).code, Some(0));
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    assert!(log.len() >= 3000 && log.contains("a frontend has connected"), "the pipe was filled: {log}");
}
