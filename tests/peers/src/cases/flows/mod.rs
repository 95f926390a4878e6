//! Flow tables beside Open vSwitch's. Each run has other flows; its seed is printed.
//!
//! | file | contents |
//! |---|---|
//! | `lines` | the same files of flows and the same changes: both dump the same lines |
//! | `packets` | the same packets: both send the same frames to the same ports, and count the same |
//! | `rules` | random flows for these packets |
//! | `counts` | the counters of both |
//! | `connections` | packets of connections, and the state that both find |
//! | `differences` | packets that Open vSwitch changes in another way, with reasons |

mod connections;
mod counts;
mod differences;
mod lines;
mod packets;
mod rules;

use straightline_report::random::Random;

use crate::machine::Need;
use crate::runner::{Test, beside_others};

/// Returns the tests.
pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("flows_ovs", &[Need::PlainOvs], lines::same_lines),
        Test::new("flows_ovs_packets", &[Need::PlainOvs], packets::same_packets),
        Test::new("flows_ovs_connections", &[Need::PlainOvs], connections::same_states),
    ])
}

/// Returns a random word of a list.
fn pick<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[usize::try_from(random.below(words.len() as u64)).unwrap_or(0)]
}
