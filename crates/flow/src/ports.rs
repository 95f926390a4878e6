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

/// The numbers of a bridge's ports. A port keeps its number, and gets it back when it comes again.
///
/// ```
/// use straightline_flow::{PortNames, PortNumber, PortTable};
///
/// let mut ports = PortTable::default();
/// ports.update(["vm1", "vm2"]);
/// ports.update(["vm3", "vm2"]);
/// assert_eq!(ports.number("vm3"), Some(PortNumber(3)));
/// assert_eq!(ports.number("vm1"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTable {
    /// The name of each number from 1, and whether the bridge has the port now.
    names: Vec<(String, bool)>,
}

impl PortTable {
    /// Sets the ports that the bridge has now. Further numbers follow the list's order. If all numbers
    /// are given, those of ports that are gone are given again.
    pub fn update<'a>(&mut self, present: impl IntoIterator<Item = &'a str>) {
        self.names.iter_mut().for_each(|(_, is_present)| *is_present = false);
        let mut new = Vec::new();
        for name in present {
            match self.names.iter_mut().find(|(known, _)| known == name) {
                Some((_, is_present)) => *is_present = true,
                None => new.push(name),
            }
        }
        for name in new {
            if self.names.len() < usize::from(PortNumber::MAX.0) {
                self.names.push((name.to_owned(), true));
            } else if let Some(gone) = self.names.iter_mut().find(|(_, is_present)| !is_present) {
                *gone = (name.to_owned(), true);
            }
        }
    }

    /// Returns the ports that the bridge has now, with their numbers.
    pub fn present(&self) -> impl Iterator<Item = (PortNumber, &str)> {
        let numbered = (1..).map(PortNumber).zip(&self.names);
        numbered.filter(|(_, (_, is_present))| *is_present).map(|(number, (name, _))| (number, name.as_str()))
    }
}

impl PortNames for PortTable {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.present().find(|(_, known)| *known == name).map(|(number, _)| number)
    }

    fn name(&self, number: PortNumber) -> Option<Cow<'_, str>> {
        let (name, _) = self.names.get(usize::from(number.0).checked_sub(1)?)?;
        Some(Cow::Borrowed(name))
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
