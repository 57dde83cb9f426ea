//! One digest of the contracts of all tools, by which workers of a store see whether they have the same ones.

use super::Registry;

impl Registry {
    /// The digest, shortened. Tools that their provider has not loaded count by their names.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for listed in self.list() {
            hasher.update(listed.summary.name.as_bytes()).update(b"\0");
            if let Some(tool) = &listed.tool {
                hasher.update(&tool.contract.0);
            }
        }
        hasher.finalize().to_hex()[..DIGEST_CHARS].to_string()
    }
}

/// As much as tells the tools of workers apart.
const DIGEST_CHARS: usize = 16;
