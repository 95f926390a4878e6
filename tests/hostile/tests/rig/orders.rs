//! Messages in every wrong order. Each message is accepted or refused, and the port serves the next
//! frontend.

use std::os::fd::{AsFd, BorrowedFd};

use hostile::scene::Scene;
use straightline_guest::memory_file;
use straightline_testing::{BASIC, PATIENCE};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, Message, RegionSpec, Request, RingAddresses};

use crate::messages::{addresses, number, region, state};

/// A message, and the file that is sent with it.
struct Step {
    message: Message,
    file: Attachment,
}

#[derive(Clone, Copy)]
enum Attachment {
    Nothing,
    Memory,
    Event,
}

/// Returns one message of each kind, each valid at some point of a session.
fn steps() -> Vec<Step> {
    let with = |message, file| Step { message, file };
    let plain = |message| Step { message, file: Attachment::Nothing };
    let empty = |request| plain(Message::request(request, Vec::new()));
    let whole = region(1 << 20, 0);
    let rings = RingAddresses { desc: 0x1000, avail: 0x3000, used: 0x4000 };
    let features = BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES;
    let protocol = f::VHOST_USER_PROTOCOL_F_REPLY_ACK
        | f::VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS
        | f::VHOST_USER_PROTOCOL_F_RESET_DEVICE
        | f::VHOST_USER_PROTOCOL_F_STATUS
        | f::VHOST_USER_PROTOCOL_F_DEVICE_STATE;
    vec![
        empty(Request::GetFeatures),
        plain(number(Request::SetFeatures, features)),
        plain(number(Request::SetFeatures, features | f::VIRTIO_F_EVENT_IDX)),
        empty(Request::GetProtocolFeatures),
        plain(number(Request::SetProtocolFeatures, protocol)),
        empty(Request::SetOwner),
        empty(Request::ResetOwner),
        empty(Request::ResetDevice),
        plain(number(Request::SetStatus, 15)),
        plain(number(Request::SetStatus, 0)),
        with(Message::request(Request::SetMemTable, RegionSpec::encode_table(&[whole])), Attachment::Memory),
        plain(Message::request(Request::SetMemTable, RegionSpec::encode_table(&[]))),
        with(Message::request(Request::AddMemReg, whole.encode_single()), Attachment::Memory),
        plain(Message::request(Request::RemMemReg, whole.encode_single())),
        plain(state(Request::SetVringNum, 1, 256)),
        plain(state(Request::SetVringBase, 1, 7)),
        plain(addresses(1, rings)),
        with(number(Request::SetVringKick, 1), Attachment::Event),
        plain(number(Request::SetVringKick, 1 | 1 << 8)),
        with(number(Request::SetVringCall, 1), Attachment::Event),
        with(number(Request::SetVringErr, 1), Attachment::Event),
        plain(state(Request::SetVringEnable, 1, 1)),
        plain(state(Request::SetVringEnable, 1, 0)),
        plain(state(Request::GetVringBase, 1, 0)),
        // Save a state, and load one from a file that contains none.
        with(number(Request::SetDeviceStateFd, 0), Attachment::Memory),
        with(number(Request::SetDeviceStateFd, 1), Attachment::Memory),
        empty(Request::CheckDeviceState),
    ]
}

/// The state of the session before an order is tried: nothing set up; features set; a running ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartState {
    Nothing,
    Features,
    Running,
}

/// Sends these steps one after the other, and a request at the end, so that all of them are
/// processed. Any of them may be refused, which may close the connection.
fn try_order(
    scene: &Scene,
    steps: &[Step],
    start: StartState,
    order: &[usize],
    memory: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
) {
    let client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
    client.set_timeout(Some(PATIENCE)).expect("a time limit");
    let setup: &[usize] = match start {
        StartState::Nothing => &[],
        StartState::Features => &[1, 4],
        StartState::Running => &[1, 4, 10, 14, 16, 17, 19, 21],
    };
    for &step in setup.iter().chain(order) {
        let Step { message, file } = &steps[step];
        let sent = match file {
            Attachment::Nothing => client.send_raw(message, &[]),
            Attachment::Memory => client.send_raw(message, &[memory]),
            Attachment::Event => client.send_raw(message, &[event]),
        };
        if sent.is_err() {
            return;
        }
    }
    let question = Message::request(Request::GetFeatures, Vec::new());
    if client.send_raw(&question, &[]).is_err() {
        return;
    }
    // The answers to the steps come first. Any answer is allowed, and so is the end of the
    // connection.
    while let Ok(Some(answer)) = client.recv_raw() {
        assert!(answer.is_reply() && answer.version() == 1, "{start:?}, {order:?}: {answer:?}");
        if answer.request == Request::GetFeatures.code() && !order.contains(&0) {
            return;
        }
        if answer.request == Request::GetFeatures.code() {
            break;
        }
    }
}

fn try_all(orders: impl Iterator<Item = Vec<usize>>) {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
    let steps = steps();
    for (n, order) in orders.enumerate() {
        for start in [StartState::Nothing, StartState::Features, StartState::Running] {
            try_order(&scene, &steps, start, &order, memory.as_fd(), event.as_fd());
        }
        if n % 64 == 0 {
            scene.recovers("an order of messages");
        }
    }
    scene.recovers("every order of messages");
    scene.settle();
    assert_eq!(scene.rig.port(0).regions, 0, "nothing stays behind");
    scene.end();
}

#[test]
fn messages_in_every_order_of_two() {
    let n = steps().len();
    try_all((0..n).flat_map(|a| (0..n).map(move |b| vec![a, b])));
}

#[test]
fn messages_in_every_order_of_three() {
    let n = steps().len();
    // The short run tries one order in `stride`, with another set for each first message.
    let stride = n * n * n / hostile::repeats(200, n * n * n);
    let all = (0..n).flat_map(move |a| (0..n).flat_map(move |b| (0..n).map(move |c| vec![a, b, c])));
    try_all(all.step_by(stride | 1));
}
