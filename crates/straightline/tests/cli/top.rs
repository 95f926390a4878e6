//! Tests of `straightline top`: tables, JSON, and the screen on a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::wait_until;

use super::Fixture;
use super::run::{CONFIG, Running};

/// Leaves the alternate screen, and shows the cursor.
const RESTORED: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

#[test]
fn tables_and_json_show_a_switch() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let _guest = Guest::connect(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let base = ["top", "--api", "api", "--interval", "0.1"];
    let done = fixture.execute(&[&base[..], &["--batch", "--columns", "port,drops,link"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.starts_with("port  drops/s  link\n") && done.out.contains("vm2 is down: "), "{done:?}");
    assert!(done.out.contains("empty poll %"), "{done:?}");

    let done = fixture.execute(&[&base[..], &["--json", "--count", "2"]].concat());
    let lines: Vec<serde_json::Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((done.code, lines.len()), (Some(0), 2), "{done:?}");
    for line in &lines {
        assert!(line["interval_s"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["ports"][1]["link"], "down", "{line}");
        assert!(line["ports"][1]["remedy"].is_string(), "{line}");
        let shares = line["workers"][0]["shares"].as_object().unwrap();
        let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{line}");
    }
}

#[test]
fn mistakes_are_told() {
    let fixture = Fixture::new();
    for (args, code, text) in [
        (&["--batch", "--api", "none"][..], 1, "no switch listens on none"),
        (&["--json", "--api", "none"], 1, "no switch listens on none"),
        (&["--api", "none"], 1, "use --batch or --json"),
        (&["--sort", "size"], 2, "worst"),
        (&["--columns", "port,size"], 2, "rx-pps"),
        (&["--interval", "0"], 2, "0.1 to 3600"),
        (&["--interval", "NaN"], 2, "0.1 to 3600"),
        (&["--count", "0"], 2, "--count"),
    ] {
        let done = fixture.execute(&[&["top"], args].concat());
        assert!(done.code == Some(code) && done.err.contains(text), "{args:?} {done:?}");
    }
}

/// `top` on a pseudo-terminal.
struct Screen {
    child: Child,
    controller: File,
    /// Everything that it has written.
    written: String,
    terminal: File,
}

impl Screen {
    fn start(fixture: &Fixture) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&controller).unwrap();
        tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let mut command = fixture.command(&["top", "--api", "api", "--interval", "0.1"]);
        command.env("TERM", "xterm-256color").env("NO_COLOR", "1");
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        rustix::io::ioctl_fionbio(&controller, true).unwrap();
        Self { child, controller: File::from(controller), written: String::new(), terminal }
    }

    /// Reads everything that the program has written, until `is_so`.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&str, &mut Child) -> bool) {
        wait_until(what, || {
            let mut bytes = [0; 4096];
            while let Ok(count) = self.controller.read(&mut bytes) {
                self.written.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            if is_so(&self.written, &mut self.child) { Ok(()) } else { Err(self.written.clone()) }
        });
    }

    /// Reads until a line of the screen contains `text`.
    fn until_text(&mut self, text: &str) {
        self.until(&format!("{text:?} is shown"), |written, _| is_shown(written, text));
    }

    /// Waits for the end, and checks that the terminal is as it was.
    fn ended(mut self) {
        self.until("the program ends", |_, child| child.try_wait().unwrap().is_some());
        for code in RESTORED {
            assert!(self.written.contains(code), "{:?}", self.written);
        }
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns whether a line of the screen contains `text` after these bytes.
fn is_shown(written: &str, text: &str) -> bool {
    lines(written).iter().any(|line| line.contains(text))
}

/// Returns what a terminal shows after these bytes. The program writes only the cells that change, so
/// words that stand side by side need not follow one another in its output.
fn lines(written: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; 200]; 60];
    let mut row = 0;
    let mut column = 0;
    let mut chars = written.chars();
    while let Some(char) = chars.next() {
        if char != '\x1b' {
            if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                *cell = char;
            }
            column += 1;
            continue;
        }
        // ESC [ parameters letter (ECMA-48).
        chars.next();
        let mut sequence = String::new();
        for char in chars.by_ref() {
            sequence.push(char);
            if char.is_ascii_alphabetic() {
                break;
            }
        }
        let (parameters, letter) = sequence.split_at(sequence.len().saturating_sub(1));
        match letter {
            "H" => {
                let mut places =
                    parameters.split(';').map(|place| place.parse::<usize>().unwrap_or(1).saturating_sub(1));
                (row, column) = (places.next().unwrap_or(0), places.next().unwrap_or(0));
            }
            "J" => cells.iter_mut().for_each(|line| line.fill(' ')),
            _ => {}
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The process has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_follows_a_switch_that_stops_and_gives_the_terminal_back() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    let mut screen = Screen::start(&fixture);
    screen.until_text("0 of 2 ports up");
    // Each key changes the screen.
    for (key, text) in [("?", "next or previous view"), ("x\t", "empty poll"), ("c", "Columns")] {
        screen.controller.write_all(key.as_bytes()).unwrap();
        screen.until_text(text);
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    screen.until_text("no switch listens");
    let again = Running::start(&fixture);
    screen.until("the switch is shown again", |written, _| {
        !is_shown(written, "no switch listens") && is_shown(written, "0 of 2 ports up")
    });
    screen.controller.write_all(b"q").unwrap();
    screen.ended();
    drop(again);
}

#[test]
fn a_signal_ends_the_screen_and_a_resize_draws_it_again() {
    let fixture = Fixture::new();
    let mut screen = Screen::start(&fixture);
    screen.until_text("no switch listens");
    tcsetwinsize(&screen.controller, Winsize { ws_row: 12, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let pid = rustix::process::Pid::from_child(&screen.child);
    rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
    screen.until_text("40x12");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    screen.ended();
}

#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let fixture = Fixture::new();
    let mut screen = Screen::start(&fixture);
    screen.until_text("no switch listens");
    let nothing = || File::open("/dev/null").unwrap();
    (screen.controller, screen.terminal) = (nothing(), nothing());
    wait_until("the program ends without its terminal", || screen.child.try_wait().unwrap());
}
