//! Flows from text, as `ovs-ofctl` reads them.

mod actions;
mod condition;
mod error;
mod refused;
mod subfield;
mod value;
mod words;

use std::time::Duration;

use crate::flow::{DEFAULT_PRIORITY, FlowCommand, FlowMod};
use crate::ports::PortNames;
use condition::ConditionReader;
pub use error::FlowError;
#[cfg(test)]
pub(crate) use refused::REFUSED;
pub(crate) use value::limited;
pub(crate) use words::{Word, words};

/// Greatest length of a flow's text in bytes.
pub const MAX_LINE: usize = 65_536;

/// Reads a flow, such as `priority=100,in_port=vm1,tcp,tp_dst=80,actions=output:vm2`.
///
/// # Errors
/// The word that is wrong, with a remedy.
pub fn parse_flow(text: &str, command: FlowCommand, ports: &dyn PortNames) -> Result<FlowMod, FlowError> {
    if text.len() > MAX_LINE {
        return Err(FlowError::new(text, format!("is too long: a flow has at most {MAX_LINE} bytes")));
    }
    let (before, actions) = split_actions(text);
    if actions.is_some() && !command.has_actions() {
        return Err(FlowError::new("actions", "stand in a flow to delete: leave them out"));
    }
    let mut flow = FlowMod::new(command);
    let mut condition = ConditionReader::default();
    for word in words(before)? {
        if !read_setting(&mut flow, word, ports)? {
            condition.read(word, ports)?;
        }
    }
    flow.condition = condition.finish()?;
    if command.has_actions() {
        let missing =
            || FlowError::new("", "the flow has no actions: end it with `actions=…`, for example `actions=drop`");
        let table = if command == FlowCommand::Add { Some(flow.table.unwrap_or(0)) } else { flow.table };
        flow.actions = actions::read(actions.ok_or_else(missing)?, table, &flow.condition, ports)?;
    }
    Ok(flow)
}

/// Reads the lines of a file: a flow in each. A line may begin with `add`, `modify`, `modify_strict`,
/// `delete` or `delete_strict` in place of the command. `#` begins a comment.
///
/// # Errors
/// The first line with a mistake, and its word.
pub fn parse_flows(
    text: &str,
    command: FlowCommand,
    ports: &dyn PortNames,
) -> Result<Vec<(usize, FlowMod)>, FlowError> {
    let mut flows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let flow = parse_line(line, command, ports).map_err(|error| error.at(number))?;
        flows.extend(flow.map(|flow| (number, flow)));
    }
    Ok(flows)
}

/// Reads a line of a file. `None`: it has no flow.
///
/// # Errors
/// The word that is wrong, with a remedy.
pub fn parse_line(line: &str, command: FlowCommand, ports: &dyn PortNames) -> Result<Option<FlowMod>, FlowError> {
    let line = without_comment(line).trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (command, flow) = FlowCommand::split(line).unwrap_or((command, line));
    parse_flow(flow, command, ports).map(Some)
}

/// Cuts a comment off. A `#` in quotes belongs to a name.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

impl FlowCommand {
    /// The words that begin a line of a file, longest first.
    const WORDS: [(&'static str, Self); 5] = [
        ("add", Self::Add),
        ("modify_strict", Self::ModifyStrict),
        ("modify", Self::Modify),
        ("delete_strict", Self::DeleteStrict),
        ("delete", Self::Delete),
    ];

    /// Splits the command off a line. It is `None` if the line begins with a flow.
    fn split(line: &str) -> Option<(Self, &str)> {
        Self::WORDS.iter().find_map(|(word, command)| {
            let rest = line.strip_prefix(word)?;
            let is_word = rest.is_empty() || rest.starts_with([' ', '\t']);
            is_word.then_some((*command, rest))
        })
    }

    /// Returns whether the flow has actions.
    const fn has_actions(self) -> bool {
        matches!(self, Self::Add | Self::Modify | Self::ModifyStrict)
    }
}

/// Splits a flow at `actions=`.
fn split_actions(text: &str) -> (&str, Option<&str>) {
    let mut is_quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        if byte == b'"' {
            is_quoted = !is_quoted;
        }
        let begins = at == 0 || matches!(text.as_bytes()[at - 1], b',' | b' ' | b'\t');
        if is_quoted || !begins || byte != b'a' {
            continue;
        }
        for word in ["actions=", "action="] {
            if let Some(actions) = text[at..].strip_prefix(word) {
                return (&text[..at], Some(actions));
            }
        }
    }
    (text, None)
}

/// Reads a word that is no test of packets. Returns false if it is one.
fn read_setting(flow: &mut FlowMod, word: Word<'_>, ports: &dyn PortNames) -> Result<bool, FlowError> {
    let seconds = || limited(word, word.needed()?, 65_535).map(|seconds| Duration::from_secs(low_u64(seconds)));
    let adds = flow.command.has_actions();
    match word.key {
        "table" => {
            let text = word.needed()?;
            let is_any = value::number(text) == Some(255) && flow.command != FlowCommand::Add;
            flow.table = if is_any { None } else { Some(actions::table_number(word, text)?) };
        }
        "priority" => {
            if flow.command == FlowCommand::Delete {
                return Err(word.wrong("stands in a loose deletion: use `--strict`, or leave it out"));
            }
            let priority = limited(word, word.needed()?, 65_535)?;
            flow.priority = u16::try_from(priority).map_err(|_| word.wrong("is out of range"))?;
        }
        "cookie" => read_cookie(flow, word)?,
        "idle_timeout" if adds => flow.idle_timeout = seconds()?,
        "hard_timeout" if adds => flow.hard_timeout = seconds()?,
        "check_overlap" if adds => flow.check_overlap = true,
        "reset_counts" if adds => flow.reset_counts = true,
        "out_port" if !adds => flow.out_port = Some(value::port(word, word.needed()?, ports)?),
        // A dump has these, and may be read again.
        "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
        "idle_timeout" | "hard_timeout" | "check_overlap" | "reset_counts" => {
            return Err(word.wrong("stands in a flow to delete: leave it out"));
        }
        "out_port" => return Err(word.wrong("filters flows to delete: leave it out")),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads `cookie=VALUE`, or `cookie=VALUE/MASK` for a filter.
fn read_cookie(flow: &mut FlowMod, word: Word<'_>) -> Result<(), FlowError> {
    let number = |text: &str| match text {
        "-1" => Ok(u64::MAX),
        _ => limited(word, text, u64::MAX.into()).map(low_u64),
    };
    let text = word.needed()?;
    match text.split_once('/') {
        Some(_) if flow.command == FlowCommand::Add => {
            return Err(word.wrong("has a mask, which filters flows to change: write one value"));
        }
        Some((value, mask)) => {
            let mask = number(mask)?;
            flow.cookie_filter = (number(value)? & mask, mask);
        }
        None if flow.command.has_actions() => flow.cookie = Some(number(text)?),
        None => return Err(word.wrong(format!("sets a cookie: write `cookie={text}/-1` to filter by it"))),
    }
    Ok(())
}

/// Returns a number that was checked to have 64 bits at most.
fn low_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl FlowMod {
    /// Creates a request for all packets, without actions.
    #[must_use]
    pub fn new(command: FlowCommand) -> Self {
        Self {
            command,
            table: None,
            priority: DEFAULT_PRIORITY,
            condition: crate::matching::Match::new(),
            cookie: None,
            cookie_filter: (0, 0),
            out_port: None,
            idle_timeout: Duration::ZERO,
            hard_timeout: Duration::ZERO,
            check_overlap: false,
            reset_counts: false,
            actions: Vec::new(),
        }
    }
}
