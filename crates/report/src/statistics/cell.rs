//! The axes of cells in words.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_as_bytes_and_memory_with_its_unit() {
        let words = |axis, value| axis_in_words(axis, value).map(|(axis, value)| format!("{axis} = {value}"));
        assert_eq!(words("size", "64").as_deref(), Some(" = 64 B"));
        assert_eq!(words("size", "imix").as_deref(), Some(" = imix"));
        assert_eq!(words("ring", "split").as_deref(), Some("ring = split"));
        assert_eq!(words("flow_table_kib", "131072").as_deref(), Some("flow table = 128 MiB"));
        assert_eq!(words("flow_table_kib", "256").as_deref(), Some("flow table = 256 KiB"));
        assert_eq!(words("flow_table_kib", "any").as_deref(), Some("flow table kib = any"));
        assert_eq!((words("flow_table_kib", "0"), words("other", "–")), (None, None));
    }
}
