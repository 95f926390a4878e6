//! The interfaces of routes, in the tables that the kernel shows below `/proc`.

use std::collections::BTreeSet;

/// Returns the interfaces of IPv4 routes (`net/route`), and those of default routes.
#[must_use]
pub fn of_ipv4(table: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let routes: Vec<_> = lines.filter(|fields| fields.len() > 7).collect();
    let is_default = |fields: &&Vec<&str>| fields[1] == "00000000" && fields[7] == "00000000";
    let names = routes.iter().map(|fields| fields[0].to_owned()).collect();
    (names, routes.iter().filter(is_default).map(|fields| fields[0].to_owned()).collect())
}

/// Returns the interfaces of IPv6 default routes (`net/ipv6_route`) that lead to a router.
#[must_use]
pub fn default_ipv6(table: &str) -> BTreeSet<String> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let nowhere = "0".repeat(32);
    let leads = lines.filter(|fields| fields.len() > 9 && fields[0] == nowhere && fields[1] == "00");
    leads.filter(|fields| fields[4] != nowhere).map(|fields| fields[9].to_owned()).collect()
}
