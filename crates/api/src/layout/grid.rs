//! Aligned columns, wrapped lists and readable numbers.

use std::iter;

/// A table whose columns are as wide as their widest cell.
pub(crate) struct Grid<const N: usize> {
    right: [bool; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Grid<N> {
    /// Creates a table with these headings. Each heading begins with `<` or `>`, the side to which
    /// its column is aligned. Without any text in the headings there is no heading line.
    pub(crate) fn new(headings: &[&str; N]) -> Self {
        let right = headings.map(|heading| heading.starts_with('>'));
        let titles = headings.map(|heading| heading.trim_start_matches(['<', '>']).to_owned());
        let headed = titles.iter().any(|title| !title.is_empty());
        Self { right, rows: if headed { vec![titles] } else { Vec::new() } }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| printable(&cell)));
    }

    /// Renders the table. Lines end with `…` at this width.
    pub(crate) fn render_within(&self, width: usize) -> String {
        let fit = |line: &str| {
            if line.chars().count() > width {
                line.chars().take(width - 1).chain(['…']).collect()
            } else {
                line.to_owned()
            }
        };
        self.render("").lines().map(|line| fit(line) + "\n").collect()
    }

    /// Renders the table, each line after `indent`.
    pub(crate) fn render(&self, indent: &str) -> String {
        render_rows(&self.right, &self.rows, indent)
    }
}

/// Renders rows of cells. All rows have the headings of the first one, as [`Grid::new`] takes them.
pub(crate) fn render_columns(rows: &[Vec<(String, String)>]) -> String {
    let headings: Vec<_> = rows.iter().take(1).flatten().map(|(heading, _)| heading.as_str()).collect();
    let right: Vec<_> = headings.iter().map(|heading| heading.starts_with('>')).collect();
    let titles = headings.iter().map(|heading| printable(heading.trim_start_matches(['<', '>']))).collect();
    let cells = |row: &Vec<(String, String)>| row.iter().map(|(_, cell)| printable(cell)).collect();
    let lines: Vec<Vec<String>> = iter::once(titles).chain(rows.iter().map(cells)).collect();
    render_rows(&right, &lines, "")
}

fn render_rows(right: &[bool], rows: &[impl AsRef<[String]>], indent: &str) -> String {
    let mut widths = vec![0; right.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (index, (cell, &width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let gap = if index == 0 { "" } else { "  " };
            line += gap;
            line += &if right[index] { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Renders `label`, then the words of `list`, wrapped at `width` and aligned after the label.
pub(crate) fn wrap(label: &str, list: &str, width: usize) -> String {
    let label = printable(label);
    let margin = label.chars().count();
    let mut text = label;
    let mut column = margin;
    for (index, word) in printable(list).split_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width {
            text.push('\n');
            text.push_str(&" ".repeat(margin));
            column = margin;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

/// Formats a number with a comma before each group of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Replaces control characters: text that comes over a socket must not steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        let mut grid = Grid::new(&["<a", ">number"]);
        grid.row(["long name".to_owned(), "1".to_owned()]);
        grid.row(["x\x1b".to_owned(), "1234567".to_owned()]);
        assert_eq!(grid.render(" "), " a           number\n long name        1\n x?         1234567\n");
    }

    #[test]
    fn wraps() {
        assert_eq!(wrap("list  ", "aa bb cc", 12), "list  aa bb\n      cc\n");
        assert_eq!(wrap("l ", "much-too-long a", 8), "l much-too-long\n  a\n");
        assert_eq!(wrap("l", "", 8), "l\n");
    }

    #[test]
    fn counts() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")] {
            assert_eq!(count(number), text);
        }
    }
}
