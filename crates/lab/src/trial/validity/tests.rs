use std::time::Duration;

use anyhow::Context;

use super::*;
use crate::traffic::generator::{Load, Measured, Rate, StreamCounters};
use crate::traffic::{Counted, Sizes};

const LOAD: Load = Load { rate: Rate::Pps(1e6), burst: 32 };

/// A million packets in a second, and all returned.
fn good() -> Measured {
    let counters =
        StreamCounters { sent: 1_000_000, received: 1_000_000, bytes: 64_000_000, ..StreamCounters::default() };
    Measured {
        streams: vec![counters],
        meant: Some(1_000_000),
        seconds: [1.0, 1.0],
        arrived: [1_000_000, 64_000_000],
        ..Measured::default()
    }
}

/// The packets of [`good`], from a generator that was descheduled for a second.
fn late() -> Measured {
    Measured { seconds: [1.0, 2.0], missed: 500_000, ..good() }
}

const COUNTED: Counted = Counted { packets: 1_000_000, patience: Duration::from_secs(9) };

fn judged(change: impl FnOnce(&mut Measured)) -> Validity {
    let mut measured = good();
    change(&mut measured);
    super::measured(&measured, LOAD, 64.0)
}

/// Every rule, kept and broken: the word, and a part of the reason.
#[test]
fn each_rule_has_its_word_and_its_reason() {
    const VALID: (&str, &str) = ("valid", "");
    let load = "spoilt-by-load";
    let backend = "spoilt-by-backend";
    let stop = "interrupted";
    let millis = Duration::from_millis;
    let sizes = Sizes::one(64);
    let both = |a, b| balance([a, b], [true; 2], [&"/a", &"/b"]);
    let metrics = |wrong: &'static str, mpps: f64| {
        no_faults(move |name| match name {
            "mpps" => mpps,
            name => f64::from(u8::from(name == wrong)),
        })
    };
    let none = || "none".to_owned();
    let stopped = Validity::Interrupted("interrupted".to_owned());
    let silent_backend = Validity::SpoiltByBackend("silent".to_owned());
    let rows: Vec<(Validity, (&str, &str))> = vec![
        // Before a trial.
        (beyond(Some(2.0), Rate::Pps(2e6), 64.0), VALID),
        (beyond(Some(2.0), Rate::Max, 64.0), VALID),
        (beyond(None, Rate::Pps(1e9), 64.0), VALID),
        (beyond(Some(2.0), Rate::Bits(2.0 * 8.0 * 64e6), 64.0), VALID),
        (beyond(Some(2.0), Rate::Bits(3.0 * 8.0 * 64e6), 64.0), (load, "3.000 Mpps are more than the generator makes")),
        // A trial with the generator.
        (judged(|_| {}), VALID),
        (judged(|m| m.seconds[1] = 1.0011), (load, "1.0011")),
        (judged(|m| m.seconds[1] = 0.99), (load, "0.9900")),
        (judged(|m| m.meant = Some(990_000)), (load, "990000 packets were due instead of 1000000")),
        (judged(|m| m.missed = 1001), (load, "1001 of 1000000")),
        (judged(|m| m.streams[0] = StreamCounters::default()), (backend, "nothing could be sent")),
        (judged(|m| m.streams[0].received = 0), (backend, "nothing has returned of 1000000")),
        (judged(|m| m.still_coming = true), (backend, "still came")),
        (judged(|m| (m.still_coming, m.not_taken) = (true, true)), (backend, "still came")),
        (judged(|m| (m.not_taken, m.streams[0].received) = (true, 500_000)), (backend, "went silent")),
        (judged(|m| m.streams[0].corrupt = 7), (backend, "7 of the checked packets came with other bytes")),
        // A backend's fault comes first, even if the generator was late too.
        (judged(|m| (m.not_taken, m.missed) = (true, 1001)), (backend, "went silent")),
        (judged(|m| (m.streams[0].received, m.missed) = (0, 1001)), (backend, "nothing has returned")),
        (judged(|m| (m.streams[0].corrupt, m.missed) = (1, 1001)), (backend, "other bytes")),
        (judged(|m| (m.still_coming, m.missed) = (true, 1001)), (load, "1001 of 1000000")),
        // A trial that packets have ended.
        (came(&good(), COUNTED, 64.0), VALID),
        (came(&late(), COUNTED, 64.0), VALID),
        (came(&good(), Counted { packets: 1_000_001, ..COUNTED }, 64.0), (backend, "1000000 of 1000001 packets")),
        (corrupted(0.0), VALID),
        (corrupted(2.0), (backend, "2 of the checked packets")),
        // Stops.
        (whole(1.0, 1.0), VALID),
        (whole(1.2, 1.0), VALID),
        (whole(0.25, 1.0), (stop, "interrupted, after 0.2 of 1.0 s")),
        (soak_stopped(&stopped, 50.0, 60.0), (stop, "interrupted, after 50.0 of 60.0 s")),
        (soak_stopped(&silent_backend, 0.0, 60.0), (backend, "silent")),
        // Guests that check packets themselves.
        (silent("/a", millis(250), silence(Duration::from_secs(1))), VALID),
        (silent("/a", millis(251), silence(Duration::from_secs(1))), (backend, "nothing has come from /a for 250 ms")),
        (nothing_comes(&["/a".to_owned()], Duration::from_secs(5), &sizes).0, (backend, "from /a within 5 s")),
        (both(100, 20), VALID),
        (both(100, 19), (backend, "19 packets came from /b, but 100")),
        (both(0, 0), (backend, "0 packets came from /a")),
        (balance([0, 9], [false, true], [&"/a", &"/b"]), VALID),
        (lengths(64, 640, 10, &sizes), VALID),
        (lengths(65, 640, 10, &sizes), (backend, "at most 65, but 64 were sent")),
        (lengths(64, 639, 10, &sizes), (backend, "63.9 bytes on average")),
        (returned(0), VALID),
        (returned(3), (backend, "3 packets of the loop are lost")),
        (returned_once(0), VALID),
        (returned_once(1), (backend, "1 packets have returned twice")),
        (counted(1.0), VALID),
        (counted(0.0), (backend, "has counted no packet")),
        (metrics("", 1.0), VALID),
        (metrics("corrupt", 1.0), (backend, "1 of the received packets were corrupt")),
        (metrics("duplicates", 1.0), (backend, "were duplicates")),
        (metrics("foreign", 1.0), (backend, "were foreign")),
        (metrics("", 0.0), (backend, "nothing has returned in the measured time")),
        (traced(1.0, &Validity::Valid), VALID),
        (traced(0.0, &silent_backend), (backend, "traced guest: silent")),
        (addresses("lines", 2.0, 2.0), VALID),
        (addresses("lines", 3.0, 2.0), (backend, "lines is 3 by the addresses of packets, but should be 2")),
        (same_packet("/a", None), VALID),
        (
            same_packet("/a", Some(anyhow::anyhow!("byte 3").context("packet 7 differs"))),
            (backend, "/a: packet 7 differs: byte 3"),
        ),
        (checks_done(true), VALID),
        (checks_done(false), (load, "before all checks were done")),
        (through(false, Duration::from_secs(10), none), VALID),
        (through(true, Duration::from_secs(10), none), (backend, "within 10 s; dropped: none")),
        (arrived(false, [9, 9], [9, 8], none), VALID),
        (arrived(true, [9, 9], [9, 8], none), (backend, "sent [9, 9] bytes, but only [9, 8] arrived")),
        (wire_packets(1.0, 1.0), VALID),
        (wire_packets(0.0, 1.0), (backend, "no packet has passed the wire")),
        (wire_packets(1.0, 0.0), (backend, "no packet has passed the wire")),
        (line_used(0.95), VALID),
        (line_used(0.94), (load, "94.0 % of the line was used; expected 95 to 105 %")),
        (line_used(1.06), (load, "106.0 %")),
        // Searches.
        (search_result(None, None, [true; 2]), VALID),
        (search_result(None, Some(&stopped), [true; 2]), VALID),
        (search_result(Some("no load is too high"), None, [true, false]), ("lower-bound", "no load is too high")),
        (search_result(Some("the least load is too high"), None, [false, true]), (backend, "the least load")),
        (search_result(Some("rough"), Some(&stopped), [true, false]), (stop, "did not finish: interrupted")),
        (search_result(Some("rough"), Some(&silent_backend), [true; 2]), (backend, "did not finish: silent")),
    ];
    for (validity, (word, part)) in rows {
        let why = validity.reason().unwrap_or_default();
        assert!(validity.word() == word && why.contains(part), "{validity:?}, expected {word}: {part}");
    }
}

#[test]
fn an_error_has_a_validity() {
    let validity_of = |error: anyhow::Error| {
        let validity = of_error(&error);
        (validity.word(), validity.reason().expect("an error has one").to_owned())
    };
    let late = || NotValid(Validity::SpoiltByLoad("late".to_owned()));
    assert_eq!(validity_of(Stopped.into()), ("interrupted", "interrupted".to_owned()));
    assert_eq!(validity_of(late().into()), ("spoilt-by-load", "late".to_owned()));
    let inner: Result<(), NotValid> = Err(late());
    assert_eq!(validity_of(inner.context("round 3").expect_err("late")).0, "spoilt-by-load");
    let absent = validity_of(NoCpu(9).into());
    assert!(absent.0 == "spoilt-by-load" && absent.1.contains("no CPU 9"), "{absent:?}");
    let closed = anyhow::anyhow!("/a: the backend has closed the connection");
    assert_eq!(validity_of(closed), ("spoilt-by-backend", "/a: the backend has closed the connection".to_owned()));
    // Only a measurement that has begun tells how long it lasted.
    let reason = |lasted: f64| ended(&Stopped.into(), 9.0, lasted).reason().map(str::to_owned);
    let cut = |why: &str| Some(why.to_owned());
    assert_eq!([reason(3.12), reason(0.0)], [cut("interrupted, after 3.1 of 9.0 s"), cut("interrupted")]);
}

#[test]
fn silence_is_found_within_the_time() {
    for (time, limit) in [(0, 100), (300, 100), (1000, 250), (2000, 500), (60_000, 1000)] {
        assert_eq!(silence(Duration::from_millis(time)), Duration::from_millis(limit));
    }
}

#[test]
fn what_the_switch_did_not_take_breaks_no_rule() {
    // Half of it was refused, or lost, or came twice: that is a valid result.
    let half = judged(|m| (m.refused, m.streams[0].sent, m.streams[0].received) = (500_000, 500_000, 1));
    assert_eq!(half, Validity::Valid);
    assert_eq!(judged(|m| (m.missed, m.streams[0].duplicates) = (999, 7)), Validity::Valid);
    assert_eq!(judged(|m| m.meant = None), Validity::Valid);
}

#[test]
fn a_stream_of_which_nothing_comes_is_no_loss() {
    let judged = |streams: &[(u64, u64)]| {
        let counters = |&(sent, received)| StreamCounters { sent, received, ..StreamCounters::default() };
        judged(|m| m.streams = streams.iter().map(counters).collect())
    };
    let dead = judged(&[(500_000, 500_000), (500_000, 0)]);
    assert!(dead.is_spoilt_by_backend(), "a direction is dead");
    assert!(dead.reason().is_some_and(|why| why.contains("500000 packets of stream 2 of 2")), "{dead:?}");
    assert!(judged(&[(500_000, 0), (500_000, 9)]).is_valid(), "as likely as not");
    assert!(!judged(&[(50_000, 0), (950_000, 900_000), (5000, 1)]).is_valid());
    // One direction only; few packets; a high loss of both.
    assert!(judged(&[(1_000_000, 1), (0, 0)]).is_valid());
    assert!(judged(&[(1_000_000, 999_000), (16, 0)]).is_valid());
    assert!(judged(&[(1_000_000, 10), (1_000_000, 1)]).is_valid());
}
