//! The copy that a vhost library has, by the instructions of the functions that copy packets.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::DpdkCopy;

/// The functions that copy packets: from guests and to guests, for both ring layouts.
const FUNCTIONS: [&str; 6] = [
    "virtio_dev_rx_split",
    "virtio_dev_rx_packed",
    "virtio_dev_tx_split_legacy",
    "virtio_dev_tx_split_compliant",
    "virtio_dev_tx_packed_legacy",
    "virtio_dev_tx_packed_compliant",
];

/// The instructions of a function that tell copies apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Stores of 64 and of 32 bytes.
    zmm_stores: usize,
    ymm_stores: usize,
    /// Shifts over two registers, by which only `rte_memcpy` in SSE copies between places that are
    /// aligned differently.
    pub(super) shifts: usize,
    /// Calls of `memcpy`. One in each function for packets from a guest copies a header in any case.
    calls: usize,
    /// Loads of a byte that are stored by one of the next two instructions, both at an index.
    bytes: usize,
}

/// Fewest wide stores of a function with `rte_memcpy`: each copy in it has a loop of four or more.
const WIDE_STORES: usize = 8;

impl Marks {
    /// Returns the copy that has these marks.
    fn copy(self) -> Option<DpdkCopy> {
        let Marks { zmm_stores, ymm_stores, shifts, calls, bytes } = self;
        if zmm_stores >= WIDE_STORES {
            Some(DpdkCopy::Avx512)
        } else if ymm_stores >= WIDE_STORES {
            Some(DpdkCopy::Avx2)
        } else if shifts >= WIDE_STORES {
            Some(DpdkCopy::Sse)
        } else if bytes > 0 && calls <= 1 {
            Some(DpdkCopy::Loop)
        } else if calls > 1 && bytes == 0 {
            Some(DpdkCopy::Glibc)
        } else {
            None
        }
    }
}

/// Returns the marks of each function of a disassembly (`objdump -d --no-show-raw-insn`).
pub(super) fn marks(disassembly: &str) -> BTreeMap<&str, Marks> {
    let mut functions = BTreeMap::new();
    let mut name = "";
    let mut byte: Option<(&str, u32)> = None;
    for line in disassembly.lines() {
        if let Some((_, rest)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            name = rest.trim_end_matches(">:");
            byte = None;
            continue;
        }
        // `   6123:	vmovdqu %ymm0,(%rax)`
        let Some((_, text)) = line.split_once('\t') else { continue };
        let (instruction, operands) = text.split_once(' ').unwrap_or((text, ""));
        let operands = operands.trim();
        let marks: &mut Marks = functions.entry(name).or_default();
        let is_store = operands.ends_with(')') && instruction.starts_with("vmov");
        marks.zmm_stores += usize::from(is_store && operands.starts_with("%zmm"));
        marks.ymm_stores += usize::from(is_store && operands.starts_with("%ymm"));
        marks.shifts += usize::from(instruction == "palignr");
        let is_jump = instruction.starts_with("call") || instruction.starts_with("jmp");
        marks.calls += usize::from(is_jump && operands.contains("<memcpy@"));
        if let Some((register, age)) = byte {
            let is_stored = instruction == "mov" && has_index(operands) && operands.starts_with(&low_byte(register));
            marks.bytes += usize::from(is_stored);
            byte = (age < 1 && !is_stored).then_some((register, age + 1));
        }
        if instruction == "movzbl" && has_index(operands) {
            byte = operands.rsplit(',').next().map(|register| (register, 0));
        }
    }
    functions
}

/// Returns whether an operand is at a base and an index, each in a register: `(%rdi,%rax,1)`.
fn has_index(operands: &str) -> bool {
    operands.contains(",1)") && operands.contains("(%")
}

/// Returns the register of a byte as the first operand, by the name of its 32 bits.
fn low_byte(register: &str) -> String {
    let name = register.trim_start_matches('%');
    let byte = match name {
        "eax" => "al".to_owned(),
        "ebx" => "bl".to_owned(),
        "ecx" => "cl".to_owned(),
        "edx" => "dl".to_owned(),
        "esi" => "sil".to_owned(),
        "edi" => "dil".to_owned(),
        "ebp" => "bpl".to_owned(),
        other => other.trim_end_matches('d').to_owned() + "b",
    };
    format!("%{byte},")
}

/// Checks that all functions that copy packets have this copy. Returns their marks in words.
///
/// # Errors
/// A function is missing, or has another copy.
pub(super) fn check(disassembly: &str, copy: DpdkCopy) -> Result<String> {
    let all = marks(disassembly);
    let mut words = Vec::new();
    for function in FUNCTIONS {
        let marks = all.get(function).with_context(|| format!("the library has no function {function}"))?;
        let found = marks.copy().map_or("none that is known", DpdkCopy::name);
        ensure!(
            marks.copy() == Some(copy),
            "{function} should copy by {}, and its instructions are those of {found}: {marks:?}",
            copy.name()
        );
        words.push(match copy {
            DpdkCopy::Sse => format!("{function} {} palignr", marks.shifts),
            DpdkCopy::Avx2 => format!("{function} {} stores of 32 bytes", marks.ymm_stores),
            DpdkCopy::Avx512 => format!("{function} {} stores of 64 bytes", marks.zmm_stores),
            DpdkCopy::Glibc => format!("{function} {} calls of memcpy", marks.calls),
            DpdkCopy::Loop => format!("{function} {} loops over bytes", marks.bytes),
        });
    }
    Ok(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disassembly(lines: &[&str], times: usize) -> String {
        let body: String = lines.iter().map(|line| format!("    6123:\t{line}\n")).collect();
        FUNCTIONS.map(|function| format!("0000000000006120 <{function}>:\n{}\n", body.repeat(times))).concat()
    }

    const BYTES: [&str; 4] =
        ["movzbl (%rsi,%rax,1),%ecx", "mov    %cl,(%rdi,%rax,1)", "add    $0x1,%rax", "jne    6123 <x+0x3>"];

    #[test]
    fn each_copy_is_known_by_its_instructions() {
        let sse = disassembly(&["movdqu (%rsi),%xmm0", "palignr $0x3,%xmm1,%xmm0", "movaps %xmm0,(%rdi)"], 8);
        let avx2 = disassembly(&["vmovdqu (%rsi),%ymm0", "vmovdqu %ymm0,0x20(%rdi)"], 8);
        let avx512 = disassembly(&["vmovdqu8 (%rsi),%zmm0", "vmovdqu8 %zmm0,(%rdi)", "vmovdqu %ymm1,(%rdi)"], 8);
        let glibc = disassembly(&["call   5100 <memcpy@plt>"], 2);
        let bytes = disassembly(&BYTES, 1);
        let all = [
            (DpdkCopy::Sse, sse),
            (DpdkCopy::Avx2, avx2),
            (DpdkCopy::Avx512, avx512),
            (DpdkCopy::Glibc, glibc),
            (DpdkCopy::Loop, bytes),
        ];
        for (copy, text) in &all {
            for (wanted, _) in &all {
                assert_eq!(check(text, *wanted).is_ok(), copy == wanted, "{copy:?} as {wanted:?}");
            }
        }
    }

    #[test]
    fn one_function_with_another_copy_is_enough() {
        let good = disassembly(&["call   5100 <memcpy@plt>"], 2);
        let named = format!("<{}>:", FUNCTIONS[3]);
        let (before, after) = good.split_once(&named).expect("a function");
        let bad = format!("{before}{named}\n    6123:\t{}\n    6126:\t{}\n{after}", BYTES[0], BYTES[1]);
        let error = check(&bad, DpdkCopy::Glibc).expect_err("mixed").to_string();
        assert!(error.contains(FUNCTIONS[3]) && error.contains("none that is known"), "{error}");
        let error = check(before, DpdkCopy::Glibc).expect_err("half a library").to_string();
        assert!(error.contains("no function"), "{error}");
        // One call copies a header; registers that are only loaded, or stored elsewhere, are no copy.
        let header =
            disassembly(&["call   5100 <memcpy@plt>", "movzbl (%rsi,%rax,1),%ecx", "mov    %dl,(%rdi,%rax,1)"], 1);
        for copy in DpdkCopy::ALL {
            assert!(check(&header, copy).is_err(), "{copy:?}");
        }
    }

    #[test]
    fn a_byte_has_the_name_of_its_register() {
        let names = ["%eax", "%esi", "%r8d", "%r15d"].map(low_byte);
        assert_eq!(names, ["%al,", "%sil,", "%r8b,", "%r15b,"]);
    }
}
