//! The memory table.

use super::*;

// Cites vhost-user-set-mem-table-1.
#[test]
fn a_memory_table_replaces_the_last_one_unless_it_fails() {
    let mut session = running(0);
    let Effect::Memory(regions) = ok_fds(&mut session, Request::SetMemTable, table(&[region(0), region(1)]), 2) else {
        panic!("not a memory table")
    };
    assert_eq!(regions.iter().map(RegionFd::spec).collect::<Vec<_>>(), [region(0), region(1)]);
    assert_eq!(session.regions(), [region(0), region(1)]);
    // A failure of the caller leaves the old table in place.
    handle(&mut session, Request::SetMemTable, table(&[region(5)]), 1).unwrap();
    assert_eq!(session.missing(0), Some("ring outside of the memory table"));
    session.reply(RequestOutcome::Failed);
    assert_eq!(session.regions(), [region(0), region(1)]);
    assert!(session.ready(0));
    // An empty table is legal, and no ring is ready then.
    ok(&mut session, Request::SetMemTable, table(&[]));
    assert_eq!(session.missing(0), Some("no memory table"));

    for bad in [
        vec![RegionSpec { size: 0, ..region(0) }],
        vec![RegionSpec { mmap_offset: u64::MAX, ..region(0) }],
        vec![region(0), region(0)],
        vec![region(0), RegionSpec { guest_addr: 9 << 20, ..region(0) }],
    ] {
        let refused = error(&mut session, Request::SetMemTable, table(&bad), bad.len());
        assert!(!refused.fatal());
    }
    let nine: Vec<_> = (0..9).map(region).collect();
    let refused = error(&mut session, Request::SetMemTable, table(&nine), 9);
    assert_eq!(refused, ProtocolError::TooManyRegions { got: 9, max: 8 });
}

// Cites vhost-user-get-max-mem-slots-1, vhost-user-rem-mem-reg-1, vhost-user-rem-mem-reg-4.
#[test]
fn regions_come_and_go_one_by_one() {
    let mut session = running(0);
    assert_eq!(get(&mut session, Request::GetMaxMemSlots), 16);
    for n in 1..16 {
        let effect = ok_fds(&mut session, Request::AddMemReg, region(n).encode_single(), 1);
        assert!(matches!(effect, Effect::AddRegion(added) if added.spec() == region(n)));
    }
    let refused = error(&mut session, Request::AddMemReg, region(16).encode_single(), 1);
    assert_eq!(refused, ProtocolError::TooManyRegions { got: 17, max: 16 });
    // The offset is ignored, the other fields are not. An old frontend sends a descriptor along.
    let removed = RegionSpec { mmap_offset: 12345, ..region(3) };
    let effect = ok_fds(&mut session, Request::RemMemReg, removed.encode_single(), 1);
    assert!(matches!(effect, Effect::RemoveRegion(spec) if spec == region(3)));
    let refused = error(&mut session, Request::RemMemReg, region(3).encode_single(), 0);
    assert_eq!(refused, ProtocolError::RegionUnknown { guest_addr: 3 << 20, size: 1 << 20 });
    let overlapping = RegionSpec { guest_addr: (4 << 20) + 4096, ..region(40) };
    let refused = error(&mut session, Request::AddMemReg, overlapping.encode_single(), 1);
    assert!(matches!(refused, ProtocolError::RegionOverlap { .. }));
    // A failure of the caller rolls back an added or removed region.
    handle(&mut session, Request::AddMemReg, region(3).encode_single(), 1).unwrap();
    session.reply(RequestOutcome::Failed);
    assert!(!session.regions().contains(&region(3)));
    handle(&mut session, Request::RemMemReg, region(0).encode_single(), 0).unwrap();
    assert!(!session.ready(0), "its ring lies there");
    session.reply(RequestOutcome::Failed);
    assert!(session.ready(0));
    ok(&mut session, Request::RemMemReg, region(0).encode_single());
    assert_eq!(session.missing(0), Some("ring outside of the memory table"));
}

#[test]
fn regions_that_are_too_large_together_are_refused_and_leave_the_table() {
    let mut session = running(0);
    let whole = RegionSpec { guest_addr: 1 << 50, size: 16 << 40, user_addr: 1 << 50, mmap_offset: 0 };
    let refused = error(&mut session, Request::AddMemReg, whole.encode_single(), 1);
    assert_eq!(refused, ProtocolError::TooMuchMemory { total: (16 << 40) + (1 << 20), max: 16 << 40 });
    assert_eq!(session.regions(), [region(0)]);
    let refused = error(&mut session, Request::SetMemTable, table(&[region(0), whole]), 2);
    assert!(!refused.fatal() && matches!(refused, ProtocolError::TooMuchMemory { .. }));
    assert_eq!(session.regions(), [region(0)]);
    ok_fds(&mut session, Request::SetMemTable, table(&[whole]), 1);
}

#[test]
fn a_region_may_come_and_go_once_for_every_queue_pair() {
    let mut session = running(0);
    let add = |session: &mut Session| handle(session, Request::AddMemReg, region(4).encode_single(), 1);
    let remove = |session: &mut Session| handle(session, Request::RemMemReg, region(4).encode_single(), 0);
    for _ in 0..2 {
        assert!(matches!(add(&mut session), Ok(Effect::AddRegion(_))));
        assert!(matches!(add(&mut session), Ok(Effect::None)));
        assert!(matches!(add(&mut session), Err(ProtocolError::RegionOverlap { .. })));
        assert_eq!(session.regions(), [region(0), region(4)]);
        assert!(matches!(remove(&mut session), Ok(Effect::None)));
        assert!(matches!(remove(&mut session), Ok(Effect::RemoveRegion(_))));
        assert!(matches!(remove(&mut session), Err(ProtocolError::RegionUnknown { .. })));
    }
    // A table begins anew.
    assert!(add(&mut session).is_ok() && add(&mut session).is_ok());
    ok_fds(&mut session, Request::SetMemTable, table(&[region(4)]), 1);
    assert!(matches!(remove(&mut session), Ok(Effect::RemoveRegion(_))));
}
