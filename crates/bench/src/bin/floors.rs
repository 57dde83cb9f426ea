//! Prints the floors of this machine: `floors [--seconds S] [--dir DIR]`.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_bench::floor::{self, ArgumentShape, PerCall};
use windlass_bench::table::{aligned, thousands};
use windlass_bench::{MeasuredRate, table};

/// Calls at once, or rows that share a commit.
const GROUPS: [usize; 4] = [1, 8, 64, 512];

/// A row of the hand-off: a packed `read` call.
const ROW_BYTES: usize = 600;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = FloorOptions::parse(std::env::args().skip(1))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "durable, in {} (WAL, synchronous=FULL)\n", asked.dir.display())?;
    writeln!(out, "{}", aligned(&durable(&asked.dir, asked.span)?))?;
    writeln!(out, "in memory, one call after the other\n")?;
    write!(out, "{}", aligned(&in_memory(asked.span)?))?;
    Ok(())
}

struct FloorOptions {
    span: Duration,
    dir: PathBuf,
}

impl FloorOptions {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<FloorOptions, Box<dyn Error>> {
        // Not the system's folder for temporary files: that one often lies in memory.
        let mut asked = FloorOptions { span: Duration::from_secs(1), dir: PathBuf::from(".") };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--seconds" => asked.span = Duration::try_from_secs_f64(value.parse()?)?,
                "--dir" => asked.dir = value.into(),
                other => return Err(format!("{other} is unknown: floors [--seconds S] [--dir DIR]").into()),
            }
        }
        Ok(asked)
    }
}

fn durable(dir: &Path, span: Duration) -> Result<Vec<Vec<String>>, floor::FloorError> {
    let fsync = floor::fsync(dir, span)?;
    let mut rows = vec![["floor", "per second", "p50 ms", "× fsync"].map(str::to_owned).to_vec()];
    let mut add = |name: String, rate: MeasuredRate| {
        rows.push(vec![
            name,
            thousands(rate.per_second()),
            format!("{:.3}", rate.p50.as_secs_f64() * 1e3),
            format!("{:.2}", rate.per_second() / fsync.per_second()),
        ]);
    };
    add("fsync: append 4 KiB, fdatasync".into(), fsync);
    for group in GROUPS {
        add(format!("rows: 300 bytes, {group} per commit"), floor::sqlite_rows(dir, group, span)?);
    }
    for group in GROUPS {
        add(format!("attempts: two commits, {group} at once"), floor::sqlite_attempts(dir, group, span)?);
    }
    for tasks in GROUPS {
        let rate = floor::sqlite_handoff(dir, tasks, ROW_BYTES, span)?;
        add(format!("hand-off: {ROW_BYTES} bytes, one writer, {tasks} at once"), rate);
    }
    Ok(rows)
}

fn in_memory(span: Duration) -> Result<Vec<Vec<String>>, floor::FloorError> {
    let row = |name: &str, call: PerCall| {
        let ns = call.rate.p50.as_nanos().to_string();
        vec![name.to_owned(), ns, table::thousands(call.rate.per_second())]
    };
    Ok(vec![
        ["floor", "ns per call", "per second"].map(str::to_owned).to_vec(),
        row("1: dyn call, arguments cloned", floor::dyn_call(span)?),
        row("2: lean call, echo", floor::lean_call(span, ArgumentShape::Echo)?),
        row("2: lean call, 40 properties", floor::lean_call(span, ArgumentShape::Wide)?),
    ])
}
