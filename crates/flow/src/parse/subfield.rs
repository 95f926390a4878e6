//! Bits of fields, as `NXM_NX_REG0[0..15]`.

use super::error::FlowError;
use super::refused;
use super::words::Word;
use crate::field::{Field, Subfield};

/// Reads a field, and the bits in brackets behind it. Without brackets it is the whole field.
pub(super) fn subfield(word: Word<'_>, text: &str) -> Result<Subfield, FlowError> {
    let (name, bits) = match text.split_once('[') {
        None => (text, ""),
        Some((name, rest)) => match rest.strip_suffix(']') {
            Some(bits) => (name, bits),
            None => return Err(word.wrong("has a `[` without `]`: write `[0..15]` or `[]`")),
        },
    };
    let found = match name {
        "tp_src" => Some(Field::TcpSrc),
        "tp_dst" => Some(Field::TcpDst),
        _ => Field::find(name),
    };
    let field = found.ok_or_else(|| refused::subfield(word, name))?;
    let all = Subfield::all(field);
    if bits.is_empty() {
        return Ok(all);
    }
    let (first, last) = bits.split_once("..").unwrap_or((bits, bits));
    let (Some(first), Some(last)) = (bit(first), bit(last)) else {
        return Err(word.wrong("has brackets without numbers: write `[0..15]`, `[3]` or `[]`"));
    };
    if first > last {
        return Err(word.wrong(format!("begins behind its end: write `[{last}..{first}]`")));
    }
    if last >= all.bits {
        let greatest = all.bits - 1;
        return Err(word.wrong(format!("ends beyond the field: `{}` has the bits 0 to {greatest}", field.name())));
    }
    Ok(Subfield { field, offset: first, bits: last - first + 1 })
}

fn bit(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
