//! Whole calls over HTTP beside their floor: `server [--connections N] [--readers N] [--seconds S] [--dir DIR]`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use windlass_bench::served::{ServedOptions, table};

fn main() -> Result<(), Box<dyn Error>> {
    let (span, dir) = (Duration::from_secs(5), PathBuf::from("."));
    let mut asked = ServedOptions { span, dir, connections: 64, readers: 1_000 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--connections" => asked.connections = value.parse()?,
            "--readers" => asked.readers = value.parse()?,
            "--seconds" => asked.span = Duration::try_from_secs_f64(value.parse()?)?,
            "--dir" => asked.dir = value.into(),
            other => return Err(format!("{other} {value} is not known").into()),
        }
    }
    let told = table(&asked, &mut |_| {})?;
    write!(std::io::stdout().lock(), "{}", told.text())?;
    Ok(())
}
