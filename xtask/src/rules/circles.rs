//! The rule for modules: the top-level modules of a crate do not import each other in a circle.
//!
//! A top-level module is a file or a folder directly in `src`. Imports are the paths that begin
//! with `crate`, or with enough `super`. A name that the crate's root exports counts as the module
//! that it comes from. Code of tests may import anything of its crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;

/// Imports that may close a circle, as (crate, importer, imported). They are older than this rule.
/// Do not add one: move what both modules need into a module of its own.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    // A trait, or a part of a type, names the type that uses it.
    ("switch", "dynamic_port", "switch"),
    ("underlay", "tunnel", "underlay"),
    // A double for tests watches each access to a segment.
    ("packet", "segment", "double"),
    // The command line lists the commands, and commands read the options of the command line.
    ("straightline", "cli", "commands"),
];

/// The imports of one crate: for each module, the imported modules with the first place of each.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Returns each circle of a crate, and each exception that is not needed.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut crates: BTreeMap<&str, Imports> = BTreeMap::new();
    for (path, text) in sources {
        let Some((name, file)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let root = |file: &str| sources.get(&format!("crates/{name}/src/{file}")).map(String::as_str);
        let exported = root("lib.rs").map(|root| exports(&without_tests(root))).unwrap_or_default();
        let modules = modules(sources, name);
        collect(path, file, text, &modules, &exported, crates.entry(name).or_default());
    }
    let mut violations = Vec::new();
    for &(name, from, to) in EXCEPTIONS {
        let imports = crates.get_mut(name).and_then(|imports| imports.get_mut(from));
        if imports.and_then(|imports| imports.remove(to)).is_none() {
            violations.push(format!(
                "crates/{name}: {from} does not import {to}: remove the exception in xtask/src/rules/circles.rs"
            ));
        }
    }
    for (name, imports) in &crates {
        violations.extend(circles(imports).into_iter().map(|circle| {
            format!(
                "crates/{name}: modules import each other in a circle: {circle}; move what both need into a module \
                 of its own"
            )
        }));
    }
    violations
}

/// Returns the names of a crate's top-level modules.
fn modules(sources: &BTreeMap<String, String>, name: &str) -> BTreeSet<String> {
    let src = format!("crates/{name}/src/");
    sources.keys().filter_map(|path| Some(top(path.strip_prefix(&src)?).to_owned())).collect()
}

/// Returns the top-level module of a file in `src`.
fn top(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// Adds the imports of one file.
fn collect(
    path: &str,
    file: &str,
    text: &str,
    modules: &BTreeSet<String>,
    exported: &BTreeMap<String, String>,
    imports: &mut Imports,
) {
    let own = top(file);
    let is_test = file.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "testing.rs");
    if is_test || matches!(own, "lib" | "main") {
        return;
    }
    // `super` leads from `a.rs` and `a/mod.rs` to the root, from `a/b.rs` to `a`.
    let depth = file.split('/').filter(|part| *part != "mod.rs").count();
    let code = without_tests(text);
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            let before = code[..at].trim_end();
            let is_part = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if is_part || before.ends_with("(in") {
                continue;
            }
            let line = 1 + code[..at].matches('\n').count();
            for name in first_names(&code[at + root.len()..]) {
                let module = if modules.contains(name) { Some(name) } else { exported.get(name).map(String::as_str) };
                if let Some(module) = module.filter(|module| *module != own) {
                    let found = imports.entry(own.to_owned()).or_default();
                    found.entry(module.to_owned()).or_insert_with(|| format!("{path}:{line}"));
                }
            }
        }
    }
}

/// Returns the first name of each path in what follows `crate::`: one path, or a list in braces.
fn first_names(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let mut depth = 0_u32;
    let mut names = Vec::new();
    let mut begin = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(word(list[begin..at].trim_start()));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// Returns the word at the start of a text.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

/// Returns the names that a crate's root imports, each with its module.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for import in root.split("use ").skip(1) {
        let import = import.split(';').next().unwrap_or(import);
        let Some((module, names)) = import.split_once("::") else { continue };
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        exports.extend(names.map(|name| (name.to_owned(), module.trim().to_owned())));
    }
    exports
}

/// Returns code without comments, literals and inline modules of tests. Lines stay the same.
fn without_tests(text: &str) -> String {
    let mut code = source::code_only(text);
    for item in source::test_items(&code) {
        let blank: String = code[item.clone()].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        code.replace_range(item, &blank);
    }
    code
}

/// Returns a shortest circle through each module that is in one; each circle once.
fn circles(imports: &Imports) -> Vec<String> {
    let mut known: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    let mut found = Vec::new();
    for start in imports.keys() {
        let Some(circle) = shortest(imports, start) else { continue };
        if known.insert(circle.iter().copied().collect()) {
            let place = |from: &str, to: &str| imports.get(from).and_then(|all| all.get(to)).cloned();
            let next = circle.iter().cycle().skip(1);
            let steps = circle
                .iter()
                .zip(next)
                .map(|(from, to)| format!("{from} imports {to} ({})", place(from, to).unwrap_or_default()));
            found.push(steps.collect::<Vec<_>>().join(", "));
        }
    }
    found
}

/// Returns the modules of a shortest circle that begins at `start`.
fn shortest<'a>(imports: &'a Imports, start: &'a str) -> Option<Vec<&'a str>> {
    let mut paths = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for path in paths {
            let last = *path.last()?;
            for next in imports.get(last).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(path);
                }
                if seen.insert(next) {
                    longer.push([&path[..], &[next]].concat());
                }
            }
        }
        paths = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |&(path, text): &(&str, &str)| (format!("crates/x/src/{path}"), text.to_owned());
        let found = check(&files.iter().map(file).collect());
        found.into_iter().filter(|violation| violation.contains("circle:")).collect()
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let one = ("a.rs", "use crate::b::B;");
        for (path, text) in [
            ("b.rs", "use crate::a::A;"),
            ("b/mod.rs", "use super::a::A;"),
            ("b/c.rs", "use super::super::a::A;"),
            ("b/c/d.rs", "fn f() -> crate::a::A {}"),
            ("b.rs", "use crate::{\n    c::{self, C},\n    a,\n};"),
            ("b.rs", "use crate::A;"),
        ] {
            let circles = found(&[("lib.rs", "mod a;\npub use a::{A, Other};"), one, (path, text)]);
            assert!(circles.len() == 1 && circles[0].contains("a imports b (crates/x/src/a.rs:1)"), "{circles:?}");
        }
    }

    #[test]
    fn a_circle_of_three_is_found_once() {
        let circles = found(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "\nuse crate::a;")]);
        assert!(circles.len() == 1 && circles[0].contains("c imports a (crates/x/src/c.rs:2)"), "{circles:?}");
    }

    #[test]
    fn tests_comments_and_visibility_are_no_imports() {
        for text in [
            "// use crate::a;",
            "const A: &str = \"crate::a\";",
            "pub(in crate::a) fn f() {}",
            "#[cfg(test)]\nmod tests {\n    use crate::a;\n    fn f() { if x { } }\n}",
            "#[cfg(test)]\nuse crate::a;",
            "use crate::c;",
            "use super::a;",
        ] {
            let path = if text.contains("super") { "b/c.rs" } else { "b.rs" };
            assert_eq!(found(&[("a.rs", "use crate::b;"), (path, text)]), [""; 0], "{text}");
        }
        let after = "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse crate::a;";
        assert_eq!(found(&[("a.rs", "use crate::b;"), ("b.rs", after)]).len(), 1);
        assert_eq!(found(&[("a.rs", "use crate::b;"), ("b/tests.rs", "use crate::a;")]), [""; 0]);
    }
}
