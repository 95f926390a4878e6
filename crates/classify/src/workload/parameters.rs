//! Parameters of a kind of rule set, read from the files in `parameters/`.

/// A class of ports, as ClassBench has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortClass {
    Any,
    /// 1024 and above.
    High,
    /// Below 1024.
    Low,
    /// A range of any other kind.
    Range,
    /// One port.
    Exact,
}

/// The parameters. Each list has weights.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// IP protocols; `None` is any.
    pub(super) protocols: Vec<(Option<u32>, u32)>,
    /// Classes of the source port and of the destination port.
    pub(super) ports: Vec<((PortClass, PortClass), u32)>,
    /// Well-known ports.
    pub(super) services: Vec<(u32, u32)>,
    /// Bits of the source prefix and of the destination prefix, for IPv4.
    pub(super) prefixes: Vec<((u32, u32), u32)>,
    /// Percent of source prefixes that another rule has too.
    pub(super) reuse_source: u32,
    /// The same for destination prefixes.
    pub(super) reuse_destination: u32,
    /// Networks for a thousand rules.
    pub(super) networks: u32,
}

impl Parameters {
    /// Reads a file of this crate.
    ///
    /// # Panics
    /// If the file has a mistake. Tests read all of them.
    pub(super) fn read(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["protocol", name, weight] => all.protocols.push((protocol(name), number(weight))),
                ["ports", source, destination, weight] => {
                    all.ports.push(((class(source), class(destination)), number(weight)));
                }
                ["service", port, weight] => all.services.push((number(port), number(weight))),
                ["prefixes", source, destination, weight] => {
                    all.prefixes.push(((number(source), number(destination)), number(weight)));
                }
                ["reuse", "source", percent] => all.reuse_source = number(percent),
                ["reuse", "destination", percent] => all.reuse_destination = number(percent),
                ["networks", count] => all.networks = number(count),
                _ => panic!("no parameter: {line}"),
            }
        }
        all
    }
}

fn number(word: &str) -> u32 {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

fn protocol(name: &str) -> Option<u32> {
    match name {
        "any" => None,
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        _ => panic!("no protocol: {name}"),
    }
}

fn class(name: &str) -> PortClass {
    match name {
        "any" => PortClass::Any,
        "high" => PortClass::High,
        "low" => PortClass::Low,
        "range" => PortClass::Range,
        "exact" => PortClass::Exact,
        _ => panic!("no class of ports: {name}"),
    }
}
