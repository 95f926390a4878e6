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
        (Kind::SynAck, "- . . . . . . . SR"),
        (Kind::Fin, "- FW FW LA LA LA TW CL -"),
        (Kind::Ack, "- ES ES CW CW TW TW CL -"),
        (Kind::Rst, "CL CL CL CL CL CL CL CL CL"),
    ];
    let answerer = [
        (Kind::Syn, "S2 - - - - - - - S2"),
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
