//! The record of a proof, as one line of a file from which figures are generated.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The record of a proof.
#[derive(Clone, Debug)]
pub struct ProofRecord {
    /// Which proof.
    pub proof: &'static str,
    /// How many trials of its kind.
    pub count: u64,
    /// Where its numbers came from.
    pub seed: u64,
    /// How long it took.
    pub took: Duration,
    /// How many promises were broken.
    pub violations: usize,
    /// Further counts.
    pub more: Value,
}

impl ProofRecord {
    /// Adds a line to the results.
    pub fn append(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("could not make {}", folder.display()))?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{}\n", self.line()).as_bytes())?;
        Ok(())
    }

    /// The line.
    pub fn line(&self) -> Value {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "proof": self.proof,
            "count": self.count,
            "seed": self.seed,
            "seconds": (self.took.as_secs_f64() * 10.0).round() / 10.0,
            "violations": self.violations,
            "more": self.more,
            "version": env!("CARGO_PKG_VERSION"),
            "commit": commit(),
            "at": at.as_secs(),
        })
    }
}

/// The commit that was proven, `+` if the checkout has changes; nothing outside a checkout.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}+") })
}
