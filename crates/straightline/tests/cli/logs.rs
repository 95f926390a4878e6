//! Tests of the log of `run` on standard error, with and without a reader.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use straightline_testing::PATIENCE;

use super::Fixture;
use super::run::{CONFIG, Running};
use super::sandbox::exchange;

/// First character of each colour code.
const ESCAPE: char = '\x1b';

/// Returns the log of a switch that starts and stops, with these environment variables.
fn log_with(environment: &[(&str, &str)]) -> String {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let mut command = fixture.command(&["run", "switch.toml"]);
    command.envs(environment.iter().copied()).stderr(Stdio::piped());
    let running = Running::start_as(command);
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("stopping on SIGTERM"), "the end of the log is written: {done:?}");
    done.err
}

#[test]
fn a_log_without_a_terminal_has_no_colours() {
    assert!(!log_with(&[("TERM", "xterm-256color")]).contains(ESCAPE));
}

#[test]
fn colours_can_be_forced_and_forbidden() {
    assert!(log_with(&[("CLICOLOR_FORCE", "1")]).contains(ESCAPE));
    assert!(!log_with(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains(ESCAPE));
}

#[test]
fn a_journal_gets_priorities_and_neither_time_nor_colours() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    // A file stands for the journal's socket: the switch compares its device and inode only.
    let path = fixture.path("journal");
    let journal = File::create(&path).unwrap();
    let found = rustix::fs::fstat(&journal).unwrap();
    let run = |args: &[&str]| {
        let mut command = fixture.command(args);
        command.env("JOURNAL_STREAM", format!("{}:{}", found.st_dev, found.st_ino)).env("CLICOLOR_FORCE", "1");
        command.stderr(journal.try_clone().unwrap());
        command
    };
    let running = Running::start_as(run(&["run", "switch.toml"]));
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.lines().any(|line| line.starts_with("<6>") && line.contains("stopping on SIGTERM")), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<') && !line.contains(ESCAPE)), "{log}");

    fixture.write("[switch]\nworkers = 7\n");
    assert!(!run(&["run", "switch.toml"]).status().unwrap().success());
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.lines().any(|line| line.starts_with("<3>error: ") && line.contains("workers")), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
}

#[test]
fn help_texts_follow_the_same_rules() {
    let fixture = Fixture::new();
    let help = |environment: &[(&str, &str)]| {
        let done = fixture.command(&["--help"]).envs(environment.iter().copied()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(!help(&[]).contains(ESCAPE));
    assert!(help(&[("CLICOLOR_FORCE", "1")]).contains(ESCAPE));
    assert!(!help(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains(ESCAPE));
}

/// Returns the log of a switch whose standard error is a terminal.
fn log_on_terminal(environment: &[(&str, &str)]) -> String {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&controller).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    let mut command = fixture.command(&["run", "switch.toml"]);
    command.env("TERM", "xterm-256color").envs(environment.iter().copied()).stderr(terminal);
    let running = Running::start_as(command);
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    // A terminal that no process has open any more ends with an error.
    let mut log = Vec::new();
    let end = File::from(controller).read_to_end(&mut log).unwrap_err();
    assert_eq!(end.raw_os_error(), Some(Errno::IO.raw_os_error()));
    String::from_utf8_lossy(&log).into_owned()
}

#[test]
fn a_terminal_has_colours_unless_they_are_forbidden() {
    assert!(log_on_terminal(&[]).contains(ESCAPE));
    let plain = log_on_terminal(&[("NO_COLOR", "1")]);
    assert!(plain.contains("INFO") && !plain.contains(ESCAPE), "{plain}");
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let (mut reader, writer) = io::pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command = fixture.command(&["run", "switch.toml"]);
    // The log has one line for each message. No rate limit applies at this level.
    command.env("RUST_LOG", "straightline=trace").stderr(writer);
    let running = Running::start_as(command);
    // GET_FEATURES (1), version 1, no payload; then a message with another version, which ends the
    // connection.
    let question = [1_u32, 1, 0].map(u32::to_ne_bytes).concat();
    let nonsense = [1_u32, 0, 0].map(u32::to_ne_bytes).concat();
    for _ in 0..200 {
        let mut frontend = UnixStream::connect(fixture.path("vm1")).unwrap();
        frontend.write_all(&[question.as_slice(), &nonsense].concat()).unwrap();
        // The answer to the first message, then the end of the connection.
        frontend.set_read_timeout(Some(PATIENCE)).unwrap();
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
