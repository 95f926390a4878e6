//! The states of TCP: the state that a segment leads to, before its window is checked.

use super::Role;
use crate::state::State;
use crate::transport::Kind;

/// The effect of a segment on the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    To(State),
    /// The segment passes without an effect: it may be valid, or be answered by a RST or SYN-ACK.
    Ignore,
    /// No station sends it in this state.
    Invalid,
}

/// Returns the effect of a segment that the side with this role sent.
pub(super) fn next(kind: Kind, role: Role, state: State) -> Next {
    use Role::{Answerer, Opener};
    use State::{Close, CloseWait, Established, FinWait, LastAck, SynRecv, SynSent, SynSent2, TimeWait};
    match (kind, role, state) {
        (Kind::Rst, _, _) => Next::To(Close),

        // The answerer of before may be the opener of the next connection.
        (Kind::Syn, Opener, SynSent | TimeWait | Close) | (Kind::Syn, Answerer, TimeWait) => Next::To(SynSent),
        (Kind::Syn, Opener, SynSent2) | (Kind::Syn, Answerer, SynSent | SynSent2) => Next::To(SynSent2),
        (Kind::Syn, Opener, _) => Next::Ignore,
        (Kind::Syn, Answerer, _) => Next::Invalid,

        // Only in a simultaneous open does the opener answer a SYN.
        (Kind::SynAck, Opener, SynSent2 | SynRecv) | (Kind::SynAck, Answerer, SynSent | SynSent2) => Next::To(SynRecv),
        (Kind::SynAck, Opener, _) => Next::Invalid,
        (Kind::SynAck, Answerer, _) => Next::Ignore,

        (Kind::Fin, _, SynRecv | Established) => Next::To(FinWait),
        (Kind::Fin, _, FinWait | CloseWait | LastAck) => Next::To(LastAck),
        (Kind::Fin, _, TimeWait | Close) | (Kind::Ack, _, Close) => Next::To(state),
        (Kind::Fin, _, _) => Next::Invalid,

        (Kind::Ack, Opener, SynSent | SynSent2) => Next::Invalid,
        (Kind::Ack, Answerer, SynSent | SynSent2) => Next::Ignore,
        (Kind::Ack, Answerer, SynRecv) => Next::To(SynRecv),
        (Kind::Ack, Opener, SynRecv) | (Kind::Ack, _, Established) => Next::To(Established),
        (Kind::Ack, _, FinWait | CloseWait) => Next::To(CloseWait),
        (Kind::Ack, _, LastAck | TimeWait) => Next::To(TimeWait),
        (Kind::Ack, _, _) => Next::Invalid,
    }
}
