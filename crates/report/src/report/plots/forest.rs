//! The forest plot: a row for each value, with its interval.
//!
//! Ratios have a logarithmic scale, so that half and double are as far from 1; a line marks 1.
//! Values without a comparison have a linear scale from zero. Each outcome has a colour and a form
//! of its own, for readers who do not see the colours.

use az::SaturatingAs;

use super::canvas::{Anchor, Canvas, Layout};
use super::scale::{Linear, Ratios};
use crate::statistics::{Interval, Outcome};

/// A row of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Row {
    /// The label's parts: the variant, then the cell.
    pub(in crate::report) label: Vec<String>,
    /// The index of the variant.
    pub(in crate::report) variant: usize,
    pub(in crate::report) value: f64,
    pub(in crate::report) interval: Option<Interval>,
    /// The value as text, with its interval.
    pub(in crate::report) text: String,
    /// The outcome; `None` without a comparison.
    pub(in crate::report) outcome: Option<Outcome>,
}

/// The data of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Forest {
    pub(in crate::report) id: String,
    pub(in crate::report) title: String,
    /// The label of the axis.
    pub(in crate::report) axis: String,
    /// Text below the axis: the parts of labels that all rows have in common. May be empty.
    pub(in crate::report) common: String,
    pub(in crate::report) rows: Vec<Row>,
    /// Words for the left and the right of the line at 1; `None` without a comparison.
    pub(in crate::report) sides: Option<[Outcome; 2]>,
}

/// The least width of the area between labels and texts, as a part of the picture's width.
const AREA: f64 = 0.36;

/// The space below a bar whose label is above it, so that the bar is closest to its own label.
const GAP: f64 = 8.0;

/// The scale of a plot.
enum Scale {
    Ratios(Ratios),
    Values(Linear),
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        match self {
            Scale::Ratios(scale) => scale.at(value),
            Scale::Values(scale) => scale.at(value),
        }
    }
}

/// The places of a plot's parts.
struct Frame {
    left: f64,
    right: f64,
    /// The labels, in lines; beside the area if each has one line and `is_beside` is set.
    labels: Vec<Vec<String>>,
    is_beside: bool,
}

impl Forest {
    pub(in crate::report) fn draw(&self, layout: Layout) -> String {
        self.on_canvas(layout).finish(&self.id, &self.title, &self.description())
    }

    /// Returns the picture as a file of its own, for a page of a code host.
    pub(in crate::report) fn file(&self) -> String {
        self.on_canvas(Layout::Wide).finish_file(&self.title, &self.description())
    }

    fn on_canvas(&self, layout: Layout) -> Canvas {
        let mut canvas = Canvas::new(layout);
        let ends = |row: &Row| {
            let (low, high) = row.interval.map_or((row.value, row.value), |within| (within.low, within.high));
            [row.value, low, high]
        };
        let values = self.rows.iter().flat_map(ends);
        let scale = if self.sides.is_some() {
            Scale::Ratios(Ratios::over(values))
        } else {
            Scale::Values(Linear::over(values))
        };
        let frame = self.frame(&canvas);
        let place = |value: f64| frame.left + scale.at(value) * (frame.right - frame.left);
        let line = canvas.line_height();
        let mut y = 4.0;
        if let Some(sides) = self.sides {
            y = Self::sides(&mut canvas, place(1.0), sides, y);
        }
        let ceiling = y;
        let width = frame.right - frame.left;
        let ticks = match &scale {
            Scale::Ratios(scale) => scale.ticks(|text| (canvas.text_width(text) + 10.0) / width),
            Scale::Values(scale) => scale.ticks(),
        };
        // The grid is behind the rows, and its length depends on them.
        let floor =
            ceiling + self.rows.iter().zip(&frame.labels).map(|row| Self::height(&canvas, &frame, row.1)).sum::<f64>();
        for (value, _) in &ticks {
            canvas.line((place(*value), ceiling), (place(*value), floor), "grid");
        }
        if self.sides.is_some() {
            canvas.line((place(1.0), ceiling), (place(1.0), floor), "one");
        }
        canvas.line((frame.left, floor), (frame.right, floor), "zero");
        for (row, label) in self.rows.iter().zip(&frame.labels) {
            let high = Self::height(&canvas, &frame, label);
            Self::row(&mut canvas, &frame, row, label, (y, high), &place);
            y += high;
        }
        let (names, places): (Vec<String>, Vec<f64>) =
            ticks.into_iter().map(|(value, name)| (name, place(value))).unzip();
        let mut foot = canvas.names_below(floor + 3.0, &names, &places) + line;
        canvas.text_within((canvas.width() / 2.0, foot), Anchor::Middle, "axis", &self.axis, canvas.width() - 8.0);
        if !self.common.is_empty() {
            foot += line;
            canvas.text_within(
                (canvas.width() / 2.0, foot),
                Anchor::Middle,
                "axis",
                &self.common,
                canvas.width() - 8.0,
            );
        }
        canvas.set_height(foot + 6.0);
        canvas
    }

    /// Chooses the places of the parts: labels are beside the area if it stays wide enough, and
    /// above their intervals otherwise.
    fn frame(&self, canvas: &Canvas) -> Frame {
        let texts = self.rows.iter().map(|row| canvas.text_width(&row.text)).fold(0.0, f64::max);
        let right = canvas.width() - texts - 10.0;
        let labels = self.rows.iter().map(|row| canvas.text_width(&row.label.join(", "))).fold(0.0, f64::max);
        if right - labels - 14.0 >= AREA * canvas.width() {
            let labels: Vec<Vec<String>> = self.rows.iter().map(|row| vec![row.label.join(", ")]).collect();
            return Frame { left: 14.0 + longest(canvas, &labels), right, labels, is_beside: true };
        }
        let labels = self.rows.iter().map(|row| wrapped(canvas, &row.label)).collect();
        Frame { left: 14.0, right: right.max(AREA * canvas.width()), labels, is_beside: false }
    }

    fn height(canvas: &Canvas, frame: &Frame, label: &[String]) -> f64 {
        let lines = f64::from(label.len().saturating_as::<u32>());
        if frame.is_beside { canvas.line_height() + 6.0 } else { (lines + 1.0) * canvas.line_height() + 3.0 + GAP }
    }

    fn row(
        canvas: &mut Canvas,
        frame: &Frame,
        row: &Row,
        label: &[String],
        (y, high): (f64, f64),
        place: &impl Fn(f64) -> f64,
    ) {
        let line = canvas.line_height();
        let font = canvas.font();
        let middle = if frame.is_beside { y + high / 2.0 } else { y + high - GAP - line / 2.0 - 2.0 };
        if frame.is_beside {
            let at = (frame.left - 10.0, middle + font * 0.35);
            canvas.text(at, Anchor::End, "", label.first().map_or("", String::as_str));
        } else {
            let mut foot = y;
            for part in label {
                foot += line;
                canvas.text_within((4.0, foot), Anchor::Start, "label", part, canvas.width() - 8.0);
            }
        }
        let class = class(row.outcome);
        if let Some(within) = row.interval {
            canvas.line((place(within.low), middle), (place(within.high), middle), &format!("span {class}"));
        }
        canvas.mark((place(row.value), middle), row.outcome, &format!("mark {class}"));
        let space = canvas.width() - frame.right - 8.0;
        canvas.text_within((canvas.width() - 2.0, middle + font * 0.35), Anchor::End, "value", &row.text, space);
    }

    /// Adds the words that say which side of 1 is better.
    fn sides(canvas: &mut Canvas, one: f64, sides: [Outcome; 2], y: f64) -> f64 {
        let foot = y + canvas.font();
        let before = format!("← {}", sides[0].words());
        let after = format!("{} →", sides[1].words());
        if one - 6.0 - canvas.text_width(&before) > 0.0 {
            canvas.text((one - 6.0, foot), Anchor::End, class(Some(sides[0])), &before);
        }
        if one + 6.0 + canvas.text_width(&after) < canvas.width() {
            canvas.text((one + 6.0, foot), Anchor::Start, class(Some(sides[1])), &after);
        }
        y + canvas.line_height() + 2.0
    }

    fn description(&self) -> String {
        let line = if self.sides.is_some() { " with a line at 1" } else { "" };
        format!("Forest plot{line}; rows: {}. The table of the cells has the values.", self.rows.len())
    }
}

fn longest(canvas: &Canvas, labels: &[Vec<String>]) -> f64 {
    labels.iter().flatten().map(|label| canvas.text_width(label)).fold(0.0, f64::max)
}

/// Returns the parts of a label in as few lines as hold them.
fn wrapped(canvas: &Canvas, parts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(last) if canvas.text_width(&format!("{last}, {part}")) <= canvas.width() - 8.0 => {
                last.push_str(", ");
                last.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Returns the class of an outcome, which sets its colour.
pub(in crate::report) fn class(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Better) => "better",
        Some(Outcome::Worse) => "worse",
        Some(Outcome::Equal) => "same",
        Some(Outcome::Unclear) => "unknown",
        Some(Outcome::Higher | Outcome::Lower) | None => "plain",
    }
}
