use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::wait_until;
use straightline_virtio::net_header::NetHeader;

use super::run::{CONFIG, Running};
use super::{Finished, Fixture, skip};

/// The addresses of the frames of [`Bench::send`]: destination, then source.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// The end of the argument that stands for the folder of a process, which is -100.
const AT_FDCWD: &str = "ffffff9c";

/// Two guests at a switch that runs.
pub(super) struct Bench {
    pub(super) fixture: Fixture,
    pub(super) switch: Running,
    pub(super) guests: [Guest; 2],
}

impl Bench {
    pub(super) fn new() -> Self {
        let fixture = Fixture::new();
        fixture.write(CONFIG);
        let switch = Running::start(&fixture);
        let guests =
            ["vm1", "vm2"].map(|name| Guest::connect(&fixture.path(name), &GuestOptions::default()).expect("a guest"));
        Bench { fixture, switch, guests }
    }

    /// Starts a capture, and waits until it runs.
    fn capture(&self, args: &str, stdout: Stdio) -> Capture {
        self.start("capture", args, stdout)
    }

    /// Starts a capture or trace, and waits until it runs.
    pub(super) fn start(&self, command: &str, args: &str, stdout: Stdio) -> Capture {
        let args: Vec<_> = [command, "--api", "api"].into_iter().chain(args.split(' ')).collect();
        let child = self.fixture.command(&args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let mut capture = Capture { child, err: String::new() };
        capture.wait_for("end with Ctrl-C\n");
        capture
    }

    /// Sends ARP requests and other frames in turn from vm1 to vm2, 100 bytes each.
    pub(super) fn send(&mut self, frames: u8) {
        let [from, to] = &mut self.guests;
        for n in 0..frames {
            let mut frame = vec![n; 100];
            frame[..12].copy_from_slice(&ADDRESSES);
            frame[12..14].copy_from_slice(&[8, if n % 2 == 0 { 6 } else { 0x99 }]);
            assert!(from.send(&NetHeader::default(), &frame));
            from.flush();
            wait_until(&format!("frame {n} arrives"), || to.receive(usize::MAX, |_, _| ()) > 0);
        }
    }

    /// Sends until a capture or trace waits for its pipe, which nobody reads.
    pub(super) fn send_until_stuck(&mut self, capture: &Capture) {
        let pipe = capture.child.stdout.as_ref().unwrap().as_raw_fd();
        let writer = File::options().write(true).open(format!("/proc/self/fd/{pipe}")).unwrap();
        self.send_until_stuck_at(capture, &writer);
    }

    /// Does the same for a pipe that `writer` may write to.
    fn send_until_stuck_at(&mut self, capture: &Capture, writer: &File) {
        wait_until("the pipe is full", || {
            self.send(100);
            is_full(writer)
        });
        // It has more to write now than its last page takes.
        self.send(100);
        capture.wait_for_call("it waits for the pipe", is_wait_for_pipe);
    }

    /// Waits until the files have this number of frames of [`Self::send`]. A worker hands a frame to a
    /// capture after a guest has it, and a signal would end the capture between the two.
    fn wait_for_frames(&self, stem: &str, number: usize) {
        wait_until("the capture has written the frames", || {
            let files = self.files(stem);
            let written = files.iter().map(|file| frames(&fs::read(file).unwrap_or_default())).sum::<usize>();
            if written < number { Err(format!("{written} of {number} in {files:?}")) } else { Ok(()) }
        });
    }

    /// Returns the files whose names start so, sorted.
    fn files(&self, stem: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.fixture.path(".")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(stem)).collect();
        files.sort();
        files
    }
}

/// Returns the number of frames of [`Bench::send`] in the bytes of a file.
fn frames(bytes: &[u8]) -> usize {
    bytes.windows(ADDRESSES.len()).filter(|window| *window == ADDRESSES).count()
}

/// Returns whether a system call waits until a pipe has space. Other waits have more descriptors, or are
/// for the switch.
fn is_wait_for_pipe(call: &[&str]) -> bool {
    // The second argument of poll(2) and of ppoll(2) is the number of descriptors.
    call.get(2) == Some(&"0x1")
}

/// Returns whether a system call opens a file for writing. Only a FIFO without a reader lets it wait.
fn is_open_for_writing(call: &[&str]) -> bool {
    let flags = call.get(3).and_then(|flags| u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok());
    let is_in_folder = call.get(1).is_some_and(|folder| folder.ends_with(AT_FDCWD));
    is_in_folder && flags.is_some_and(|flags| OFlags::from_bits_retain(flags).contains(OFlags::WRONLY))
}

/// Returns whether a pipe is full. The bytes in it do not tell this: a write may leave the rest of a
/// page unused.
fn is_full(writer: &File) -> bool {
    poll(&mut [PollFd::new(writer, PollFlags::OUT)], Some(&Timespec::default())).unwrap() == 0
}

/// A capture or trace that runs. It is killed if the test fails.
pub(super) struct Capture {
    pub(super) child: Child,
    err: String,
}

impl Capture {
    /// Reads standard error until it has these words.
    pub(super) fn wait_for(&mut self, words: &str) {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut byte = [0];
        while !self.err.contains(words) {
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "no {words:?} in {:?}", self.err);
            self.err.push(char::from(byte[0]));
        }
    }

    /// Waits until its main thread is in such a system call, and waits there. The parts of a call are its
    /// number and its arguments (proc_pid_syscall(5)); a thread that does not wait has none.
    fn wait_for_call(&self, what: &str, is_it: fn(&[&str]) -> bool) {
        wait_until(what, || {
            let call = fs::read_to_string(format!("/proc/{}/syscall", self.child.id())).unwrap();
            if is_it(&call.split_whitespace().collect::<Vec<_>>()) { Ok(()) } else { Err(call) }
        });
    }

    /// Waits until the process has ended.
    fn wait_for_end(&mut self) {
        wait_until("it ends", || self.child.try_wait().unwrap().ok_or(&self.err));
    }

    /// Sends SIGINT twice, as `timeout` does.
    pub(super) fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid, &pid]).status().unwrap().success());
    }

    pub(super) fn finish(mut self) -> Finished {
        let mut rest = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        Finished { code: status.code(), out: String::new(), err: std::mem::take(&mut self.err) + &rest }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a program of Wireshark or tcpdump is there. Reports a skip if not.
fn has(program: &str, test: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        skip(test, &format!("it needs {program}"));
    }
    has
}

/// Returns the lines that a program prints.
fn lines(program: &str, args: &str, file: &Path) -> Vec<String> {
    let output = Command::new(program).args(args.split(' ')).arg(file).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn wireshark_and_tcpdump_read_a_file() {
    let mut bench = Bench::new();
    let capture = bench.capture("vm1 vm2 -w out.pcapng --filter arp", Stdio::null());
    bench.send(10);
    bench.wait_for_frames("out", 10);
    capture.interrupt();
    let done = capture.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("capturing: vm1, vm2; end"), "{done:?}");
    assert!(done.err.ends_with("captured: 10 packets (vm1 5, vm2 5), 0 missed\n"), "{done:?}");
    let file = bench.fixture.path("out.pcapng");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let test = "wireshark_and_tcpdump_read_a_file";
    if has("tshark", test) {
        let fields = "-T fields -e frame.interface_name -e frame.packet_flags_direction -e frame.len -e eth.type -r";
        let expected = ["vm1\t0x00000001\t100\t0x0806", "vm2\t0x00000002\t100\t0x0806"].repeat(5);
        assert_eq!(lines("tshark", fields, &file), expected);
    }
    if has("capinfos", test) {
        let text = lines("capinfos", "-I", &file).join("\n");
        for words in [
            "Name = vm1",
            "Name = vm2",
            "Description = vhost-user",
            "Filter string = arp",
            "precision = nanoseconds",
            "Number of stat entries = 1",
            "Number of packets = 5",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    if has("tcpdump", test) {
        assert_eq!(lines("tcpdump", "-n -r", &file).len(), 10);
    }
}

#[test]
fn a_pipe_has_packets_soon_and_a_reader_may_leave() {
    let mut bench = Bench::new();
    let mut capture = bench.capture("vm1 --direction in --snaplen 60", Stdio::piped());
    let mut out = capture.child.stdout.take().unwrap();
    let mut header = [0; 28];
    // Before any packet comes.
    out.read_exact(&mut header).unwrap();
    assert_eq!(header[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    bench.send(1);
    // While the capture runs: the block of a packet of 60 bytes.
    let mut seen = Vec::new();
    while !seen.windows(8).any(|window| window == [60, 0, 0, 0, 100, 0, 0, 0]) {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    drop(out);
    // Without a further packet.
    capture.wait_for_end();
    let done = capture.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.ends_with("captured: 1 packet, 0 missed\n"), "{done:?}");
}

#[test]
fn a_file_of_all_becomes_its_owners() {
    let mut bench = Bench::new();
    let file = bench.fixture.path("old.pcapng");
    fs::write(&file, "something else").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let capture = bench.capture("vm1 -w old.pcapng", Stdio::null());
    // Before it has a packet.
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    bench.send(1);
    capture.interrupt();
    let done = capture.finish();
    assert!(done.code == Some(0) && !done.err.contains("warning"), "{done:?}");
    assert_eq!(fs::read(&file).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_fifo_without_a_reader_does_not_keep_it() {
    let bench = Bench::new();
    let fifo = bench.fixture.path("fifo");
    make_fifo(&fifo);
    let args = ["capture", "--api", "api", "vm1", "-w", "fifo"];
    let child = bench.fixture.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut capture = Capture { child, err: String::new() };
    capture.wait_for_call("it waits for a reader", is_open_for_writing);
    capture.interrupt();
    capture.wait_for_end();
    let done = capture.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[test]
fn a_reader_of_a_fifo_that_is_stuck_does_not_keep_it() {
    let mut bench = Bench::new();
    let fifo = bench.fixture.path("fifo");
    make_fifo(&fifo);
    // Both ends, so that opening it waits for nobody.
    let reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut capture = bench.capture("vm1 vm2 -w fifo", Stdio::null());
    bench.send_until_stuck_at(&capture, &reader);
    capture.interrupt();
    capture.wait_for_end();
    let done = capture.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[test]
fn a_reader_that_is_stuck_does_not_keep_it() {
    let mut bench = Bench::new();
    let mut capture = bench.capture("vm1 vm2", Stdio::piped());
    bench.send_until_stuck(&capture);
    capture.interrupt();
    let out = capture.child.stdout.take();
    let done = capture.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
    drop(out);
}

#[test]
fn it_ends_after_a_count_and_names_drops() {
    let mut bench = Bench::new();
    let counted = bench.capture("vm1 -w three.pcapng --count 3 --direction in", Stdio::null());
    // It ends by itself: a signal could come before a worker has handed the packet over.
    let dropped = bench.capture("vm2 -w drops.pcapng --dropped=set-down --count 1", Stdio::null());
    bench.send(5);
    let done = counted.finish();
    assert!(done.code == Some(0) && done.err.contains("captured: 3 packets, 0 missed"), "{done:?}");
    assert_eq!(bench.fixture.execute(&["link", "vm2", "down", "--api", "api"]).code, Some(0));
    // The command takes effect soon, not at once.
    let [from, to] = &mut bench.guests;
    wait_until("a packet is dropped", || {
        from.flush();
        to.receive(usize::MAX, |_, _| ());
        let is_sent = from.send(&NetHeader::default(), &[2; 100]);
        from.flush();
        let drops = bench.fixture.ask("drops");
        if drops.to_string().contains("set-down") { Ok(()) } else { Err(format!("sent: {is_sent}, {drops}")) }
    });
    let done = dropped.finish();
    assert!(done.code == Some(0) && done.err.contains("captured: 1 packet, 0 missed"), "{done:?}");
    if has("tshark", "it_ends_after_a_count_and_names_drops") {
        let fields = "-T fields -e frame.comment -e frame.packet_flags_direction -r";
        assert_eq!(lines("tshark", fields, &bench.fixture.path("drops.pcapng")), ["dropped: set-down\t0x00000002"]);
        assert_eq!(lines("tshark", "-r", &bench.fixture.path("three.pcapng")).len(), 3);
    }
}

#[test]
fn a_full_disk_is_an_error_and_the_file_is_whole() {
    let mut bench = Bench::new();
    // A file may have 16 KiB here, as if the disk had no more.
    let command =
        format!("ulimit -f 32; exec {} capture --api api vm1 vm2 -w out.pcapng", env!("CARGO_BIN_EXE_straightline"));
    let mut shell = Command::new("bash");
    shell.args(["-c", &command]).current_dir(bench.fixture.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut capture = Capture { child: shell.spawn().unwrap(), err: String::new() };
    capture.wait_for("end with Ctrl-C\n");
    // More than fits; each frame is captured twice. None of them is lost.
    bench.send(200);
    let done = capture.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("out.pcapng: cannot write: File too large"), "{done:?}");
    assert!(done.err.contains("no packet of the switch is lost"), "{done:?}");
    let words: Vec<_> = done.err.split(['\n', ' ']).collect();
    let told: usize = words[words.iter().position(|word| *word == "captured:").unwrap() + 1].parse().unwrap();
    if has("tshark", "a_full_disk_is_an_error_and_the_file_is_whole") {
        assert_eq!(lines("tshark", "-r", &bench.fixture.path("out.pcapng")).len(), told);
    }
    bench.send(10);
    let drops = bench.fixture.execute(&["drops", "--json", "--api", "api"]);
    assert!(drops.out.contains("\"drops\":[]"), "{drops:?}");
}

#[test]
fn it_says_when_the_switch_ends_and_the_file_is_whole() {
    let mut bench = Bench::new();
    let capture = bench.capture("vm1 -w out.pcapng", Stdio::null());
    bench.send(4);
    bench.wait_for_frames("out", 4);
    bench.switch.signal("TERM");
    let done = capture.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("captured: 4 packets, 0 missed\nerror: the switch has ended"), "{done:?}");
    if has("capinfos", "it_says_when_the_switch_ends_and_the_file_is_whole") {
        assert!(lines("capinfos", "-I", &bench.fixture.path("out.pcapng")).join("\n").contains("stat entries = 1"));
    }
}

/// Returns the types of the blocks of a file. Panics if it is not whole.
fn blocks(file: &Path) -> Vec<u32> {
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 0;
    let mut types = Vec::new();
    while at < bytes.len() {
        let len = word(at + 4);
        let next = at + usize::try_from(len).unwrap();
        assert_eq!(word(next - 4), len, "block {} of {}", types.len(), file.display());
        types.push(word(at));
        at = next;
    }
    types
}

#[test]
fn it_ends_after_a_time() {
    let bench = Bench::new();
    let done = bench.capture("vm1 -w out.pcapng --seconds 0.2", Stdio::null()).finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.ends_with("\ncaptured: 0 packets, 0 missed\n"), "{done:?}");
    assert_eq!(blocks(&bench.fixture.path("out.pcapng")), [0x0a0d_0d0a, 1, 5]);
}

#[test]
fn full_files_are_followed_by_others() {
    let mut bench = Bench::new();
    let all = bench.capture("vm1 vm2 -w all.pcapng --rotate-size 1K", Stdio::null());
    let newest = bench.capture("vm1 -w newest.pcapng --rotate-size 1k --files 2 --count 30", Stdio::null());
    bench.send(40);
    let newest = newest.finish();
    bench.wait_for_frames("all", 80);
    all.interrupt();
    let done = all.finish();
    assert_eq!((done.code, newest.code), (Some(0), Some(0)), "{done:?} {newest:?}");
    let paths = bench.files("all");
    let told = format!("captured: 80 packets (vm1 40, vm2 40), 0 missed, in {} files\n", paths.len());
    assert!(paths.len() > 5 && done.err.ends_with(&told), "{done:?}");
    assert!(paths[0].ends_with("all_00001.pcapng") && paths[1].ends_with("all_00002.pcapng"), "{paths:?}");
    let mut packets = 0;
    for path in &paths {
        let types = blocks(path);
        assert_eq!(types[..3], [0x0a0d_0d0a, 1, 1], "{}", path.display());
        assert_eq!(types[types.len() - 2..], [5, 5], "{}", path.display());
        packets += types.iter().filter(|kind| **kind == 6).count();
        // A file is full with the packet that reaches the size.
        let len = fs::metadata(path).unwrap().len();
        assert!((path == paths.last().unwrap() || len >= 1024) && len < 2048, "{} has {len}", path.display());
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(packets, 80);
    let kept = bench.files("newest");
    assert_eq!(kept.len(), 2, "{kept:?}");
    let count = newest.err.split_whitespace().rev().nth(1).unwrap();
    assert!(kept[1].ends_with(format!("newest_{count:0>5}.pcapng")), "{kept:?} {newest:?}");
    let done = bench.fixture.execute(&["capture", "vm1", "--api", "api", "-w", "-", "--rotate-size", "1K"]);
    assert!(done.code == Some(1) && done.err.contains("name them with `-w FILE`"), "{done:?}");
    assert_eq!(bench.fixture.execute(&["capture", "vm1", "--files", "2"]).code, Some(2));
}

#[test]
fn wrong_usage_says_what_is_right() {
    let bench = Bench::new();
    let execute = |args: &[&str]| bench.fixture.execute(&[&["capture", "--api", "api"], args].concat());
    let done = execute(&["vm1", "--filter", "tcp prot 80"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("column 5: expected `and`, `or` or the end, found `prot`"), "{done:?}");
    let done = execute(&["vm7"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("no such port \"vm7\"; ports are vm1, vm2") && done.out.is_empty(), "{done:?}");
    let done = execute(&["vm1", "--dropped=rain"]);
    assert!(done.err.contains("no such drop reason \"rain\"; reasons are no-buffer, "), "{done:?}");
    let done = execute(&["vm1", "-w", "none/out.pcapng"]);
    assert!(done.code == Some(1) && done.err.contains("none/out.pcapng: cannot create the file"), "{done:?}");
    let (_main, terminal) = terminal();
    let child = bench.fixture.command(&["capture", "vm1"]).stdout(terminal).stderr(Stdio::piped()).spawn().unwrap();
    let done = Capture { child, err: String::new() }.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("standard output is a terminal: write to a file with `-w FILE`"), "{done:?}");
}

/// Returns both sides of a terminal.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let other = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (main.into(), other)
}
