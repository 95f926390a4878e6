//! Tables and JSON for scripts.

use straightline_api::rates::{DropRate, NodeRates, Rates};

use crate::{Column, Sort, text};

/// Renders one interval as tables: ports, drops, workers, nodes.
pub(crate) fn tables(rates: &Rates, sort: Sort, columns: &[Column]) -> String {
    // A curve needs more than one interval.
    let columns: Vec<_> = columns.iter().copied().filter(|column| *column != Column::History).collect();
    let mut ports = rates.ports.clone();
    sort.apply(&mut ports);
    let heads: Vec<_> = columns.iter().map(|column| (column.heading(), column.is_number())).collect();
    let rows = ports.iter().map(|port| columns.iter().map(|column| column.cell(port)).collect()).collect();
    let mut tables = vec![table(&heads, rows)];

    let down: Vec<String> = ports
        .iter()
        .filter_map(|port| Some((port, port.reason.as_ref()?)))
        .map(|(port, reason)| {
            let remedy = port.remedy.as_ref().map_or_else(String::new, |remedy| format!("\n    {remedy}"));
            text_lines(&format!("{} is down: {reason}{remedy}", port.name))
        })
        .collect();
    if !down.is_empty() {
        tables.push(down.concat());
    }
    let drops = worst_drops(rates);
    if !drops.is_empty() {
        let cells = |row: &DropRate| {
            vec![text::printable(&row.port), text::printable(&row.reason), text::rate(row.per_s), row.count.to_string()]
        };
        let heads = [("port", false), ("drop reason", false), ("drops/s", true), ("since start", true)];
        tables.push(table(&heads, drops.iter().map(cells).collect()));
    }
    let workers = rates.workers.iter().enumerate().map(|(index, worker)| {
        let shares = worker.shares.map(|shares| shares.as_array().map(text::percent));
        let shares = shares.unwrap_or_else(|| std::array::from_fn(|_| "-".to_owned()));
        [vec![worker_name(index, worker.cpu)], shares.to_vec()].concat()
    });
    let heads =
        [("worker", false), ("busy %", true), ("empty poll %", true), ("idle %", true), ("unexplained %", true)];
    tables.push(table(&heads, workers.collect()));
    let nodes = busiest_nodes(rates);
    if !nodes.is_empty() {
        let heads =
            [("node", false), ("worker", false), ("packets/s", true), ("packets/call", true), ("cycles/packet", true)];
        tables.push(table(&heads, nodes.iter().map(|node| node_cells(node, rates)).collect()));
    }
    tables.join("\n")
}

/// Returns the name of a worker.
pub(crate) fn worker_name(index: usize, cpu: Option<usize>) -> String {
    cpu.map_or_else(|| format!("worker {index}"), |cpu| format!("CPU {cpu}"))
}

/// Returns the cells of a node's row.
pub(crate) fn node_cells(node: &NodeRates, rates: &Rates) -> Vec<String> {
    let worker = node.worker.and_then(|index| Some(worker_name(index, rates.workers.get(index)?.cpu)));
    vec![
        text::printable(&node.name),
        worker.unwrap_or_default(),
        text::rate(node.packets_per_s),
        text::mean(node.packets_per_call),
        text::mean(node.cycles_per_packet),
    ]
}

/// Returns the drops, the highest rate first, then the highest count.
pub(crate) fn worst_drops(rates: &Rates) -> Vec<DropRate> {
    let mut drops = rates.drops.clone();
    drops.sort_by(|a, b| {
        let rate = |row: &DropRate| row.per_s.unwrap_or(0.0);
        rate(b).total_cmp(&rate(a)).then(b.count.cmp(&a.count))
    });
    drops
}

/// Returns the nodes, most cycles first.
pub(crate) fn busiest_nodes(rates: &Rates) -> Vec<NodeRates> {
    let mut nodes = rates.nodes.clone();
    let cycles = |node: &NodeRates| node.cycles_per_s.unwrap_or(0.0);
    nodes.sort_by(|a, b| cycles(b).total_cmp(&cycles(a)));
    nodes
}

/// Keeps line ends, and replaces other control characters.
fn text_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", text::printable(line))).collect()
}

/// Renders a table. A flag tells that a column is aligned to the right.
fn table(heads: &[(&str, bool)], rows: Vec<Vec<String>>) -> String {
    let mut lines = vec![heads.iter().map(|(head, _)| (*head).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..heads.len()).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).zip(heads).map(|((cell, &width), &(_, right))| {
            if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
