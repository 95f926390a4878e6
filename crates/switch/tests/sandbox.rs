//! Tests what a process can and cannot do in the sandbox. A process never leaves the sandbox, so
//! each case is a process of its own (this program again). It enters the sandbox, tries everything
//! that is listed here, and prints the result of each try.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode as RawMode, chmodat, chownat, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketType};
use straightline_config::{Config, Kinds, Machine, Mechanism, Mode};
use straightline_graph::Clock;
use straightline_packet::Level;
use straightline_switch::api::EventKind;
use straightline_switch::{Switch, sandbox, socket_maker};
use straightline_testing::wait_until;
use straightline_virtio::memory::{GuestMemory, Region};

/// The environment variable of the process that enters the sandbox: the folder that it works in.
const CHILD: &str = "STRAIGHTLINE_TEST_SANDBOX";

/// The environment variable of the process that makes the sockets of that process.
const MAKER: &str = "STRAIGHTLINE_TEST_SOCKET_MAKER";

fn main() -> ExitCode {
    if std::env::var_os(MAKER).is_some() {
        socket_maker::serve().expect("the end of the switch");
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = std::env::var_os(CHILD) {
        child(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("all_together", all_together),
        Trial::test("landlock_alone", landlock_alone),
        Trial::test("seccomp_alone", seccomp_alone),
        Trial::test("capabilities_alone", capabilities_alone),
        Trial::test("sockets_for_others", sockets_for_others),
        Trial::test("calls_on_any_path", calls_on_any_path),
        Trial::test("interfaces", interfaces),
        Trial::test("switched_off", switched_off),
        Trial::test("too_late", too_late),
    ];
    // It knows no times of tests, which `cargo xtask test` asks for.
    let arguments = Arguments::from_iter(std::env::args().filter(|argument| argument != "--report-time"));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Tries that fail where both filters are in force. `EPERM` comes from seccomp, `EACCES` from
/// Landlock.
const FORBIDDEN: [(&str, &str); 15] = [
    ("connect", "EPERM"),
    ("give a file away", "EPERM"),
    ("set a file's bits", "EPERM"),
    ("open another file", "EACCES"),
    ("listen elsewhere", "EACCES"),
    ("make a file", "EPERM"),
    ("make an internet socket", "EPERM"),
    ("execute", "EPERM"),
    ("fork", "EPERM"),
    ("trace", "EPERM"),
    ("signal another process", "EPERM"),
    ("write another process", "EPERM"),
    ("map code", "EPERM"),
    ("make a namespace", "EPERM"),
    ("load a program into the kernel", "EPERM"),
];

/// Tries that succeed in every sandbox.
const NEEDED: [(&str, &str); 10] = [
    ("read the configuration", "ok"),
    ("read it after it was replaced", "ok"),
    ("listen", "ok"),
    ("replace a stale socket", "ok"),
    ("remove a socket", "ok"),
    ("start a thread", "ok"),
    ("panic", "ok"),
    ("lose guest memory", "ok"),
    ("run a switch", "ok"),
    ("count descriptors", "ok"),
];

/// The output of a process: the result of each try, its lines in /proc, its standard error.
struct Told {
    ends: BTreeMap<String, String>,
    err: String,
}

impl Told {
    #[track_caller]
    fn is(&self, expected: &[(&str, &str)]) {
        for (what, end) in expected {
            assert_eq!(self.ends.get(*what).map(String::as_str), Some(*end), "{what}: {:#?}\n{}", self.ends, self.err);
        }
    }

    #[track_caller]
    fn says(&self, what: &str, words: &[&str]) {
        let end = &self.ends[what];
        assert!(words.iter().all(|part| end.contains(part)), "{what}: {end}");
    }
}

/// Runs a process with these keys in `[switch]`, and these of its port.
fn process(switch: &str, port: &str) -> Told {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for name in ["own", "other"] {
        fs::create_dir(at.join(name)).expect("a folder");
    }
    let port = format!("[port.p]\nkind = \"vhost-user\"\nsocket = \"@/own/p\"\n{port}\n");
    let port = port.replace('@', &at.display().to_string());
    fs::write(at.join("own/c.toml"), format!("[switch]\n{switch}\n{port}")).expect("a configuration");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(CHILD, at).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    // The process has entered and waits, so that this one can read its lines in /proc: the process
    // itself no longer may.
    out.read_line(&mut text).expect("a line");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a process");
    drop(child.stdin.take());
    out.read_to_string(&mut text).expect("lines");
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("lines");
    let end = child.wait().expect("its end");
    assert!(end.success(), "{end}\n{text}\n{err}");
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    let pairs = pairs.chain(status.lines().filter_map(|line| line.split_once(":\t")));
    Told { ends: pairs.map(|(what, end)| (what.to_owned(), end.to_owned())).collect(), err }
}

const NOTHING: &str = "0000000000000000";

fn all_together() -> Result<(), Failed> {
    let told = process("", "");
    told.is(&NEEDED);
    told.is(&FORBIDDEN);
    told.is(&[("in force", "capabilities landlock seccomp"), ("Seccomp", "2"), ("NoNewPrivs", "1")]);
    told.is(&[("CapEff", NOTHING), ("CapPrm", NOTHING), ("CapInh", NOTHING), ("CapAmb", NOTHING)]);
    // An operator learns what was refused, by name for calls that an attack would use.
    for name in ["socket", "clone", "ptrace", "kill", "openat", "mmap", "mount"] {
        let line = format!(" ({name}); see the sandbox in SECURITY.md\n");
        assert!(told.err.contains(&line), "{name}\n{}", told.err);
    }
    let counted: usize = told.ends["refused"].parse()?;
    let lines = told.err.matches("the sandbox refused system call").count();
    assert!(counted >= 20 && lines == 16, "{counted} counted, {lines} told");
    told.is(&[("refused calls are events", "ok")]);
    // Rights that the configuration did not need at the start are refused, and the message says how
    // to get them.
    told.says("a port elsewhere", &["other held no socket", "restart to apply"]);
    told.says("a user by name", &["names cannot be looked up in the sandbox; restart the switch, or write the number"]);
    told.says("a port that connects", &["mode \"client\": no port had it", "restart to apply"]);
    told.says("a port with other bits", &["perms: all ports had \"0600\"", "restart to apply"]);
    told.says("another configuration", &["the sandbox allows no other file than the configuration's own"]);
    if is_root() {
        told.says("a port for another user", &["no port had one when the switch started", "restart to apply"]);
    }
    Ok(())
}

fn landlock_alone() -> Result<(), Failed> {
    let told = process("sandbox = [\"landlock\"]", "");
    told.is(&NEEDED);
    told.is(&[("in force", "landlock"), ("Seccomp", "0"), ("NoNewPrivs", "1"), ("refused", "0")]);
    for what in ["open another file", "listen elsewhere", "make a file", "execute", "connect to the internet"] {
        told.is(&[(what, "EACCES")]);
    }
    for what in ["make an internet socket", "connect", "give a file away", "set a file's bits"] {
        told.is(&[(what, "ok")]);
    }
    Ok(())
}

fn seccomp_alone() -> Result<(), Failed> {
    let told = process("sandbox = [\"seccomp\"]", "");
    told.is(&NEEDED);
    told.is(&[("in force", "seccomp"), ("Seccomp", "2"), ("NoNewPrivs", "1")]);
    for forbidden in FORBIDDEN.iter().filter(|(_, end)| *end == "EPERM") {
        told.is(&[*forbidden]);
    }
    told.is(&[("open another file", "ok"), ("listen elsewhere", "ok"), ("a port elsewhere", "ok")]);
    Ok(())
}

fn capabilities_alone() -> Result<(), Failed> {
    let told = process("sandbox = [\"capabilities\"]", if is_root() { "owner = \"1\"" } else { "" });
    told.is(&NEEDED);
    told.is(&[("in force", "capabilities"), ("Seccomp", "0"), ("NoNewPrivs", "1"), ("refused", "0")]);
    told.is(&[("CapEff", NOTHING), ("CapPrm", NOTHING), ("CapInh", NOTHING), ("execute", "ok")]);
    if is_root() {
        told.is(&[("CapBnd", NOTHING), ("a port for another user", "ok")]);
    }
    Ok(())
}

/// A switch whose sockets are for other users keeps no right that reaches other files, because another
/// process makes its sockets.
fn sockets_for_others() -> Result<(), Failed> {
    if !is_root() {
        let _ = writeln!(io::stdout(), "\nskipped sockets_for_others: only root can give a socket away");
        return Ok(());
    }
    let told = process("", "owner = \"1\"\ngroup = \"2\"");
    told.is(&NEEDED);
    told.is(&FORBIDDEN);
    told.is(&[("CapEff", NOTHING), ("CapPrm", NOTHING), ("CapInh", NOTHING), ("CapAmb", NOTHING)]);
    told.is(&[("set a file's special bits", "EPERM"), ("in force", "capabilities landlock seccomp")]);
    // A reload may change owners and permission bits.
    for what in ["a port for another user", "a port of a group", "a port with other bits"] {
        told.is(&[(what, "ok")]);
    }
    told.says("a port elsewhere", &["other held no socket", "restart to apply"]);
    Ok(())
}

fn switched_off() -> Result<(), Failed> {
    let told = process("sandbox = []", "");
    told.is(&NEEDED);
    told.is(&[("in force", ""), ("Seccomp", "0"), ("NoNewPrivs", "0"), ("refused", "0")]);
    for what in ["open another file", "make a file", "make an internet socket", "execute"] {
        told.is(&[(what, "ok")]);
    }
    Ok(())
}

/// Landlock does not cover these calls, so seccomp allows each only to a configuration that needs
/// it.
fn calls_on_any_path() -> Result<(), Failed> {
    const NONE: [(&str, &str); 4] = [
        ("connect", "EPERM"),
        ("give a file away", "EPERM"),
        ("set a file's bits", "EPERM"),
        ("set a file's special bits", "EPERM"),
    ];
    let client = "[port.c]\nkind = \"vhost-user\"\nsocket = \"@/own/c\"\nmode = \"client\"";
    let group = format!("group = \"{}\"\nperms = \"0600\"", rustix::process::getegid().as_raw());
    let cases: [(&str, &str, &str); 3] = [
        (client, "connect", "a port that connects"),
        (&group, "give a file away", "a port of a group"),
        ("perms = \"0640\"", "set a file's bits", "a port with other bits"),
    ];
    for (port, allowed, reload) in cases {
        let told = process("", port);
        told.is(&NEEDED);
        for (what, end) in NONE {
            told.is(&[(what, if what == allowed { "ok" } else { end })]);
        }
        // Rights that were needed at the start are available to a reload as well.
        told.is(&[(reload, "ok")]);
    }
    process("", "").says("a port of a group", &["the sandbox (seccomp) gave up the right", "restart to apply"]);
    Ok(())
}

/// The tries with the descriptors of a tap, a packet socket and an AF_XDP socket. In the sandbox
/// these cannot reach other interfaces by new sockets, nor change any.
const INTERFACE_TRIES: [(&str, &str); 16] = [
    ("attach to another tap", "refused"),
    ("keep the tap after the end", "refused"),
    ("give the tap away", "refused"),
    ("set an interface down", "refused"),
    ("change an MTU", "refused"),
    ("join a Linux bridge", "refused"),
    ("set an option of packet sockets", "refused"),
    ("set an option of AF_XDP sockets", "refused"),
    ("make a packet socket", "refused"),
    ("make an AF_XDP socket", "refused"),
    ("make a netlink socket", "refused"),
    ("load a program", "refused"),
    ("start another opener", "refused"),
    ("open the device of taps", "EACCES"),
    ("receive packets", "allowed"),
    ("send packets", "allowed"),
];

fn interfaces() -> Result<(), Failed> {
    if !is_root() {
        let _ = writeln!(io::stdout(), "\nskipped interfaces: only root can open a tap");
        return Ok(());
    }
    let told = process("", "[port.t]\nkind = \"tap\"\nname = \"sl0\"\n[bridge.b]\nports = [\"p\", \"t\"]");
    told.is(&[("in force", "capabilities landlock seccomp"), ("CapEff", NOTHING), ("CapPrm", NOTHING)]);
    told.is(&INTERFACE_TRIES);
    // Without an interface in the configuration, nothing receives or sends in these ways.
    let told = process("", "");
    told.is(&[("receive from interfaces", "EPERM"), ("send to interfaces", "EPERM")]);
    told.says("a port with an interface", &["no port had an interface", "restart to apply"]);
    Ok(())
}

/// The sandbox would not hold for threads that run already.
fn too_late() -> Result<(), Failed> {
    let late = std::thread::spawn(|| sandbox::enter(&Config::default(), Path::new("x.toml"))).join();
    let error = late.expect("no panic").expect_err("a second thread");
    assert!(error.to_string().contains("before any other thread starts"), "{error}");
    assert_eq!(sandbox::in_force(), [] as [Mechanism; 0]);
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The process that enters the sandbox.
fn child(folder: &Path) {
    let file = folder.join("own/c.toml");
    let config = Config::load(&file).expect("a good configuration").config;
    if config.ports.iter().any(|port| port.kind.word() == "tap") {
        return interface_child(&config, &file);
    }
    // These are made before: in the sandbox, no file can be made and no socket can listen for TCP.
    fs::copy(&file, folder.join("other/c.toml")).expect("a copy");
    fs::copy(&file, folder.join("own/new.toml")).expect("a copy");
    let _live = UnixListener::bind(folder.join("live")).expect("a socket");
    let internet = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP socket");
    let address = internet.local_addr().expect("its address");
    let parent = std::os::unix::process::parent_id();
    let mut maker = Command::new(std::env::current_exe().expect("this program"));
    maker.env(MAKER, "").stderr(Stdio::null());
    socket_maker::start(&config, maker, &Clock::real()).expect("the process that makes sockets");

    sandbox::enter(&config, &file).expect("the sandbox");

    let names: Vec<_> = sandbox::in_force().iter().map(|mechanism| mechanism.as_str()).collect();
    tell("in force", &names.join(" "));
    io::stdin().read_line(&mut String::new()).expect("the end of standard input");
    try_needed(&config, folder);
    try_reloads(&config, folder);
    try_forbidden(folder, parent);
    tell_end("connect to the internet", TcpStream::connect(address));
    tell("refused", &sandbox::refused_calls().to_string());
    tell("refused calls are events", if refused_calls_are_events() { "ok" } else { "none" });
    // The last try: where it succeeds, this program is replaced.
    if config.switch.sandbox.mechanisms.iter().all(|mechanism| *mechanism == Mechanism::Capabilities) {
        tell("execute", "ok");
    }
    tell_end::<()>("execute", Err(Command::new("/bin/true").exec()));
}

/// Returns whether a switch tells the number of refused calls.
fn refused_calls_are_events() -> bool {
    if sandbox::refused_calls() == 0 {
        return false;
    }
    let switch = Switch::start(&Config::default()).expect("a switch");
    let is_event = |kind: &EventKind| matches!(kind, EventKind::RefusedCall { count } if *count >= 20);
    wait_until("refused calls are an event", || {
        switch.source().events(0).events.iter().any(|event| is_event(&event.kind))
    });
    true
}

fn try_needed(config: &Config, folder: &Path) {
    let file = folder.join("own/c.toml");
    tell_end("read the configuration", load(&file));
    tell_end("listen", UnixListener::bind(folder.join("own/s")).map(std::mem::forget));
    tell_end("remove a socket", fs::remove_file(folder.join("own/s")));
    // A socket that a dead process left.
    drop(UnixListener::bind(folder.join("own/p")));
    tell_end("replace a stale socket", Switch::start(config).map_err(|error| io::Error::other(format!("{error:#}"))));
    let thread = std::thread::Builder::new().name("another".to_owned()).spawn(|| ());
    tell_end("start a thread", thread.map(std::thread::JoinHandle::join));
    let panic = std::panic::catch_unwind(|| panic!("for the test"));
    tell("panic", if panic.is_err() { "ok" } else { "none" });
    tell("lose guest memory", lose_guest_memory());
    match Switch::start(config) {
        Ok(switch) => {
            tell_end("run a switch", fs::metadata(folder.join("own/p")));
            let free = || switch.source().status().fds_free.expect("a number");
            // Threads of the switch open and close descriptors meanwhile.
            let counts = (0..100).any(|_| {
                let before = free();
                let _file = File::open(&file).expect("the configuration");
                free() == before - 1
            });
            tell("count descriptors", if counts { "ok" } else { "wrong" });
            switch.stop();
            assert!(!folder.join("own/p").exists(), "the socket is left");
        }
        Err(error) => tell("run a switch", &format!("{error:#}")),
    }
}

/// Reads guest memory whose file was truncated. The handler of SIGBUS makes system calls.
fn lose_guest_memory() -> &'static str {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, 4096).expect("its length");
    let region = Region::map(file.as_fd(), 0, 4096, 0, 0).expect("a region");
    let memory = GuestMemory::new(vec![Arc::new(region)]).expect("one region");
    ftruncate(&file, 0).expect("its length");
    let refused = sandbox::refused_calls();
    let mut bytes = [1; 100];
    memory.segment(0, 100, &mut 0).expect("in memory").read(Level::Scalar, &mut bytes);
    match sandbox::refused_calls() == refused {
        true if memory.poisoned() && bytes == [0; 100] => "ok",
        true => "the bytes are still there",
        false => "a call is refused",
    }
}

/// The changes that a reload may need.
fn try_reloads(config: &Config, folder: &Path) {
    let file = folder.join("own/c.toml");
    let start = |change: &dyn Fn(&mut straightline_config::VhostUserConfig)| {
        let mut config = config.clone();
        let kind = config.ports[0].kind.as_vhost_user_mut().expect("a vhost-user port");
        change(kind);
        Switch::start(&config).map_or_else(|error| format!("{error:#}"), |_| "ok".to_owned())
    };
    tell("a port elsewhere", &start(&|kind| kind.socket = folder.join("other/p")));
    tell("a port for another user", &start(&|kind| kind.owner = Some(1)));
    tell("a port of a group", &start(&|kind| kind.group = Some(rustix::process::getegid().as_raw())));
    tell("a port that connects", &start(&|kind| kind.mode = Mode::Client));
    tell("a port with other bits", &start(&|kind| kind.perms = 0o666));
    let text = "[port.t]\nkind = \"tap\"\nname = \"sl0\"\n[port.u]\nkind = \"tap\"\nname = \"sl1\"\n";
    let with_tap = Config::parse("f", text, &Machine::this()).expect("a good configuration").config;
    let with_tap = Config { switch: config.switch.clone(), ..with_tap };
    tell(
        "a port with an interface",
        &Switch::start(&with_tap).map_or_else(|error| format!("{error:#}"), |_| "ok".to_owned()),
    );
    let error = |loaded: Result<_, straightline_config::ConfigErrors>| match loaded {
        Ok(_) => "ok".to_owned(),
        Err(errors) => errors.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    let text = format!(
        "[port.q]\nkind = \"vhost-user\"\nsocket = \"{}\"\nowner = \"daemon\"\n",
        folder.join("own/q").display()
    );
    tell("a user by name", &error(Config::parse("f", &text, &Machine::this())));
    let other = folder.join("other/c.toml");
    let loaded = Config::load_hinted(&other, &Kinds::new(), |error| sandbox::about_reading(&other, error));
    tell("another configuration", &error(loaded));
    // The file is replaced as editors do it. Another process does it, because seccomp alone would
    // allow it to this one.
    let renamed = fs::rename(folder.join("own/new.toml"), &file);
    let replaced = if renamed.is_ok() { load(&file) } else { load(&folder.join("own/new.toml")) };
    tell_end("read it after it was replaced", replaced);
}

fn load(file: &Path) -> io::Result<()> {
    Config::load(file).map(drop).map_err(|errors| io::Error::other(errors.to_string()))
}

/// Calls that only an attacker who has taken over the process would make.
fn try_forbidden(folder: &Path, parent: u32) {
    tell_end("connect", UnixStream::connect(folder.join("live")));
    let file = folder.join("other/c.toml");
    let us = rustix::process::geteuid();
    tell_end("give a file away", chownat(CWD, &file, Some(us), None, AtFlags::empty()).map_err(io::Error::from));
    let set = |bits| chmodat(CWD, &file, RawMode::from_raw_mode(bits), AtFlags::empty()).map_err(io::Error::from);
    tell_end("set a file's bits", set(0o600));
    tell_end("set a file's special bits", set(0o4600));
    tell_end("open another file", File::open("/etc/passwd"));
    tell_end("make a file", File::create(folder.join("own/file")));
    tell_end("listen elsewhere", UnixListener::bind(folder.join("other/s")));
    tell_end("make an internet socket", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    // Flags that no kernel accepts: where the call is not refused, there is still one process.
    tell_end("fork", call(libc::SYS_clone, [i64::from(libc::CLONE_SIGHAND), 0, 0]));
    let parent = i64::from(parent);
    tell_end("trace", call(libc::SYS_ptrace, [i64::from(libc::PTRACE_PEEKUSER), 0, 0]));
    tell_end("signal another process", call(libc::SYS_kill, [parent, 0, 0]));
    tell_end("write another process", call(libc::SYS_process_vm_writev, [parent, 0, 0]));
    tell_end("make a namespace", call(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0]));
    tell_end("load a program into the kernel", call(libc::SYS_bpf, [0, 0, 0]));
    let code = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    tell_end("map code", call(libc::SYS_mmap, [0, 4096, code]));
    // More than the log names.
    for _ in 0..20 {
        let _ = call(libc::SYS_mount, [0, 0, 0]);
    }
    tell_end("receive from interfaces", call(libc::SYS_recvmmsg, [-1, 0, 0]));
    tell_end("send to interfaces", call(libc::SYS_sendmmsg, [-1, 0, 0]));
}

/// The process that has the descriptors of interfaces when it enters the sandbox.
fn interface_child(config: &Config, file: &Path) {
    let tap = File::options().read(true).write(true).open("/dev/net/tun").expect("the device of taps");
    let mut request = [0_u8; 40];
    let name = format!("sl{}", std::process::id());
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request[16..20].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the request is as long as an ifreq, and outlives the call.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    let socket = |family| rustix::net::socket(family, SocketType::RAW, None).expect("a socket");
    let packet = socket(AddressFamily::PACKET);
    let xdp = socket(AddressFamily::XDP);

    sandbox::enter(config, file).expect("the sandbox");

    let names: Vec<_> = sandbox::in_force().iter().map(|mechanism| mechanism.as_str()).collect();
    tell("in force", &names.join(" "));
    io::stdin().read_line(&mut String::new()).expect("the end of standard input");
    let tap = fd_of(&tap);
    let packet = fd_of(&packet);
    let xdp = fd_of(&xdp);
    tell_refusal("attach to another tap", libc::SYS_ioctl, [tap, libc::TUNSETIFF.cast_signed(), 0]);
    tell_refusal("keep the tap after the end", libc::SYS_ioctl, [tap, libc::TUNSETPERSIST.cast_signed(), 1]);
    tell_refusal("give the tap away", libc::SYS_ioctl, [tap, libc::TUNSETOWNER.cast_signed(), 1]);
    tell_refusal("set an interface down", libc::SYS_ioctl, [packet, libc::SIOCSIFFLAGS.cast_signed(), 0]);
    tell_refusal("change an MTU", libc::SYS_ioctl, [packet, libc::SIOCSIFMTU.cast_signed(), 0]);
    // SIOCBRADDIF, which `libc` lacks.
    tell_refusal("join a Linux bridge", libc::SYS_ioctl, [packet, 0x89a2, 0]);
    let option = |socket, level: i32| (libc::SYS_setsockopt, [socket, i64::from(level), 1]);
    let (call, arguments) = option(packet, libc::SOL_PACKET);
    tell_refusal("set an option of packet sockets", call, arguments);
    let (call, arguments) = option(xdp, libc::SOL_XDP);
    tell_refusal("set an option of AF_XDP sockets", call, arguments);
    for (what, family) in [
        ("make a packet socket", libc::AF_PACKET),
        ("make an AF_XDP socket", libc::AF_XDP),
        ("make a netlink socket", libc::AF_NETLINK),
    ] {
        tell_refusal(what, libc::SYS_socket, [i64::from(family), i64::from(libc::SOCK_RAW), 0]);
    }
    tell_refusal("load a program", libc::SYS_bpf, [0, 0, 0]);
    tell_refusal("start another opener", libc::SYS_execve, [0, 0, 0]);
    tell_end("open the device of taps", File::open("/dev/net/tun"));
    tell_refusal("receive packets", libc::SYS_recvmmsg, [packet, 0, 0]);
    tell_refusal("send packets", libc::SYS_sendmmsg, [packet, 0, 0]);
}

fn fd_of(descriptor: &impl AsRawFd) -> i64 {
    i64::from(descriptor.as_raw_fd())
}

/// Makes a system call, and tells whether the filter refused it. Without privileges the kernel
/// would refuse most of these calls itself, so the filter's own count decides.
fn tell_refusal(what: &str, number: i64, arguments: [i64; 3]) {
    let before = sandbox::refused_calls();
    let _ = call(number, arguments);
    tell(what, if sandbox::refused_calls() > before { "refused" } else { "allowed" });
}

/// Makes a system call. The further arguments are for the call that maps memory.
fn call(number: i64, [a, b, c]: [i64; 3]) -> io::Result<()> {
    // SAFETY: pointers among the arguments are null, so a call that the sandbox does not refuse
    // fails with a fault. New memory, where it may be code, is placed where nothing else is.
    let result = unsafe { libc::syscall(number, a, b, c, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn tell(what: &str, end: &str) {
    writeln!(io::stdout(), "{what} = {end}").expect("a reader");
}

fn tell_end<T>(what: &str, end: io::Result<T>) {
    let end = match end {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => "EPERM".to_owned(),
            Some(libc::EACCES) => "EACCES".to_owned(),
            _ => error.to_string(),
        },
    };
    tell(what, &end);
}
