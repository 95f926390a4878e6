//! The table of broken situations in `docs/doctor.md`: what it says is what a check or test says.

use straightline_graph::DownCause;

use super::*;

/// A row: the check, a part of what it says, and a part of the fix.
struct Row<'d> {
    text: &'d str,
    check: &'d str,
    says: &'d str,
    fix: &'d str,
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let section = document.split("\n## ").find(|section| section.starts_with("Broken situations\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| situation |"));
    let row = |text| {
        let cells: Vec<&str> = str::split(text, '|').map(str::trim).collect();
        let [_, _, check, says, fix, _] = cells[..] else { panic!("five cells: {text}") };
        Row { text, check: check.trim_matches('`'), says, fix }
    };
    rows.map(row).collect()
}

#[test]
fn each_situation_is_tested() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    let document = read("docs/doctor.md");
    let all = rows(&document);
    assert!(all.len() >= 34, "{} rows", all.len());
    for Row { text, check, says, fix } in all {
        let is_tested = match check {
            // The causes have a table of their own, and each its test.
            "links" => {
                DownCause::ALL.iter().any(|cause| cause.code() == says.trim_matches('`') && cause.template() == fix)
            }
            // The tests of the findings about a file provoke each.
            "configuration" => true,
            _ => all_faults().filter(|(name, ..)| *name == check).any(|(_, fault, ..)| {
                let mut facts = healthy();
                fault(&mut facts);
                findings(&facts, check).iter().any(|finding| {
                    let told = format!("{} {}", finding.symptom, finding.detail);
                    told.contains(says) && finding.fix.contains(fix)
                })
            }),
        };
        assert!(is_tested, "no test has this: {text}");
    }
}
