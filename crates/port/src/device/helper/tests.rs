//! Tests of both ends with an opener that opens nothing, and with clients that are not ours.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send, sendmsg,
    socketpair,
};
use straightline_graph::Clock;
use straightline_testing::wait_until;

use super::*;
use crate::device::{AfPacketRequest, OpenCause, OpenedDevice, Opener};
use crate::helper_channel::{Channel, HelperError, HelperProcess, HelperSandbox, MAX_DESCRIPTORS, MAX_MESSAGE};

const PATIENCE: Duration = Duration::from_secs(20);

/// Opens pipes instead of interfaces: as many as the request has queues. Queues 0 fail.
#[derive(Clone, Debug, Default)]
struct FakeOpener {
    /// The calls, in their order.
    calls: Arc<Mutex<Vec<String>>>,
}

impl FakeOpener {
    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl Opener for FakeOpener {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        let DeviceRequest::AfPacket(request) = request else { panic!("{request:?}") };
        self.calls.lock().unwrap().push(format!("open {}", request.interface));
        if request.queues == 0 {
            return Err(OpenError::new(OpenCause::Missing, "there is no such interface"));
        }
        let facts = DeviceFacts { interface: request.interface.clone(), queues: request.queues, ..Default::default() };
        let pipe = |number| {
            let (read, write) = rustix::pipe::pipe().unwrap();
            File::from(write).write_all(&[number]).unwrap();
            read
        };
        Ok(OpenedDevice { facts, fds: (0..request.queues).map(|queue| pipe(queue.to_le_bytes()[0])).collect() })
    }

    fn close(&self, request: &DeviceRequest) {
        self.calls.lock().unwrap().push(format!("close {}", request.interface()));
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn request(interface: &str, queues: u16) -> DeviceRequest {
    DeviceRequest::AfPacket(AfPacketRequest { interface: interface.to_owned(), queues })
}

/// Starts the server of this socket on a thread.
fn serve(socket: OwnedFd, opener: &FakeOpener) -> JoinHandle<Result<(), HelperError>> {
    let opener = opener.clone();
    std::thread::spawn(move || {
        let server = HelperServer::receive(socket)?;
        let mechanisms = server.sandbox().mechanisms.clone();
        server.serve(HelperProcess { pid: 7, capabilities: Vec::new(), mechanisms }, &opener);
        Ok(())
    })
}

fn begin(requests: &[DeviceRequest], opener: &FakeOpener) -> (Helper, JoinHandle<Result<(), HelperError>>) {
    let (ours, theirs) = pair();
    let server = serve(theirs, opener);
    let sandbox = HelperSandbox { mechanisms: vec!["seccomp".to_owned()], required: true };
    (Helper::begin(ours, requests.to_vec(), sandbox, Clock::real()).unwrap(), server)
}

/// Sends bytes that need not be a message.
fn send_raw(channel: &OwnedFd, bytes: &[u8]) {
    assert_eq!(send(channel, bytes, SendFlags::NOSIGNAL).unwrap(), bytes.len());
}

fn answer(channel: &Channel) -> Answer {
    channel.receive_with(channel.end_of(PATIENCE), PATIENCE, &mut Vec::new()).unwrap()
}

#[test]
fn descriptors_and_facts_arrive_in_order() {
    let opener = FakeOpener::default();
    // More descriptors than one message holds.
    let many = u16::try_from(2 * MAX_DESCRIPTORS + 1).unwrap();
    let requests = [request("eth0", 3), request("eth1", many), request("gone", 0)];
    let (helper, server) = begin(&requests, &opener);
    assert_eq!(helper.process().mechanisms, ["seccomp"]);
    for request in &requests[..2] {
        let opened = helper.open(request).unwrap();
        assert_eq!(opened.facts.interface, request.interface());
        assert_eq!(opened.fds.len(), usize::from(opened.facts.queues));
        for (number, fd) in opened.fds.iter().enumerate() {
            let mut byte = [0];
            rustix::io::read(fd, &mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), number % 256);
        }
    }
    let error = helper.open(&requests[2]).unwrap_err();
    assert_eq!((error.cause, error.message.as_str()), (OpenCause::Missing, "there is no such interface"));
    assert!(helper.is_running());
    drop(helper);
    server.join().unwrap().unwrap();
}

#[test]
fn settings_are_restored_once_and_before_another_open() {
    let opener = FakeOpener::default();
    let requests = [request("a", 1), request("b", 1), request("c", 1)];
    let (helper, server) = begin(&requests, &opener);
    helper.open(&requests[0]).unwrap();
    helper.close(&requests[0]);
    helper.close(&requests[0]);
    helper.open(&requests[1]).unwrap();
    helper.open(&requests[1]).unwrap();
    helper.open(&requests[0]).unwrap();
    helper.close(&request("unknown", 1));
    drop(helper);
    server.join().unwrap().unwrap();
    let expected =
        ["open a", "close a", "open b", "close b", "open b", "open a", "close a", "close b"].map(str::to_owned);
    assert_eq!(opener.calls(), expected);
}

#[test]
fn only_interfaces_and_settings_of_the_start_are_opened() {
    let opener = FakeOpener::default();
    let (helper, _server) = begin(&[request("a", 1)], &opener);
    for (request, words) in [(request("b", 1), "interface b was in no port"), (request("a", 2), "had other settings")] {
        let error = helper.open(&request).unwrap_err();
        assert_eq!(error.cause, OpenCause::Denied);
        assert!(error.message.contains(words) && error.message.ends_with("restart to apply"), "{error}");
    }
    assert!(opener.calls().is_empty(), "the helper was not asked");
}

#[test]
fn a_helper_that_has_ended_is_named_as_the_reason() {
    let (ours, theirs) = pair();
    let server = std::thread::spawn(move || {
        let channel = Channel::new(theirs, Clock::real());
        assert!(matches!(channel.receive().unwrap(), Message::Add(_)));
        assert!(matches!(channel.receive().unwrap(), Message::Begin(_)));
        channel.send(&Answer::Begun(HelperProcess::default()), &[]).unwrap();
    });
    let helper = Helper::begin(ours, vec![request("a", 1)], HelperSandbox::default(), Clock::real()).unwrap();
    server.join().unwrap();
    assert!(!helper.is_running());
    let error = helper.open(&request("a", 1)).unwrap_err();
    assert_eq!(error.cause, OpenCause::Failed, "it is tried again");
    assert!(error.message.contains("the opener process has ended; restart the switch"), "{error}");
    helper.close(&request("a", 1));
}

#[test]
fn a_helper_that_cannot_begin_says_why() {
    let (ours, theirs) = pair();
    let server = std::thread::spawn(move || HelperServer::receive(theirs).unwrap().refuse("no seccomp"));
    let error = Helper::begin(ours, Vec::new(), HelperSandbox::default(), Clock::real()).unwrap_err();
    assert_eq!(error.to_string(), "no seccomp");
    server.join().unwrap();
}

#[test]
fn answers_that_come_too_late_are_discarded() {
    let (ours, theirs) = pair();
    let server = std::thread::spawn(move || {
        let channel = Channel::new(theirs, Clock::real());
        while !matches!(channel.receive().unwrap(), Message::Begin(_)) {}
        channel.send(&Answer::Begun(HelperProcess::default()), &[]).unwrap();
        let Message::Open { id, .. } = channel.receive().unwrap() else { panic!("a request to open") };
        let late = File::open("/dev/null").unwrap().into();
        let facts = DeviceFacts::default();
        channel.send(&Answer::Opened { id: id - 1, facts: facts.clone(), descriptors: 1 }, &[]).unwrap();
        channel.send(&Answer::Descriptors(id - 1), &[late]).unwrap();
        channel.send(&Answer::Opened { id, facts, descriptors: 0 }, &[]).unwrap();
    });
    let helper = Helper::begin(ours, vec![request("a", 1)], HelperSandbox::default(), Clock::real()).unwrap();
    assert!(helper.open(&request("a", 1)).unwrap().fds.is_empty());
    server.join().unwrap();
}

/// A client that has been taken over cannot do more than ask for the numbers that exist.
#[test]
fn hostile_messages_are_refused_and_the_next_is_served() {
    let opener = FakeOpener::default();
    let (ours, theirs) = pair();
    let server = serve(theirs, &opener);
    // The descriptor stays usable for bytes that are no message.
    let raw = ours.try_clone().unwrap();
    let channel = Channel::new(ours, Clock::real());
    channel.send(&Message::Add(request("a", 1)), &[]).unwrap();
    channel.send(&Message::Begin(HelperSandbox::default()), &[]).unwrap();
    assert!(matches!(answer(&channel), Answer::Begun(_)));

    let deep = "[".repeat(MAX_MESSAGE);
    let long = vec![b' '; MAX_MESSAGE + 1];
    let garbage: [&[u8]; 9] = [
        b"x",
        b"null",
        b"\xff\xfe",
        b"{\"open\":{\"id\":1,\"interface\":-1}}",
        b"{\"open\":{\"id\":1,\"interface\":99999999999999999999999}}",
        b"{\"open\":{\"id\":1,\"interface\":\"eth0\"}}",
        b"{\"add\":{\"af-packet\":{\"interface\":\"eth0\",\"queues\":1}}}",
        deep.as_bytes(),
        &long,
    ];
    for bytes in garbage {
        send_raw(&raw, bytes);
        assert!(matches!(answer(&channel), Answer::Refused(_)));
    }
    channel.send(&Message::Begin(HelperSandbox::default()), &[]).unwrap();
    assert!(matches!(answer(&channel), Answer::Refused(_)));
    for interface in [1, 2, usize::MAX] {
        channel.send(&Message::Open { id: 5, interface }, &[]).unwrap();
        let Answer::Failed { id: 5, error } = answer(&channel) else { panic!("it opened {interface}") };
        assert_eq!(error.cause, OpenCause::Denied);
        channel.send(&Message::Close { interface }, &[]).unwrap();
    }
    assert!(opener.calls().is_empty());

    // Descriptors that come with a message are closed.
    let (end, sent) = rustix::pipe::pipe().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [sent.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let bytes = serde_json::to_vec(&Message::Open { id: 6, interface: 0 }).unwrap();
    sendmsg(&raw, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(answer(&channel), Answer::Opened { id: 6, descriptors: 1, .. }));
    assert!(matches!(answer(&channel), Answer::Descriptors(6)));
    drop(sent);
    assert_eq!(rustix::io::read(&end, &mut [0]).unwrap(), 0, "nobody has the other end");

    drop((channel, raw));
    server.join().unwrap().unwrap();
    assert_eq!(opener.calls(), ["open a", "close a"]);
}

#[test]
fn a_client_that_ends_early_ends_the_helper() {
    for last in [None, Some(Message::Add(request("a", 1)))] {
        let opener = FakeOpener::default();
        let (ours, theirs) = pair();
        let server = serve(theirs, &opener);
        let channel = Channel::new(ours, Clock::real());
        last.iter().for_each(|message| channel.send(message, &[]).unwrap());
        drop(channel);
        assert!(matches!(server.join().unwrap(), Err(HelperError::Ended)));
    }
    let (ours, theirs) = pair();
    let server = serve(theirs, &FakeOpener::default());
    Channel::new(ours, Clock::real()).send(&Message::Open { id: 1, interface: 0 }, &[]).unwrap();
    let error = server.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("before the beginning"), "{error}");
}

#[test]
fn each_queue_adds_to_the_time_that_an_opener_may_take() {
    let patience_of = |queues| super::client::patience(&request("a", queues));
    assert_eq!(patience_of(1), Duration::from_secs(11));
    assert_eq!(patience_of(64), Duration::from_secs(74));
}

#[test]
fn a_helper_that_does_not_answer_is_waited_for_in_vain() {
    let (ours, _silent) = pair();
    let clock = Clock::moved();
    let begins = std::thread::spawn({
        let clock = clock.clone();
        move || Helper::begin(ours, Vec::new(), HelperSandbox::default(), clock).map(drop)
    });
    wait_until("the time of the helper is over", || {
        clock.advance(PATIENCE);
        begins.is_finished()
    });
    let error = begins.join().unwrap().unwrap_err();
    assert!(matches!(error, HelperError::Silent(_)), "{error}");
}
