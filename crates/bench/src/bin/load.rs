//! One load on SQLite beside its floor and nothing else, for who looks at what it costs:
//! `load [--tool once|read] [--at-once N] [--seconds S] [--dir DIR]`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use windlass_bench::durable;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut tool, mut at_once, mut span, mut dir) = ("once", 64, Duration::from_secs(1), PathBuf::from("."));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--tool" if value == "read" => tool = "read",
            "--tool" if value == "once" => tool = "once",
            "--at-once" => at_once = value.parse()?,
            "--seconds" => span = Duration::try_from_secs_f64(value.parse()?)?,
            "--dir" => dir = value.into(),
            other => return Err(format!("{other} {value} is not known").into()),
        }
    }
    let table = durable::load(&dir, tool, at_once, span)?;
    write!(std::io::stdout().lock(), "{}", table.text())?;
    Ok(())
}
