//! The configuration file and the switch that was started from it.

use straightline_api::EventKind;

use super::Check;
use crate::facts::Unknown;

pub(super) const DRIFT: Check = Check {
    name: "drift",
    passes: "the switch works by its configuration file as it is now",
    absent: "",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the file of the switch", &facts.switch) else { return };
        let Some(file) = &switch.status.configuration else {
            let why = Unknown::new("the switch does not tell it: it has another version, or no file");
            return outcome.unknown("the file of the switch", &why);
        };
        let path = &file.path;
        if switch.runs_named_file == Some(false) {
            outcome.warn(
                "the running switch has another configuration file than the one named here",
                format!("it was started from {path}"),
                format!("straightline doctor {path}"),
            );
        }
        let is_reload = |kind: &EventKind| matches!(kind, EventKind::Reload { .. } | EventKind::ReloadFailed { .. });
        let last = switch.events.iter().rev().map(|event| &event.kind).find(|kind| is_reload(kind));
        let fix = format!("straightline check {path}, then: straightline reload");
        match (file.changed, last) {
            (Some(false), _) => outcome.pass(),
            (Some(true), Some(EventKind::ReloadFailed { error })) => outcome.fail(
                format!("{path} was edited, and its reload failed"),
                format!("the switch works by the file as it was before: {}", error.lines().next().unwrap_or_default()),
                fix,
            ),
            (Some(true), _) => outcome.warn(
                format!("{path} was edited, and not reloaded"),
                "the switch works by the file as it was before",
                fix,
            ),
            (None, _) => outcome.unknown(path, &Unknown::new("the switch cannot read it any more")),
        }
    },
};
