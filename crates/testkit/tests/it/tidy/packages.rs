//! Rules about crates: who may use whom, under which licence, from where, in how many versions.
//!
//! Licences, sources and duplicates are cargo-deny's business too. This needs only `cargo metadata` and reads the
//! same `deny.toml`, so that the rules hold where cargo-deny is not installed.

use super::{Problems, root, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Which crate of ours may use which. Arrows never point back or sideways; a new crate gets a row.
const ARROWS: [(&str, &[&str]); 15] = [
    ("windlass-args", &[]),
    ("windlass-core", &["windlass-args"]),
    ("windlass-store", &["windlass-core", "windlass-args"]),
    ("windlass-macros", &[]),
    ("windlass", &["windlass-args", "windlass-core", "windlass-store", "windlass-macros"]),
    ("windlass-tools", &["windlass", "windlass-http"]),
    ("windlass-wire", &["windlass-core"]),
    ("windlass-http", &[]),
    ("windlass-models", &["windlass", "windlass-http", "windlass-wire"]),
    ("windlass-testing", &["windlass"]),
    ("windlass-mcp", &["windlass", "windlass-tools", "windlass-http"]),
    (
        "windlass-server",
        &[
            "windlass",
            "windlass-tools",
            "windlass-mcp",
            "windlass-wire",
            "windlass-http",
            "windlass-core",
            "windlass-args",
        ],
    ),
    (
        "windlass-cli",
        &[
            "windlass",
            "windlass-tools",
            "windlass-mcp",
            "windlass-server",
            "windlass-bench",
            "windlass-core",
            "windlass-args",
        ],
    ),
    ("windlass-bench", &["windlass", "windlass-http", "windlass-tools", "windlass-mcp", "windlass-server"]),
    ("windlass-testkit", &["windlass", "windlass-store", "windlass-core", "windlass-args"]),
];

/// The crates that tests may use beyond their crate's own arrows.
const TESTS_ONLY: [(&str, &[&str]); 0] = [];

const TESTKIT: &str = "windlass-testkit";

/// Crates without IO, clock and randomness.
const PURE: [&str; 2] = ["windlass-args", "windlass-core"];

/// Dependencies that a pure crate must not name: threads of control, the outside world, the clock, chance.
const NOT_IN_PURE: [&str; 14] = [
    "async-std",
    "chrono",
    "futures",
    "getrandom",
    "hyper",
    "mio",
    "rand",
    "reqwest",
    "rusqlite",
    "rustix",
    "smol",
    "tokio",
    "ureq",
    "uuid",
];

/// Packages that a pure crate must not even reach through others. (A schema library may have `getrandom` for its hash maps.)
const NOT_BELOW_PURE: [&str; 7] = ["hyper", "libsqlite3-sys", "mio", "reqwest", "rusqlite", "tokio", "ureq"];

/// `cargo metadata` of the workspace with every feature, as `deny.toml` says; asked once per process.
fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        // A fresh checkout has fetched only what its own platform builds: then ask the registry, and where there is
        // no network, look at that platform only.
        let host = Command::new("rustc").arg("--print=host-tuple").output().expect("rustc runs").stdout;
        let host = String::from_utf8_lossy(&host).trim().to_owned();
        let ways: [&[&str]; 3] = [&["--offline"], &[], &["--offline", "--filter-platform", &host]];
        let mut refused = String::new();
        for way in ways {
            let output = Command::new(env!("CARGO"))
                .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
                .args(way)
                .current_dir(root())
                .output()
                .expect("cargo runs");
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
            }
            refused.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        panic!("cargo metadata failed in every way:\n{refused}");
    })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The crates of the workspace.
fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let members = list(metadata, "workspace_members");
    list(metadata, "packages").iter().filter(move |package| members.contains(&package["id"]))
}

fn arrows(metadata: &Value, problems: &mut Problems) {
    let ours: BTreeSet<&str> = members(metadata).map(|package| string(package, "name")).collect();
    for package in members(metadata) {
        let name = string(package, "name");
        let place = format!("Cargo.toml of {name}");
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            problems.add(place, "a new crate: add its row to ARROWS in tidy, and to ARCHITECTURE.md");
            continue;
        };
        let tests_only = TESTS_ONLY.iter().find(|(from, _)| *from == name).map_or(&[][..], |(_, to)| to);
        for dependency in list(package, "dependencies") {
            let (to, kind) = (string(dependency, "name"), string(dependency, "kind"));
            let in_tests = kind == "dev" && (to == TESTKIT || tests_only.contains(&to));
            if !ours.contains(to) || to == name || allowed.contains(&to) || in_tests {
                continue;
            }
            let advice =
                if to == TESTKIT { "make it a dev-dependency" } else { "an arrow must not point there" };
            problems.add(&place, format!("uses {to}: {advice}; it may use {allowed:?}"));
        }
    }
}

fn is_pure(crate_name: &str, metadata: &Value, problems: &mut Problems) {
    let place = format!("Cargo.toml of {crate_name}");
    let Some(pure) = members(metadata).find(|package| package["name"] == crate_name) else {
        problems.add("Cargo.toml", format!("there is no {crate_name}"));
        return;
    };
    for dependency in list(pure, "dependencies").iter().filter(|dependency| dependency["kind"] != "dev") {
        let name = string(dependency, "name");
        if NOT_IN_PURE.contains(&name) {
            problems.add(&place, format!("uses {name}: {crate_name} does no IO; move it outwards"));
        }
    }
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes").iter().map(|node| (string(node, "id"), node)).collect();
    let names: BTreeMap<&str, &str> =
        list(metadata, "packages").iter().map(|p| (string(p, "id"), string(p, "name"))).collect();
    let (mut seen, mut open) = (BTreeSet::new(), vec![(string(pure, "id"), crate_name.to_owned())]);
    while let Some((id, path)) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        if names.get(id).is_some_and(|name| NOT_BELOW_PURE.contains(name)) {
            problems.add(&place, format!("reaches {path}: switch off the feature that does"));
        }
        for to in nodes.get(id).map_or(&[][..], |node| list(node, "deps")) {
            if list(to, "dep_kinds").iter().any(|kind| kind["kind"].is_null()) {
                let id = string(to, "pkg");
                open.push((id, format!("{path} → {}", names.get(id).unwrap_or(&id))));
            }
        }
    }
}

/// The content of `deny.toml`. Read line by line, as that file says, so that tidy needs no TOML parser.
#[derive(Default)]
struct Deny {
    licences: Vec<String>,
    /// Crate and version of which another version may exist.
    skipped: Vec<(String, String)>,
}

impl Deny {
    fn read(text: &str) -> Deny {
        let mut deny = Deny::default();
        let (mut section, mut inside) = ("", "");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if line.starts_with('[') {
                section = line;
            } else if let Some((key, "[")) = line.split_once(" = ") {
                inside = key;
            } else if line.starts_with(']') {
                inside = "";
            } else if let Some(first) = line.split('"').nth(1) {
                match (section, inside) {
                    ("[licenses]", "allow") => deny.licences.push(first.to_owned()),
                    ("[bans]", "skip") => {
                        let (name, version) = first.split_once(":^").unwrap_or((first, ""));
                        deny.skipped.push((name.to_owned(), version.to_owned()));
                    }
                    _ => {}
                }
            }
        }
        deny
    }
}

/// Whether an SPDX expression can be met with what is allowed. `/` is an old way to write `OR`.
fn licence_met(expression: &str, allowed: &mut impl FnMut(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any_of(&mut words, allowed);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &mut impl FnMut(&str) -> bool) -> bool {
    let mut met = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut Words<'_>, allowed: &mut impl FnMut(&str) -> bool) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &mut impl FnMut(&str) -> bool) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = any_of(words, allowed);
        return words.next_if_eq(&")").is_some() && met;
    }
    let mut name = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next().unwrap_or_default());
    }
    allowed(&name)
}

fn licences(metadata: &Value, deny: &Deny, problems: &mut Problems) {
    let mut used = BTreeSet::new();
    for package in list(metadata, "packages") {
        let expression = string(package, "license");
        let mut allowed = |name: &str| {
            used.insert(name.to_owned());
            deny.licences.iter().any(|licence| licence == name)
        };
        if !licence_met(expression, &mut allowed) {
            problems.add(
                format!("{} {}", string(package, "name"), string(package, "version")),
                format!("licence {expression:?} is not met by deny.toml: do without it, or allow it there"),
            );
        }
    }
    for licence in deny.licences.iter().filter(|licence| !used.contains(*licence)) {
        problems.add("deny.toml", format!("nothing is under {licence}: remove it"));
    }
}

fn sources(metadata: &Value, problems: &mut Problems) {
    let root = string(metadata, "workspace_root");
    for package in list(metadata, "packages") {
        let name = string(package, "name");
        let at_home = package["source"].is_null() && string(package, "manifest_path").starts_with(root);
        if !at_home && package["source"] != CRATES_IO {
            let source = package["source"].as_str().unwrap_or("a folder outside the workspace");
            problems.add(name, format!("comes from {source}: take it from crates.io"));
        }
    }
    for package in members(metadata) {
        for dependency in
            list(package, "dependencies").iter().filter(|d| d["path"].is_null() && d["req"] == "*")
        {
            let place = format!("Cargo.toml of {}", string(package, "name"));
            problems.add(place, format!("any version of {}: say which", string(dependency, "name")));
        }
    }
}

fn duplicates(metadata: &Value, deny: &Deny, problems: &mut Problems) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in list(metadata, "packages") {
        versions.entry(string(package, "name")).or_default().insert(string(package, "version"));
    }
    let matches = |skip: &(String, String), name: &str, version: &str| {
        skip.0 == name && version.strip_prefix(&skip.1).is_some_and(|rest| rest.starts_with('.'))
    };
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let counted =
            versions.iter().filter(|version| !deny.skipped.iter().any(|skip| matches(skip, name, version)));
        if counted.count() > 1 {
            problems.add(
                name,
                format!("is there as {versions:?}: bring them together, or skip one in deny.toml"),
            );
        }
    }
    for skip in &deny.skipped {
        let needed = versions
            .get(skip.0.as_str())
            .is_some_and(|versions| versions.len() > 1 && versions.iter().any(|v| matches(skip, &skip.0, v)));
        if !needed {
            problems
                .add("deny.toml", format!("`{}:^{}` is no duplicate any more: remove it", skip.0, skip.1));
        }
    }
}

fn deny() -> Deny {
    Deny::read(&text("deny.toml").expect("deny.toml is text"))
}

/// A workspace on paper: `name [dev] uses name` for each pair.
fn paper(arrows: &[(&str, &str, Option<&str>)]) -> Value {
    let names: BTreeSet<&str> = arrows.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    let uses = |name: &str| -> Vec<Value> {
        let of = arrows.iter().filter(|(from, ..)| *from == name);
        of.map(|(_, to, kind)| serde_json::json!({ "name": to, "kind": kind })).collect()
    };
    let packages: Vec<Value> = names
        .iter()
        .map(|name| serde_json::json!({ "id": name, "name": name, "dependencies": uses(name) }))
        .collect();
    let nodes: Vec<Value> = names
        .iter()
        .map(|name| {
            let of = arrows.iter().filter(|(from, ..)| from == name);
            let deps =
                of.map(|(_, to, kind)| serde_json::json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] }));
            serde_json::json!({ "id": name, "deps": deps.collect::<Vec<_>>() })
        })
        .collect();
    serde_json::json!({ "workspace_members": names, "packages": packages, "resolve": { "nodes": nodes } })
}

#[track_caller]
fn sample(rule: impl Fn(&mut Problems), expected: &[&str]) {
    let mut problems = Problems::default();
    rule(&mut problems);
    problems.are(expected);
}

#[test]
fn arrows_point_inwards() {
    let check = |on_paper: &[(&str, &str, Option<&str>)], expected: &[&str]| {
        sample(|problems| arrows(&paper(on_paper), problems), expected);
    };
    check(&[("windlass", "windlass-store", None), ("windlass", TESTKIT, Some("dev"))], &[]);
    check(&[("windlass-store", "windlass", None)], &["windlass-store: uses windlass: an arrow must not"]);
    check(&[("windlass-core", "windlass-store", Some("dev"))], &["uses windlass-store"]);
    check(&[("windlass", TESTKIT, None)], &["make it a dev-dependency"]);
    check(&[("windlass-new", "windlass", None)], &["windlass-new: a new crate"]);

    let mut problems = Problems::default();
    arrows(metadata(), &mut problems);
    for package in members(metadata()).filter(|package| package["name"] == TESTKIT) {
        if package["publish"] != serde_json::json!([]) {
            problems.add("crates/testkit/Cargo.toml", "the testkit is never published: `publish = false`");
        }
    }
    problems.none();
}

#[test]
fn args_and_core_do_no_io() {
    let check = |name: &str, on_paper: &[(&str, &str, Option<&str>)], expected: &[&str]| {
        sample(|problems| is_pure(name, &paper(on_paper), problems), expected);
    };
    check("windlass-core", &[("windlass-core", "tokio", Some("dev"))], &[]);
    check("windlass-args", &[("windlass-args", "jsonschema", None), ("jsonschema", "getrandom", None)], &[]);
    check("windlass-core", &[("windlass-core", "getrandom", None)], &["uses getrandom"]);
    check(
        "windlass-args",
        &[("windlass-args", "tokio", None)],
        &["uses tokio", "reaches windlass-args → tokio"],
    );
    check(
        "windlass-core",
        &[
            ("windlass-core", "windlass-args", None),
            ("windlass-args", "jsonschema", None),
            ("jsonschema", "reqwest", None),
        ],
        &["reaches windlass-core → windlass-args → jsonschema → reqwest"],
    );
    check("windlass-args", &[("windlass-core", "tokio", None)], &["there is no windlass-args"]);

    let mut problems = Problems::default();
    PURE.into_iter().for_each(|name| is_pure(name, metadata(), &mut problems));
    problems.none();
}

#[test]
fn every_crate_is_under_the_lints_of_the_workspace() {
    let mut problems = Problems::default();
    for package in members(metadata()) {
        let manifest =
            std::fs::read_to_string(string(package, "manifest_path")).expect("a manifest can be read");
        if !manifest.contains("[lints]\nworkspace = true") {
            problems.add(
                format!("Cargo.toml of {}", string(package, "name")),
                "add `[lints]` `workspace = true`",
            );
        }
    }
    problems.none();
}

#[test]
fn licences_are_allowed() {
    let check = |expression: &str, expected: bool| {
        let mut allowed = |name: &str| ["MIT", "Zlib", "A WITH x"].contains(&name);
        assert_eq!(licence_met(expression, &mut allowed), expected, "{expression}");
    };
    check("MIT", true);
    check("GPL-3.0 OR MIT", true);
    check("GPL-3.0/MIT", true);
    check("MIT AND GPL-3.0", false);
    check("(GPL-3.0 OR MIT) AND Zlib", true);
    check("A WITH x AND (MIT)", true);
    check("A", false);
    check("(MIT", false);
    check("", false);

    let deny_sample = Deny { licences: vec!["MIT".into(), "ISC".into()], skipped: Vec::new() };
    let sampled = serde_json::json!({ "packages": [
        { "name": "a", "version": "1.0.0", "license": "MIT" },
        { "name": "b", "version": "1.0.0", "license": "GPL-3.0" },
    ] });
    sample(
        |problems| licences(&sampled, &deny_sample, problems),
        &["b 1.0.0: licence \"GPL-3.0\" is not met", "nothing is under ISC"],
    );

    let (deny, mut problems) = (deny(), Problems::default());
    assert!(!deny.licences.is_empty(), "deny.toml allows nothing: tidy could not read it");
    licences(metadata(), &deny, &mut problems);
    problems.none();
    println!(
        "licences of {} packages checked over cargo metadata, against {:?} of deny.toml",
        list(metadata(), "packages").len(),
        deny.licences
    );
}

#[test]
fn packages_come_from_crates_io() {
    let sampled = serde_json::json!({ "workspace_root": "/home/w", "workspace_members": ["a"], "packages": [
        { "id": "a", "name": "a", "source": null, "manifest_path": "/home/w/a/Cargo.toml",
          "dependencies": [{ "name": "b", "req": "*", "path": null }] },
        { "name": "b", "source": CRATES_IO },
        { "name": "c", "source": "git+https://example.org/c" },
        { "name": "d", "source": null, "manifest_path": "/home/d/Cargo.toml" },
    ] });
    sample(
        |problems| sources(&sampled, problems),
        &["c: comes from git+https", "d: comes from a folder outside", "Cargo.toml of a: any version of b"],
    );

    let mut problems = Problems::default();
    sources(metadata(), &mut problems);
    problems.none();
    println!("sources of {} packages checked over cargo metadata", list(metadata(), "packages").len());
}

#[test]
fn one_version_of_each_package() {
    let sampled = serde_json::json!({ "packages": [
        { "name": "a", "version": "1.0.0" }, { "name": "a", "version": "2.1.0" },
        { "name": "b", "version": "0.3.0" }, { "name": "b", "version": "0.4.0" },
        { "name": "c", "version": "1.0.0" },
    ] });
    let deny_sample = Deny {
        licences: Vec::new(),
        skipped: vec![("b".into(), "0.3".into()), ("c".into(), "1".into()), ("b".into(), "0.2".into())],
    };
    sample(
        |problems| duplicates(&sampled, &deny_sample, problems),
        &["a: is there as", "`c:^1` is no duplicate", "`b:^0.2` is no duplicate"],
    );

    let mut problems = Problems::default();
    duplicates(metadata(), &deny(), &mut problems);
    problems.none();
}
