//! Local users who attack the API, beside others who use it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hostile::scene::Scene;
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};
use rustix::system::uname;
use rustix::thread::set_thread_res_uid;
use straightline_config::SwitchConfig;
use straightline_switch::api::{
    ApiHandle, ApiServer, Capture, CaptureRequest, Changes, Control, DynamicPortGuard, ErrorCode, Ping, PingRequest,
    PortRequest, Ports, Refusal, RequestError, Stream, Trace, TraceRequest, ask,
};
use straightline_testing::wait_until;

use crate::held::{lingering, send_beside};

/// The attacker, and another user.
const ATTACKER: u32 = 61_001;
const OTHER: u32 = 61_002;

/// More connections than a user may have, and than are refused at a time.
const MANY: usize = 200;

/// A control side that changes nothing.
struct Refusing;

impl Control for Refusing {
    fn clear_runtime(&self) {}

    fn reload(&self) -> Result<Changes, Refusal> {
        Ok(Changes::default())
    }

    fn preview(&self) -> Result<Changes, Refusal> {
        Ok(Changes::default())
    }
    fn set_link(&self, _: &str, _: bool) -> Result<(), Refusal> {
        Ok(())
    }
    fn capture(&self, _: &CaptureRequest) -> Result<(Capture, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }
    fn trace(&self, _: &TraceRequest) -> Result<(Trace, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }
    fn ping(&self, _: &PingRequest) -> Result<(Ping, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }
    fn add_dynamic_port(&self, _: &PortRequest, _: OwnedFd) -> Result<DynamicPortGuard, Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }
}

/// The API of a scene's switch, which every user may use.
struct Api {
    handle: ApiHandle,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Api {
    fn start(scene: &Scene, may_change: bool) -> Api {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its bits");
        let path = folder.path().join("api");
        let config = SwitchConfig { api_perms: Some(0o666), ..SwitchConfig::default() };
        let server = ApiServer::bind_for(&path, &config.api_permissions()).expect("a socket");
        let source = scene.rig.switch.source();
        let handle = if may_change { server.serve_control(source, Arc::new(Refusing)) } else { server.serve(source) };
        Api { handle: handle.expect("an API"), path, _folder: folder }
    }

    /// Asserts that the owner and another user are served.
    fn serves(&self) {
        for _ in 0..10 {
            assert_eq!(answer(&self.path).ports.len(), 4);
            let path = self.path.clone();
            assert_eq!(as_user(OTHER, move || answer(&path)).ports.len(), 4);
        }
    }

    /// Asserts that the API stops.
    fn stop(self) {
        let Api { handle, path, _folder } = self;
        let thread = thread::spawn(move || drop(handle));
        wait_until("the API stops", || thread.is_finished());
        thread.join().expect("no panic");
        assert!(!path.exists());
    }
}

/// Waits for an answer. On a busy machine it may be late, but it must be none that refuses.
fn answer(path: &Path) -> Ports {
    wait_until("the API answers", || match ask::<Ports>(path) {
        Ok(ports) => Ok(ports),
        Err(late @ RequestError::Timeout { .. }) => Err(late),
        Err(error) => panic!("{error}"),
    })
}

/// Runs this as another user: credentials are a thread's own.
fn as_user<T: Send + 'static>(user: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        let uid = Uid::from_raw(user);
        set_thread_res_uid(uid, uid, uid).expect("another user");
        work()
    });
    thread.join().expect("a thread")
}

fn connect_as_attacker(path: &Path) -> UnixStream {
    let path = path.to_owned();
    as_user(ATTACKER, move || UnixStream::connect(&path)).expect("a connection")
}

fn has_root(test: &str) -> bool {
    if !geteuid().is_root() {
        let _ = writeln!(std::io::stdout(), "\nskipped {test}: it needs root to be several users");
    }
    geteuid().is_root()
}

/// The kernel closes the last descriptor of a socket that lingers wherever it is: in the call that
/// receives the bytes beside it, or when the connection closes, accepted or not.
#[test]
fn descriptors_that_do_not_close_hold_neither_clients_nor_the_stop() {
    if !has_root("descriptors_that_do_not_close_hold_neither_clients_nor_the_stop") {
        return;
    }
    for may_change in [false, true] {
        let scene = Scene::new();
        let api = Api::start(&scene, may_change);
        let mut attackers = Vec::new();
        let mut refused = 0;
        let mut attack = |n: usize| {
            let (sent, peer) = lingering();
            let stream = connect_as_attacker(&api.path);
            let request = [&b"{\"cmd\":\"ports\"}\n"[..], b"{", b"\n\n\n"][n % 3];
            match send_beside(&stream, request, sent.as_fd()) {
                // The API has no place for this user, or the kernel refuses descriptors.
                Err(Errno::PIPE | Errno::PERM) => refused += 1,
                done => assert!(done.is_ok(), "{done:?}"),
            }
            // The last close is the switch's, unless it was faster, or has no descriptor.
            thread::spawn(move || drop(sent));
            attackers.push((stream, peer));
        };
        let status = || scene.rig.switch.source().status();
        if may_change {
            // Each attack is a race: we may close the descriptor last, or a child of another test may.
            let mut attacks = 0..MANY;
            wait_until("held threads are seen", || {
                if let Some(n) = attacks.next() {
                    attack(n);
                }
                status().api_held_threads > 0
            });
        }
        let before = status().api_refused_clients;
        scene.measure_gap("descriptors that do not close", |scene| {
            for n in 0..MANY {
                attack(n);
                if n % 50 == 0 {
                    api.serves();
                    scene.victims.go_on();
                }
            }
        });
        if may_change {
            // More than the user's places were held.
            assert!(status().api_refused_clients > before, "{:?}", status());
        } else {
            let expected = if kernel_refuses_descriptors() { MANY } else { 0 };
            assert_eq!(refused, expected, "descriptors that the kernel refuses");
        }
        api.serves();
        api.stop();
        scene.victims.go_on();
        // A reset ends each close that waits.
        drop(attackers);
        scene.end();
    }
}

/// Returns whether this kernel is Linux 6.16 or newer, which has SO_PASSRIGHTS.
fn kernel_refuses_descriptors() -> bool {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

/// Clients that never send, and clients that never read, come again as often as they are thrown out.
#[test]
fn a_user_who_takes_all_his_places_takes_no_place_of_others() {
    if !has_root("a_user_who_takes_all_his_places_takes_no_place_of_others") {
        return;
    }
    let scene = Scene::new();
    let api = Api::start(&scene, false);
    let ends = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = [&b""[..], b"{\"cmd\":\"ports\"}\n"]
        .into_iter()
        .map(|request| {
            let path = api.path.clone();
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                let uid = Uid::from_raw(ATTACKER);
                set_thread_res_uid(uid, uid, uid).expect("another user");
                let mut streams = VecDeque::new();
                while !ends.load(Ordering::Relaxed) {
                    let Ok(mut stream) = UnixStream::connect(&path) else { break };
                    // An answer for each, none of which is read.
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(1)));
                    while !request.is_empty() && stream.write_all(request).is_ok() {}
                    streams.push_back(stream);
                    if streams.len() > MANY {
                        streams.pop_front();
                    }
                }
            })
        })
        .collect();
    let refused = || scene.rig.switch.source().status().api_refused_clients;
    let before = refused();
    wait_until("the attacker has all places", || refused() > before);
    scene.measure_gap("a user who takes all places", |_| api.serves());
    scene.victims.go_on();
    // The one who is refused reads why.
    let mut text = String::new();
    let mut stream = connect_as_attacker(&api.path);
    let _ = stream.read_to_string(&mut text);
    let path = api.path.clone();
    let message = as_user(ATTACKER, move || {
        wait_until(&format!("a client is refused, after {text:?}"), || match ask::<Ports>(&path) {
            Err(RequestError::Refused { code: ErrorCode::Busy, message, .. }) => Ok(message),
            other => Err(other.err()),
        })
    });
    assert!(message.contains("user 61001 has 64 connections of this socket"), "{message}");
    ends.store(true, Ordering::Relaxed);
    api.stop();
    for attacker in attackers {
        attacker.join().expect("an attacker");
    }
    scene.end();
}
