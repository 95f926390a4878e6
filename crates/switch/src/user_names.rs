//! Names of users by their ids, for people who read the answers.
//!
//! The names come from `/etc/passwd` alone and are read once: the sandbox later allows neither that
//! file nor the name service (NSS). A user that is not in the file is shown by number.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

/// Reads the names, unless they are read already. Call it before the sandbox is entered.
pub(crate) fn read() {
    names();
}

/// Returns a user's name, or the number as text.
pub(crate) fn name(uid: u32) -> String {
    names().get(&uid).cloned().unwrap_or_else(|| uid.to_string())
}

fn names() -> &'static BTreeMap<u32, String> {
    static NAMES: OnceLock<BTreeMap<u32, String>> = OnceLock::new();
    // Without the file there are no names.
    NAMES.get_or_init(|| fs::read("/etc/passwd").map(|file| parse(&String::from_utf8_lossy(&file))).unwrap_or_default())
}

/// Parses `name:password:uid:...` (passwd(5)). The first of several names for one id counts.
fn parse(file: &str) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for line in file.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(uid)) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok())) {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_are_numbers() {
        let file =
            "root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0\n\n# a comment\n+:::\nbad:x:-1:0\nqemu:x:107:107::/:\nx";
        let names = parse(file);
        assert_eq!(names, [(0, "root".to_owned()), (107, "qemu".to_owned())].into());
        assert_eq!((name(0).as_str(), name(u32::MAX).as_str()), ("root", "4294967295"));
    }
}
