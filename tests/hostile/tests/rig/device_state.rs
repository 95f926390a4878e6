//! Device states that an attacker sends, and channels on which the port's thread could wait for
//! ever.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hostile::scene::Scene;
use rustix::fs::{OFlags, fcntl_setfl};
use straightline_guest::{GuestOptions, memory_file};
use straightline_testing::{noise, wait_until};
use straightline_virtio::vhost_user::{FrontendClient, Message, Request, TransferSpec};

use crate::messages::frontend;

/// Sends a message and returns the answer as a number. Bits 0 to 7 are not zero if the message
/// failed.
fn ask(client: &FrontendClient, request: Request, payload: Vec<u8>, fds: &[BorrowedFd<'_>]) -> u64 {
    client.send_raw(&Message::request(request, payload), fds).expect("sent");
    answer(client, request)
}

/// Returns the answer to a message as a number.
fn answer(client: &FrontendClient, request: Request) -> u64 {
    let answer = client.recv_raw().expect("an answer").expect("no end");
    assert_eq!(answer.request, request.code());
    u64::from_ne_bytes(answer.payload.try_into().expect("a number"))
}

fn begin(client: &FrontendClient, direction: u32, phase: u32, channel: impl AsFd) -> u64 {
    let payload = TransferSpec { direction, phase }.encode();
    ask(client, Request::SetDeviceStateFd, payload, &[channel.as_fd()])
}

fn check(client: &FrontendClient) -> u64 {
    ask(client, Request::CheckDeviceState, Vec::new(), &[])
}

/// Answer to SET_DEVICE_STATE_FD: success, and no other channel is returned.
const TAKEN: u64 = 0x100;
const REFUSED: u64 = 0x101;
const SAVE: u32 = 0;
const LOAD: u32 = 1;

#[test]
fn states_that_are_none() {
    let mut scene = Scene::new();
    let mut client = frontend(&scene);
    let good = client.save_state().expect("a state");
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let mut states: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "it has 0 bytes"),
        (noise(1, 600), "not the state of a network device"),
        (changed(8, 2), "version 2"),
        (changed(100, 0xaa), "checksum"),
        ([&good[..], &[0]].concat(), "its header gives a length of"),
        (noise(2, 60_000), "it has more than"),
    ];
    states.extend((1..good.len()).step_by(37).map(|cut| (good[..cut].to_vec(), "device state: it ")));
    for (state, words) in states {
        assert!(client.load_state(&state).is_err(), "{words}");
        scene.rig.wait_down(0, words);
        // The port continues, and accepts a valid state.
        client.load_state(&good).expect("the right one");
    }
    scene.victims.go_on();
    drop(client);
    scene.recovers("states that are none");
    scene.end();
}

/// A process that the frontend has just forked holds the pipe until it runs its own program.
#[test]
fn a_pipe_may_close_a_little_after_the_check() {
    let scene = Scene::new();
    let mut client = frontend(&scene);
    let good = client.save_state().expect("a state");
    // The time is the subject: the port waits half a second for the end. Where this thread does not run for
    // so long between the check and the end, the transfer is begun again.
    wait_until("a state whose end comes late is taken", || {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        assert_eq!(begin(&client, LOAD, 0, &reader), TAKEN);
        writer.write_all(&good).expect("the pipe takes it");
        client.send_raw(&Message::request(Request::CheckDeviceState, Vec::new()), &[]).expect("sent");
        std::thread::sleep(Duration::from_millis(50));
        drop(writer);
        answer(&client, Request::CheckDeviceState) == 0
    });
    drop(client);
    scene.end();
}

#[test]
fn channels_that_nobody_reads_or_writes() {
    let mut scene = Scene::new();
    let client = frontend(&scene);
    assert_eq!(check(&client), 1, "nothing was moved");

    // A pipe that is full, is never read, and blocks.
    let (reader, writer) = io::pipe().expect("a pipe");
    let full = OwnedFd::from(writer.try_clone().expect("dup"));
    fcntl_setfl(&full, OFlags::NONBLOCK).expect("flags");
    while rustix::io::write(&full, &[0; 4096]).is_ok() {}
    fcntl_setfl(&full, OFlags::empty()).expect("flags");
    assert_eq!(begin(&client, SAVE, 0, &writer), TAKEN);
    scene.victims.go_on();
    assert_eq!(check(&client), 1, "it was not taken");
    // A pipe without a reader fails at once, or when the transfer is checked.
    drop(reader);
    begin(&client, SAVE, 0, &writer);
    assert_eq!(check(&client), 1);

    // A pipe that is never closed, empty or with some bytes.
    let (reader, mut writer) = io::pipe().expect("a pipe");
    for bytes in [0, 100] {
        writer.write_all(&noise(3, bytes)).expect("the pipe takes it");
        assert_eq!(begin(&client, LOAD, 0, &reader), TAKEN);
        scene.victims.go_on();
        assert_eq!(check(&client), 1, "it had no end");
    }
    // A socket whose other end sends nothing. The next transfer replaces it.
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    assert_eq!(begin(&client, LOAD, 0, &theirs), TAKEN);
    assert_eq!(begin(&client, SAVE, 0, &theirs), TAKEN);
    assert_eq!(check(&client), 0);
    drop(theirs);
    let mut state = Vec::new();
    (&ours).read_to_end(&mut state).expect("it ends");
    assert!(state.len() > 500);
    // A memory file, whose bytes are no valid state when they are loaded.
    let file = memory_file(1 << 20).expect("a file");
    assert_eq!((begin(&client, SAVE, 0, &file), check(&client)), (TAKEN, 0));
    assert_eq!((begin(&client, LOAD, 0, &file), check(&client)), (TAKEN, 1), "zeros");

    // Descriptors that are no channels; directions and phases that do not exist.
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let null = File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
    let folder = File::open("/").expect("a folder");
    for channel in [event.as_fd(), null.as_fd(), folder.as_fd()] {
        assert_eq!(begin(&client, SAVE, 0, channel), REFUSED);
        assert_eq!(begin(&client, LOAD, 0, channel), REFUSED);
    }
    for (direction, phase) in [(2, 0), (0, 1), (u32::MAX, u32::MAX)] {
        assert_eq!(begin(&client, direction, phase, &writer), REFUSED);
    }
    // A frontend that leaves during a transfer leaves nothing behind.
    assert_eq!(begin(&client, LOAD, 0, &reader), TAKEN);
    drop(client);
    scene.recovers("channels");
    scene.end();
}

#[test]
fn a_state_under_a_running_device() {
    let mut scene = Scene::new();
    let mut guest = scene.rig.guest(0, &GuestOptions::default());
    let (reader, writer) = io::pipe().expect("a pipe");
    assert_eq!(begin(guest.client(), LOAD, 0, &reader), REFUSED);
    assert_eq!(begin(guest.client(), SAVE, 0, &writer), REFUSED);
    assert_eq!(check(guest.client()), 1);
    // The transfer starts while the device is stopped, and is checked while it runs.
    let bases = guest.stop().expect("stopped");
    let state = guest.client().save_state().expect("a state");
    let (reader, mut writer) = io::pipe().expect("a pipe");
    assert_eq!(begin(guest.client(), LOAD, 0, &reader), TAKEN);
    writer.write_all(&state).expect("the pipe takes it");
    drop(writer);
    guest.resume(&bases).expect("it goes on");
    assert_eq!(check(guest.client()), 1);
    scene.rig.wait_up(0);
    drop(guest);
    scene.recovers("a state under a running device");
    scene.end();
}
