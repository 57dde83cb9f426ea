//! Mistakes with `#[tool]`: the compiler's errors say what to write instead.
//!
//! Each file in `tests/mistakes` begins with the texts that its errors must have. They are compiled by `rustc` against the library
//! that this test was built with, which takes less than a second each; a crate of its own for each would build everything anew.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the libraries that the test was built with.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// The library `windlass`, as it was built last.
fn library() -> PathBuf {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libwindlass-") && name.ends_with(".rlib")
    };
    let all = fs::read_dir(libraries()).unwrap().map(|entry| entry.unwrap().path()).filter(is_ours);
    all.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("windlass was built")
}

/// The errors of the compiler; nothing if it has none.
fn errors(file: &Path, library: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut windlass = std::ffi::OsString::from("windlass=");
    windlass.push(library);
    let mut dependency = std::ffi::OsString::from("dependency=");
    dependency.push(libraries());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "mistake", "--emit", "metadata"])
        .arg("--extern")
        .arg(windlass)
        .arg("-L")
        .arg(dependency)
        .arg("--out-dir")
        .arg(folder.path())
        .arg(file)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { String::new() } else { told }
}

#[test]
fn each_mistake_is_told_with_what_to_write_instead() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{}", files.len());
    let library = library();
    let check = |file: &PathBuf| {
        let source = fs::read_to_string(file).unwrap();
        let wanted: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("//! error: ")).collect();
        assert!(!wanted.is_empty(), "{} says no error", file.display());
        let told = errors(file, &library);
        let missing: Vec<&str> = wanted.into_iter().filter(|text| !told.contains(text)).collect();
        (!missing.is_empty()).then(|| format!("{}: {missing:?} not in\n{told}", file.display()))
    };
    let problems: Vec<String> = files.iter().filter_map(check).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
