//! The accepted definitions of tools, in a file beside `windlass.toml`: a person has seen each of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of the file.
const FILE: &str = "windlass.mcp.json";

/// The accepted definitions of the tools of each server, by their names there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct McpPins {
    /// By the server's name.
    #[serde(default)]
    pub servers: BTreeMap<String, BTreeMap<String, Value>>,
}

impl McpPins {
    /// The file beside this `windlass.toml`.
    pub fn beside(config: &Path) -> PathBuf {
        config.with_file_name(FILE)
    }

    /// Reads the file; there are none without it. An error says what is wrong with it.
    pub fn read(file: &Path) -> Result<McpPins, String> {
        match std::fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                format!("{} cannot be used, so no MCP tool is offered: {error}", file.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(McpPins::default()),
            Err(error) => {
                Err(format!("{} cannot be read, so no MCP tool is offered: {error}", file.display()))
            }
        }
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut written = tempfile::NamedTempFile::new_in(folder)?;
        // Readable: one line per field shows in a review what has changed.
        serde_json::to_writer_pretty(&mut written, self)?;
        written.write_all(b"\n")?;
        written.as_file().sync_all()?;
        written.persist(file)?;
        Ok(())
    }

    /// The accepted tools of a server.
    pub fn of(&self, server: &str) -> BTreeMap<String, Value> {
        self.servers.get(server).cloned().unwrap_or_default()
    }
}

/// When the file was last written.
pub(super) fn written_at(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|file| file.modified()).ok()
}
