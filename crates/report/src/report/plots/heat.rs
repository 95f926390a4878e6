//! Ratios as a map: two axes of cells, colours on both sides of 1, and the ratio in each cell.

use super::canvas::{Anchor, Canvas, Layout};
use crate::report::summary::Summary;
use crate::report::text::number;

/// The data of the plot.
#[derive(Clone, Debug)]
pub(in crate::report) struct Map<'a> {
    pub(in crate::report) id: String,
    pub(in crate::report) title: String,
    pub(in crate::report) across: &'a str,
    pub(in crate::report) down: &'a str,
    pub(in crate::report) columns: &'a [&'a str],
    pub(in crate::report) rows: &'a [&'a str],
    /// The ratios by row and column.
    pub(in crate::report) ratios: Vec<Vec<Option<Summary>>>,
    /// The words for a ratio below 1, and for a ratio above 1.
    pub(in crate::report) says: (&'static str, &'static str),
    /// True if more is better.
    pub(in crate::report) more: bool,
}

/// Colours have their full strength at the ratios 0.5 and 2.
const FULL: f64 = std::f64::consts::LN_2;

/// Sky blue and orange of Okabe and Ito's palette, darker at the ends, and the colour between them.
const GOOD: [f64; 3] = [0.0, 114.0, 178.0];
const EVEN: [f64; 3] = [242.0, 242.0, 242.0];
const BAD: [f64; 3] = [213.0, 94.0, 0.0];

impl Map<'_> {
    pub(in crate::report) fn draw(&self, layout: Layout) -> String {
        let mut canvas = Canvas::new(layout);
        let (line, font) = (canvas.line_height(), canvas.font());
        let mut y = self.legend(&mut canvas);
        let rows = self.rows.iter().chain([&self.down]).map(|name| canvas.text_width(name)).fold(0.0, f64::max);
        let space = rows.min(canvas.width() * 0.3);
        let (left, right) = (space + 10.0, canvas.width() - 2.0);
        let longest = self.columns.iter().map(|name| canvas.text_width(name)).fold(0.0, f64::max);
        let least = (longest + 8.0).clamp(canvas.text_width("(0.00)") + 6.0, 110.0);
        // Columns that do not fit into the width continue below.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some tens")]
        let fits = (((right - left) / least) as usize).clamp(1, self.columns.len().max(1));
        let wide = ((right - left) / fits as f64).min(110.0);
        let high = 26.0;
        for begin in (0..self.columns.len()).step_by(fits) {
            let end = (begin + fits).min(self.columns.len());
            let mut x = left;
            canvas.text_within((left - 8.0, y + 2.0 * line - 4.0), Anchor::End, "axis", self.down, space);
            canvas.text_within((left + 2.0, y + line - 4.0), Anchor::Start, "axis", self.across, right - left - 4.0);
            for column in &self.columns[begin..end] {
                canvas.text_within((x + wide / 2.0, y + 2.0 * line - 4.0), Anchor::Middle, "", column, wide - 4.0);
                x += wide;
            }
            y += 2.0 * line;
            for (row, ratios) in self.rows.iter().zip(&self.ratios) {
                let foot = y + high / 2.0 + font * 0.35;
                canvas.text_within((left - 8.0, foot), Anchor::End, "", row, space);
                let mut x = left;
                for ratio in &ratios[begin..end] {
                    self.cell(&mut canvas, (x, y), (wide, high), ratio.as_ref());
                    x += wide;
                }
                y += high;
            }
            y += 10.0;
        }
        let description = format!(
            "Map of ratios: {} across, {} down; {} rows, {} columns. The table beside it has the values.",
            self.across,
            self.down,
            self.rows.len(),
            self.columns.len()
        );
        canvas.finish(y, &self.id, &self.title, &description)
    }

    fn cell(&self, canvas: &mut Canvas, (x, y): (f64, f64), (wide, high): (f64, f64), ratio: Option<&Summary>) {
        let foot = y + high / 2.0 + canvas.font() * 0.35;
        let Some(ratio) = ratio else {
            return canvas.text((x + wide / 2.0, foot), Anchor::Middle, "", "–");
        };
        let colour = self.colour(ratio.median);
        let [red, green, blue] = colour.map(|part| format!("{part:02x}"));
        canvas.push(format_args!(
            r##"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="#{red}{green}{blue}"/>"##,
            x + 1.0,
            y + 1.0,
            wide - 2.0,
            high - 2.0
        ));
        let told = ratio.verdict().is_some();
        let class = if is_dark(colour) { "on-dark" } else { "on-light" };
        let class = if told { format!("{class} told") } else { class.to_owned() };
        let text = if told { short(ratio.median) } else { format!("({})", short(ratio.median)) };
        canvas.text_within((x + wide / 2.0, foot), Anchor::Middle, &class, &text, wide - 4.0);
    }

    fn legend(&self, canvas: &mut Canvas) -> f64 {
        let (line, font) = (canvas.line_height(), canvas.font());
        let foot = 2.0 + line / 2.0 + font * 0.35;
        let below = format!("½, {}", self.says.0);
        canvas.text((4.0, foot), Anchor::Start, "", &below);
        let mut x = 4.0 + canvas.text_width(&below) + 8.0;
        for ratio in [0.5_f64, 0.7, 0.85, 1.0, 1.18, 1.43, 2.0] {
            let [red, green, blue] = self.colour(ratio).map(|part| format!("{part:02x}"));
            let y = 2.0 + line / 2.0 - 6.0;
            canvas.push(format_args!(
                r##"<rect x="{x:.1}" y="{y:.1}" width="18" height="12" fill="#{red}{green}{blue}"/>"##
            ));
            x += 18.0;
        }
        canvas.text((x + 8.0, foot), Anchor::Start, "", &format!("double, {}", self.says.1));
        canvas.text((4.0, foot + line), Anchor::Start, "", "bold: different; (in brackets): cannot be told apart");
        2.0 + 2.0 * line + 6.0
    }

    fn colour(&self, ratio: f64) -> [u8; 3] {
        let strength = if ratio > 0.0 { (ratio.ln() / FULL).clamp(-1.0, 1.0) } else { -1.0 };
        let end = if (strength > 0.0) == self.more { GOOD } else { BAD };
        let mut colour = [0; 3];
        for (part, (even, end)) in colour.iter_mut().zip(EVEN.into_iter().zip(end)) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two values below 256")]
            let mixed = (even + (end - even) * strength.abs()).round() as u8;
            *part = mixed;
        }
        colour
    }
}

/// Formats a ratio with three digits.
pub(in crate::report) fn short(ratio: f64) -> String {
    if (0.01..10.0).contains(&ratio) {
        format!("{ratio:.2}")
    } else if (10.0..100.0).contains(&ratio) {
        format!("{ratio:.1}")
    } else {
        number(ratio)
    }
}

/// Returns whether white is legible on a colour and black is not: by the relative luminance of WCAG
/// 2.
fn is_dark(colour: [u8; 3]) -> bool {
    let [red, green, blue] = colour.map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_say_what_is_better_and_texts_on_them_can_be_read() {
        let map = |more| Map {
            id: String::new(),
            title: String::new(),
            across: "",
            down: "",
            columns: &[],
            rows: &[],
            ratios: Vec::new(),
            says: ("slower", "faster"),
            more,
        };
        assert_eq!(map(true).colour(2.0), [0, 114, 178]);
        assert_eq!(map(false).colour(2.0), [213, 94, 0]);
        assert_eq!(map(true).colour(1.0), [242, 242, 242]);
        assert_eq!(map(true).colour(0.0), map(true).colour(0.01));
        assert!(is_dark([0, 114, 178]) && !is_dark([242, 242, 242]) && !is_dark([213, 94, 0]));
    }
}
