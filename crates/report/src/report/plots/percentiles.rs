//! Latencies by percentile. Horizontally, each nine has the same width, because rare packets matter
//! as much as others. Vertically, the scale has powers of ten.

use super::canvas::{Anchor, Canvas, Layout, stroke};
use super::scale::Decades;
use crate::report::distribution::Distribution;
use crate::report::text::nanoseconds;

/// The data of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Curves<'a> {
    pub(in crate::report) id: String,
    pub(in crate::report) title: String,
    pub(in crate::report) series: Vec<(&'a str, Option<&'a Distribution>)>,
}

/// Labels of the axis, and their number of nines.
const NAMED: [(&str, f64); 8] = [
    ("0", 0.0),
    ("50", std::f64::consts::LOG10_2),
    ("90", 1.0),
    ("99", 2.0),
    ("99.9", 3.0),
    ("99.99", 4.0),
    ("99.999", 5.0),
    ("99.9999", 6.0),
];

impl Curves<'_> {
    pub(in crate::report) fn draw(&self, layout: Layout) -> String {
        let mut canvas = Canvas::new(layout);
        let top = canvas.legend(2.0, self.series.iter().map(|series| series.0));
        let known = || self.series.iter().filter_map(|series| series.1);
        let least = known().map(Distribution::least).min().unwrap_or(0);
        let scale = Decades::over(least, known().map(Distribution::most).max().unwrap_or(least));
        let ticks = scale.ticks();
        let left = ticks.iter().map(|&ns| canvas.text_width(&nanoseconds(ns))).fold(0.0, f64::max) + 10.0;
        // The last label is centred at the end of the axis.
        let right = canvas.width() - canvas.text_width(NAMED[7].0) / 2.0 - 2.0;
        let head = top + canvas.line_height();
        canvas.text((4.0, head - 2.0), Anchor::Start, "axis", "latency (logarithmic)");
        let ceiling = head + canvas.line_height() * 0.6;
        let floor = ceiling + if layout == Layout::Wide { 260.0 } else { 230.0 };
        let height = |ns: u64| floor - scale.at(ns) * (floor - ceiling);
        let place = |nines: f64| left + nines / 6.0 * (right - left);
        for &ns in &ticks {
            canvas.line((left, height(ns)), (right, height(ns)), "grid");
            canvas.text((left - 6.0, height(ns) + canvas.font() * 0.35), Anchor::End, "", &nanoseconds(ns));
        }
        for (_, nines) in NAMED {
            canvas.line((place(nines), ceiling), (place(nines), floor), "grid");
        }
        canvas.line((left, floor), (right, floor), "zero");
        for (index, (_, distribution)) in self.series.iter().enumerate() {
            let Some(distribution) = distribution else { continue };
            let mut path = String::new();
            let mut last = (f64::NEG_INFINITY, f64::NEG_INFINITY);
            for (nines, ns) in distribution.curve() {
                let x = place(nines);
                let y = height(ns);
                // Steps smaller than a third of a pixel are invisible.
                if (x - last.0).abs() >= 0.3 || (y - last.1).abs() >= 0.3 {
                    path.push_str(&format!("{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' }));
                    last = (x, y);
                }
            }
            if !path.is_empty() {
                canvas.push(format_args!(r#"<path d="{path}" class="{}"/>"#, stroke(index)));
                canvas.marker(last, index);
            }
        }
        let (names, places): (Vec<String>, Vec<f64>) =
            NAMED.iter().map(|&(name, nines)| (name.to_owned(), place(nines))).unzip();
        let foot = canvas.names_below(floor + 6.0, &names, &places) + canvas.line_height();
        canvas.text(((left + right) / 2.0, foot - 3.0), Anchor::Middle, "axis", "percentile");
        let names: Vec<&str> = self.series.iter().map(|series| series.0).collect();
        let description = format!(
            "Latency by percentile from 0 to 99.9999 for {}. The table beside it has the values.",
            names.join(", ")
        );
        canvas.set_height(foot + 2.0);
        canvas.finish(&self.id, &self.title, &description)
    }
}
