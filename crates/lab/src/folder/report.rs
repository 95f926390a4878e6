//! Writes the report of a folder of results.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use straightline_report::report::Report;

use super::read;

/// The files of a report.
const FILES: [&str; 3] = ["index.html", "report.md", "samples.csv"];

/// Makes a report of a folder of results, or of a folder with several of them, whose scenarios
/// share one page. Writes the files into `out`, or else into `folder`, and returns their paths. If
/// `plots` is set, writes the plots as SVG files into that folder as well.
pub fn write_report(folder: &Path, out: Option<&Path>, plots: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let results = read(folder)?;
    let name = fs::canonicalize(folder).ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let title = name.unwrap_or_else(|| folder.display().to_string());
    let report = Report::new(&title, &results).with_context(|| folder.display().to_string())?;
    let texts = [report.html(), report.markdown(), report.csv()];
    let mut paths = write(out.unwrap_or(folder), FILES.map(str::to_owned).into_iter().zip(texts))?;
    if let Some(plots) = plots {
        paths.extend(write(plots, report.plots())?);
    }
    Ok(paths)
}

/// Writes files into a folder, which is created if it is missing, and returns their paths.
fn write(folder: &Path, files: impl IntoIterator<Item = (String, String)>) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut paths = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use straightline_report::results::{Environment, FORMAT, MemoryBounds, Sample};

    use super::*;

    fn trial(round: u32, variant: &str) -> Sample {
        let factor = if variant == "a" { 1.0 } else { 2.0 };
        let metrics = [("mpps".to_owned(), factor * (6.0 + f64::from(round) / 8.0))].into();
        Sample { scenario: "pvp".to_owned(), round, variant: variant.to_owned(), metrics, ..Sample::default() }
    }

    #[test]
    fn a_folder_gets_its_report_or_says_what_is_wrong_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = write_report(folder.path(), None, None).expect_err("an empty folder");
        assert!(format!("{error:#}").contains("environment.json"), "{error:#}");
        let known = folder.path().join("environment.json");
        fs::write(&known, serde_json::to_vec(&Environment { format: FORMAT, ..Environment::default() }).expect("JSON"))
            .expect("written");
        let path = folder.path().join("samples.jsonl");
        fs::write(&path, "").expect("written");
        let error = write_report(folder.path(), None, None).expect_err("no samples");
        assert!(format!("{error:#}").contains("there are no samples"), "{error:#}");
        let lines: Vec<String> = (1..=8)
            .flat_map(|round| ["a", "b"].map(|variant| trial(round, variant)))
            .map(|sample| serde_json::to_string(&sample).expect("JSON"))
            .collect();
        fs::write(&path, lines.join("\n") + "\n").expect("written");
        let written = write_report(folder.path(), None, None).expect("a report");
        let names: Vec<_> = written.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["index.html", "report.md", "samples.csv"]);
        let out = folder.path().join("else/where");
        let written = write_report(folder.path(), Some(&out), None).expect("a report");
        assert!(written.iter().all(|path| path.starts_with(&out) && path.is_file()));
        let plots = folder.path().join("plots");
        let written = write_report(folder.path(), Some(&out), Some(&plots)).expect("a report");
        assert_eq!(
            (written.len(), written[3].clone(), plots.join("pvp.svg").is_file()),
            (4, plots.join("pvp.svg"), true)
        );
        // Bounds of the machine are read where there are any.
        let bounds = folder.path().join("machine.json");
        let known_bounds = serde_json::to_vec(&MemoryBounds { cpu: 7, ..MemoryBounds::default() }).expect("JSON");
        fs::write(&bounds, known_bounds).expect("written");
        assert_eq!(read(folder.path()).expect("results").bounds.map(|bounds| bounds.cpu), Some(7));
        fs::write(&bounds, "{}").expect("written");
        let error = read(folder.path()).expect_err("no bounds");
        assert!(format!("{error:#}").contains("machine.json must be what"), "{error:#}");
        fs::remove_file(&bounds).expect("removed");
        fs::write(&path, format!("{}\n{{\"scenario\":", lines[0])).expect("written");
        let error = write_report(folder.path(), None, None).expect_err("half a line");
        assert!(format!("{error:#}").contains("samples.jsonl:2"), "{error:#}");
        fs::write(&path, lines.join("\n") + "\n").expect("written");
        fs::write(&known, r#"{"format": 999}"#).expect("written");
        let error = write_report(folder.path(), None, None).expect_err("another format");
        assert!(format!("{error:#}").contains("format 999"), "{error:#}");
    }
}
