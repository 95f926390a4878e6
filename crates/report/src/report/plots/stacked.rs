//! Cycles by phase: a bar for each variant, a group for each value of an axis, phases stacked.

use super::canvas::{Anchor, Canvas, Layout, Mark, fill};
use super::scale::Linear;
use crate::report::text::number;

/// The data of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Stacks<'a> {
    pub(in crate::report) id: String,
    pub(in crate::report) title: String,
    /// The label of the bars' lengths.
    pub(in crate::report) across: &'a str,
    pub(in crate::report) phases: Vec<&'a str>,
    pub(in crate::report) groups: Vec<Stack<'a>>,
    /// A value that the scale must also cover.
    pub(in crate::report) also: f64,
}

/// The bars of one group.
#[derive(Clone, Debug)]
pub(in crate::report) struct Stack<'a> {
    pub(in crate::report) name: String,
    /// Variants with their medians by phase, and of the sum.
    pub(in crate::report) bars: Vec<(&'a str, Vec<f64>, f64)>,
}

impl Stacks<'_> {
    pub(in crate::report) fn draw(&self, layout: Layout) -> String {
        let mut canvas = Canvas::new(layout);
        let top = canvas.legend(2.0, Mark::Area, self.phases.iter().copied());
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let sum = |phases: &[f64]| phases.iter().map(|cycles| cycles.max(0.0)).sum::<f64>();
        let scale = Linear::over(bars().map(|(_, phases, _)| sum(phases)).chain([self.also]));
        let total = bars().map(|bar| canvas.text_width(&number(bar.2))).fold(0.0, f64::max);
        let longest = bars().map(|bar| canvas.text_width(bar.0)).fold(0.0, f64::max);
        // Long names are placed above their bars.
        let above = longest > canvas.width() * 0.3;
        let left = if above { 8.0 } else { longest + 12.0 };
        let right = canvas.width() - total - 12.0;
        let line = canvas.line_height();
        let place = |value: f64| left + scale.at(value) * (right - left);
        let row = if layout == Layout::Wide { 22.0 } else { 20.0 };
        let mut y = top + 6.0;
        let ceiling = y;
        let mut drawn = Vec::new();
        for group in &self.groups {
            if !group.name.is_empty() {
                drawn.push((y + line - 4.0, group.name.as_str(), true));
                y += line;
            }
            for (variant, phases, total) in &group.bars {
                if above {
                    drawn.push((y + line - 4.0, *variant, false));
                    y += line;
                }
                let middle = y + row / 2.0 + canvas.font() * 0.35;
                if !above {
                    canvas.text_within((left - 6.0, middle), Anchor::End, "", variant, longest + 1.0);
                }
                let mut begin = 0.0;
                for (phase, cycles) in phases.iter().enumerate() {
                    let (from, to) = (place(begin), place(begin + cycles.max(0.0)));
                    begin += cycles.max(0.0);
                    if to - from > 0.05 {
                        canvas.area((from, y + 2.0), (to - from, row - 4.0), &fill(phase));
                        let name = number(*cycles);
                        if canvas.text_width(&name) + 6.0 < to - from {
                            let class = if phase % 8 == 0 { "on-dark" } else { "on-light" };
                            canvas.text(((from + to) / 2.0, middle), Anchor::Middle, class, &name);
                        }
                    }
                }
                canvas.text((place(begin) + 5.0, middle), Anchor::Start, "sum", &number(*total));
                y += row;
            }
            y += 6.0;
        }
        for (foot, name, strong) in drawn {
            let class = if strong { "axis" } else { "" };
            canvas.text_within((8.0, foot), Anchor::Start, class, name, canvas.width() - 16.0);
        }
        canvas.line((left, ceiling), (left, y), "zero");
        canvas.line((left, y), (right, y), "zero");
        let (names, places): (Vec<String>, Vec<f64>) =
            scale.ticks().into_iter().map(|(value, name)| (name, place(value))).unzip();
        for &x in &places {
            canvas.line((x, y), (x, y + 4.0), "zero");
        }
        let foot = canvas.names_below(y + 5.0, &names, &places) + line;
        canvas.text_within(((left + right) / 2.0, foot - 3.0), Anchor::Middle, "axis", self.across, right - left);
        let variants: Vec<&str> =
            self.groups.first().map_or(Vec::new(), |group| group.bars.iter().map(|bar| bar.0).collect());
        let description = format!(
            "Stacked bars for {}, made of {}. The table beside it has the values.",
            variants.join(", "),
            self.phases.join(", ")
        );
        canvas.finish(foot + 2.0, &self.id, &self.title, &description)
    }
}
