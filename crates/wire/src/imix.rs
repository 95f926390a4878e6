//! The Internet mix of frame lengths.

/// Simple IMIX: lengths of Ethernet frames without the frame check sequence, each with its weight.
/// (With the frame check sequence, they are 64, 570 and 1518 bytes.)
pub const IMIX: [(u16, u16); 3] = [(60, 7), (566, 4), (1514, 1)];

/// The number of frames in which each length of [`IMIX`] has its weight.
pub const FRAMES: usize = {
    let [(_, a), (_, b), (_, c)] = IMIX;
    (a + b + c) as usize
};

/// Returns the lengths of [`IMIX`] in an even order, to be repeated. Each frame goes to the length
/// that is the farthest behind its weight (smooth weighted round-robin, as in nginx).
///
/// ```
/// let order = straightline_wire::imix::order();
/// assert_eq!(order, [60, 566, 60, 60, 566, 60, 1514, 60, 566, 60, 566, 60]);
/// ```
#[must_use]
pub const fn order() -> [u16; FRAMES] {
    let mut order = [0; FRAMES];
    let mut taken = [0; IMIX.len()];
    let mut frame = 0;
    while frame < FRAMES {
        let mut best = 0;
        let mut most = 0;
        let mut at = 0;
        while at < IMIX.len() {
            // The frames that are due to this length, times FRAMES. The last summand keeps it above 0.
            let due = IMIX[at].1 as usize * (frame + 1) + FRAMES * (FRAMES - taken[at]);
            if due > most {
                (best, most) = (at, due);
            }
            at += 1;
        }
        taken[best] += 1;
        order[frame] = IMIX[best].0;
        frame += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_its_weight() {
        for (len, weight) in IMIX {
            assert_eq!(order().iter().filter(|&&other| other == len).count(), weight.into());
        }
        // Ethernet frames have at least 64 bytes with the frame check sequence of 4 bytes.
        assert_eq!(IMIX.map(|(len, _)| len + 4), [64, 570, 1518]);
    }
}
