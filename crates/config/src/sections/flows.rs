//! Reads the flow tables of a bridge: `flows`, `flows-file` and `meters`.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use straightline_flow::{
    FlowCommand, FlowError, FlowMod, FlowTables, Meter, NoCount, Owner, PortTable, parse_line, parse_meter,
};

use crate::FlowsConfig;
use crate::diagnostic::{Findings, Span};
use crate::file::{self, MOST_BYTES, ReadFile};
use crate::key::{Absent, Key, UNBOUNDED, Value};
use crate::sections::section::Section;

pub(crate) const FLOWS: Key = Key::new(
    "flows",
    Value::Texts { of: "flows, in the words of `ovs-ofctl`", min: 0, max: UNBOUNDED },
    Absent::Text("none"),
    "Flows of the tables in front of the bridge. With this key, `flows-file` or `meters`, a packet that no flow matches \
     is dropped; `actions=normal` gives it to the bridge.",
    "[\"priority=100,in_port=vm1,tcp,tp_dst=25,actions=drop\", \"priority=0,actions=normal\"]",
);

pub(crate) const FLOWS_FILE: Key = Key::new(
    "flows-file",
    Value::Text("path of a file"),
    Absent::Text("none"),
    "File with a flow in each line, as `ovs-ofctl add-flows` reads it. Its flows come before those of `flows`. A \
     relative path begins at the folder of the configuration file.",
    "\"lan.flows\"",
);

pub(crate) const METERS: Key = Key::new(
    "meters",
    Value::Texts { of: "meters, in the words of `ovs-ofctl`", min: 0, max: UNBOUNDED },
    Absent::Text("none"),
    "Meters that flows may use.",
    "[\"meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=200\"]",
);

/// A request of the file, and its place.
struct Line {
    request: FlowMod,
    /// The place of the element, or of the file's name.
    span: Span,
    /// The line in the other file; 0 for an element of the list.
    number: usize,
}

/// Reads the three keys, for a bridge of these ports. `None`: the section has none of them.
pub(crate) fn read(
    section: &Section<'_>,
    ports: &[String],
    folder: &Path,
    report: &mut Findings<'_>,
) -> Option<FlowsConfig> {
    let mut flows = FlowsConfig::default();
    let mut tables = FlowTables::<NoCount>::default();
    let meters = section.texts("meters", "meters = [\"meter=1,kbps,band=type=drop,rate=1000\"]", report);
    for text in meters.iter().flat_map(|meters| meters.get_ref()) {
        match add_meter(&mut tables, text.get_ref()) {
            Ok(meter) => flows.meters.push(meter),
            Err(error) => report.error(&text.span(), format!("meters of {}: {error}", section.title())),
        }
    }
    let mut table = PortTable::default();
    table.update(ports.iter().map(String::as_str));
    let mut lines = Vec::new();
    let file = section.text("flows-file", "flows-file = \"lan.flows\"", report);
    if let Some(file) = &file {
        let path = folder.join(file.get_ref());
        let title = format!("flows-file {:?} of {}", path.display().to_string(), section.title());
        match read_text(&path, "flows") {
            Ok(text) => {
                for (number, line) in (1..).zip(text.lines()) {
                    match parse_line(line, FlowCommand::Add, &table) {
                        Ok(None) => {}
                        Ok(Some(request)) => {
                            lines.push(Line { request, span: file.span(), number });
                            flows.lines.push(line.to_owned());
                        }
                        Err(error) => {
                            report.error(&file.span(), format!("{title}: {}", error.at(number)));
                            break;
                        }
                    }
                }
            }
            Err(problem) => report.error(&file.span(), format!("{title}: {problem}")),
        }
        flows.file = Some(path);
    }
    let list = section.texts("flows", "flows = [\"priority=0,actions=normal\"]", report);
    for text in list.iter().flat_map(|list| list.get_ref()) {
        match parse_line(text.get_ref(), FlowCommand::Add, &table) {
            Ok(None) => {}
            Ok(Some(request)) => {
                lines.push(Line { request, span: text.span(), number: 0 });
                flows.lines.push((*text.get_ref()).to_owned());
            }
            Err(error) => report.error(&text.span(), format!("flows of {}: {error}", section.title())),
        }
    }
    check(&mut tables, &lines, section.title(), report);
    let has_key = ["flows", "flows-file", "meters"].into_iter().any(|key| section.get(key).is_some());
    has_key.then_some(flows)
}

fn add_meter(tables: &mut FlowTables<NoCount>, text: &str) -> Result<(u32, Meter), FlowError> {
    let (number, meter) = parse_meter(text)?;
    tables.set_meter(number, meter, Owner::File, false)?;
    Ok((number, meter))
}

/// Runs the requests on empty tables, and reports the first that is not possible.
fn check(tables: &mut FlowTables<NoCount>, lines: &[Line], title: &str, report: &mut Findings<'_>) {
    for Line { request, span, number } in lines {
        if let Err(error) = tables.apply(&[(*number, request.clone())], Owner::File, Duration::ZERO) {
            let key = if *number == 0 { "flows" } else { "flows-file" };
            report.error(span, format!("{key} of {title}: {error}"));
            return;
        }
    }
}

/// Reads a file that a section names. `of` says its content.
pub(crate) fn read_text(path: &Path, of: &str) -> Result<String, String> {
    // A pipe would make a reload wait.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err("it is no file".to_owned());
    }
    let ReadFile { bytes, .. } = file::read(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; a running switch reads files in the folder of its configuration only: restart to apply"
            }
            _ => "",
        };
        format!("cannot read it: {error}{hint}")
    })?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it has more than {} MiB, so it is no file of {of}", MOST_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())
}
