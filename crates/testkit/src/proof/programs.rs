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

    /// This build with kill points, and rules that can be broken: one build for both. Its worker has another name, so that the
    /// plain one stays as it is.
    pub fn with_points(self) -> Build {
        Build { features: vec!["mutants".to_owned()], ..self }
    }

    /// Builds worker and ledger.
    pub fn programs(&self) -> Result<Programs> {
        let worker = if self.features.is_empty() { "windlass-worker" } else { "windlass-worker-points" };
        let folder = self.build(&["--bin", worker, "--bin=windlass-ledger", "--example=answer"])?;
        Ok(Programs { worker: folder.join(worker), ledger: folder.join("windlass-ledger"), mutant: None })
    }

    /// Builds these targets and returns the folder of programs. Of the whole workspace, and with an example among them, since that brings
    /// the dependencies of tests: so third-party crates have the features with which `.ci/build` has built them, and are not compiled again.
    pub fn build(&self, targets: &[&str]) -> Result<PathBuf> {
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--workspace"]).args(targets);
        build.arg("--target-dir").arg(&self.target);
        if self.release {
            build.arg("--release");
        }
        // As this program was built.
        let shared = cfg!(feature = "postgres").then_some("postgres");
        for feature in self.features.iter().map(String::as_str).chain(shared) {
            build.arg(format!("--features=windlass-testkit/{feature}"));
        }
        if !build.status().context("cargo cannot be started")?.success() {
            bail!("{targets:?} could not be built with {:?}", self.features);
        }
        Ok(self.target.join(if self.release { "release" } else { "debug" }))
    }
}

/// Cargo, in this crate's folder.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}
