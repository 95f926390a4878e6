//! The ports of a configuration, with an index of their names.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::OnceLock;

use crate::PortConfig;

/// The ports of a configuration, in the file's order. It is used as a [`Vec`].
///
/// The index of the names is made when the first name is looked up, and forgotten when the list is
/// borrowed mutably. So it costs a switch with a thousand ports one pass, and cannot be stale.
#[derive(Clone, Default)]
pub struct PortList {
    ports: Vec<PortConfig>,
    by_name: OnceLock<HashMap<Box<str>, usize>>,
}

impl PortList {
    /// Returns the index of the first port of this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let by_name = self.by_name.get_or_init(|| {
            let mut by_name = HashMap::with_capacity(self.ports.len());
            for (at, port) in self.ports.iter().enumerate() {
                by_name.entry(port.name.as_str().into()).or_insert(at);
            }
            by_name
        });
        by_name.get(name).copied()
    }
}

impl Deref for PortList {
    type Target = Vec<PortConfig>;

    fn deref(&self) -> &Self::Target {
        &self.ports
    }
}

impl DerefMut for PortList {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.by_name.take();
        &mut self.ports
    }
}

impl From<Vec<PortConfig>> for PortList {
    fn from(ports: Vec<PortConfig>) -> Self {
        PortList { ports, by_name: OnceLock::new() }
    }
}

impl FromIterator<PortConfig> for PortList {
    fn from_iter<I: IntoIterator<Item = PortConfig>>(ports: I) -> Self {
        ports.into_iter().collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a PortList {
    type Item = &'a PortConfig;
    type IntoIter = slice::Iter<'a, PortConfig>;

    fn into_iter(self) -> Self::IntoIter {
        self.ports.iter()
    }
}

impl<'a> IntoIterator for &'a mut PortList {
    type Item = &'a mut PortConfig;
    type IntoIter = slice::IterMut<'a, PortConfig>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl PartialEq for PortList {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports
    }
}

impl Eq for PortList {}

impl fmt::Debug for PortList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ports.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_after_each_change() {
        let port = |name: &str| PortConfig::vhost_user(name, "/s");
        let mut list: PortList = [port("a"), port("b"), port("a")].into_iter().collect();
        assert_eq!(["a", "b", "c"].map(|name| list.position(name)), [Some(0), Some(1), None]);
        let copy = list.clone();
        list.push(port("c"));
        assert_eq!((list.position("c"), copy.position("c")), (Some(3), None));
        list[1].name = "d".to_owned();
        assert_eq!(["b", "d"].map(|name| list.position(name)), [None, Some(1)]);
        list.remove(0);
        assert_eq!(["d", "a"].map(|name| list.position(name)), [Some(0), Some(1)]);
        assert!(list != copy && list == list.clone());
    }
}
