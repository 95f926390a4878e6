//! OpenMetrics in the older text format of Prometheus, which `promtool check metrics` and older
//! scrapers read.

/// Rewrites our own OpenMetrics text. In the older format a counter's family has the name of its
/// samples, an info is a gauge, and there are no units.
pub(crate) fn classic(open_metrics: &str) -> String {
    let mut output = String::with_capacity(open_metrics.len());
    let mut help = ("", "");
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // The name depends on the type, which follows.
            (Some("#"), Some("HELP"), Some(name), text) => help = (name, text.unwrap_or_default()),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                if help.0 == name {
                    output.push_str(&format!("# HELP {name}{suffix} {}\n", help.1));
                }
                output.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let open = "# HELP a_bytes Bytes of a.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{b=\"# c\"} 1\n\
                    # HELP b Facts.\n# TYPE b info\nb_info{c=\"d\"} 1\n# HELP e Size.\n# TYPE e gauge\ne 2\n# EOF\n";
        let expected = "# HELP a_bytes_total Bytes of a.\n# TYPE a_bytes_total counter\na_bytes_total{b=\"# c\"} 1\n\
                        # HELP b_info Facts.\n# TYPE b_info gauge\nb_info{c=\"d\"} 1\n# HELP e Size.\n# TYPE e gauge\ne 2\n";
        assert_eq!(classic(open), expected);
    }
}
