//! Folders that sessions may be opened with.

use std::path::{Component, Path, PathBuf};

/// The folder as it is recorded, if the host allows it: absolute, without links.
pub(crate) fn allowed_folder(allowed: &[PathBuf], folder: &Path) -> Result<String, String> {
    if !folder.is_absolute() {
        return Err(format!("the folder {} is not absolute; give its whole path", folder.display()));
    }
    let real = folder.canonicalize().map_err(|error| {
        format!("the folder {} cannot be used: {error}; create it first", folder.display())
    })?;
    if !real.is_dir() {
        return Err(format!("{} is no folder; name one", folder.display()));
    }
    match (above(allowed, &real), real.to_str()) {
        (Some(_), Some(real)) => Ok(real.to_string()),
        (Some(_), None) => Err(format!("the path of {} is no UTF-8; rename it", folder.display())),
        (None, _) => Err(not_allowed(folder)),
    }
}

/// The reason why a session has no files.
pub(crate) fn not_allowed(folder: &Path) -> String {
    format!(
        "the folder {} lies in none of the folders that sessions may be opened with; add one of them to `allow` in [files] of \
         windlass.toml, or to `folders` of the runtime's configuration",
        folder.display()
    )
}

/// The allowed folder that holds this one, without links, and the parts of the way from there.
pub(crate) fn above(allowed: &[PathBuf], real: &Path) -> Option<(PathBuf, Vec<String>)> {
    allowed.iter().find_map(|allowed| {
        let allowed = allowed.canonicalize().ok()?;
        let below = real.strip_prefix(&allowed).ok()?.components().map(|part| match part {
            Component::Normal(part) => part.to_str().map(str::to_string),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        });
        let below: Option<Vec<String>> = below.collect();
        Some((allowed, below?))
    })
}
