//! Names of shared rates.

use crate::Draft;
use crate::diagnostic::Findings;

/// Checks that every named rate exists. A rate that no port names is worth a warning.
pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    let named = || draft.ports.iter().flat_map(|(port, spans)| spans.rates.iter().map(move |rate| (port, rate)));
    for (port, (name, span)) in named() {
        if draft.rates.iter().any(|(rate, _)| rate.name == *name) || draft.unread.may_have("rate", name) {
            continue;
        }
        let known: Vec<_> = draft.rates.iter().map(|(rate, _)| rate.name.as_str()).collect();
        let known = if known.is_empty() {
            "there is no section [rate.NAME]".to_owned()
        } else {
            format!("rates are {}", known.join(", "))
        };
        let message = format!(
            "rate {name:?} of port {:?}: no such rate; {known}; a rate of its own has a unit, as in \"1 Gbit/s\"",
            port.name
        );
        report.error(span, message);
    }
    for (underlay, _) in &draft.underlays {
        let carrier = draft.ports.iter().find(|(port, _)| port.name == underlay.port && port.rate_out.is_some());
        if let Some((port, spans)) = carrier {
            let message = format!(
                "rate-out of port {:?}: it carries underlay {:?}, which cannot be limited; limit its tunnels",
                port.name, underlay.name
            );
            report.error(&spans.name, message);
        }
    }
    for (rate, span) in &draft.rates {
        if !named().any(|(_, (name, _))| *name == rate.name) {
            report.warn(span, format!("rate {:?} is in rate-in or rate-out of no port; it limits nothing", rate.name));
        }
    }
}
