//! Messages from anywhere.

use super::*;
use crate::vhost_user::regions;
use proptest::prelude::*;

/// A message from anywhere: half of them with a payload that fits the request.
fn any_message() -> impl Strategy<Value = (Message, usize)> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80),
        (0..6_u32, any::<u32>()).prop_map(|(index, num)| state(index, num)),
        (0..6_u32, 0..600_u32).prop_map(|(index, num)| state(index, num)),
        (0..6_u32).prop_map(|index| state(index, 1)),
        (0..6_u32).prop_map(addr),
        any::<u64>().prop_map(u64_payload),
        (0..0x108_u64).prop_map(u64_payload),
        proptest::sample::subsequence(vec![0, 1, 2, 3, 4], 0..5)
            .prop_map(|rows| table(&rows.into_iter().map(region).collect::<Vec<_>>())),
        (0..6_u64).prop_map(|n| region(n).encode_single()),
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(guest_addr, size, user_addr, mmap_offset)| {
                RegionSpec { guest_addr, size, user_addr, mmap_offset }.encode_single()
            }
        ),
        Just(Vec::new()),
    ];
    let flags = prop_oneof![8 => Just(VERSION | FLAG_NEED_REPLY), 2 => Just(VERSION), 1 => any::<u32>()];
    let fds = prop_oneof![4 => Just(0_usize), 3 => Just(1), 1 => 0..10_usize];
    (prop_oneof![9 => 0..46_u32, 1 => any::<u32>()], flags, payload, fds)
        .prop_map(|(request, flags, payload, fds)| (Message { request, flags, payload }, fds))
}

/// Checks the invariants that hold after any messages.
fn check_invariants(session: &Session) {
    assert_eq!(session.acked_features() & !session.offered_features(), 0);
    assert_eq!(session.acked_protocol_features() & !SUPPORTED_PROTOCOL_FEATURES, 0);
    assert_eq!(session.rings(), 4);
    assert!(session.regions().len() <= 16);
    assert_eq!(regions::check_table(session.regions(), 16), Ok(()));
    for index in 0..session.rings() {
        let ring = session.ring(index).unwrap();
        assert!(ring.size <= 32768);
        assert!(!(ring.polled && ring.kick.is_some()));
        if session.ready(index) {
            assert!(ring.size > 0 && ring.is_started() && ring.desc.is_multiple_of(16));
            for addr in [ring.desc, ring.avail, ring.used] {
                assert!(regions::has_user_addr(session.regions(), addr));
            }
        }
    }
    assert!(session.mtu().is_none_or(|mtu| mtu >= 68));
}

proptest! {
    #[test]
    fn no_messages_make_the_state_unsound(
        messages in proptest::collection::vec((any_message(), 0..4_u8), 0..60),
        negotiate: bool,
    ) {
        let mut session = if negotiate { running(1) } else { Session::new(offer()) };
        for ((message, fds), outcome) in messages {
            let request = message.request;
            match session.handle(message, (0..fds).map(|_| fd()).collect()) {
                Ok(_) => {
                    check_invariants(&session);
                    let outcome = match outcome {
                        0 => RequestOutcome::Failed,
                        1 => RequestOutcome::RingBase(77),
                        _ => RequestOutcome::Done,
                    };
                    if let Some(bytes) = session.reply(outcome) {
                        let header = Header::decode(bytes.first_chunk().unwrap());
                        prop_assert_eq!((header.request, header.flags), (request, VERSION | FLAG_REPLY));
                    }
                }
                Err(error) => {
                    prop_assert!(!error.to_string().is_empty());
                    let verdict = session.refuse(&error);
                    prop_assert!(!error.fatal() || verdict == Refused::Close);
                }
            }
            check_invariants(&session);
        }
    }
}
