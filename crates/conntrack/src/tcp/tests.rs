use super::transition::{Next, next};
use super::*;

const STATES: [State; 9] = [
    State::SynSent,
    State::SynRecv,
    State::Established,
    State::FinWait,
    State::CloseWait,
    State::LastAck,
    State::TimeWait,
    State::Close,
    State::SynSent2,
];

/// The states of nf_conntrack, for the same kinds of segments. A word is the state that follows; `-` is
/// an invalid segment, `.` one that passes without an effect.
#[test]
fn states_follow_as_in_nf_conntrack() {
    //                     SYN_SENT SYN_RECV ESTABL FIN_WAIT CLOSE_W LAST_ACK TIME_W CLOSE SYN_SENT2
    let opener = [
        (Kind::Syn, "SS . . . . . SS SS S2"),
        (Kind::SynAck, "- SR - - - - - - SR"),
        (Kind::Fin, "- FW FW LA LA LA TW CL -"),
        (Kind::Ack, "- ES ES CW CW TW TW CL -"),
        (Kind::Rst, "CL CL CL CL CL CL CL CL CL"),
    ];
    let answerer = [
        (Kind::Syn, "S2 - - - - - SS - S2"),
        (Kind::SynAck, "SR . . . . . . . SR"),
        (Kind::Fin, "- FW FW LA LA LA TW CL -"),
        (Kind::Ack, ". SR ES CW CW TW TW CL ."),
        (Kind::Rst, "CL CL CL CL CL CL CL CL CL"),
    ];
    let names = ["SS", "SR", "ES", "FW", "CW", "LA", "TW", "CL", "S2"];
    for (role, rows) in [(Role::Opener, opener), (Role::Answerer, answerer)] {
        for (kind, row) in rows {
            for (state, word) in STATES.into_iter().zip(row.split(' ')) {
                let expected = match word {
                    "-" => Next::Invalid,
                    "." => Next::Ignore,
                    _ => Next::To(STATES[names.iter().position(|name| *name == word).expect("a state")]),
                };
                assert_eq!(next(kind, role, state), expected, "{kind:?} of the {role:?} in {state:?}");
            }
        }
    }
}

/// A step of a case: the sender (`>` is the opener, `<` the other side), flags, sequence and
/// acknowledgment number, length, and what is expected: the state, or why it is invalid.
type Line = (&'static str, u32, u32, u32, &'static str);

/// Runs a case. Windows are 1000 bytes without a scale.
fn run(name: &str, pickup: bool, lines: &[Line]) {
    let timeouts = Timeouts::default();
    let rules = Rules { timeouts: &timeouts, windows: Windows::Strict };
    let mut known: Option<Tcp> = None;
    for (at, (sent, seq, ack, len, expected)) in lines.iter().enumerate() {
        let (sender, words) = sent.split_at(1);
        let role = if sender == ">" { Role::Opener } else { Role::Answerer };
        let flags = words.chars().map(|c| match c {
            'S' => 2,
            'A' => 16,
            'F' => 1,
            'R' => 4,
            'P' => 8,
            other => panic!("{name}: no flag has the letter {other}"),
        });
        let segment = Segment { flags: flags.sum(), seq: *seq, ack: *ack, window: 1000, len: *len, scale: None };
        let outcome = match &mut known {
            None => match Tcp::open(&segment, pickup, rules) {
                Ok((tcp, _)) => known.insert(tcp).state.name().to_owned(),
                Err(reason) => format!("{reason:?}"),
            },
            Some(tcp) => match tcp.advance(role, &segment, rules, 400_000_000) {
                Step::Invalid(reason) => format!("{reason:?}"),
                Step::InvalidAndShorten(reason, _) => format!("{reason:?}, short"),
                Step::Reopen => "reopen".to_owned(),
                Step::End => "end".to_owned(),
                Step::Renew(_) => tcp.state.name().to_owned(),
                Step::Pass => format!("{}, not renewed", tcp.state.name()),
            },
        };
        assert_eq!(outcome, *expected, "{name}, line {at}");
    }
}

/// An established connection. The opener has sent 1 to 101, the other side 501 to 601.
const OPEN: [Line; 5] = [
    (">S", 0, 0, 0, "SYN_SENT"),
    ("<SA", 500, 1, 0, "SYN_RECV"),
    (">A", 1, 501, 0, "ESTABLISHED"),
    (">PA", 1, 501, 100, "ESTABLISHED"),
    ("<PA", 501, 101, 100, "ESTABLISHED"),
];

fn after_open(name: &str, lines: &[Line]) {
    let all: Vec<_> = OPEN.iter().chain(lines).copied().collect();
    run(name, false, &all);
}

#[test]
fn connections_end() {
    let closed = [
        (">FA", 101, 601, 0, "FIN_WAIT"),
        ("<A", 601, 102, 0, "CLOSE_WAIT"),
        ("<FA", 601, 102, 0, "LAST_ACK"),
        (">A", 102, 602, 0, "TIME_WAIT"),
    ];
    let with = |line: Line| closed.into_iter().chain([line]).collect::<Vec<_>>();
    after_open("a SYN opens it again", &with((">S", 9000, 0, 0, "reopen")));
    after_open("the other side may open another one", &with(("<S", 9000, 0, 0, "reopen")));
    after_open("the last ACK comes again", &with((">A", 102, 602, 0, "TIME_WAIT")));
    after_open(
        "both close at once",
        &[(">FA", 101, 601, 0, "FIN_WAIT"), ("<FA", 601, 101, 0, "LAST_ACK"), (">A", 102, 602, 0, "TIME_WAIT")],
    );
    after_open(
        "data goes on after a FIN",
        &[(">FA", 101, 601, 0, "FIN_WAIT"), ("<A", 601, 102, 500, "CLOSE_WAIT"), (">A", 102, 1101, 0, "CLOSE_WAIT")],
    );
    after_open("a FIN beyond the window", &[(">FA", 5000, 601, 0, "SeqHigh")]);
    after_open(
        "FINs beyond the windows from both sides",
        &[(">FA", 5000, 601, 0, "SeqHigh"), ("<FA", 9000, 101, 0, "SeqHigh, short")],
    );
}

#[test]
fn resets() {
    after_open("with the number that is expected", &[("<R", 601, 0, 0, "CLOSE")]);
    after_open("behind the last segment", &[(">A", 101, 601, 200, "ESTABLISHED"), (">R", 301, 0, 0, "CLOSE")]);
    after_open("below the window", &[("<R", 300, 0, 0, "Reset")]);
    after_open(
        "in the window, but not the number: the station asks back",
        &[(">A", 101, 601, 0, "ESTABLISHED"), ("<R", 800, 0, 0, "ESTABLISHED"), ("<R", 601, 0, 0, "CLOSE")],
    );
    after_open("beyond the window", &[("<R", 9000, 0, 0, "SeqHigh")]);
    run("a SYN is refused", false, &[(">S", 0, 0, 0, "SYN_SENT"), ("<RA", 0, 1, 0, "end")]);
    run("a SYN is taken back", false, &[(">S", 0, 0, 0, "SYN_SENT"), (">R", 1, 0, 0, "end")]);
    run(
        "half-open after a restart: the ACK passes, and the RST that answers it",
        false,
        &[(">S", 0, 0, 0, "SYN_SENT"), ("<A", 7000, 4000, 0, "SYN_SENT, not renewed"), (">R", 4000, 0, 0, "CLOSE")],
    );
}

#[test]
fn windows() {
    after_open("as much as the window", &[(">A", 101, 601, 1000, "ESTABLISHED")]);
    after_open("behind the window", &[(">A", 1102, 601, 1, "ESTABLISHED, not renewed")]);
    after_open("far behind the window", &[(">A", 5000, 601, 1, "SeqHigh")]);
    after_open("sent again", &[(">A", 1, 601, 100, "ESTABLISHED")]);
    after_open("acknowledges more than was sent", &[(">A", 101, 602, 0, "AckHigh")]);
    after_open("acknowledged long ago", &[(">A", 0_u32.wrapping_sub(5000), 601, 10, "ESTABLISHED, not renewed")]);
    after_open("an old acknowledgment", &[(">A", 101, 601_u32.wrapping_sub(67_000), 0, "ESTABLISHED, not renewed")]);
}

#[test]
fn openings() {
    run(
        "a SYN that is sent again",
        false,
        &[
            (">S", 0, 0, 0, "SYN_SENT"),
            (">S", 0, 0, 0, "SYN_SENT, not renewed"),
            ("<SA", 500, 1, 0, "SYN_RECV"),
            ("<SA", 500, 1, 0, "SYN_RECV, not renewed"),
            (">A", 1, 501, 0, "ESTABLISHED"),
        ],
    );
    run(
        "both open it",
        false,
        &[
            (">S", 0, 0, 0, "SYN_SENT"),
            ("<S", 500, 0, 0, "SYN_SENT2, not renewed"),
            (">SA", 0, 501, 0, "SYN_RECV"),
            ("<SA", 500, 1, 0, "SYN_RECV, not renewed"),
            ("<A", 501, 1, 0, "ESTABLISHED"),
        ],
    );
    run("an answer to another SYN", false, &[(">S", 0, 0, 0, "SYN_SENT"), ("<SA", 500, 77, 0, "AckHigh")]);
    run("data before the answer", false, &[(">S", 0, 0, 0, "SYN_SENT"), (">A", 1, 501, 5, "State")]);
    run("no SYN", false, &[(">A", 1, 1, 5, "NotOpen")]);
    run("an answer first", false, &[(">SA", 1, 1, 0, "NotOpen")]);
    run(
        "flags that do not go together",
        false,
        &[(">SF", 0, 0, 0, "Flags"), (">SR", 0, 0, 0, "Flags"), (">F", 0, 0, 0, "Flags")],
    );
    run(
        "picked up",
        true,
        &[
            (">A", 700, 90, 5, "ESTABLISHED"),
            ("<A", 90, 705, 100_000, "ESTABLISHED"),
            (">FA", 705, 100_090, 0, "FIN_WAIT"),
        ],
    );
    run("no pick-up with a FIN", true, &[(">FA", 700, 90, 0, "NotOpen")]);
    after_open(
        "the opener has restarted: the other side knows better, and agrees",
        &[
            (">S", 70_000, 0, 0, "ESTABLISHED, not renewed"),
            ("<SA", 90_000, 70_001, 0, "SYN_RECV"),
            (">A", 70_001, 90_001, 0, "ESTABLISHED"),
        ],
    );
    after_open(
        "the opener has restarted: the other side asks back, and is reset",
        &[
            (">S", 70_000, 0, 0, "ESTABLISHED, not renewed"),
            ("<A", 601, 101, 0, "ESTABLISHED"),
            (">R", 101, 0, 0, "CLOSE"),
        ],
    );
}
