//! Writes a picture as SVG, by hand.
//!
//! `plotters` was the first choice, and does not fit. `plotters` writes colours and one size as
//! constants, but a page must also suit a dark background and a narrow screen. It writes neither
//! title nor description for screen readers. Here, colours are classes of the page's style sheet
//! (`plots.css`).

use std::fmt::Write;

use crate::report::text::{escape, fit, width};
use crate::statistics::Outcome;

/// The two layouts of each plot; the page shows the one that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Layout {
    Wide,
    /// For a phone.
    Narrow,
}

impl Layout {
    pub(in crate::report) const ALL: [Layout; 2] = [Layout::Wide, Layout::Narrow];

    pub(super) fn width(self) -> f64 {
        match self {
            Layout::Wide => 600.0,
            Layout::Narrow => 336.0,
        }
    }

    /// Returns the font size.
    pub(super) fn font(self) -> f64 {
        match self {
            Layout::Wide => 12.0,
            Layout::Narrow => 11.5,
        }
    }

    pub(in crate::report) fn name(self) -> &'static str {
        match self {
            Layout::Wide => "wide",
            Layout::Narrow => "narrow",
        }
    }
}

/// The point of a text that is placed at the text's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The style of all pictures.
pub(in crate::report) const STYLE: &str = include_str!("plots.css");

/// The margin of a picture that is a file.
const MARGIN: f64 = 14.0;

#[derive(Debug)]
pub(super) struct Canvas {
    pub(super) layout: Layout,
    height: f64,
    body: String,
}

/// The number of series with a colour and no pattern.
const COLOURS: usize = 8;

impl Canvas {
    pub(super) fn new(layout: Layout) -> Self {
        Canvas { layout, height: 0.0, body: String::new() }
    }

    pub(super) fn width(&self) -> f64 {
        self.layout.width()
    }

    pub(super) fn font(&self) -> f64 {
        self.layout.font()
    }

    /// Returns the height of a line of text.
    pub(super) fn line_height(&self) -> f64 {
        self.font() * 1.4
    }

    pub(super) fn text_width(&self, text: &str) -> f64 {
        width(text, self.font())
    }

    /// Adds any element without text.
    pub(super) fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    /// Adds a text with its baseline at `y`.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let font = self.font();
        let anchor = anchor_name(anchor);
        let text = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{font}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// Adds a text as [`Canvas::text`], shortened to the available space; a tooltip shows the full
    /// text.
    pub(super) fn text_within(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str, space: f64) {
        let short = fit(text, self.font(), space);
        if short == text {
            return self.text(at, anchor, class, text);
        }
        let ((x, y), font, anchor) = (at, self.font(), anchor_name(anchor));
        let short = escape(&short);
        let whole = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{font}" text-anchor="{anchor}" class="{class}">{short}<title>{whole}</title></text>"#
        ));
    }

    /// Adds a text that reads upwards. Its end is at this place.
    pub(super) fn upright(&mut self, (x, y): (f64, f64), text: &str, space: f64) {
        let short = fit(text, self.font(), space);
        let font = self.font();
        let short = escape(&short);
        let whole = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{font}" text-anchor="end" transform="rotate(-90 {x:.1} {y:.1})">{short}<title>{whole}</title></text>"#
        ));
    }

    /// Adds a legend in rows from `top` on, above the data. Returns the lower end of the legend.
    pub(super) fn legend<'s>(&mut self, top: f64, names: impl IntoIterator<Item = &'s str>) -> f64 {
        const SIGN: f64 = 18.0;
        let line = self.line_height() + 2.0;
        let right = self.width() - 4.0;
        let mut x = 4.0;
        let mut y = top;
        for (series, name) in names.into_iter().enumerate() {
            let space = right - 4.0 - SIGN - 5.0;
            let wide = SIGN + 5.0 + self.text_width(&fit(name, self.font(), space)) + 14.0;
            if x > 4.0 && x + wide - 14.0 > right {
                (x, y) = (4.0, y + line);
            }
            let middle = y + line / 2.0;
            self.line((x, middle), (x + SIGN, middle), &stroke(series));
            self.marker((x + SIGN / 2.0, middle), series);
            self.text_within((x + SIGN + 5.0, middle + self.font() * 0.35), Anchor::Start, "", name, space);
            x += wide;
        }
        y + line
    }

    /// Adds a mark at a point of a line. Where colours repeat, marks have different forms.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), series: usize) {
        let class = fill(series);
        match series % 4 {
            0 => self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" class="{class}"/>"#)),
            1 => self.push(format_args!(
                r#"<rect x="{:.1}" y="{:.1}" width="6.4" height="6.4" class="{class}"/>"#,
                x - 3.2,
                y - 3.2
            )),
            2 => self.push(format_args!(r#"<path d="M{x:.1} {:.1}l4.2 7.2h-8.4z" class="{class}"/>"#, y - 4.4)),
            _ => self
                .push(format_args!(r#"<path d="M{x:.1} {:.1}l4.4 4.4-4.4 4.4-4.4-4.4z" class="{class}"/>"#, y - 4.4)),
        }
    }

    /// Adds names under their places on the horizontal axis. The names are in one row, in two rows,
    /// or upright, or some are left out, so that they do not overlap. Returns the lower end of the
    /// names.
    pub(super) fn names_below(&mut self, y: f64, names: &[String], places: &[f64]) -> f64 {
        let font = self.font();
        let row = self.line_height();
        let apart = |step: usize| {
            let half = |index: usize| width(&names[index], font) / 2.0;
            let inside = (0..names.len())
                .all(|index| places[index] - half(index) >= 0.0 && places[index] + half(index) <= self.layout.width());
            inside
                && (step..names.len()).all(|index| {
                    let gap = places[index] - places[index - step];
                    half(index) + half(index - step) + 5.0 <= gap
                })
        };
        for rows in [1, 2] {
            if apart(rows) {
                let mut foot = y;
                for (index, (name, &x)) in names.iter().zip(places).enumerate() {
                    foot = y + font + if index % rows == 0 { 0.0 } else { row };
                    self.text((x, foot), Anchor::Middle, "", name);
                }
                return y + if names.len() > 1 && rows == 2 { 2.0 * row } else { row.max(foot - y) };
            }
        }
        let longest = names.iter().map(|name| width(name, font)).fold(0.0, f64::max).min(100.0);
        let mut free = f64::NEG_INFINITY;
        for (name, &x) in names.iter().zip(places) {
            if x - font * 0.7 >= free {
                self.upright((x + font * 0.35, y + 2.0), name, longest);
                free = x + font * 0.7;
            }
        }
        y + longest + 6.0
    }

    /// Adds the mark of a value. Each outcome has its own form.
    pub(super) fn mark(&mut self, (x, y): (f64, f64), outcome: Option<Outcome>, class: &str) {
        match outcome {
            Some(Outcome::Worse) => self
                .push(format_args!(r#"<path d="M{x:.1} {:.1}l4.8 4.8-4.8 4.8-4.8-4.8z" class="{class}"/>"#, y - 4.8)),
            Some(Outcome::Better | Outcome::Equal) => {
                self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" class="{class}"/>"#));
            }
            _ => self.push(format_args!(
                r#"<rect x="{:.1}" y="{:.1}" width="7" height="7" class="{class}"/>"#,
                x - 3.5,
                y - 3.5
            )),
        }
    }

    pub(super) fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    /// Returns the picture as a part of the page. `id` is unique in the page.
    pub(super) fn finish(self, id: &str, title: &str, description: &str) -> String {
        let name = self.layout.name();
        let width = self.width();
        let height = self.height;
        let title = escape(title);
        let description = escape(description);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{name}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
             aria-labelledby=\"{id}-{name}-t {id}-{name}-d\">\n<title id=\"{id}-{name}-t\">{title}</title>\n\
             <desc id=\"{id}-{name}-d\">{description}</desc>\n{}</svg>\n",
            self.body
        )
    }

    /// Returns the picture as a file with its own style, under its title. The background is opaque,
    /// because the colour of the page around it is unknown.
    pub(super) fn finish_file(self, title: &str, description: &str) -> String {
        let width = self.width();
        let height = self.height;
        let whole = height + 2.0 * MARGIN + self.line_height() + 6.0;
        let head = MARGIN + self.font();
        let wide = width + 2.0 * MARGIN;
        let shown = escape(&fit(title, self.font(), width));
        let title = escape(title);
        let description = escape(description);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{whole:.0}\" viewBox=\"0 0 {wide:.0} \
             {whole:.0}\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">{title}</title>\n<desc \
             id=\"d\">{description}</desc>\n<style>{STYLE}</style>\n<rect width=\"{wide:.0}\" height=\"{whole:.0}\" \
             class=\"paper\"/>\n<text x=\"{MARGIN}\" y=\"{head:.1}\" font-size=\"{}\" text-anchor=\"start\" \
             class=\"head\">{shown}</text>\n<g transform=\"translate({MARGIN} {:.1})\">\n{}</g>\n</svg>\n",
            self.font(),
            head + 6.0,
            self.body
        )
    }
}

/// Returns the class that fills an area of a series.
pub(super) fn fill(series: usize) -> String {
    let again = if series >= COLOURS { " again" } else { "" };
    format!("data f{}{again}", series % COLOURS)
}

/// Returns the class that draws a line of a series.
pub(super) fn stroke(series: usize) -> String {
    let again = if series >= COLOURS { " again" } else { "" };
    format!("curve l{}{again}", series % COLOURS)
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}
