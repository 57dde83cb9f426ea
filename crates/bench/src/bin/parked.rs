//! Calls that wait for an answer from outside, on SQLite: `parked [--calls N] [--shape mixed|one|many]
//! [--for completion|approval] [--dir DIR]`. One process parks them, a second takes them over.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_bench::allocations::{self, CountingAlloc};
use windlass_bench::parked::{self, ParkedAnswer, SessionShape};

/// Commits take thousands of times as long as counting an allocation.
#[global_allocator]
static ALLOCATOR: &CountingAlloc = allocations::COUNTING;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut calls, mut dir, mut phase, mut folder) = (100_000, PathBuf::from("."), None, None);
    let (mut shape, mut awaits) = ("mixed".to_owned(), "completion".to_owned());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--calls" => calls = value.parse()?,
            "--dir" => dir = value.into(),
            "--shape" => shape = value,
            "--for" => awaits = value,
            // How it starts itself, on a folder that is there.
            "--phase" => phase = Some(value),
            "--folder" => folder = Some(PathBuf::from(value)),
            other => return Err(format!("{other} {value} is not known").into()),
        }
    }
    let known = SessionShape::named(&shape).ok_or_else(|| format!("there is no shape {shape}"))?;
    let answer = ParkedAnswer::named(&awaits).ok_or_else(|| format!("nothing waits for {awaits}"))?;
    let (Some(phase), Some(folder)) = (phase, folder) else { return all(&dir, calls, &shape, &awaits) };
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let table = threads.block_on(async {
        match phase.as_str() {
            "park" => parked::park(&folder, calls, known, answer).await,
            _ => parked::take_over(&folder, calls, answer).await,
        }
    })?;
    write!(std::io::stdout().lock(), "{}", table.text())?;
    // Nobody ends in good order what is to be taken over.
    std::process::exit(0)
}

/// Each phase in a process of its own, so that what it has in memory is what it is about.
fn all(dir: &Path, calls: u64, shape: &str, awaits: &str) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(dir)?;
    for phase in ["park", "take over"] {
        let mut own = Command::new(std::env::current_exe()?);
        own.args(["--phase", phase, "--calls", &calls.to_string(), "--shape", shape, "--for", awaits]);
        own.arg("--folder");
        own.arg(folder.path());
        if !own.status()?.success() {
            return Err(format!("{phase} failed").into());
        }
    }
    Ok(())
}
