//! `windlass backup`: a consistent copy of the data folder, made while its owner works.

use crate::args::BackupArgs;
use crate::door::At;
use crate::exit::Usage;
use crate::{database, serve, show};
use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass::store::sqlite::backup::{
    BackupOptions, BackupPhase, BackupProgress, BackupSummary, backup as copy,
};
use windlass::time::wall_time;

pub async fn backup(at: &At, args: BackupArgs) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    if database::find(at)?.is_some() {
        let told = "a shared database is backed up with the tools of PostgreSQL, such as pg_dump, and the folder of files with your own";
        return Err(Usage(told.to_string()).into());
    }
    let began = Instant::now();
    let options = BackupOptions { folder: at.data.clone(), target: args.dir.clone(), rate: args.rate };
    // It waits for the disk all the time.
    let copying = tokio::task::spawn_blocking(move || {
        let bar = progress_bar();
        let copied = copy(&options, &mut |progress| show_progress(&bar, progress));
        bar.finish_and_clear();
        copied
    });
    let summary = copying.await.context("the backup ended early")??;
    warn(&summary);
    let took = began.elapsed();
    if args.json {
        show::json(&shown(&summary, &args.dir, took))?;
    } else {
        show::text(&sentence(&summary, &args.dir, took))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Hidden where nobody looks.
fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {elapsed}  {msg}",
    );
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show_progress(bar: &ProgressBar, progress: BackupProgress) {
    bar.set_length(progress.total);
    bar.set_position(progress.bytes);
    bar.set_message(match progress.phase {
        BackupPhase::Database => "copying the database",
        BackupPhase::Verification => "verifying the copy",
        BackupPhase::Files => "copying files",
    });
}

/// Reports facts that a person may have to act on.
fn warn(summary: &BackupSummary) {
    let list = |paths: &[PathBuf]| {
        let paths: Vec<String> = paths.iter().map(|path| show::line(&path.to_string_lossy())).collect();
        paths.join(", ")
    };
    if !summary.changed.is_empty() {
        crate::logs::tell!(
            "warning: a program changed these files while they were copied, so their content may be mixed: {}",
            list(&summary.changed)
        );
    }
    if !summary.left_out.is_empty() {
        crate::logs::tell!("left out, because they are no files: {}", list(&summary.left_out));
    }
    if summary.rate_exceeded {
        crate::logs::tell!(
            "the rate was given up while the database was copied: the owner's write-ahead log cannot shrink before that is \
             done, and had grown by 64 MiB"
        );
    }
}

fn sentence(summary: &BackupSummary, dir: &Path, took: Duration) -> String {
    let BackupSummary { taken, sessions, entries, files, bytes, .. } = summary;
    format!(
        "{} is complete and verified: everything acknowledged before {} is in it. {sessions} sessions, {entries} journal \
         entries, {files} files, {} in {:.1} s",
        dir.display(),
        wall_time(*taken),
        HumanBytes(*bytes),
        took.as_secs_f64()
    )
}

fn shown(summary: &BackupSummary, dir: &Path, took: Duration) -> serde_json::Value {
    let paths = |paths: &[PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    };
    json!({
        "backup": dir.to_string_lossy(),
        "taken": wall_time(summary.taken),
        "sessions": summary.sessions,
        "entries": summary.entries,
        "files": summary.files,
        "bytes": summary.bytes,
        "seconds": (took.as_secs_f64() * 1_000.0).round() / 1_000.0,
        "changed": paths(&summary.changed),
        "left_out": paths(&summary.left_out),
        "rate_exceeded": summary.rate_exceeded,
    })
}
