//! The programs of the rigs, built with the features that are asked for.

use super::trial::Programs;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// How the programs are built.
#[derive(Clone, Debug)]
pub struct Build {
    /// Where cargo builds.
    pub target: PathBuf,
    /// Features of the testkit.
    pub features: Vec<String>,
    /// Whether with optimisations.
    pub release: bool,
}

impl Build {
    /// As this program was built, without features.
    pub fn like_this_program() -> Result<Build> {
        let own = std::env::current_exe().context("this program has no place")?;
        let folder = own.ancestors().find(|folder| folder.ends_with("release") || folder.ends_with("debug"));
        let folder = folder.context("cargo did not build this program")?;
        let target = folder.parent().context("cargo did not build this program")?.to_owned();
        Ok(Build { target, features: Vec::new(), release: folder.ends_with("release") })
    }

    /// This build with kill points. Its worker has another name, so that the plain one stays as it is.
    pub fn with_points(self) -> Build {
        Build { features: vec!["kill-points".to_owned()], ..self }
    }

    /// This build with kill points, and rules that can be broken.
    pub fn with_mutants(self) -> Build {
        Build { features: vec!["mutants".to_owned()], ..self }
    }

    /// Builds worker and ledger.
    pub fn programs(&self) -> Result<Programs> {
        let worker = if self.features.is_empty() { "windlass-worker" } else { "windlass-worker-points" };
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--package=windlass-testkit"]);
        build.args(["--bin", worker, "--bin=windlass-ledger"]);
        build.arg("--target-dir").arg(&self.target);
        if self.release {
            build.arg("--release");
        }
        if !self.features.is_empty() {
            build.arg("--features").arg(self.features.join(","));
        }
        if !build.status().context("cargo cannot be started")?.success() {
            bail!("worker and ledger could not be built with {:?}", self.features);
        }
        let folder = self.target.join(if self.release { "release" } else { "debug" });
        Ok(Programs { worker: folder.join(worker), ledger: folder.join("windlass-ledger"), mutant: None })
    }
}

/// Cargo, in this crate's folder.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}
