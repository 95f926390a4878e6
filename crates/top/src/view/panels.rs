//! The panels: one for each view, and the details of the chosen row.

use az::SaturatingAs;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, HighlightSpacing, Paragraph, Row, Table, TableState, Wrap};
use straightline_api::Link;
use straightline_api::rates::PortRates;

use super::Theme;
use crate::app::{App, View};
use crate::batch::{busiest_nodes, node_cells, worker_name, worst_drops};
use crate::column::Column;
use crate::text;

/// The narrowest curve that says something.
const MIN_CURVE: u16 = 8;

/// Draws the panel of a view. `tabs` names all views in the title.
pub(super) fn panel(frame: &mut Frame<'_>, area: Rect, app: &App, view: View, tabs: bool, theme: Theme) {
    let mut title = vec![Span::raw(" ")];
    for shown in View::ALL.into_iter().filter(|shown| tabs || *shown == view) {
        let style = match (shown == app.view, tabs) {
            (true, _) => theme.title().patch(theme.chosen_tab()),
            (false, true) => theme.faint(),
            (false, false) => theme.title(),
        };
        title.extend([Span::styled(shown.title(), style), Span::raw(" ")]);
    }
    let mut block = rounded(theme).title(Line::from(title));
    let inner = block.inner(area);
    match view {
        View::Ports => {
            let hidden = ports(frame, inner, app, theme);
            let order = format!(" order: {} ", app.sort.name());
            block = block.title(Line::styled(order, theme.faint()).alignment(Alignment::Right));
            if !hidden.is_empty() {
                let note = format!(" too narrow for: {} ", hidden.join(", "));
                block = block.title_bottom(Line::styled(note, theme.faint()).alignment(Alignment::Right));
            }
        }
        View::Workers => workers(frame, inner, app, theme),
        View::Nodes => nodes(frame, inner, app, theme),
        View::Drops => drops(frame, inner, app, theme),
    }
    frame.render_widget(block, area);
}

fn rounded(theme: Theme) -> Block<'static> {
    Block::bordered().border_type(BorderType::Rounded).border_style(theme.faint())
}

/// Returns the least width of a column: its heading, its widest cell, or a curve.
fn width(column: Column, ports: &[PortRates]) -> u16 {
    let widest = ports.iter().map(|port| column.cell(port).chars().count()).max().unwrap_or(0);
    let heading = column.heading().len().max(widest);
    match column {
        Column::History => MIN_CURVE,
        _ => heading.saturating_as::<u16>().min(24),
    }
}

/// Draws the ports, and returns the names of columns without space.
fn ports(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) -> Vec<&'static str> {
    let ports = app.ports();
    // The least important columns give way until the others fit.
    let mut columns = app.columns.clone();
    let mut hidden = Vec::new();
    let least = |columns: &[Column]| -> u16 {
        let widths = columns.iter().map(|column| width(*column, &ports).saturating_add(2));
        // The mark of the chosen row is in front.
        widths.fold(1, u16::saturating_add).saturating_sub(2)
    };
    while columns.len() > 1 && least(&columns) > area.width {
        let Some(at) = (0..columns.len()).max_by_key(|at| columns[*at].rank()) else { break };
        hidden.push(columns.remove(at).name());
    }
    let spare = area.width.saturating_sub(least(&columns));
    let widths: Vec<_> = columns
        .iter()
        .map(|column| match column {
            Column::History => MIN_CURVE.saturating_add(spare),
            column => width(*column, &ports),
        })
        .collect();
    let heading = |column: &Column| (column.heading().to_owned(), column.is_number());
    let rows = ports.iter().map(|port| {
        columns
            .iter()
            .zip(&widths)
            .map(|(column, width)| {
                let style = match column {
                    Column::Link if port.link == Link::Down => theme.bad(),
                    Column::Link => theme.good(),
                    Column::Drops if port.drops_per_s.is_some_and(|rate| rate > 0.0) => theme.bad(),
                    Column::History => theme.curve(),
                    _ => theme.plain(),
                };
                let text = match column {
                    Column::History => text::curve(app.history(Some(&port.name)).iter(), (*width).into()),
                    column => column.cell(port),
                };
                (text, style)
            })
            .collect()
    });
    let constraints = widths.iter().map(|width| Constraint::Length(*width)).collect();
    let heads: Vec<_> = columns.iter().map(heading).collect();
    let chosen = (app.view == View::Ports).then(|| app.row(View::Ports, ports.len()));
    table(frame, area, &heads, rows.collect(), constraints, chosen, theme);
    hidden
}

fn workers(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let workers = app.rates.as_ref().map_or(&[][..], |rates| &rates.workers);
    let styles = theme.shares();
    let legend = styles.iter().map(|(style, mark, name)| Span::styled(format!("{mark} {name}  "), *style));
    let names: Vec<_> = workers.iter().enumerate().map(|(index, worker)| worker_name(index, worker.cpu)).collect();
    let name_width = names.iter().map(String::len).max().unwrap_or(0);
    // The numbers stand beside the bar.
    const NUMBERS: u16 = 30;
    let bar = area.width.saturating_sub(u16::try_from(name_width).unwrap_or(0) + NUMBERS + 3);
    let rows: Vec<Line<'_>> = workers
        .iter()
        .zip(&names)
        .map(|(worker, name)| {
            let mut spans = vec![Span::raw(format!("{name:<name_width$} "))];
            let Some(shares) = worker.shares else {
                spans.push(Span::styled("not known yet", theme.faint()));
                return Line::from(spans);
            };
            let shares = shares.as_array();
            for (cells, (style, mark, _)) in text::divide(shares, bar).into_iter().zip(styles) {
                spans.push(Span::styled(mark.repeat(cells.into()), style));
            }
            for (share, (style, ..)) in shares.into_iter().zip(styles) {
                spans.push(Span::styled(format!(" {:>5}%", text::percent(share)), style));
            }
            Line::from(spans)
        })
        .collect();
    let space = usize::from(area.height.saturating_sub(1));
    let chosen = if app.view == View::Workers { app.row(View::Workers, rows.len()) } else { 0 };
    let first = (chosen + 1).saturating_sub(space);
    let more = rows.len().saturating_sub(first + space);
    let mut legend: Vec<_> = legend.collect();
    if more > 0 {
        legend.push(Span::styled(format!("{more} more below"), theme.faint()));
    }
    let mut lines = vec![Line::from(legend)];
    lines.extend(rows.into_iter().skip(first).take(space));
    frame.render_widget(Paragraph::new(lines), area);
}

fn nodes(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let Some(rates) = &app.rates else { return };
    let nodes = busiest_nodes(rates);
    let all: f64 = nodes.iter().filter_map(|node| node.cycles_per_s).sum();
    let heads = ["node", "worker", "packets/s", "packets/call", "cycles/packet", "cycles %"];
    let heads: Vec<_> = heads.into_iter().enumerate().map(|(at, head)| (head.to_owned(), at > 1)).collect();
    let rows = nodes.iter().map(|node| {
        let share = node
            .cycles_per_s
            .filter(|_| all > 0.0)
            .map_or_else(|| "-".to_owned(), |cycles| text::percent(cycles / all));
        let cells = node_cells(node, rates).into_iter().chain([share]);
        cells.map(|cell| (cell, theme.plain())).collect()
    });
    let names = nodes.iter().map(|node| node_cells(node, rates)[0].chars().count());
    let widths = [name_width(names), Constraint::Length(9)];
    let widths = widths.into_iter().chain([9, 12, 13, 8].map(Constraint::Length)).collect();
    let chosen = (app.view == View::Nodes).then(|| app.row(View::Nodes, nodes.len()));
    table(frame, area, &heads, rows.collect(), widths, chosen, theme);
}

fn drops(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let drops = app.rates.as_ref().map_or_else(Vec::new, worst_drops);
    if drops.is_empty() {
        frame.render_widget(Line::styled("no packet was dropped since the start", theme.good()), area);
        return;
    }
    let heads = [("port", false), ("reason", false), ("drops/s", true), ("since start", true)];
    let heads: Vec<_> = heads.map(|(head, right)| (head.to_owned(), right)).into();
    let rows = drops.iter().map(|row| {
        let style = if row.per_s.is_some_and(|rate| rate > 0.0) { theme.bad() } else { theme.plain() };
        let cells =
            [text::printable(&row.port), text::printable(&row.reason), text::rate(row.per_s), row.count.to_string()];
        cells.into_iter().map(|cell| (cell, style)).collect()
    });
    let port = name_width(drops.iter().map(|row| row.port.chars().count()));
    let reason = name_width(drops.iter().map(|row| row.reason.chars().count()));
    let widths = vec![port, reason, Constraint::Length(8), Constraint::Length(12)];
    let chosen = (app.view == View::Drops).then(|| app.row(View::Drops, drops.len()));
    table(frame, area, &heads, rows.collect(), widths, chosen, theme);
}

/// Returns the width of a column of names: its numbers stand beside them also on a wide screen.
fn name_width(lengths: impl Iterator<Item = usize>) -> Constraint {
    Constraint::Max(lengths.max().unwrap_or(0).saturating_as::<u16>().max(12))
}

/// Draws a table. A flag of a heading tells that its column is aligned to the right.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    heads: &[(String, bool)],
    rows: Vec<Vec<(String, Style)>>,
    widths: Vec<Constraint>,
    chosen: Option<usize>,
    theme: Theme,
) {
    let aligned =
        |text: String, right: bool| Line::from(text).alignment(if right { Alignment::Right } else { Alignment::Left });
    let head = heads.iter().map(|(head, right)| Cell::from(aligned(head.clone(), *right)));
    let rows = rows.into_iter().map(|cells| {
        let cells = cells.into_iter().zip(heads);
        Row::new(cells.map(|((text, style), (_, right))| Cell::from(aligned(text, *right)).style(style)))
    });
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(theme.heading()))
        .column_spacing(2)
        .highlight_symbol("▸")
        .highlight_spacing(HighlightSpacing::Always)
        .row_highlight_style(theme.chosen());
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// Draws the details of the chosen row.
pub(super) fn detail(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let (title, lines) = match app.view {
        View::Drops => drop_detail(app, theme),
        _ => port_detail(app, theme),
    };
    let block = rounded(theme).title(title);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn port_detail(app: &App, theme: Theme) -> (String, Vec<Line<'static>>) {
    let ports = app.ports();
    let Some(port) = ports.get(app.row(View::Ports, ports.len())) else {
        return (String::new(), vec![Line::styled("the switch has no ports", theme.faint())]);
    };
    let joined = port
        .joined
        .as_ref()
        .map_or_else(String::new, |joined| format!(", {} {}", joined.kind.as_str(), text::printable(&joined.name)));
    let title = format!(" {}: {}{joined} ", text::printable(&port.name), text::printable(&port.kind));
    let mut lines = Vec::new();
    match (port.link, &port.reason) {
        (Link::Up, _) => lines.push(Line::styled("link up", theme.good())),
        (Link::Down, reason) => {
            let reason = reason.as_deref().unwrap_or("no reason is known");
            lines.push(Line::styled(format!("down: {}", text::printable(reason)), theme.bad()));
            lines.extend(port.remedy.as_ref().map(|remedy| Line::from(text::printable(remedy))));
        }
    }
    lines.extend(app.limits(&port.name).iter().map(|limit| Line::from(text::printable(limit))));
    let drops = app.rates.as_ref().map_or_else(Vec::new, worst_drops);
    let of_port = drops.iter().filter(|row| row.port == port.name);
    for row in of_port.filter(|row| row.per_s.is_some_and(|rate| rate > 0.0)) {
        let text = format!("{} drops/s, {}: {}", text::rate(row.per_s), row.reason, row.remedy);
        lines.push(Line::styled(text::printable(&text), theme.bad()));
    }
    (title, lines)
}

fn drop_detail(app: &App, theme: Theme) -> (String, Vec<Line<'static>>) {
    let drops = app.rates.as_ref().map_or_else(Vec::new, worst_drops);
    let Some(row) = drops.get(app.row(View::Drops, drops.len())) else {
        return (String::new(), vec![Line::styled("no drops", theme.faint())]);
    };
    let lines =
        vec![Line::from(text::printable(&row.meaning)), Line::styled(text::printable(&row.remedy), theme.title())];
    (format!(" {} at {} ", text::printable(&row.reason), text::printable(&row.port)), lines)
}
