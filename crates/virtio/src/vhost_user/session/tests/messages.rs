//! The forms of messages, and those that concern the device as a whole.

use super::*;

// Cites vhost-user-communication-2, vhost-user-set-mem-table-1, vhost-user-add-mem-reg-1.
// Cites vhost-user-set-vring-kick-1, vhost-user-set-vring-kick-2, vhost-user-set-vring-call-1.
#[test]
fn descriptors_are_counted() {
    let mut session = running(0);
    for request in Request::ALL {
        if matches!(request.requirement(), Requirement::Protocol(bit) if SUPPORTED_PROTOCOL_FEATURES & bit == 0) {
            continue;
        }
        // A valid payload, and the valid number of descriptors.
        let (payload, want) = match request {
            Request::SetMemTable => (table(&[region(0), region(1)]), 2..=2),
            Request::AddMemReg => (region(3).encode_single(), 1..=1),
            Request::SetBackendReqFd => (Vec::new(), 1..=1),
            Request::SetLogBase => (LogSpec { size: 8, offset: 0 }.encode(), 1..=1),
            Request::SetInflightFd => (inflight(2, 256), 1..=1),
            Request::SetDeviceStateFd => (transfer(0, 0), 1..=1),
            Request::RemMemReg => (region(0).encode_single(), 0..=1),
            Request::SetVringKick | Request::SetVringCall | Request::SetVringErr => (u64_payload(3), 1..=1),
            Request::SetLogFd | Request::IotlbMsg | Request::GpuSetSocket => continue,
            _ => (Vec::new(), 0..=0),
        };
        for fds in 0..=9 {
            if !want.contains(&fds) {
                let refused = error(&mut session, *request, payload.clone(), fds);
                assert!(matches!(refused, ProtocolError::FdCount { .. }), "{request} {fds}: {refused}");
                assert!(refused.fatal());
            }
        }
    }
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        let refused = error(&mut session, request, u64_payload(1 | VRING_NOFD), 1);
        assert_eq!(refused, ProtocolError::FdCount { request, got: 1, want: 0 });
    }
    // Without a descriptor the ring is started and polled; the other descriptors are dropped.
    ok(&mut session, Request::SetVringKick, u64_payload(VRING_NOFD));
    let ring = session.ring(0).unwrap();
    assert!(session.ready(0) && ring.polled && ring.kick.is_none());
    ok_fds(&mut session, Request::SetVringCall, u64_payload(0), 1);
    assert!(session.ring(0).unwrap().call.is_some());
    ok(&mut session, Request::SetVringCall, u64_payload(VRING_NOFD));
    assert!(session.ring(0).unwrap().call.is_none());
    ok_fds(&mut session, Request::SetVringErr, u64_payload(0), 1);
    assert!(session.ring(0).unwrap().err.is_some());
}

#[test]
fn payloads_of_the_wrong_length_are_refused() {
    let mut session = running(0);
    for request in Request::ALL {
        if session.check_requirement(*request).is_err() {
            continue;
        }
        let (fds, right): (usize, &[usize]) = match request {
            Request::SetMemTable => (0, &[8, 40, 72]),
            Request::AddMemReg => (1, &[40]),
            Request::SetBackendReqFd => (1, &[0]),
            Request::SetLogBase => (1, &[16]),
            Request::GetInflightFd | Request::SetInflightFd => (0, &[20, 24]),
            Request::SetDeviceStateFd => (1, &[8]),
            Request::RemMemReg => (0, &[40]),
            Request::SetVringAddr => (0, &[40]),
            Request::GetConfig | Request::SetConfig => (0, &[12]),
            Request::SetVringKick | Request::SetVringCall | Request::SetVringErr => (1, &[8]),
            Request::SetFeatures
            | Request::SetProtocolFeatures
            | Request::SetVringNum
            | Request::SetVringBase
            | Request::GetVringBase
            | Request::SetVringEnable
            | Request::SendRarp
            | Request::NetSetMtu
            | Request::SetStatus => (0, &[8]),
            _ => (0, &[0]),
        };
        for len in (0..100).filter(|len| !right.contains(len)) {
            let refused = error(&mut session, *request, vec![0; len], fds);
            assert!(matches!(refused, ProtocolError::PayloadSize { .. }), "{request} {len}: {refused}");
            assert_eq!(session.refuse(&refused), Refused::Close);
        }
    }
}

// Cites vhost-user-get-config-1, vhost-user-get-config-2, vhost-user-set-config-1.
#[test]
fn the_configuration_can_be_read_and_not_written() {
    let mut session = negotiated();
    let read = |offset, size, bytes: Vec<u8>| ConfigAccess { offset, size, flags: 1, bytes };
    let space = offer().config.to_bytes();
    for (offset, size) in [(0, 12), (10, 2), (0, 256), (255, 1), (12, 100)] {
        let whole = read(offset, size, vec![0; size as usize]);
        handle(&mut session, Request::GetConfig, whole.encode(), 0).unwrap();
        let answer = ConfigAccess::decode(&answer(&mut session, Request::GetConfig, RequestOutcome::Done)).unwrap();
        let at = offset as usize;
        assert_eq!(answer, read(offset, size, space[at..at + size as usize].to_vec()));
    }
    for (offset, size) in [(0, 0), (0, 257), (256, 1), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
        let refused = error(&mut session, Request::GetConfig, read(offset, size, Vec::new()).encode(), 0);
        assert_eq!(refused, ProtocolError::ConfigRange { offset, size, len: 256 });
        let nothing = Message::reply(Request::GetConfig.code(), Vec::new()).to_bytes();
        assert_eq!(session.refuse(&refused), Refused::Answer(nothing));
    }
    let before = session.offer.config;
    let write = read(0, 6, vec![1; 6]).encode();
    let refused = error(&mut session, Request::SetConfig, write.clone(), 0);
    assert_eq!(refused, ProtocolError::ConfigReadOnly { offset: 0 });
    assert!(matches!(session.refuse(&refused), Refused::Answer(_)));
    let refused = session.handle(Message::request(Request::SetConfig, write), Vec::new()).unwrap_err();
    assert_eq!(session.refuse(&refused), Refused::Ignore);
    assert_eq!(session.offer.config, before);
}

// Cites vhost-user-net-set-mtu-1, vhost-user-send-rarp-1.
#[test]
fn mtu_and_rarp() {
    let mut session = negotiated();
    assert_eq!(session.mtu(), None);
    for mtu in [0, 67, 65536, 65536 + 1500, u64::MAX] {
        let refused = error(&mut session, Request::NetSetMtu, u64_payload(mtu), 0);
        assert_eq!(refused, ProtocolError::Mtu { mtu });
        let failure = Message::reply(Request::NetSetMtu.code(), u64_payload(1)).to_bytes();
        assert_eq!(session.refuse(&refused), Refused::Answer(failure));
    }
    assert!(matches!(handle(&mut session, Request::NetSetMtu, u64_payload(1500), 0), Ok(Effect::Mtu(1500))));
    assert_eq!(answer(&mut session, Request::NetSetMtu, RequestOutcome::Done), u64_payload(0));
    handle(&mut session, Request::NetSetMtu, u64_payload(9000), 0).unwrap();
    assert_eq!(answer(&mut session, Request::NetSetMtu, RequestOutcome::Failed), u64_payload(1));
    assert_eq!(session.mtu(), Some(1500));
    let mac = [2, 1, 2, 3, 4, 5, 0, 0];
    let effect = ok(&mut session, Request::SendRarp, mac.to_vec());
    assert!(matches!(effect, Effect::Rarp([2, 1, 2, 3, 4, 5])));
}

fn transfer(direction: u32, phase: u32) -> Vec<u8> {
    TransferSpec { direction, phase }.encode()
}

// Cites vhost-user-migrating-3, vhost-user-suspended-4, vhost-user-device-state-fd-1.
// Cites vhost-user-device-state-fd-2, vhost-user-check-device-state-1.
#[test]
fn the_state_of_a_device_at_rest_is_saved_and_loaded() {
    let mut session = running(1);
    // "Migrating back-end state": both sides are suspended.
    for (request, payload, fds, flags) in
        [(Request::SetDeviceStateFd, transfer(1, 0), 1, 0x100), (Request::CheckDeviceState, Vec::new(), 0, 0)]
    {
        let refused = error(&mut session, request, payload, fds);
        assert_eq!(refused, ProtocolError::StateWhileRunning { request, index: 1 });
        let failed = Message::reply(request.code(), u64_payload(flags | 1)).to_bytes();
        assert_eq!(session.refuse(&refused), Refused::Answer(failed));
    }
    assert!(matches!(ok(&mut session, Request::GetVringBase, state(1, 0)), Effect::StopRing(1)));
    for (outcome, number) in [(RequestOutcome::Done, 0x100), (RequestOutcome::Failed, 0x101)] {
        for load in [false, true] {
            let effect = handle(&mut session, Request::SetDeviceStateFd, transfer(load.into(), 0), 1).unwrap();
            assert!(if load { matches!(effect, Effect::LoadState(_)) } else { matches!(effect, Effect::SaveState(_)) });
            assert_eq!(decode_u64(&answer(&mut session, Request::SetDeviceStateFd, outcome)), Some(number));
        }
        assert!(matches!(handle(&mut session, Request::CheckDeviceState, Vec::new(), 0), Ok(Effect::CheckState)));
        assert_eq!(decode_u64(&answer(&mut session, Request::CheckDeviceState, outcome)), Some(number & 0xff));
    }
    for (direction, phase) in [(2, 0), (0, 1), (1, 1), (u32::MAX, 0), (0, u32::MAX)] {
        let refused = error(&mut session, Request::SetDeviceStateFd, transfer(direction, phase), 1);
        assert_eq!(refused, ProtocolError::StateTransfer { direction, phase });
        assert!(matches!(session.refuse(&refused), Refused::Answer(_)));
    }
}

fn inflight(queues: u16, queue_size: u16) -> Vec<u8> {
    InflightSpec { queues, queue_size, ..InflightSpec::default() }.encode()
}

// Cites vhost-user-communication-1, vhost-user-get-inflight-fd-1, vhost-user-set-inflight-fd-1.
#[test]
fn tables_of_buffers_in_flight() {
    let mut session = negotiated();
    let asked = InflightSpec { queues: 4, queue_size: 256, ..InflightSpec::default() };
    for (outcome, mmap_size) in
        [(RequestOutcome::Inflight(0x4080), 0x4080), (RequestOutcome::Done, 0), (RequestOutcome::Failed, 0)]
    {
        let effect = handle(&mut session, Request::GetInflightFd, asked.encode(), 0).unwrap();
        assert!(matches!(effect, Effect::MakeInflight(spec) if spec == asked));
        let answer = InflightSpec::decode(&answer(&mut session, Request::GetInflightFd, outcome)).unwrap();
        assert_eq!(answer, InflightSpec { mmap_size, ..asked });
    }
    let kept = InflightSpec { mmap_size: 0x4080, mmap_offset: 64, ..asked };
    let effect = ok_fds(&mut session, Request::SetInflightFd, kept.encode(), 1);
    assert!(matches!(effect, Effect::KeepInflight(spec, _) if spec == kept));

    // Both numbers over their full range.
    for queues in 0..=u16::MAX {
        for request in [Request::GetInflightFd, Request::SetInflightFd] {
            let fds = usize::from(request == Request::SetInflightFd);
            let result = handle(&mut session, request, inflight(queues, 256), fds);
            assert_eq!(result.is_ok(), (1..=4).contains(&queues), "{queues}");
        }
    }
    for size in 0..=u16::MAX {
        let result = handle(&mut session, Request::GetInflightFd, inflight(4, size), 0);
        assert_eq!(result.is_ok(), (1..=32_768).contains(&size), "{size}");
    }
    let refused = error(&mut session, Request::SetInflightFd, inflight(5, 0), 1);
    assert_eq!(
        refused.to_string(),
        "SET_INFLIGHT_FD is for 5 rings of 0 entries; expected 1 to 4 rings of 1 to 32768 entries"
    );

    let mut early = Session::new(offer());
    let refused = error(&mut early, Request::GetInflightFd, asked.encode(), 0);
    assert!(matches!(refused, ProtocolError::NotNegotiated { .. }), "{refused}");
}
