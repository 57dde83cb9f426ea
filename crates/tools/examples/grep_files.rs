//! `grep_files` beside ripgrep itself, on one tree and in one run: `grep_files [--files N] [--runs N] [--dir DIR]`. Half of its calls
//! must take at most 1.3 times as long as half of ripgrep's runs.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use windlass::sessions::SessionOpening;
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Limits, Runtime};
use windlass_tools::{BuiltinGroup, builtin};

/// Patterns, and whether they match so often that a page is full before all files are searched.
const PATTERNS: [(&str, &str); 4] = [
    ("a rare word", "needle_[0-9]+"),
    ("no match", "nowhere_to_be_found"),
    ("a word with letters of any case", "(?i)NEEDLE_1"),
    ("a match in every file, of which 200 are shown", "fn "),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut files, mut runs, mut dir) = (20_000, 15, std::env::temp_dir());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--files" => files = value.parse()?,
            "--runs" => runs = value.parse()?,
            "--dir" => dir = value.into(),
            other => return Err(format!("{other} {value} is not known").into()),
        }
    }
    let folder = tempfile::tempdir_in(dir)?;
    let tree = folder.path().join("projects/tree");
    let bytes = plant(&tree, files)?;
    println!("{files} files with {} MiB in {} folders", bytes >> 20, files.div_ceil(FILES_PER_FOLDER));
    let runtime = open(folder.path(), &tree).await?;
    for (about, pattern) in PATTERNS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut found = (0, 0);
        // In turn, so that whatever else the machine does falls on both; the first turn warms the cache and is not counted.
        for run in 0..=runs {
            let (took, matches) = search(&runtime, pattern).await?;
            let (rg_took, rg_matches) = ripgrep(&tree, pattern)?;
            found = (matches, rg_matches);
            if run > 0 {
                ours.push(took);
                theirs.push(rg_took);
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{about}: grep_files {:.1} ms ({} matches), rg {:.1} ms ({}), ratio {:.2}",
            ours.as_secs_f64() * 1e3,
            found.0,
            theirs.as_secs_f64() * 1e3,
            found.1,
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
    }
    Ok(())
}

const FILES_PER_FOLDER: usize = 40;

/// Writes a tree like a large project: most files are short, some are long, a few have the word. Returns its size.
fn plant(tree: &Path, files: usize) -> Result<usize, Box<dyn Error>> {
    let (mut chance, mut bytes) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    let mut next = || {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance
    };
    for number in 0..files {
        let folder = tree.join(format!(
            "part{}/module{}",
            number / (FILES_PER_FOLDER * 10),
            number / FILES_PER_FOLDER
        ));
        if number % FILES_PER_FOLDER == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let lines = if next() % 20 == 0 { 800 } else { 20 + next() % 120 };
        let mut text = String::new();
        for line in 0..lines {
            match next() % 12 {
                0 => writeln!(text, "pub fn handle_{:x}(request: &Request) -> Result<(), Error> {{", next())?,
                1 => writeln!(text, "}}\n")?,
                2 => writeln!(text, "    // {} of {lines}: the caller holds the lock of {:x}", line, next())?,
                _ => writeln!(
                    text,
                    "    let value_{:x} = compute(&request.field, {});",
                    next() % 4_096,
                    next() % 1_000
                )?,
            }
        }
        if number % 250 == 0 {
            writeln!(text, "    needle_{number}();")?;
        }
        bytes += text.len();
        std::fs::write(folder.join(format!("file{number}.rs")), text)?;
    }
    Ok(bytes)
}

async fn open(folder: &Path, tree: &Path) -> Result<Runtime, Box<dyn Error>> {
    let (files, folders) = (Some(folder.join("files")), vec![folder.join("projects")]);
    // The same search over and over is what is measured here, and no loop of a model.
    let limits = Limits { loop_batches_max: u64::MAX, loop_cycles_max: u64::MAX, ..Limits::default() };
    let runtime = Runtime::new(Config { files, folders, limits, ..Config::new(MemoryStore::new()?) });
    for tool in builtin(&[BuiltinGroup::Files]) {
        runtime.register_shared(tool)?;
    }
    let opening = SessionOpening { folder: Some(PathBuf::from(tree)), ..SessionOpening::default() };
    runtime.open_session("s", opening).await?;
    Ok(runtime)
}

/// A whole call, as a model makes it.
async fn search(runtime: &Runtime, pattern: &str) -> Result<(Duration, u64), Box<dyn Error>> {
    let args = Args::Json(json!({ "pattern": pattern }));
    let call = CallRequest { tool: "grep_files".into(), args, ..CallRequest::default() };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    let began = Instant::now();
    let answer = runtime.submit("s", batch).await?.settled().await?;
    let took = began.elapsed();
    let view: Value = serde_json::to_value(answer.calls.first().ok_or("no answer")?.view())?;
    let matches = view["outcome"]["value"]["matches"].as_u64().ok_or_else(|| view.to_string())?;
    Ok((took, matches))
}

/// A run of ripgrep, whose output is read: to nowhere it would not search to the end.
fn ripgrep(tree: &Path, pattern: &str) -> Result<(Duration, usize), Box<dyn Error>> {
    let mut rg = Command::new("rg");
    rg.args(["--no-config", "--line-number", "--no-heading", "-e", pattern, "."]).current_dir(tree);
    let began = Instant::now();
    let output = rg.output().map_err(|error| format!("rg does not run; install ripgrep: {error}"))?;
    let took = began.elapsed();
    Ok((took, output.stdout.iter().filter(|byte| **byte == b'\n').count()))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
