//! The screen: a header, panels and the keys. It is drawn from the state only.

mod panels;
mod popup;
mod theme;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use crate::app::{App, Popup, View};
use crate::text;
pub(crate) use theme::Theme;

/// The smallest size at which the tables can be read.
const MIN: (u16, u16) = (60, 16);

/// The size from which all panels are shown at once.
const ALL_PANELS: (u16, u16) = (110, 34);

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme) {
    let area = frame.area();
    if area.width < MIN.0 || area.height < MIN.1 {
        too_small(frame, area, theme);
        return;
    }
    let problem = u16::from(app.problem.is_some());
    let heights = [Constraint::Length(2), Constraint::Length(problem), Constraint::Min(0), Constraint::Length(1)];
    let [head, problem, body, foot] = Layout::vertical(heights).areas(area);
    header(frame, head, app, theme);
    if let Some(why) = &app.problem {
        let line = format!(" {}; waiting for it", text::printable(why));
        frame.render_widget(Line::styled(line, theme.bad()), problem);
    }
    if area.width >= ALL_PANELS.0 && area.height >= ALL_PANELS.1 {
        all_panels(frame, body, app, theme);
    } else {
        let detail = match app.view {
            // Long remedies take what the table leaves.
            View::Ports => body.height.saturating_sub(rows(ports(app), 3, body.height)).clamp(6, 10),
            View::Drops => 6,
            View::Workers | View::Nodes => 0,
        };
        let [panel, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(detail)]).areas(body);
        panels::panel(frame, panel, app, app.view, true, theme);
        panels::detail(frame, below, app, theme);
    }
    footer(frame, foot, app, theme);
    match app.popup {
        Some(Popup::Help) => popup::help(frame, theme),
        Some(Popup::Columns(at)) => popup::columns(frame, app, at, theme),
        None => {}
    }
}

fn ports(app: &App) -> usize {
    app.rates.as_ref().map_or(0, |rates| rates.ports.len())
}

/// Returns the height of `count` rows with `extra` lines, at most `max`.
fn rows(count: usize, extra: u16, max: u16) -> u16 {
    u16::try_from(count).unwrap_or(max).saturating_add(extra).min(max)
}

/// Draws all panels.
fn all_panels(frame: &mut Frame<'_>, body: Rect, app: &App, theme: Theme) {
    let workers = app.rates.as_ref().map_or(0, |rates| rates.workers.len());
    // Borders and headings are beside the rows.
    let upper = rows(ports(app), 3, body.height * 2 / 5).max(6);
    let middle = rows(workers, 3, body.height / 4).max(8);
    let heights = [Constraint::Length(upper), Constraint::Length(6), Constraint::Length(middle), Constraint::Min(0)];
    let [upper, detail, middle, lower] = Layout::vertical(heights).areas(body);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle);
    panels::panel(frame, upper, app, View::Ports, false, theme);
    panels::detail(frame, detail, app, theme);
    panels::panel(frame, left, app, View::Workers, false, theme);
    panels::panel(frame, right, app, View::Drops, false, theme);
    panels::panel(frame, lower, app, View::Nodes, false, theme);
}

fn too_small(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let text = format!(
        "The terminal has {}x{} characters; the tables need {}x{}.\n\nEnlarge it, or use `straightline top --batch`.\n\nq quit",
        area.width, area.height, MIN.0, MIN.1
    );
    frame.render_widget(Paragraph::new(text).style(theme.bad()).wrap(Wrap { trim: true }), area);
}

fn header(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let [upper, lower] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let Some(rates) = &app.rates else {
        frame.render_widget(Line::styled(" straightline top: waiting for the first answer", theme.title()), upper);
        return;
    };
    let total = &rates.total;
    let ports = format!("{} of {} ports up", total.ports_up, total.ports);
    let mut first = vec![
        Span::styled(format!(" straightline {}", text::printable(&rates.version)), theme.title()),
        Span::raw(format!("  up {}  ", text::duration(rates.uptime_s))),
        Span::styled(ports, if total.ports_up < total.ports { theme.bad() } else { theme.plain() }),
    ];
    if let Some(seconds) = rates.interval_s {
        first.push(Span::styled(format!("  over {seconds:.1} s"), theme.faint()));
    }
    frame.render_widget(Line::from(first), upper);
    if app.paused {
        frame.render_widget(Line::styled("PAUSED ", theme.bad()).alignment(Alignment::Right), upper);
    }
    let known = rates.interval_s.is_some();
    let shown = |number: f64| text::rate(known.then_some(number));
    let flow =
        |name: &str, packets: f64, bits: f64| format!(" {name} {} pkt/s, {} bit/s  ", shown(packets), shown(bits));
    let mut second = vec![
        Span::raw(flow("rx", total.rx.packets_per_s, total.rx.bits_per_s)),
        Span::raw(flow("tx", total.tx.packets_per_s, total.tx.bits_per_s)),
        Span::styled(
            format!("drops {}/s  ", shown(total.drops_per_s)),
            if total.drops_per_s > 0.0 { theme.bad() } else { theme.plain() },
        ),
    ];
    let used: usize = second.iter().map(Span::width).sum();
    let left = usize::from(area.width).saturating_sub(used + 1);
    second.push(Span::styled(text::curve(app.history(None).iter(), left), theme.curve()));
    frame.render_widget(Line::from(second), lower);
}

fn footer(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let keys: &[(&str, &str)] = match app.popup {
        None => &[
            ("q", "quit"),
            ("tab", "view"),
            ("j k", "move"),
            ("s", "sort"),
            ("c", "columns"),
            ("p", "pause"),
            ("?", "help"),
        ],
        Some(Popup::Columns(_)) => &[("j k", "move"), ("space", "show or hide"), ("enter", "close"), ("q", "quit")],
        Some(Popup::Help) => &[("any key", "close"), ("q", "quit")],
    };
    let mut spans = Vec::new();
    for (key, meaning) in keys {
        spans.push(Span::styled(format!(" {key}"), theme.key()));
        spans.push(Span::raw(format!(" {meaning} ")));
    }
    frame.render_widget(Line::from(spans), area);
}

#[cfg(test)]
mod tests;
