//! Tags as a third-party program reads them (tshark).

use std::fs::File;

use anyhow::{Context, Result, ensure};
use straightline_capture::pcapng::Writer;

use super::model::{Delivery, Tag, outer_tag};
use super::topology::{CUSTOMER, PROVIDER};
use crate::lab::Lab;
use crate::net;
use crate::say::say;

/// The fields of tags by their TPID: identifier, priority, indicator. The first of two tags of a
/// provider in a row has its identifier under another name (`svid`).
const FIELDS: [&str; 7] = [
    "vlan.id",
    "vlan.priority",
    "vlan.dei",
    "ieee8021ad.id",
    "ieee8021ad.svid",
    "ieee8021ad.priority",
    "ieee8021ad.dei",
];

/// Asserts that tshark reads the outer tags of frames as we do.
pub(super) fn are_read(lab: &Lab, frames: &[Delivery]) -> Result<()> {
    let path = lab.log("outputs.pcap");
    let mut writer = Writer::of_frames(File::create(&path)?)?;
    for (_, bytes) in frames {
        writer.frame(0, bytes)?;
    }
    drop(writer);
    let read = read(&path, "")?;
    ensure!(read.len() == frames.len(), "tshark read {} of {} frames", read.len(), frames.len());
    let mut tagged = 0;
    for (number, ((_, bytes), tags)) in (1..).zip(frames.iter().zip(&read)) {
        let Some(tag) = outer_tag(bytes) else { continue };
        tagged += 1;
        ensure!(tags.contains(&tag), "frame {number} has the outer tag {tag:?}, but tshark read {tags:?}");
    }
    say!("  tshark read the outer tags of {tagged} frames as they were written");
    std::fs::remove_file(path)?;
    Ok(())
}

/// Returns the tags that tshark reads in each frame of a file: the outermost by each name.
pub(super) fn read(path: &std::path::Path, filter: &str) -> Result<Vec<Vec<Tag>>> {
    let out = net::tshark(path, filter, &FIELDS)?;
    out.lines().map(|line| tags(line).with_context(|| format!("tshark wrote {line:?}"))).collect()
}

fn tags(line: &str) -> Result<Vec<Tag>> {
    let values: Vec<&str> = line.split('\t').collect();
    let [id, priority, dei, single, service, service_priority, service_dei] = values[..] else {
        anyhow::bail!("there are not seven fields");
    };
    let mut tags = Vec::new();
    for (tpid, id, priority, dei) in [
        (CUSTOMER, id, priority, dei),
        (PROVIDER, single, service_priority, service_dei),
        (PROVIDER, service, service_priority, service_dei),
    ] {
        if !id.is_empty() {
            let dei = ["1", "True"].contains(&dei);
            tags.push(Tag { tpid, vid: id.parse()?, priority: priority.parse()?, dei });
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_tshark() {
        let customer = Tag { tpid: CUSTOMER, vid: 10, priority: 1, dei: true };
        let provider = Tag { tpid: PROVIDER, vid: 100, priority: 5, dei: false };
        assert_eq!(tags("\t\t\t\t\t\t").expect("no tag"), []);
        assert_eq!(tags("10\t1\t1\t\t\t\t").expect("one tag"), [customer]);
        assert_eq!(tags("10\t1\tTrue\t100\t\t5\t0").expect("two tags"), [customer, provider]);
        assert_eq!(tags("\t\t\t\t100\t5\t0").expect("the outer of two tags"), [provider]);
        assert!(tags("10\t1").is_err());
    }
}
