//! Names of ports.

use std::borrow::Cow;

use crate::action::PortNumber;

/// The ports of a bridge: their names and their numbers.
pub trait PortNames {
    /// Returns the number of the port with this name.
    fn number(&self, name: &str) -> Option<PortNumber>;

    /// Returns the name of the port with this number.
    fn name(&self, number: PortNumber) -> Option<Cow<'_, str>>;
}

/// No names: ports have numbers only.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPortNames;

impl PortNames for NoPortNames {
    fn number(&self, _name: &str) -> Option<PortNumber> {
        None
    }

    fn name(&self, _number: PortNumber) -> Option<Cow<'_, str>> {
        None
    }
}

/// Words that mean more than a port with this name.
const KEYWORDS: &[&str] =
    &["in_port", "table", "normal", "flood", "all", "controller", "local", "any", "none", "unset", "drop"];

/// Returns a name as text has it: in quotes, unless it consists of letters and digits and begins with
/// a letter.
pub(crate) fn quote(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && !KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(name));
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// Returns the name that [`quote`] was given.
pub(crate) fn unquote(text: &str) -> Cow<'_, str> {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Cow::Borrowed(text);
    };
    let mut name = String::with_capacity(inner.len());
    let mut is_escaped = false;
    for one in inner.chars() {
        is_escaped = !is_escaped && one == '\\';
        if !is_escaped {
            name.push(one);
        }
    }
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_come_and_go() {
        assert_eq!(quote("vm1"), "vm1");
        assert_eq!(quote("Normal"), "\"Normal\"");
        for name in ["vm-1", "6vm", "a\"b\\c", "", "ü", "\\", "\"\"", "vm_1"] {
            assert!(quote(name).starts_with('"'));
            assert_eq!(unquote(&quote(name)), name);
        }
    }
}
