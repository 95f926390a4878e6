//! The questions of the experiments, each with the metric that answers it, and what its names mean.

/// The words that introduce an experiment's finding.
struct Question {
    experiment: &'static str,
    /// The metric that answers the question.
    metric: &'static str,
    text: &'static str,
    /// The meaning of the names of variants and cells.
    names: &'static str,
}

const QUESTIONS: [Question; 11] = [
    Question {
        experiment: "batch",
        metric: "switch_cycles_per_packet",
        text: "How many packets should a turn of the worker take?",
        names: "The variant is the most packets of a turn. Packets: how many circle from each port; all: as many as the \
                generator's buffers hold.",
    },
    Question {
        experiment: "cold",
        metric: "node_cycles_per_packet",
        text: "What does a node gain by prefetching headers that another core has?",
        names: "none: the node prefetches nothing. 2 ahead: it prefetches for the second packet after this one. Two at once: \
                it handles two packets at once and prefetches the next two. C: the loop is in C. t1, t2, nta, write: the \
                kind of prefetch. Heads: who has written them, or memory. Batch: packets that the node gets at once.",
    },
    Question {
        experiment: "header-align",
        metric: "guest_cycles_per_packet",
        text: "Where in a cache line should the virtio-net header lie?",
        names: "A guest chooses what starts a cache line in its buffers: the header, or the frame behind it. Header on the \
                line before: as header on a line, with a line more for the frame. Frame on 16 bytes: the frame starts \
                at a multiple of 16. Data: bytes of a buffer behind its headroom. Path loop: a guest returns what it \
                receives, so the same packets go round. Path pvp: a generator sends packets, and a guest forwards \
                them. Sent: the place of the sender's packets, if it is not that of received ones.",
    },
    Question {
        experiment: "levels",
        metric: "node_cycles_per_packet",
        text: "What does a node gain from being compiled for a wider instruction set?",
        names: "The variant is the instruction set that the node's loop is compiled for. Node: it swaps addresses, or asks \
                for the hash of the flow, for the places of the headers, or for both addresses in a table of stations.",
    },
    Question {
        experiment: "memcpy",
        metric: "switch_cycles_per_packet",
        text: "What does a copy cost: our kernels, the C library, rep movsb, none at all?",
        names: "kernel: our own SIMD. libc: memmove of the C library. movsb: one instruction of the CPU. none: copies \
                nothing, so it is a bound and no choice.",
    },
    Question {
        experiment: "noisy",
        metric: "switch_cycles_per_packet",
        text: "What does a neighbour cost that shares the last-level cache?",
        names: "noisy: another thread visits a block of memory all the time. quiet: there is no such thread.",
    },
    Question {
        experiment: "offload",
        metric: "switch_cycles_per_byte",
        text: "What do checksums and segmentation cost in the switch, in the sending guest, and left to the receiver?",
        names: "The variant says who does the work. passed: it is left to the receiver. nobody: packets need no work \
                (load mix only). Load mix: frames of 60 to 1514 bytes. segments: packets of \
                64 KiB, segmented into frames. frames: 1514 bytes each. With a work of the switch, the variant is the \
                instruction set that does it.",
    },
    Question {
        experiment: "prefetch",
        metric: "node_cycles_per_packet",
        text: "How far ahead should a node prefetch, if at all?",
        names: "none: the node prefetches nothing. 2 ahead: it prefetches for the second packet after this one. Node: it \
                swaps addresses (swap), reads a table (lookup), or also hashes the header (lookup-and-hash). Packets: \
                how many circle between the switch and each guest port.",
    },
    Question {
        experiment: "touch",
        metric: "switch_cycles_per_packet",
        text: "What does a packet cost the switch if the guest reads or edits it, on this CPU or on another?",
        names: "none: the guest touches nothing. Otherwise it reads the headers, reads all bytes, or edits all. Core: the \
                guest has the CPU of the switch (same), or another one. Load one-way: one port sends and the other \
                receives. Load loop: the guest returns what it receives. Ring: the number of its entries. Under way: \
                the number of packets in each direction.",
    },
    Question {
        experiment: "tunnel",
        metric: "switch_cycles_per_byte",
        text: "Is a tunnel of any kind as fast as plain Ethernet?",
        names: "plain: no tunnel. Load is the packet's length; 64k is segmented for the wire, and line is 1500 bytes over \
                a line of a fixed rate.",
    },
    Question {
        experiment: "width",
        metric: "switch_cycles_per_packet",
        text: "Do wider registers copy faster?",
        names: "The variant is the width of the registers that copy, or the place of the frame: it starts at a cache line \
                (aligned), or one byte behind (unaligned).",
    },
];

fn of(scenario: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|known| known.experiment == scenario)
}

/// Returns the question of an experiment; `None` for other scenarios.
pub(super) fn question(scenario: &str) -> Option<&'static str> {
    of(scenario).map(|known| known.text)
}

/// Returns what the names of an experiment's variants and cells mean; `None` for other scenarios.
pub(super) fn names(scenario: &str) -> Option<&'static str> {
    of(scenario).map(|known| known.names)
}

/// Returns the metric that answers the question of an experiment; `None` for other scenarios.
#[must_use]
pub fn answer(scenario: &str) -> Option<&'static str> {
    of(scenario).map(|known| known.metric)
}
