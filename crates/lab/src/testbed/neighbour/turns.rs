//! A neighbour that takes turns with the generator on one thread.

use std::time::Duration;

use straightline_graph::clock::{cycles, hertz, in_cycles, seconds};
use straightline_guest::endpoints::Endpoint;

use super::{LINE, Line, Proof, float, prove, round};

/// The time of a turn. The generator looks for packets this much later, whatever the footprint is.
const TURN: Duration = Duration::from_nanos(500);

/// Number of lines between two looks at the clock.
const STRIDE: usize = 8;

/// A neighbour that visits its lines for a fixed time in each turn. With a footprint of one line it
/// takes the same time and fills no cache, so it is what a larger one is compared with.
#[derive(Debug)]
pub struct NeighbourTurns {
    memory: Vec<Line>,
    /// The line that comes next.
    next: usize,
    rounds: u64,
    touched: usize,
    turn: u64,
    /// Cycles of all turns.
    spent: u64,
}

impl NeighbourTurns {
    /// Makes a neighbour with this many bytes of memory, and touches all of it once.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let mut memory = vec![Line::default(); (bytes / LINE).max(1)];
        // The kernel allocates the memory now.
        let touched = round(&mut memory, None);
        NeighbourTurns { memory, next: 0, rounds: 1, touched, turn: in_cycles(TURN, hertz()), spent: 0 }
    }

    /// Ends it.
    ///
    /// # Errors
    /// The numbers in the lines differ from what the neighbour should have written.
    pub fn stop(self) -> anyhow::Result<Proof> {
        let proof = prove(&self.memory, self.rounds, self.touched, &[])?;
        let visits = self.touched - self.memory.len();
        let ns_per_line = (visits > 0).then(|| seconds(self.spent) * 1e9 / float(visits));
        Ok(Proof { ns_per_line, ..proof })
    }
}

impl Endpoint for NeighbourTurns {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let began = cycles();
        loop {
            for _ in 0..STRIDE {
                self.memory[self.next].0 += 1;
                self.next += 1;
                if self.next == self.memory.len() {
                    self.next = 0;
                    self.rounds += 1;
                }
            }
            self.touched += STRIDE;
            let spent = cycles().saturating_sub(began);
            if spent >= self.turn {
                self.spent += spent;
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_through_all_lines() {
        for bytes in [1, LINE, 3 * LINE, 1 << 20] {
            let mut neighbour = NeighbourTurns::new(bytes);
            assert_eq!(neighbour.rounds, 1);
            let lines = (bytes / LINE).max(1);
            while neighbour.rounds < 3 {
                assert_eq!(neighbour.turn(0).expect("a turn"), 0);
            }
            let proof = neighbour.stop().expect("a proof");
            assert!(proof.lines == lines && proof.rounds >= 3 && proof.ns_per_line.is_some(), "{proof:?}");
        }
        let mut neighbour = NeighbourTurns::new(4 * LINE);
        neighbour.memory[2].0 += 7;
        assert!(neighbour.stop().expect_err("a number is wrong").to_string().contains("of 4 lines"));
    }
}
