//! Medians side by side: grouped bars from zero with whiskers, or lines if bars would be too
//! narrow.

use super::canvas::{Anchor, Canvas, Layout, Mark, fill, stroke};
use super::scale::Linear;
use crate::report::summary::Summary;

/// The data of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Groups<'a> {
    pub(in crate::report) id: String,
    pub(in crate::report) title: String,
    /// The label of the values, with their unit.
    pub(in crate::report) across: &'a str,
    pub(in crate::report) up: String,
    pub(in crate::report) groups: Vec<String>,
    pub(in crate::report) series: Vec<&'a str>,
    /// The values by group and series.
    pub(in crate::report) summaries: Vec<Vec<Option<Summary>>>,
    /// Values that the scale must also cover: the values of the plots beside this one.
    pub(in crate::report) also: Vec<f64>,
}

/// The narrowest bar.
const HAIR: f64 = 3.5;

impl Groups<'_> {
    /// Returns all values that the scale must cover.
    pub(in crate::report) fn values(summary: &Summary) -> impl Iterator<Item = f64> {
        let (low, high) = summary.interval.unwrap_or((summary.median, summary.median));
        [summary.median, low, high].into_iter()
    }

    pub(in crate::report) fn draw(&self, layout: Layout) -> String {
        let mut canvas = Canvas::new(layout);
        let lines = self.are_lines();
        let mark = if lines { Mark::Line } else { Mark::Area };
        let top = canvas.legend(2.0, mark, self.series.iter().copied());
        let values = self.summaries.iter().flatten().flatten().flat_map(Groups::values);
        let scale = Linear::over(values.chain(self.also.iter().copied()));
        let ticks = scale.ticks();
        let left = ticks.iter().map(|tick| canvas.text_width(&tick.1)).fold(0.0, f64::max) + 10.0;
        let right = canvas.width() - 6.0;
        let head = top + canvas.line_height();
        canvas.text_within((4.0, head - 2.0), Anchor::Start, "axis", &self.up, right - 4.0);
        let ceiling = head + canvas.line_height() * 0.6;
        let floor = ceiling + if layout == Layout::Wide { 250.0 } else { 210.0 };
        let height = |value: f64| floor - scale.at(value) * (floor - ceiling);
        for (value, name) in &ticks {
            let y = height(*value);
            canvas.line((left, y), (right, y), if *value == 0.0 { "zero" } else { "grid" });
            canvas.text((left - 6.0, y + canvas.font() * 0.35), Anchor::End, "", name);
        }
        canvas.line((left, height(0.0)), (right, height(0.0)), "zero");
        let (groups, series) = (self.groups.len().max(1) as f64, self.series.len().max(1) as f64);
        let slot = (right - left) / groups;
        // Bars of one group share three quarters of its width, and none is wider than 46 units.
        let bar = (slot * 0.76 / series).min(46.0);
        let mut centres = Vec::new();
        let mut curves = vec![Vec::new(); self.series.len()];
        let mut centre = left + slot / 2.0;
        for summaries in &self.summaries {
            centres.push(centre);
            let mut x = centre - bar * series / 2.0 + bar / 2.0;
            for (index, summary) in summaries.iter().enumerate() {
                if let Some(summary) = summary {
                    let y = height(summary.median);
                    if lines {
                        curves[index].push((centre, y));
                    } else {
                        let (from, to) = (y.min(height(0.0)), y.max(height(0.0)));
                        canvas.area((x - bar * 0.44, from), (bar * 0.88, to - from), &fill(index));
                    }
                    whisker(&mut canvas, if lines { centre } else { x }, summary, &height, bar);
                } else {
                    let (x, y) = (if lines { centre } else { x }, height(0.0) - 5.0);
                    canvas.push(format_args!(
                        r#"<path d="M{:.1} {:.1}l6 6m0 -6l-6 6" class="none"/>"#,
                        x - 3.0,
                        y - 3.0
                    ));
                }
                x += bar;
            }
            centre += slot;
        }
        for (index, points) in curves.iter().enumerate() {
            curve(&mut canvas, points, index);
        }
        let names = canvas.names_below(floor + 6.0, &self.groups, &centres);
        let foot = names + canvas.line_height();
        canvas.text_within(((left + right) / 2.0, foot - 3.0), Anchor::Middle, "axis", self.across, right - left);
        canvas.finish(foot + 2.0, &self.id, &self.title, &self.description(lines))
    }

    /// Returns whether to draw lines instead of bars. Both layouts have the same form.
    fn are_lines(&self) -> bool {
        let bars = self.groups.len() as f64 * self.series.len() as f64;
        self.groups.len() > 2 && (Layout::Narrow.width() - 60.0) * 0.76 / bars < HAIR
    }

    fn description(&self, lines: bool) -> String {
        let form = if lines { "Lines" } else { "Grouped bars" };
        let (series, groups) = (self.series.join(", "), self.groups.join(", "));
        let over = if self.across.is_empty() { String::new() } else { format!(" over {}: {groups}", self.across) };
        format!("{form} for {series}{over}. The table beside it has the values.")
    }
}

fn whisker(canvas: &mut Canvas, x: f64, summary: &Summary, height: &impl Fn(f64) -> f64, bar: f64) {
    let Some((low, high)) = summary.interval else { return };
    let (low, high, half) = (height(low), height(high), (bar * 0.25).clamp(1.5, 5.0));
    canvas.line((x, low), (x, high), "whisker");
    canvas.line((x - half, low), (x + half, low), "whisker");
    canvas.line((x - half, high), (x + half, high), "whisker");
}

fn curve(canvas: &mut Canvas, points: &[(f64, f64)], series: usize) {
    let Some((first, rest)) = points.split_first() else { return };
    let mut path = format!("M{:.1} {:.1}", first.0, first.1);
    for (x, y) in rest {
        path.push_str(&format!("L{x:.1} {y:.1}"));
    }
    canvas.push(format_args!(r#"<path d="{path}" class="{}"/>"#, stroke(series)));
    for &point in points {
        canvas.marker(point, series);
    }
}
