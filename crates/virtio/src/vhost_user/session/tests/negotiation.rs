//! Features, acknowledgements, and requests that are refused before their payload is read.

use super::*;

// Cites vhost-user-get-features-1, vhost-user-protocol-features-1.
#[test]
fn what_is_offered_is_what_can_be_kept() {
    let mut session = Session::new(Offer { features: FEATURES, ..offer() });
    assert_eq!(get(&mut session, Request::GetFeatures), FEATURES | VHOST_USER_F_PROTOCOL_FEATURES);
    assert_eq!(get(&mut session, Request::GetProtocolFeatures), SUPPORTED_PROTOCOL_FEATURES);
    // The log is offered if it can be a shared file.
    let features = FEATURES | VHOST_F_LOG_ALL;
    let mut old = Session::new(Offer { features, protocol_features: 0, ..offer() });
    assert_eq!(get(&mut old, Request::GetFeatures), FEATURES);
    let mut new = Session::new(Offer { features, ..offer() });
    assert_eq!(get(&mut new, Request::GetFeatures), features | VHOST_USER_F_PROTOCOL_FEATURES);
    let error = error(&mut old, Request::GetProtocolFeatures, Vec::new(), 0);
    assert_eq!(
        error.to_string(),
        "GET_PROTOCOL_FEATURES needs the feature protocol-features, which is not offered here"
    );
    assert_eq!(Session::new(Offer { queue_pairs: 0, ..offer() }).rings(), 2);
    assert_eq!(Session::new(Offer { queue_pairs: u16::MAX, ..offer() }).rings(), 254);
    assert_eq!(Session::new(Offer { features: VIRTIO_NET_F_CTRL_VQ, ..offer() }).rings(), 5);
}

// Cites vhost-user-multiple-queue-1, vhost-user-multiple-queue-2, vhost-user-multiple-queue-5.
// Cites vhost-user-protocol-features-1.
#[test]
fn queue_num_is_what_each_frontend_counts() {
    let config = NetConfig { max_virtqueue_pairs: 2, ..offer().config };
    let features = FEATURES | VIRTIO_NET_F_CTRL_VQ | VIRTIO_NET_F_MQ;
    let mut session = Session::new(Offer { features, queue_pairs: 127, config, ..offer() });
    assert_eq!(get(&mut session, Request::GetQueueNum), 254, "legal once MQ is offered");
    for (frontend, protocol_features, queue_num, pairs, control_ring) in [
        ("QEMU 7.2", 0x1_b03f, 127, 127, 254),
        ("QEMU 10.0", 0x9_b03f, 127, 127, 254),
        ("Cloud Hypervisor v40.0", 0x0_900b, 254, 127, 254),
        ("Cloud Hypervisor v53.0", 0x8_900b, 254, 127, 254),
        ("Cloud Hypervisor ae44c297", 0x8_920b, 254, 127, 254),
        ("crosvm f1e797a", 0x8_0229, 5, 2, 4),
        ("User Mode Linux 6.1", 0x0_0228, 5, 2, 4),
        ("DPDK virtio-user 22.11", 0x1_0009, 254, 127, 254),
        ("all that there is", SUPPORTED_PROTOCOL_FEATURES, 254, 127, 254),
    ] {
        ok(&mut session, Request::SetProtocolFeatures, u64_payload(protocol_features));
        assert_eq!(get(&mut session, Request::GetQueueNum), queue_num, "{frontend}");
        ok(&mut session, Request::SetFeatures, u64_payload(features));
        let queues = (session.queue_pairs(), session.control_ring());
        assert_eq!(queues, (pairs, Some(control_ring)), "{frontend}");
        ok(&mut session, Request::SetFeatures, u64_payload(features & !VIRTIO_NET_F_MQ));
        assert_eq!((session.queue_pairs(), session.control_ring()), (1, Some(2)), "{frontend}");
    }
}

// Cites vhost-user-ring-states-2.
#[test]
fn a_ring_was_enabled_until_it_is_stopped_while_disabled() {
    let mut session = running(1);
    let ring = |session: &Session| session.ring(1).map(|ring| (ring.enabled, ring.was_enabled));
    let set = |session: &mut Session, num| {
        ok(session, Request::SetVringEnable, VringState { index: 1, num }.encode());
    };
    let stop = |session: &mut Session| {
        ok(session, Request::GetVringBase, VringState { index: 1, num: 0 }.encode());
    };
    assert_eq!(ring(&session), Some((false, false)));
    set(&mut session, 1);
    assert_eq!(ring(&session), Some((true, true)));
    set(&mut session, 0);
    assert_eq!(ring(&session), Some((false, true)), "it discards");
    stop(&mut session);
    assert_eq!(ring(&session), Some((false, false)), "it waits again");
    start(&mut session, 1);
    set(&mut session, 1);
    stop(&mut session);
    assert_eq!(ring(&session), Some((true, true)));
    set(&mut session, 0);
    assert_eq!(ring(&session), Some((false, false)), "disabled while it was stopped: it waits");
}

#[test]
fn protocol_features_that_choose_the_control_ring_stay_while_a_ring_runs() {
    let mut session = running(0);
    let without = SUPPORTED_PROTOCOL_FEATURES & !VHOST_USER_PROTOCOL_F_CONFIG;
    let error = error(&mut session, Request::SetProtocolFeatures, u64_payload(without), 0);
    assert_eq!(error.to_string(), "SET_PROTOCOL_FEATURES changes config while ring 0 runs; stop the rings first");
    ok(&mut session, Request::SetProtocolFeatures, u64_payload(SUPPORTED_PROTOCOL_FEATURES));
}

#[test]
fn features_are_refused_by_name_and_a_refusal_to_serve_is_a_state() {
    let mut session = Session::new(offer());
    assert_eq!(session.refusal(), Some(Refusal::NoFeatures));
    let extra = VIRTIO_NET_F_HOST_USO | 1 << 45;
    let error = error(&mut session, Request::SetFeatures, u64_payload(FEATURES | extra), 0);
    assert_eq!(error.to_string(), "SET_FEATURES acknowledges features that were not offered: bit-45, host-uso");
    // QEMU acknowledges few bits before the guest's driver does.
    assert!(matches!(ok(&mut session, Request::SetFeatures, u64_payload(0)), Effect::Features(0)));
    assert_eq!(session.refusal(), Some(Refusal::LegacyDriver));
    ok(&mut session, Request::SetFeatures, u64_payload(VIRTIO_F_VERSION_1));
    assert_eq!(session.refusal(), None);
    assert_eq!(session.acked_features(), VIRTIO_F_VERSION_1);

    let features = FEATURES | VIRTIO_F_ACCESS_PLATFORM;
    let mut session = Session::new(Offer { features, ..offer() });
    ok(&mut session, Request::SetFeatures, u64_payload(features));
    assert_eq!(session.refusal(), Some(Refusal::Iommu));
    let iotlb = handle(&mut session, Request::IotlbMsg, vec![0; 32], 0).unwrap_err();
    assert_eq!(session.refuse(&iotlb), Refused::Close);
}

// Cites vhost-user-header-2.
#[test]
fn headers_are_checked() {
    let mut session = negotiated();
    for (flags, code) in
        [(0, 1), (2, 1), (3, 1), (VERSION | FLAG_REPLY, 1), (VERSION, 0), (VERSION, 45), (VERSION, u32::MAX)]
    {
        let message = Message { request: code, flags, payload: Vec::new() };
        let refused = session.handle(message, vec![fd()]).unwrap_err();
        assert_eq!(session.refuse(&refused), Refused::Close, "{refused}");
    }
    // A request that asks for an answer gets one.
    let message = Message { request: 45, flags: VERSION | FLAG_NEED_REPLY, payload: Vec::new() };
    let refused = session.handle(message, Vec::new()).unwrap_err();
    assert_eq!(refused, ProtocolError::UnknownRequest { code: 45 });
    let failure = Message::reply(45, u64_payload(1)).to_bytes();
    assert_eq!(session.refuse(&refused), Refused::Answer(failure));
}

// Cites vhost-user-communication-5.
#[test]
fn requests_of_other_features_are_named_with_their_feature() {
    let mut session = negotiated();
    for (request, words) in [
        (Request::SetLogFd, "the feature log-all"),
        (Request::IotlbMsg, "the feature access-platform"),
        (Request::SetVringEndian, "the protocol feature cross-endian"),
        (Request::PostcopyAdvise, "the protocol feature pagefault"),
        (Request::VringKick, "the protocol feature inband-notifications"),
        (Request::GetSharedObject, "the protocol feature shared-object"),
        (Request::GetShmemConfig, "the protocol feature shmem"),
        (Request::CreateCryptoSession, "the protocol feature crypto-session"),
    ] {
        let refused = error(&mut session, request, Vec::new(), 0);
        assert_eq!(refused.to_string(), format!("{request} needs {words}, which is not offered here"));
        let verdict = session.refuse(&refused);
        assert_eq!(matches!(verdict, Refused::Answer(_)), !request.has_own_reply(), "{request}");
    }
    let refused = error(&mut session, Request::GpuSetSocket, Vec::new(), 1);
    assert_eq!(refused.to_string(), "GPU_SET_SOCKET is for a GPU device; this is a network device");
}

// Cites vhost-user-communication-5.
#[test]
fn requests_of_our_features_wait_for_them() {
    let mut session = Session::new(offer());
    for request in Request::ALL {
        if let Requirement::Protocol(bit) = request.requirement()
            && SUPPORTED_PROTOCOL_FEATURES & bit != 0
        {
            let refused = error(&mut session, *request, Vec::new(), 0);
            let feature = RequiredFeature::Protocol(bit);
            assert_eq!(refused, ProtocolError::NotNegotiated { request: *request, feature });
            assert_eq!(
                session.refuse(&refused),
                if *request == Request::SetConfig { Refused::Ignore } else { Refused::Close }
            );
        }
    }
    let refused = error(&mut session, Request::SetProtocolFeatures, u64_payload(1 << 11 | 1), 0);
    assert_eq!(refused.to_string(), "SET_PROTOCOL_FEATURES acknowledges features that were not offered: host-notifier");
}

// Cites vhost-user-header-3, vhost-user-communication-4, vhost-user-reply-ack-1.
// Cites vhost-user-reply-ack-2, vhost-user-reply-ack-3.
#[test]
fn acknowledgements_come_when_they_are_asked_for_and_negotiated() {
    let mut session = Session::new(offer());
    handle(&mut session, Request::SetOwner, Vec::new(), 0).unwrap();
    assert_eq!(session.reply(RequestOutcome::Done), None, "not negotiated");
    handle(&mut session, Request::SetProtocolFeatures, u64_payload(VHOST_USER_PROTOCOL_F_REPLY_ACK), 0).unwrap();
    assert_eq!(answer(&mut session, Request::SetProtocolFeatures, RequestOutcome::Done), u64_payload(0));
    handle(&mut session, Request::SetOwner, Vec::new(), 0).unwrap();
    assert_eq!(answer(&mut session, Request::SetOwner, RequestOutcome::Done), u64_payload(0));
    session.handle(Message::request(Request::SetOwner, Vec::new()), Vec::new()).unwrap();
    assert_eq!(session.reply(RequestOutcome::Done), None, "not asked for");
    handle(&mut session, Request::SetMemTable, table(&[region(0)]), 1).unwrap();
    assert_eq!(answer(&mut session, Request::SetMemTable, RequestOutcome::Failed), u64_payload(1));
    // A failure is reported if an answer was asked for; otherwise the connection ends.
    let refused = error(&mut session, Request::SetVringNum, state(0, 3), 0);
    let failure = Message::reply(8, u64_payload(1)).to_bytes();
    assert_eq!(session.refuse(&refused), Refused::Answer(failure));
    assert_eq!(session.refuse(&refused), Refused::Close, "once");
    let refused = session.handle(Message::request(Request::SetVringNum, state(0, 3)), Vec::new()).unwrap_err();
    assert_eq!(session.refuse(&refused), Refused::Close);
    // A request with its own reply cannot be answered with a failure.
    let refused = error(&mut session, Request::GetVringBase, state(9, 0), 0);
    assert_eq!(session.refuse(&refused), Refused::Close);
}
