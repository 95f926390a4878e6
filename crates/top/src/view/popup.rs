//! Windows above the view.

use az::SaturatingAs;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};

use super::Theme;
use crate::Column;
use crate::app::App;

/// Shows the keys.
pub(super) fn help(frame: &mut Frame<'_>, theme: Theme) {
    let keys = [
        ("tab, left, right", "next or previous view"),
        ("j k, up, down", "move; g G: first, last"),
        ("s", "next order; the title shows it"),
        ("c", "choose columns"),
        ("p, space", "pause and continue"),
        ("ctrl-z", "stop; fg continues"),
        ("q, ctrl-c", "quit"),
    ];
    let mut lines: Vec<_> = keys
        .iter()
        .map(|(key, meaning)| Line::from(vec![Span::styled(format!(" {key:<17}"), theme.key()), Span::raw(*meaning)]))
        .collect();
    lines.push(Line::from(" rx: from the port; tx: to the port; -: not known"));
    window(frame, " Keys ", lines, theme);
}

/// Shows the choice of columns.
pub(super) fn columns(frame: &mut Frame<'_>, app: &App, at: usize, theme: Theme) {
    let line = |(index, column): (usize, Column)| {
        let mark = if app.columns.contains(&column) { 'x' } else { ' ' };
        let style = if index == at { theme.chosen() } else { theme.plain() };
        Line::styled(format!(" [{mark}] {:<10}", column.name()), style)
    };
    window(frame, " Columns ", Column::ALL.into_iter().enumerate().map(line).collect(), theme);
}

/// Draws a window in the middle that is as large as its lines.
fn window(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>, theme: Theme) {
    let area = frame.area();
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = (widest + 3).saturating_as::<u16>().min(area.width);
    let height = (lines.len() + 2).saturating_as::<u16>().min(area.height);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let block = Block::bordered().border_type(BorderType::Rounded).title(title).border_style(theme.title());
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(block), place);
}
