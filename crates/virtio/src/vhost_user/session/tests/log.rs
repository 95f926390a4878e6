//! The dirty log.

use super::super::requests::MAX_LOG;
use super::*;

/// A session that offers a log, with a ring that runs; the log is off.
fn session() -> Session {
    let mut session = Session::new(Offer { features: FEATURES | VHOST_F_LOG_ALL, ..offer() });
    ok(&mut session, Request::SetProtocolFeatures, u64_payload(SUPPORTED_PROTOCOL_FEATURES));
    ok(&mut session, Request::SetFeatures, u64_payload(VIRTIO_F_VERSION_1 | VHOST_USER_F_PROTOCOL_FEATURES));
    ok_fds(&mut session, Request::SetMemTable, table(&[region(0)]), 1);
    start(&mut session, 0);
    assert!(session.ready(0) && !session.logs());
    session
}

fn log(size: u64, offset: u64) -> Vec<u8> {
    LogSpec { size, offset }.encode()
}

// Cites vhost-user-communication-1, vhost-user-migration-5.
#[test]
fn a_log_is_taken_with_its_file_and_answered_though_nobody_asked() {
    let mut session = session();
    let message = Message::request(Request::SetLogBase, log(64, 128));
    match session.handle(message, vec![fd()]).unwrap() {
        Effect::Log(LogFd { size: 64, offset: 128, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(answer(&mut session, Request::SetLogBase, RequestOutcome::Done), u64_payload(0));
    // A failure cannot be reported: QEMU would take any answer for a success.
    handle(&mut session, Request::SetLogBase, log(64, 128), 1).unwrap();
    assert_eq!(session.reply(RequestOutcome::Failed), None);
}

/// CVE-2020-10722: the sum of offset and size overflowed.
#[test]
fn sizes_and_offsets_near_the_end_of_the_numbers() {
    let mut session = session();
    let near = [0, 1, 2, 7, 8, 4095, 4096, 1 << 32, MAX_LOG, MAX_LOG + 1, 1 << 63, u64::MAX / 2];
    let all: Vec<u64> = near.into_iter().flat_map(|n| [n, n.wrapping_neg()]).collect();
    for &size in &all {
        for &offset in &all {
            let right = size > 0 && size <= MAX_LOG && u128::from(size) + u128::from(offset) <= u128::from(u64::MAX);
            if right {
                handle(&mut session, Request::SetLogBase, log(size, offset), 1).unwrap();
                continue;
            }
            let refused = error(&mut session, Request::SetLogBase, log(size, offset), 1);
            assert_eq!(refused, ProtocolError::LogRange { size, offset, max: MAX_LOG });
            assert_eq!(session.refuse(&refused), Refused::Close);
        }
    }
}

// Cites vhost-user-migration-1, vhost-user-ring-states-10.
#[test]
fn it_is_turned_on_and_off_under_a_running_ring() {
    let mut session = session();
    let off = session.acked_features();
    for (features, on) in [(off | VHOST_F_LOG_ALL, true), (off | VHOST_F_LOG_ALL, true), (off, false)] {
        assert!(matches!(ok(&mut session, Request::SetFeatures, u64_payload(features)), Effect::Features(_)));
        assert_eq!(session.logs(), on);
        let addr = VringAddr { flags: u32::from(on), log: 0x2000, ..VringAddr::decode(&addr(0)).unwrap() };
        ok(&mut session, Request::SetVringAddr, addr.encode());
        let unknown = VringAddr { flags: 2 | addr.flags, ..addr };
        error(&mut session, Request::SetVringAddr, unknown.encode(), 0);
        assert!(session.ready(0));
    }
    let other = off ^ VHOST_F_LOG_ALL ^ VIRTIO_NET_F_CSUM;
    let refused = error(&mut session, Request::SetFeatures, u64_payload(other), 0);
    assert_eq!(refused, ProtocolError::FeaturesWhileRunning { index: 0, changed: VIRTIO_NET_F_CSUM });
}

#[test]
fn a_descriptor_to_be_told_by_is_taken_and_closed() {
    let mut session = session();
    for fds in [0, 2, 3] {
        let refused = error(&mut session, Request::SetLogFd, Vec::new(), fds);
        assert!(matches!(refused, ProtocolError::FdCount { want: 1, .. }));
    }
    let (ours, theirs) = rustix::pipe::pipe().unwrap();
    session.handle(Message::request(Request::SetLogFd, Vec::new()), vec![theirs]).unwrap();
    assert_eq!(rustix::io::read(&ours, &mut [0; 1]), Ok(0), "the other end is closed");
}
