//! `straightline --help`: the commands in groups, by what a user wants to do.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The groups, each with its commands, in the order of `straightline --help`. `docs/commands.md` has
/// the same groups.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["demo", "init", "check", "run", "evpn", "completions"]),
    (
        "Look",
        &[
            "status",
            "ports",
            "top",
            "web",
            "events",
            "fdb",
            "neighbours",
            "tables",
            "table",
            "bindings",
            "connections",
            "runtime",
        ],
    ),
    ("Change", &["reload", "link", "rate", "flow", "firewall", "remote", "station", "port"]),
    ("Find faults", &["doctor", "drops", "capture", "trace", "ping", "bugreport"]),
    ("Measure", &["lab"]),
];

/// Returns the definition of the command line. Its help has the commands in groups.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

/// Returns the groups with a line for each command, and the heading of the options.
fn groups(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let width = GROUPS.iter().flat_map(|(_, words)| *words).map(|word| word.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (title, words) in GROUPS {
        let mut commands = words.iter().filter_map(|word| command.find_subcommand(word)).peekable();
        // Without the feature `lab`, a group has no command.
        if commands.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for command in commands {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{header}Options:{header:#}");
    text
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/commands.md");

    #[test]
    fn each_visible_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, words)| *words).copied().collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped, visible, "list each visible command in one group of `GROUPS`");
    }

    #[test]
    fn the_help_has_a_line_for_each_command() {
        let help = command().render_help().to_string();
        for (title, words) in GROUPS {
            let (_, rest) = help.split_once(&format!("\n{title}:\n")).expect("a group");
            let lines: Vec<&str> = rest.lines().take(words.len()).collect();
            for (word, line) in words.iter().zip(lines) {
                let (name, about) = line.trim_start().split_once(' ').expect("a name and a text");
                assert_eq!((name, about.trim().is_empty()), (*word, false), "{line}");
            }
        }
        for part in ["Usage: straightline <COMMAND>", "\n\nOptions:\n  -h, --help", "\n\nExamples:\n"] {
            assert!(help.contains(part), "{part:?} in {help}");
        }
        assert!(!help.contains('{'), "{help}");
    }

    #[test]
    fn the_document_has_the_same_groups() {
        let mut documented: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in DOCUMENT.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                documented.push((title, Vec::new()));
            } else if let Some(rest) = line.strip_prefix("| `straightline ") {
                let word = rest.split([' ', '`']).next().unwrap_or_default();
                documented.last_mut().expect("a heading above the table").1.push(word);
            }
        }
        assert_eq!(documented, GROUPS.map(|(title, words)| (title, words.to_vec())));
    }
}
