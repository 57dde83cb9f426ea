//! Counts the instructions of a call in memory beside those of its floor, with valgrind: `once-over`. Instructions do not
//! depend on what else the machine does, so a ratio of them tells small changes apart that a clock cannot.
//!
//! `once-over ROW` runs one row and counts nothing, for `valgrind --tool=callgrind` with `--toggle-collect` as below.

use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use windlass_bench::floor::{self, ArgumentShape};
use windlass_bench::memory::{self, ArgumentForm, CallLoad};
use windlass_bench::table::{aligned, thousands};

/// The counted function: from its beginning to its end.
const COUNTED: &str = "--toggle-collect=*allocations*during*";

/// How often a row is counted.
const RUNS: usize = 3;

/// A row: its name, what it stands on, and how many times as much it may take.
const ROWS: [(&str, &str, f64); 5] = [
    ("batches-of-64", "floor", 3.5),
    ("batches-of-1", "floor", 6.0),
    ("40-properties", "floor-40-properties", 1.6),
    ("text", "parse", 1.5),
    ("100-rules", "batches-of-64", 1.15),
];

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(row) => run(&row),
        None => table(),
    }
}

fn run(row: &str) -> Result<(), Box<dyn Error>> {
    let (span, usual) = (Duration::ZERO, CallLoad::USUAL);
    match row {
        "floor" => floor::lean_call(span, ArgumentShape::Echo)?,
        "floor-40-properties" => floor::lean_call(span, ArgumentShape::Wide)?,
        "parse" => floor::parse(span)?,
        "batches-of-64" => memory::calls(span, usual)?,
        "batches-of-1" => memory::calls(span, CallLoad { batch: 1, ..usual })?,
        "40-properties" => memory::calls(span, CallLoad { shape: ArgumentShape::Wide, ..usual })?,
        "text" => memory::calls(span, CallLoad { given: ArgumentForm::Text, ..usual })?,
        "100-rules" => memory::calls(span, CallLoad { under_policy: true, ..usual })?,
        other => return Err(format!("there is no row {other:?}").into()),
    };
    Ok(())
}

fn table() -> Result<(), Box<dyn Error>> {
    let mut rows =
        vec![["instructions per call", "calls", "floor", "ratio", "bar"].map(str::to_owned).to_vec()];
    let usual = counted("batches-of-64")? / memory::COUNTED_CALLS as f64;
    for (name, below, bar) in ROWS {
        let floor =
            if below == "batches-of-64" { usual } else { counted(below)? / floor::COUNTED_CALLS as f64 };
        let all = counted(name)? / memory::COUNTED_CALLS as f64;
        let (name, ours) = if name == "text" { ("text, on top", all - usual) } else { (name, all) };
        let ratio = format!("{:.2}", ours / floor);
        rows.push(vec![name.to_owned(), thousands(ours), thousands(floor), ratio, format!("≤ {bar}")]);
    }
    write!(std::io::stdout().lock(), "{}", aligned(&rows))?;
    Ok(())
}

/// How many instructions a row takes in all: the median of a few runs, since the seeds of hash tables differ.
fn counted(row: &str) -> Result<f64, Box<dyn Error>> {
    let mut counts = [(); RUNS].map(|()| count(row)).into_iter().collect::<Result<Vec<f64>, _>>()?;
    counts.sort_by(f64::total_cmp);
    Ok(counts[RUNS / 2])
}

fn count(row: &str) -> Result<f64, Box<dyn Error>> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED]);
    let said = valgrind.arg(std::env::current_exe()?).arg(row).output()?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    count.ok_or_else(|| format!("valgrind did not count {row}:\n{said}").into())
}
