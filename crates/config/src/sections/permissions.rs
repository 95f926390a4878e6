//! Reads keys that say who may connect to a socket: users, groups and permission bits.

use crate::diagnostic::Findings;
use crate::sections::section::Section;
use crate::users::Id;

/// Reads the name of a user or group. Returns its id.
pub(crate) fn read_id(
    section: &Section<'_>,
    key: &str,
    find: fn(&str) -> std::io::Result<Id>,
    report: &mut Findings<'_>,
) -> Option<u32> {
    let name = section.text(key, &format!("{key} = \"libvirt-qemu\""), report)?;
    let what = if key == "owner" { "user" } else { "group" };
    let why = match find(name.get_ref()) {
        Ok(Id::Found(id)) => return Some(id),
        Ok(Id::Unknown) => format!("this machine has no such {what}"),
        Err(error) => format!("cannot look it up: {error}"),
    };
    report.error(&name.span(), format!("{key} {:?} in {}: {why}", name.get_ref(), section.title()));
    None
}

/// Reads permission bits in octal.
pub(crate) fn read_perms(section: &Section<'_>, key: &str, report: &mut Findings<'_>) -> Option<u32> {
    let perms = section.text(key, &format!("{key} = \"0660\""), report)?;
    let text = *perms.get_ref();
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let bits = if octal { u32::from_str_radix(text, 8).ok() } else { None };
    match bits.filter(|bits| *bits <= 0o777) {
        Some(bits) => Some(bits),
        None => {
            let message = format!(
                "{key} {text:?} in {}: not permission bits; write them in octal, for example \"0660\"",
                section.title()
            );
            report.error(&perms.span(), message);
            None
        }
    }
}
