//! Rings: their set-up, their start and their end.

use super::*;

// Cites vhost-user-ring-states-5, vhost-user-ring-states-8, vhost-user-ring-states-9.
// Cites vhost-user-reset-owner-1, vhost-user-set-vring-enable-1.
#[test]
fn rings_start_disabled_only_with_protocol_features() {
    let mut session = Session::new(offer());
    // QEMU enables the first pair before it sets features, and relies on that.
    ok(&mut session, Request::SetVringEnable, state(1, 1));
    ok(&mut session, Request::SetFeatures, u64_payload(VIRTIO_F_VERSION_1 | VHOST_USER_F_PROTOCOL_FEATURES));
    let enabled = |session: &Session| (0..4).map(|i| session.ring(i).unwrap().enabled).collect::<Vec<_>>();
    assert_eq!(enabled(&session), [false, true, false, false]);
    ok(&mut session, Request::SetVringEnable, state(1, 0));
    assert_eq!(enabled(&session), [false; 4]);
    let error_2 = error(&mut session, Request::SetVringEnable, state(1, 2), 0);
    assert_eq!(error_2, ProtocolError::RingEnable { index: 1, num: 2 });

    let mut old = Session::new(offer());
    ok(&mut old, Request::SetFeatures, u64_payload(VIRTIO_F_VERSION_1));
    assert_eq!(enabled(&old), [true; 4]);
    let refused = error(&mut old, Request::SetVringEnable, state(0, 0), 0);
    assert!(matches!(refused, ProtocolError::NotNegotiated { .. }));
    ok(&mut old, Request::ResetOwner, Vec::new());
    assert_eq!(enabled(&old), [false; 4]);
}

// Cites vhost-user-ring-states-5.
#[test]
fn a_ring_is_ready_once_it_has_everything_in_any_order() {
    type Step = (&'static str, fn(&mut Session));
    let steps: [Step; 4] = [
        ("no memory table", |s| drop(ok_fds(s, Request::SetMemTable, table(&[region(0)]), 1))),
        ("no ring size", |s| drop(ok(s, Request::SetVringNum, state(1, 256)))),
        ("no ring addresses", |s| drop(ok(s, Request::SetVringAddr, addr(1)))),
        ("no kick descriptor", |s| drop(ok_fds(s, Request::SetVringKick, u64_payload(1), 1))),
    ];
    // Each order of the four requests, as the digits of a number to the base of 4.
    for order in 0..256_usize {
        let order: Vec<_> = (0..4).map(|place| order >> (2 * place) & 3).collect();
        let mut session = negotiated();
        for (done, step) in order.iter().enumerate() {
            let before: Vec<_> = order[..done].to_vec();
            let first_missing = (0..4).find(|step| !before.contains(step));
            assert_eq!(session.missing(1), first_missing.map(|step| steps[step].0));
            if before.contains(step) && first_missing.is_none() {
                break;
            }
            steps[*step].1(&mut session);
        }
        assert!(!session.ready(0) && !session.ready(2));
    }
    let session = running(1);
    let ring = session.ring(1).unwrap();
    assert_eq!((ring.size, ring.base, ring.desc), (256, 7, 0x7000_0000));
    assert_eq!((ring.avail, ring.used), (0x7000_1000, 0x7000_2000));
    assert_eq!(session.missing(4), Some("no such ring"));
    assert!(session.ring(4).is_none());
}

#[test]
fn descriptors_of_rings_are_limited_together() {
    let mut session = negotiated();
    session.limit_ring_fds(3);
    ok_fds(&mut session, Request::SetVringKick, u64_payload(0), 1);
    ok_fds(&mut session, Request::SetVringCall, u64_payload(0), 1);
    ok_fds(&mut session, Request::SetVringErr, u64_payload(2), 1);
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        let refused = error(&mut session, request, u64_payload(1), 1);
        assert_eq!(refused, ProtocolError::TooManyRingFds { request, index: 1, max: 3 });
    }
    // One that replaces another is no further one, and none takes no place.
    ok_fds(&mut session, Request::SetVringCall, u64_payload(0), 1);
    ok(&mut session, Request::SetVringCall, u64_payload(1 | VRING_NOFD));
    ok(&mut session, Request::SetVringErr, u64_payload(2 | VRING_NOFD));
    assert_eq!(session.ring_fds(), 2);
    ok_fds(&mut session, Request::SetVringKick, u64_payload(1), 1);
    // A smaller limit takes nothing away.
    session.limit_ring_fds(0);
    assert_eq!(session.ring_fds(), 3);
}

// Cites vhost-user-multiple-queue-4, vhost-user-set-vring-kick-1.
#[test]
fn a_ring_s_index_is_checked_over_its_whole_width() {
    let mut session = running(0);
    let width_32 = [4, 5, 0xff, 0x100, 0x104, 0x1_0000, 0x1_0001, 0x8000_0000, u32::MAX];
    let requests = [Request::SetVringNum, Request::SetVringBase, Request::GetVringBase, Request::SetVringEnable];
    for index in width_32 {
        for request in requests {
            let error = error(&mut session, request, state(index, 1), 0);
            assert_eq!(error, ProtocolError::RingIndex { request, index: index.into(), rings: 4 });
        }
        let error = error(&mut session, Request::SetVringAddr, addr(index), 0);
        assert!(matches!(error, ProtocolError::RingIndex { .. }));
    }
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        for index in [4, 0xff, 0x200, 0x1_0000, 0x1_0001, 1 << 32, 1 << 63 | 1, !VRING_NOFD] {
            let error_fd = error(&mut session, request, u64_payload(index), 1);
            assert_eq!(error_fd, ProtocolError::RingIndex { request, index, rings: 4 });
            let error_nofd = error(&mut session, request, u64_payload(index | VRING_NOFD), 0);
            assert_eq!(error_nofd, ProtocolError::RingIndex { request, index, rings: 4 });
        }
    }
}

#[test]
fn sizes_bases_and_addresses_are_checked() {
    let mut session = negotiated();
    for size in [0, 3, 255, 257, 32769, 65536, 65536 + 256, u32::MAX] {
        let refused = error(&mut session, Request::SetVringNum, state(0, size), 0);
        let want = "a power of two, 1 to 32768";
        assert_eq!(refused, ProtocolError::RingSize { index: 0, size, want });
    }
    for size in [1, 2, 256, 32768] {
        ok(&mut session, Request::SetVringNum, state(0, size));
    }
    ok(&mut session, Request::SetVringBase, state(0, 0xffff));
    let refused = error(&mut session, Request::SetVringBase, state(0, 0x1_0000), 0);
    assert_eq!(refused, ProtocolError::RingBase { index: 0, base: 0x1_0000 });
    let good = VringAddr { index: 0, flags: 0, desc: 16, avail: 2, used: 4, log: 0 };
    ok(&mut session, Request::SetVringAddr, good.encode());
    for bad in [
        VringAddr { desc: 8, ..good },
        VringAddr { avail: 3, ..good },
        VringAddr { used: 2, ..good },
        VringAddr { flags: 1, ..good },
        VringAddr { flags: 0x8000_0000, ..good },
    ] {
        error(&mut session, Request::SetVringAddr, bad.encode(), 0);
    }

    // Packed: any size to 2^15, a base of 32 bits, event areas of 4 bytes.
    ok(&mut session, Request::SetFeatures, u64_payload(FEATURES));
    ok(&mut session, Request::SetVringNum, state(0, 255));
    error(&mut session, Request::SetVringNum, state(0, 32769), 0);
    ok(&mut session, Request::SetVringBase, state(0, 0x8000_8000));
    assert_eq!(session.ring(0).unwrap().base, 0x8000_8000);
    error(&mut session, Request::SetVringAddr, good.encode(), 0);
}

// Cites vhost-user-ring-states-7, vhost-user-ring-states-10, vhost-user-get-vring-base-1.
#[test]
fn a_running_ring_keeps_its_size_until_it_is_stopped() {
    let mut session = running(2);
    for request in [Request::SetVringNum, Request::SetVringBase] {
        let refused = error(&mut session, request, state(2, 128), 0);
        assert_eq!(refused, ProtocolError::RingRunning { request, index: 2 });
    }
    // The same addresses may be set again, for the log's flag; other addresses may not. Descriptors
    // may change while the ring runs.
    assert!(matches!(ok(&mut session, Request::SetVringAddr, addr(2)), Effect::Ring(2)));
    let there = VringAddr::decode(&addr(2)).unwrap();
    for moved in [
        VringAddr { desc: there.desc + 16, ..there },
        VringAddr { avail: there.avail + 4, ..there },
        VringAddr { used: there.used + 4, ..there },
    ] {
        let refused = error(&mut session, Request::SetVringAddr, moved.encode(), 0);
        assert_eq!(refused, ProtocolError::RingRunning { request: Request::SetVringAddr, index: 2 });
    }
    ok_fds(&mut session, Request::SetVringKick, u64_payload(2), 1);
    // The same features again are no change; other features are.
    let features = session.acked_features();
    ok(&mut session, Request::SetFeatures, u64_payload(features));
    let refused = error(&mut session, Request::SetFeatures, u64_payload(features ^ VIRTIO_NET_F_CSUM), 0);
    assert_eq!(refused, ProtocolError::FeaturesWhileRunning { index: 2, changed: VIRTIO_NET_F_CSUM });

    let stopped = handle(&mut session, Request::GetVringBase, state(2, 0), 0).unwrap();
    assert!(matches!(stopped, Effect::StopRing(2)));
    assert!(!session.ready(2), "stopped before the caller stops it, so that nobody starts it again meanwhile");
    let reply = answer(&mut session, Request::GetVringBase, RequestOutcome::RingBase(4711));
    assert_eq!(reply, state(2, 4711));
    assert_eq!(session.ring(2).unwrap().base, 4711);
    assert_eq!(session.missing(2), Some("no kick descriptor"));
    ok(&mut session, Request::SetVringNum, state(2, 128));
    ok_fds(&mut session, Request::SetVringKick, u64_payload(2), 1);
    assert!(session.ready(2));

    // The caller stopped the ring for another reason, and the frontend asks later.
    session.stopped_at(2, 99);
    session.stopped_at(4, 99);
    handle(&mut session, Request::GetVringBase, state(2, 0), 0).unwrap();
    assert_eq!(answer(&mut session, Request::GetVringBase, RequestOutcome::Done), state(2, 99));

    // A ring that never ran has a base too.
    handle(&mut session, Request::GetVringBase, state(3, 0), 0).unwrap();
    assert_eq!(answer(&mut session, Request::GetVringBase, RequestOutcome::Done), state(3, 0));
}

#[test]
fn a_ring_whose_set_up_failed_must_be_set_up_again() {
    let mut session = running(0);
    handle(&mut session, Request::SetVringAddr, addr(0), 0).unwrap();
    assert_eq!(answer(&mut session, Request::SetVringAddr, RequestOutcome::Failed), u64_payload(1));
    assert_eq!(session.missing(0), Some("no ring addresses"));
    start(&mut session, 0);
    assert!(session.ready(0));
    // A failed SET_FEATURES leaves the old features, and enables no ring.
    let mut session = negotiated();
    let before = picture(&session);
    handle(&mut session, Request::SetFeatures, u64_payload(VIRTIO_F_VERSION_1), 0).unwrap();
    session.reply(RequestOutcome::Failed);
    assert_eq!(picture(&session), before);
}

// Cites vhost-user-ring-states-2, vhost-user-reset-device-1, vhost-user-status-1.
#[test]
fn resets_stop_the_rings_and_keep_the_wiring() {
    let mut session = running(0);
    ok_fds(&mut session, Request::SetVringCall, u64_payload(0), 1);
    ok(&mut session, Request::SetVringEnable, state(0, 1));
    ok(&mut session, Request::SetStatus, u64_payload(15));
    assert_eq!(get(&mut session, Request::GetStatus), 15);
    assert_eq!(session.status(), Some(15));

    // The driver resets: QEMU keeps positions and enabled rings.
    assert!(matches!(ok(&mut session, Request::SetStatus, u64_payload(0)), Effect::StopRings));
    assert_eq!(session.missing(0), Some("no kick descriptor"));
    let ring = session.ring(0).unwrap();
    assert!(ring.enabled && ring.base == 7 && ring.call.is_some());

    start(&mut session, 0);
    assert!(matches!(ok(&mut session, Request::ResetDevice, Vec::new()), Effect::Reset));
    let ring = session.ring(0).unwrap();
    assert_eq!((ring.size, ring.desc, ring.base, ring.enabled), (0, 0, 0, false));
    assert!(ring.call.is_some() && ring.kick.is_none());
    assert_eq!(session.refusal(), Some(Refusal::NoFeatures));
    assert_eq!(session.regions().len(), 1);
    assert_eq!(session.acked_protocol_features(), SUPPORTED_PROTOCOL_FEATURES);
    let refused = error(&mut session, Request::SetStatus, u64_payload(256), 0);
    assert_eq!(refused, ProtocolError::Status { status: 256 });
    assert_eq!(Session::new(offer()).status(), None);
}

// Cites vhost-user-suspended-3, vhost-user-config-change-1.
#[test]
fn a_change_of_the_link_is_told_while_a_ring_runs() {
    let mut session = running(1);
    ok_fds(&mut session, Request::SetBackendReqFd, Vec::new(), 1);
    let message = Message { request: BACKEND_CONFIG_CHANGE, flags: VERSION, payload: Vec::new() }.to_bytes();
    let told = |session: &mut Session| session.config_change().map(|(_, message)| message);
    assert_eq!(told(&mut session), None, "nothing has changed");
    session.set_link(false);
    assert_eq!(told(&mut session).as_ref(), Some(&message));
    assert_eq!(told(&mut session), None, "one message for a change");

    // The only ring stops in several ways, and starts again.
    let read = ConfigAccess { offset: 6, size: 2, flags: 0, bytes: Vec::new() };
    for round in 0..3 {
        match round {
            0 => drop(ok(&mut session, Request::GetVringBase, state(1, 0))),
            1 => drop(ok(&mut session, Request::SetStatus, u64_payload(0))),
            _ => drop(ok_fds(&mut session, Request::SetMemTable, table(&[region(9)]), 1)),
        }
        for up in [true, false, true] {
            session.set_link(up);
            assert_eq!(told(&mut session), None, "round {round}: all rings are stopped");
        }
        handle(&mut session, Request::GetConfig, read.encode(), 0).unwrap();
        session.reply(RequestOutcome::Done);
        assert_eq!(told(&mut session), None, "round {round}: the answer is the only message");
        if session.ring(1).unwrap().is_started() {
            ok_fds(&mut session, Request::SetMemTable, table(&[region(0)]), 1);
        } else {
            start(&mut session, 1);
        }
        assert_eq!(told(&mut session).as_ref(), Some(&message), "round {round}");
        assert_eq!(told(&mut session), None, "round {round}: one message for three changes");
    }
}
