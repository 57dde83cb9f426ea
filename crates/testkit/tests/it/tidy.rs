//! House rules as tests. Each failure says which file and line, and what to do about it.
//!
//! A rule is a function from a file (or from `cargo metadata`) to problems. Each is shown failing on a sample of
//! its own, so that a rule which sees nothing is noticed.

mod docs;
mod locks;
mod names;
mod packages;
mod public_names;
mod rooms;
mod rust;
mod signatures;
mod sources;
mod walks;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/testkit lies two folders deep").to_path_buf()
}

/// Every file of the project as git sees it, relative to the root: tracked, or new and not ignored.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output();
    let mut files: Vec<String> = match listed {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split_terminator('\0')
            .filter(|path| root().join(path).is_file())
            .map(str::to_owned)
            .collect(),
        // Without git, or outside a checkout: everything but what is built.
        _ => walked(),
    };
    files.sort();
    files.dedup();
    assert!(files.iter().any(|path| path == "Cargo.toml"), "the list of files is not that of the workspace");
    files
}

fn walked() -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the workspace can be read") {
            let path = entry.expect("an entry of the workspace can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || ["target", ".git", ".windlass", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(relative) = path.strip_prefix(root()) {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// The text of a file, or nothing if it is not text.
fn text(path: &str) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(path)).expect("a listed file can be read")).ok()
}

/// The findings of a rule, as `place: what is wrong; what to do`.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.0.push(format!("{place}: {what}"));
    }

    /// Fails the test if there are any.
    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "{} against the house rules:\n\n{}\n", self.0.len(), self.0.join("\n"));
    }

    /// Fails the test unless the rule saw what the sample was made to show.
    #[track_caller]
    fn are(&self, expected: &[&str]) {
        let found = &self.0;
        let same = found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.contains(e));
        assert!(same, "expected problems that contain\n{expected:#?}\nand found\n{found:#?}");
    }
}

#[test]
fn walking_finds_what_git_lists() {
    let (listed, walked) = (files(), walked());
    let missing: Vec<_> = listed.iter().filter(|path| !walked.contains(path)).collect();
    assert!(missing.is_empty(), "listed by git and not found by walking: {missing:?}");
}
