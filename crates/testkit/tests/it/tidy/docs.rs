//! Rules about what people read: pages that exist, codes and limits that are all explained, nothing of one machine.

use super::{Problems, files, root, text};
use std::fmt::Write;
use windlass::Limits;
use windlass_args::limits::NamedLimit;
use windlass_core::code::Code;

/// The pages somebody who is new looks for.
const PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Top folders that every Linux has; `v1` begins the routes of the API, `ui` and `assets` those of the dashboard.
const USUAL_FOLDERS: [&str; 19] = [
    "ui", "assets", "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "run", "sbin",
    "srv", "sys", "tmp", "usr", "v1",
];

/// Sites that anybody can read, and that pages and schemas refer to.
const PUBLIC_SITES: [&str; 7] = [
    "json-schema.org",
    "github.com",
    "www.rfc-editor.org",
    "www.w3.org",
    "nexte.st",
    "www.apache.org",
    "169.254.169.254",
];

fn pages(files: &[String], problems: &mut Problems) {
    for page in PAGES {
        if !files.iter().any(|path| path == page) {
            problems.add(page, "is missing: write it");
        }
    }
}

fn codes(page: &str, codes: &[&str], problems: &mut Problems) {
    let sections: Vec<(&str, &str)> =
        page.split("\n### `").skip(1).filter_map(|section| section.split_once('`')).collect();
    for code in codes {
        let explained = sections.iter().find(|(name, _)| name == code).map(|(_, rest)| {
            let body = rest.split("\n#").next().unwrap_or_default();
            !body.trim().is_empty()
        });
        match explained {
            None => problems.add("docs/codes.md", format!("add a section ### `{code}` with a paragraph")),
            Some(false) => problems.add("docs/codes.md", format!("### `{code}` has no paragraph: write one")),
            Some(true) => {}
        }
    }
    for (name, _) in &sections {
        if !codes.contains(name) {
            problems.add("docs/codes.md", format!("there is no code `{name}`: remove its section"));
        }
    }
}

/// The page of limits, from the table that joins those of all crates.
fn limits_page() -> String {
    let mut page = String::from(
        "# Limits\n\n\
         Every queue, buffer, page, text and count has a named maximum with a reason. Each may be set in `windlass.toml`\n\
         under `[limits]`.\n\n\
         <!-- Written by `UPDATE=1 cargo test -p windlass-testkit --test it every_limit`; change the `limits` of the crate. -->\n\n\
         | limit | default | why |\n|---|---:|---|\n",
    );
    for NamedLimit { name, value, reason } in Limits::default().table() {
        let value = if name.contains("bytes") { bytes(value) } else { value.to_string() };
        writeln!(page, "| `{name}` | {value} | {reason} |").expect("a string takes what is written");
    }
    page
}

/// Endings by which the name of a limit is known.
const LIMIT_ENDINGS: [&str; 5] = ["_max", "_min", "_ms", "_page", "_bytes"];

/// Names with such an ending that are no limits: fields of calls and events, settings of tools and queries.
const OTHER_NAMES: [&str; 17] = [
    "timeout_ms",
    "queued_ms",
    "waited_ms",
    "ran_ms",
    "after_ms",
    "args_bytes",
    "value_bytes",
    // Of a tool in `windlass.toml`.
    "silence_ms",
    "base_ms",
    "cap_ms",
    "for_ms",
    "expires_ms",
    "running_max",
    "retry_after_ms",
    // Of a sandbox.
    "cpu_ms",
    "file_bytes",
    "memory_bytes",
];

/// Every name that looks like a limit is one.
fn named_limits(path: &str, page: &str, limits: &[&str], problems: &mut Problems) {
    for (index, line) in page.lines().enumerate() {
        // Every second piece stands between backticks.
        for name in line.split('`').skip(1).step_by(2) {
            let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let looks_like_one = is_name && LIMIT_ENDINGS.iter().any(|ending| name.ends_with(ending));
            if looks_like_one && !limits.contains(&name) && !OTHER_NAMES.contains(&name) {
                let place = format!("{path}:{}", index + 1);
                problems.add(place, format!("there is no limit `{name}`: name one of docs/limits.md"));
            }
        }
    }
}

fn bytes(value: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| value >= 1 << shift && value.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", value >> shift),
        None => format!("{value} B"),
    }
}

/// Nothing of the machine on which it was written: none of its folders (`own`, as far as they are known), on pages no absolute path but
/// the usual ones, and no host that is neither an example, nor local, nor a public site.
fn machines(path: &str, text: &str, own: &[String], problems: &mut Problems) {
    let is_page =
        [".md", ".toml", ".sh", ".py"].iter().any(|end| path.ends_with(end)) || path.starts_with(".ci/");
    for (index, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", index + 1);
        for folder in own.iter().filter(|folder| line.contains(folder.as_str())) {
            problems.add(&place, format!("`{folder}` is a folder of this machine: use a relative path"));
        }
        let has_paths = is_page && !line.contains("JSON pointer");
        for folder in top_folders(line).filter(|folder| has_paths && !USUAL_FOLDERS.contains(folder)) {
            problems.add(&place, format!("`/{folder}/` is a folder of one machine: use a relative path"));
        }
        for host in hosts(line).filter(|host| !is_anybodys(host)) {
            problems.add(&place, format!("`{host}` is a host: use one of example.com, or leave it out"));
        }
    }
}

/// The first folder of each absolute path; a relative path has none.
fn top_folders(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('/').filter_map(move |(at, _)| {
        let follows = |c: char| c.is_alphanumeric() || "_-./}]>)*~…".contains(c);
        let (folder, rest) = line[at + 1..].split_once('/')?;
        let is_name = folder.starts_with(|c: char| c.is_ascii_alphabetic())
            && folder.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let goes_on = rest.starts_with(|c: char| c.is_alphanumeric() || c == '.');
        (!line[..at].ends_with(follows) && is_name && goes_on).then_some(folder)
    })
}

/// The host of each URL.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    })
}

/// Whether a host is nobody's in particular: one name, a reserved example, an address of this machine, or a public site.
fn is_anybodys(host: &str) -> bool {
    let reserved = ["example", "example.com", "example.org", "invalid", "test"];
    let is_reserved = |end: &str| host == end || host.ends_with(&format!(".{end}"));
    !host.contains('.')
        || host.starts_with("127.")
        || PUBLIC_SITES.contains(&host)
        || reserved.into_iter().any(is_reserved)
        || host.split('.').any(|label| label == "example")
}

/// The folders of the machine that are known: the checkout, and the home of whoever runs this. One with a single name, such as
/// `/src`, would be found in what is no path.
fn own_folders() -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let checkout = root().to_string_lossy().into_owned();
    let folders = [checkout, home].into_iter().map(|folder| format!("{}/", folder.trim_end_matches('/')));
    folders.filter(|folder| folder.matches('/').count() > 2).collect()
}

#[test]
fn the_pages_are_there() {
    let mut problems = Problems::default();
    pages(&PAGES[1..].iter().map(|&page| page.to_owned()).collect::<Vec<_>>(), &mut problems);
    problems.are(&["README.md: is missing"]);

    let mut problems = Problems::default();
    pages(&files(), &mut problems);
    problems.none();
}

#[test]
fn every_code_is_explained() {
    let mut problems = Problems::default();
    codes("\n### `a`\n\nA.\n\n### `b`\n\n## C\n\n### `d`\n\nD.\n", &["a", "b", "c"], &mut problems);
    problems.are(&["### `b` has no paragraph", "add a section ### `c`", "there is no code `d`"]);

    let mut problems = Problems::default();
    let page = text("docs/codes.md").expect("docs/codes.md is text");
    codes(&page, &Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>(), &mut problems);
    problems.none();
}

#[test]
fn every_limit_is_listed() {
    let (path, page) = (root().join("docs/limits.md"), limits_page());
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &page).expect("docs/limits.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/limits.md is not what the crates declare: run \
         `UPDATE=1 cargo test -p windlass-testkit --test it every_limit`"
    );
}

#[test]
fn every_limit_that_is_named_exists() {
    let mut problems = Problems::default();
    let page = "`calls_max` and `ran_ms` `a/b_ms` a_ms\nthen `event_write_ms`";
    named_limits("a.md", page, &["calls_max"], &mut problems);
    problems.are(&["a.md:2: there is no limit `event_write_ms`"]);

    let mut problems = Problems::default();
    let table = Limits::default().table();
    let limits: Vec<&str> = table.iter().map(|limit| limit.name).collect();
    for path in files().iter().filter(|path| path.ends_with(".md") && *path != "CHANGELOG.md") {
        if let Some(page) = text(path) {
            named_limits(path, &page, &limits, &mut problems);
        }
    }
    problems.none();
}

#[test]
fn bytes_are_written_in_the_largest_whole_unit() {
    assert_eq!([bytes(2 << 30), bytes(50 << 10), bytes(1_025)], ["2 GiB", "50 KiB", "1025 B"]);
}

#[test]
fn nothing_of_one_machine() {
    let mut problems = Problems::default();
    let sample = "see crates/work/a.rs\nin /away/a/b\n`file:/etc/b`\nhttps:{}packages.somewhere.net/x\n/home/me/it\nhttps://a.example/";
    // Not written out: this file is looked at too.
    let sample = sample.replace("{}", "//");
    machines("a.md", &sample, &["/home/me/".into()], &mut problems);
    problems.are(&["a.md:2: `/away/`", "a.md:4: `packages.somewhere.net`", "a.md:5: `/home/me/`"]);

    let mut problems = Problems::default();
    let own = own_folders();
    // The lock file names where packages come from, which is public.
    for path in files().iter().filter(|path| *path != "Cargo.lock") {
        if let Some(text) = text(path) {
            machines(path, &text, &own, &mut problems);
        }
    }
    problems.none();
}
