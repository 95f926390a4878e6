//! The counters of flows in a dump.

use std::collections::BTreeMap;

/// Packets and bytes of each flow, by its text without ages and counters.
pub(super) type Counts = BTreeMap<String, (u64, u64)>;

/// Reads the lines of `ovs-ofctl dump-flows`, or of `straightline flow dump`.
pub(super) fn read(dump: &str) -> Counts {
    dump.lines().filter(|line| line.starts_with(' ')).map(flow).collect()
}

fn flow(line: &str) -> (String, (u64, u64)) {
    let mut counts = (0, 0);
    let mut rest = Vec::new();
    for word in line.trim().split(' ') {
        let word = word.trim_end_matches(',');
        match word.split_once('=') {
            Some(("n_packets", count)) => counts.0 = count.parse().unwrap_or(u64::MAX),
            Some(("n_bytes", count)) => counts.1 = count.parse().unwrap_or(u64::MAX),
            Some(("duration" | "idle_age" | "hard_age", _)) => {}
            _ => rest.push(word),
        }
    }
    (rest.join(" "), counts)
}

/// Returns the flows whose counters differ, as text.
pub(super) fn differences(ours: &Counts, theirs: &Counts) -> Vec<String> {
    let all = ours.keys().chain(theirs.keys().filter(|flow| !ours.contains_key(*flow)));
    let text = |flow: &String| format!("{flow}: ours {:?}, OvS {:?}", ours.get(flow), theirs.get(flow));
    all.filter(|flow| ours.get(*flow) != theirs.get(*flow)).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_left_out() {
        let dump = "NXST_FLOW reply (xid=0x4):\n cookie=0x0, duration=2.9s, table=1, n_packets=52, n_bytes=3, idle_age=0, \
                    priority=1,in_port=1 actions=output:2\n";
        let counts = read(dump);
        assert_eq!(counts, [("cookie=0x0 table=1 priority=1,in_port=1 actions=output:2".to_owned(), (52, 3))].into());
        assert!(differences(&counts, &counts).is_empty());
        assert_eq!(differences(&counts, &Counts::new()).len(), 1);
    }
}
