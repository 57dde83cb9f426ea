//! The sandbox of a command: `"strict"`, or a table of what it may reach and use beyond that.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use super::rules::number;
use crate::sandbox::SandboxProfile;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// The table as written; its keys are checked before.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SandboxTable {
    network: bool,
    read: Vec<String>,
    write: Vec<String>,
    cpu_ms: Option<Spanned<i64>>,
    memory_bytes: Option<Spanned<i64>>,
    processes: Option<Spanned<i64>>,
    file_bytes: Option<Spanned<i64>>,
}

/// Parses the value of `key`. Paths are relative to the folder of the file.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    key: &str,
    value: Spanned<DeValue<'_>>,
) -> Result<SandboxProfile, ConfigError> {
    if let Some(name) = value.get_ref().as_str() {
        return match name {
            "strict" => Ok(SandboxProfile::default()),
            _ => Err(source.value_error(
                value.span(),
                format!("`{key}` is \"strict\", or a table like {{ network = true }}, and not {name:?}"),
            )),
        };
    }
    keys::check_sandbox(source, source.table(&value, key)?)?;
    let table =
        SandboxTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let strict = SandboxProfile::default();
    let folder = source.folder()?;
    let limit = |key: &str, given: Option<&Spanned<i64>>, default: u64, most: i64, hint: &str| {
        Ok(number(source, key, given, 1..=most, hint)?.unwrap_or(default))
    };
    Ok(SandboxProfile {
        network: table.network,
        read: paths(&folder, table.read),
        write: paths(&folder, table.write),
        cpu_ms: limit("cpu_ms", table.cpu_ms.as_ref(), strict.cpu_ms, DAY_MS, "milliseconds")?,
        memory_bytes: limit(
            "memory_bytes",
            table.memory_bytes.as_ref(),
            strict.memory_bytes,
            i64::MAX,
            "bytes",
        )?,
        processes: limit("processes", table.processes.as_ref(), strict.processes, TASKS_MAX, "processes")?,
        file_bytes: limit("file_bytes", table.file_bytes.as_ref(), strict.file_bytes, i64::MAX, "bytes")?,
    })
}

/// Parses the sandbox of a tool, which must be a command.
pub(super) fn of_tool(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
    is_client: bool,
) -> Result<SandboxProfile, ConfigError> {
    if is_client {
        let message = "`sandbox` is for commands: the caller runs this tool, wherever it likes; remove it";
        return Err(source.value_error(value.span(), message));
    }
    read(source, "sandbox", value)
}

/// A day of one processor; a larger value means that there is no limit to think of.
const DAY_MS: i64 = 86_400_000;
/// More than the kernel has numbers for.
const TASKS_MAX: i64 = 1 << 22;

fn paths(folder: &Path, given: Vec<String>) -> Vec<PathBuf> {
    given.into_iter().map(|path| folder.join(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn profile(text: &str) -> Result<SandboxProfile, String> {
        let source = DeclarationSource { text, file: Path::new("/etc/windlass/windlass.toml") };
        let mut root = DeTable::parse(text).expect("TOML").into_inner();
        read(&source, "sandbox", root.remove("sandbox").expect("a value")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_strict() {
        let strict = SandboxProfile::default();
        assert!(!strict.network && strict.read.is_empty() && strict.write.is_empty());
        assert_eq!(profile("sandbox = 'strict'"), Ok(strict.clone()));
        assert_eq!(profile("sandbox = {}"), Ok(strict.clone()));
        let given = profile("sandbox = { network = true, read = ['a', '/b'], processes = 7 }");
        let read = vec!["/etc/windlass/a".into(), "/b".into()];
        assert_eq!(given, Ok(SandboxProfile { network: true, read, processes: 7, ..strict }));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, told) in [
            ("sandbox = 'loose'", "\"strict\""),
            ("sandbox = true", "must be a table"),
            ("sandbox = { netwerk = true }", "did you mean `network`?"),
            ("sandbox = { memory_bytes = 0 }", "must be 1 to"),
            ("sandbox = { network = 'yes' }", "boolean"),
        ] {
            let error = profile(text).expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
