//! The questions of the experiments, each with the metric that answers it.

/// Each experiment with its metric and its question.
const QUESTIONS: [(&str, &str, &str); 8] = [
    ("header-align", "guest_cycles_per_packet", "Where in a cache line should the virtio-net header lie?"),
    (
        "memcpy",
        "switch_cycles_per_packet",
        "What does a copy cost: our kernels, the C library, rep movsb, none at all?",
    ),
    ("noisy", "switch_cycles_per_packet", "What does a neighbour cost that fills the last cache?"),
    (
        "offload",
        "switch_cycles_per_byte",
        "What do checksums and segmentation cost in the switch, in the sending guest, and left to the receiver?",
    ),
    ("prefetch", "node_cycles_per_packet", "How far ahead should a node prefetch, if at all?"),
    (
        "touch",
        "switch_cycles_per_packet",
        "What does it cost the switch that its guest reads or edits packets, on this CPU or on another?",
    ),
    ("tunnel", "switch_cycles_per_byte", "Is a tunnel of any kind as fast as plain Ethernet?"),
    ("width", "switch_cycles_per_packet", "Do wider registers copy faster, to aligned places and to others?"),
];

/// Returns the question of an experiment; `None` for other scenarios.
pub(super) fn question(scenario: &str) -> Option<&'static str> {
    QUESTIONS.iter().find(|known| known.0 == scenario).map(|known| known.2)
}

/// Returns whether a metric answers the question of an experiment.
pub(super) fn is_answer(scenario: &str, metric: &str) -> bool {
    QUESTIONS.iter().any(|known| (known.0, known.1) == (scenario, metric))
}
