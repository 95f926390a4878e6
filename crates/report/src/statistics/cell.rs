//! Cells in words.

/// A cell: its axes, each with its value.
pub type CellAxes = Vec<(String, String)>;

/// The most axes that say where cells are.
const AXES: usize = 2;

/// Returns whether an axis has the sizes of packets.
#[must_use]
pub fn is_size(axis: &str) -> bool {
    matches!(axis, "size" | "sizes" | "packet_size")
}

/// Returns an axis and its value for a reader, as `table` and `8 MiB` for `table_kib` and `8192`.
/// The name of sizes is empty, because their unit says what they are. `None` if the axis does not
/// apply to the cell: it has no value, or an amount of memory of 0.
#[must_use]
pub fn axis_in_words(axis: &str, value: &str) -> Option<(String, String)> {
    if is_size(axis) {
        let is_number = !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit());
        return Some((String::new(), if is_number { format!("{value} B") } else { value.to_owned() }));
    }
    let memory = axis.strip_suffix("_kib").and_then(|name| Some((name, value.parse::<u64>().ok()?)));
    let (name, value) = match memory {
        Some((_, 0)) => return None,
        Some((name, kib)) if kib % 1024 == 0 => (name, format!("{} MiB", kib / 1024)),
        Some((name, kib)) => (name, format!("{kib} KiB")),
        None if value == "–" => return None,
        None => (axis, value.to_owned()),
    };
    Some((name.replace('_', " "), value))
}

/// Formats a cell as `64 B (ring = split)`: sizes come first, as bytes.
#[must_use]
pub fn cell_in_words<'s>(cell: impl IntoIterator<Item = (&'s str, &'s str)>) -> String {
    let [sizes, others] = parts(cell).map(|parts| parts.join(", "));
    match (sizes.is_empty(), others.is_empty()) {
        (true, _) => others,
        (_, true) => sizes,
        _ => format!("{sizes} ({others})"),
    }
}

/// Returns the sizes of a cell, and the other axes with their values.
fn parts<'s>(cell: impl IntoIterator<Item = (&'s str, &'s str)>) -> [Vec<String>; 2] {
    let mut sizes = Vec::new();
    let mut others = Vec::new();
    for (axis, value) in cell.into_iter().filter_map(|(axis, value)| axis_in_words(axis, value)) {
        if axis.is_empty() {
            sizes.push(value);
        } else {
            others.push(format!("{axis} = {value}"));
        }
    }
    [sizes, others]
}

/// Returns what a group of cells has in common that not all cells have, as `64 B, ring = split`.
/// Axes that say nothing more are left out. `None` if this excludes less than a third of all cells,
/// or if it takes more than two axes.
pub(super) fn common(group: &[&CellAxes], all: &[&CellAxes]) -> Option<String> {
    let (first, rest) = group.split_first()?;
    let is_in = |pair: &(String, String), cells: &[&CellAxes]| cells.iter().all(|cell| cell.contains(pair));
    let telling = first.iter().filter(|pair| axis_in_words(&pair.0, &pair.1).is_some());
    let telling: Vec<&(String, String)> = telling.filter(|pair| is_in(pair, rest) && !is_in(pair, all)).collect();
    let having =
        |pairs: &[&(String, String)]| all.iter().filter(|cell| pairs.iter().all(|pair| cell.contains(pair))).count();
    // The fewest axes that exclude as many cells as all of them do. Axes that exclude few say little.
    let least = having(&telling);
    if least * 3 > all.len() * 2 {
        return None;
    }
    let one = telling.iter().map(|&pair| vec![pair]);
    let two = telling.iter().enumerate().flat_map(|(index, &a)| telling[index + 1..].iter().map(move |&b| vec![a, b]));
    let chosen = one.chain(two).find(|pairs| pairs.len() <= AXES && having(pairs) == least)?;
    let words = parts(chosen.into_iter().map(|(axis, value)| (axis.as_str(), value.as_str())));
    Some(words.concat().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_named_by_its_size_first() {
        assert_eq!(cell_in_words([("ring", "split"), ("size", "64")]), "64 B (ring = split)");
        assert_eq!(cell_in_words([("size", "imix")]), "imix");
        assert_eq!(cell_in_words([("load", "mix"), ("core", "same")]), "load = mix, core = same");
        assert_eq!(cell_in_words([]), "");
    }

    #[test]
    fn memory_has_a_unit_and_axes_that_do_not_apply_are_left_out() {
        let cell = |kib| cell_in_words([("node", "lookup"), ("flow_table_kib", kib), ("other", "–")]);
        assert_eq!(cell("131072"), "node = lookup, flow table = 128 MiB");
        assert_eq!(cell("256"), "node = lookup, flow table = 256 KiB");
        assert_eq!(cell("0"), "node = lookup");
        assert_eq!(cell("any"), "node = lookup, flow table kib = any");
    }

    #[test]
    fn cells_have_in_common_what_not_all_have() {
        let cell = |values: [&str; 4]| -> CellAxes {
            ["path", "ring", "size", "buffer"]
                .iter()
                .zip(values)
                .map(|(a, v)| ((*a).to_owned(), v.to_owned()))
                .collect()
        };
        let all = [
            cell(["loop", "split", "64", "2048"]),
            cell(["loop", "packed", "64", "2048"]),
            cell(["loop", "packed", "512", "2048"]),
            cell(["pvp", "split", "64", "4096"]),
            cell(["pvp", "packed", "512", "2048"]),
            cell(["flood", "packed", "512", "2048"]),
        ];
        let every: Vec<&CellAxes> = all.iter().collect();
        for (group, expected) in [
            // Nothing but loops have both the path and this buffer.
            (&[0, 1, 2][..], Some("path = loop")),
            (&[0, 1], Some("64 B, path = loop")),
            (&[0, 3], Some("ring = split")),
            (&[0, 5], None),
            (&[3, 5], None),
            (&[0, 1, 2, 3, 4, 5], None),
            (&[], None),
        ] {
            let group: Vec<&CellAxes> = group.iter().map(|&index: &usize| &all[index]).collect();
            assert_eq!(common(&group, &every).as_deref(), expected, "{group:?}");
        }
        // A corner of a cube takes three axes.
        let cube = |index: usize| cell([0, 1, 2, 3].map(|axis| if (index >> axis) & 1 == 1 { "1" } else { "0" }));
        let all: Vec<CellAxes> = (0..8).map(cube).collect();
        assert_eq!(common(&[&all[7]], &all.iter().collect::<Vec<_>>()), None);
    }
}
