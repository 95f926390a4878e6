//! `straightline flow`: flow tables of a running switch, in the words of `ovs-ofctl`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, bail};
use straightline_api::{
    self as api, ChangeFlows, ChangeMeter, FlowLines, FlowTrace, Flows, FlowsChanged, FlowsRequest, Meters,
    MetersRequest, Request, TraceFlow,
};

use super::query::{pages, print};
use crate::cli::{At, Flow, FlowChange, FlowDump, FlowFile, FlowMeter};
use crate::output;

/// Most bytes of flows in one request, as JSON. A request has at most 4096 bytes.
const MOST_IN_REQUEST: usize = 3800;

/// Flows in an answer. It fits into the buffer of a socket, so the switch need not wait for us.
const PAGE: u32 = 256;

/// Most bytes of a file of flows.
const MOST_BYTES: u64 = 32 << 20;

pub(crate) fn execute(flow: &Flow) -> anyhow::Result<()> {
    match flow {
        Flow::Add(change) => change_flows(change, "add"),
        Flow::Mod(change) => change_flows(change, if change.strict { "modify-strict" } else { "modify" }),
        Flow::Del(change) => change_flows(change, if change.strict { "delete-strict" } else { "delete" }),
        Flow::Replace(FlowFile { at, file }) => send(at, "replace", &read(file)?),
        Flow::Dump(dump) => dump_flows(dump),
        Flow::Trace { at: At { bridge, asking }, packet } => {
            let request = TraceFlow { bridge: bridge.clone(), packet: packet.clone() };
            print(asking, &api::send(&asking.api, &Request::TraceFlow(request))?, |json| {
                let FlowTrace { lines, .. } = serde_json::from_str(json)?;
                Ok(lines.into_iter().map(|line| line + "\n").collect())
            })
        }
        Flow::Meter(meter) => change_meter(meter),
    }
}

fn change_flows(change: &FlowChange, command: &str) -> anyhow::Result<()> {
    let FlowChange { at, flows, file, .. } = change;
    let mut text = String::new();
    for flow in flows {
        let flow = if flow == "-" { &read(Path::new("-"))? } else { flow };
        text += flow;
        text.push('\n');
    }
    if let Some(file) = file {
        text += &read(file)?;
    }
    let deletes = command.starts_with("delete");
    if text.trim().is_empty() && !deletes {
        bail!("no flows: name some, or a file with --file");
    }
    if deletes && file.is_some() && text.trim().is_empty() {
        bail!("the file has no flows; without --file, all flows are deleted");
    }
    // One flow alone has no number of its line in messages.
    let text = if flows.len() == 1 && file.is_none() { text.trim_end().to_owned() } else { text };
    send(at, command, &text)
}

/// Sends flows to the switch, and prints what they have changed.
fn send(at: &At, command: &str, text: &str) -> anyhow::Result<()> {
    let At { bridge, asking } = at;
    let mut chunks = chunks(text);
    let text = chunks.pop().unwrap_or_default().to_owned();
    let lines = chunks.into_iter().map(|text| Request::FlowLines(FlowLines { text: text.to_owned() }));
    let change = ChangeFlows { bridge: bridge.clone(), command: command.to_owned(), text };
    let json = api::send_all(&asking.api, lines.chain([Request::ChangeFlows(change)]))?;
    print(asking, &json, |json| {
        let FlowsChanged { added, modified, deleted, kept } = serde_json::from_str(json)?;
        let counts = [(added, "added"), (modified, "changed"), (deleted, "deleted")];
        let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
        let counts: Vec<_> = counts.collect();
        let mut text = if counts.is_empty() { "nothing changed".to_owned() } else { counts.join(", ") };
        if kept > 0 {
            let _ = write!(text, "; {kept} of the configuration file stay");
        }
        Ok(text + "\n")
    })
}

/// Splits text into parts that fit into requests.
fn chunks(text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut size = 0;
    for (at, one) in text.char_indices() {
        // JSON writes some characters as an escape of six.
        let cost = if one.is_control() || one == '"' || one == '\\' { 6 } else { one.len_utf8() };
        if size + cost > MOST_IN_REQUEST {
            chunks.push(&text[start..at]);
            start = at;
            size = 0;
        }
        size += cost;
    }
    chunks.push(&text[start..]);
    chunks
}

/// Reads a file, or standard input for `-`.
fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let limited = |reader: &mut dyn Read, text: &mut String| reader.take(MOST_BYTES + 1).read_to_string(text);
    if file == Path::new("-") {
        limited(&mut std::io::stdin().lock(), &mut text).context("cannot read standard input")?;
    } else {
        let opened = std::fs::File::open(file);
        opened
            .and_then(|mut opened| limited(&mut opened, &mut text))
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    if text.len() as u64 > MOST_BYTES {
        bail!("{} has more than {} MiB, so it is no file of flows", file.display(), MOST_BYTES >> 20);
    }
    Ok(text)
}

fn dump_flows(dump: &FlowDump) -> anyhow::Result<()> {
    let FlowDump { at: At { bridge, asking }, filter, no_stats, names, no_names } = dump;
    let names = *names || !*no_names && !asking.json && std::io::stdout().is_terminal();
    let request = |after| {
        let filter = filter.clone();
        Request::Flows(FlowsRequest { filter, names, after, limit: PAGE, ..FlowsRequest::new(bridge) })
    };
    let mut all = Flows::default();
    pages(asking, request, |page: Flows| {
        if asking.json {
            all.bridge = page.bridge;
            all.total = page.total;
            all.accesses = page.accesses;
            all.flows.extend(page.flows);
            return Ok(page.next);
        }
        let lines = page.flows.iter().map(|flow| if *no_stats { &flow.short } else { &flow.text });
        let mut text = lines.map(|line| format!(" {line}\n")).collect::<String>();
        // Elsewhere, the lines are those of `ovs-ofctl`.
        if page.next.is_none() && std::io::stdout().is_terminal() {
            let Flows { total, accesses, .. } = page;
            text += &format!("# {total} flows: the search in a table takes at most {accesses} reads of memory\n");
        }
        let has_reader = output::part(&text)?;
        Ok(page.next.filter(|_| has_reader))
    })?;
    if asking.json { output::answer(&format!("{}\n", serde_json::to_string(&all)?)) } else { Ok(()) }
}

fn change_meter(meter: &FlowMeter) -> anyhow::Result<()> {
    let (command, At { bridge, asking }, meter) = match meter {
        FlowMeter::Add { at, meter } => ("add", at, meter),
        FlowMeter::Mod { at, meter } => ("modify", at, meter),
        FlowMeter::Del { at, meter } => ("delete", at, meter),
        FlowMeter::Dump { at: At { bridge, asking } } => {
            let json = api::send(&asking.api, &Request::Meters(MetersRequest { bridge: bridge.clone() }))?;
            return print(asking, &json, |json| {
                let Meters { meters, .. } = serde_json::from_str(json)?;
                Ok(meters.into_iter().map(|meter| meter.text + "\n").collect())
            });
        }
        FlowMeter::Stats { at: At { bridge, asking } } => {
            let json = api::send(&asking.api, &Request::Meters(MetersRequest { bridge: bridge.clone() }))?;
            return print(asking, &json, |json| {
                let Meters { meters, .. } = serde_json::from_str(json)?;
                Ok(meters.iter().map(meter_stats).collect())
            });
        }
    };
    let request = ChangeMeter { bridge: bridge.clone(), command: command.to_owned(), meter: meter.clone() };
    let json = api::send(&asking.api, &Request::ChangeMeter(request))?;
    print(asking, &json, |_| Ok(String::new()))
}

/// Returns the counters of a meter in the words of `ovs-ofctl meter-stats`. The last line is its band's.
fn meter_stats(meter: &api::FlowMeter) -> String {
    let api::FlowMeter { meter, flows, packets, bytes, dropped, .. } = meter;
    let came = packets + dropped;
    format!(
        "meter:{meter} flow_count:{flows} packet_in_count:{came} passed: packet_count:{packets} \
         byte_count:{bytes} bands:\n0: packet_count:{dropped}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_come_in_parts_that_fit() {
        for text in ["", "short", &"x".repeat(10_000), &"\"ü\n\u{1}".repeat(3000)] {
            let parts = chunks(text);
            assert_eq!(parts.concat(), text);
            for part in parts {
                let request = Request::FlowLines(FlowLines { text: part.to_owned() });
                assert!(serde_json::to_string(&request).expect("a request").len() < 4096);
            }
        }
    }
}
