//! Arguments of `windlass backup`.

use clap::Args;
use std::path::PathBuf;

/// `windlass backup`
#[derive(Args)]
#[command(after_help = "\
Works while `windlass serve` or any other process owns the data folder; that process does not wait for it. Everything
acknowledged before the command began is in the copy: calls, artifacts, files. The copy is verified, and appears under its
name only when it is complete. Calls that were under way are unknown when the copy is first started, because the original
may still run them.

Examples:
  windlass backup backups/monday
  windlass --data restored serve                          # the original may still be running
  windlass --data restored confirm --original-gone        # before the first start, if it is not")]
pub struct BackupArgs {
    /// The folder to make; it must be missing or empty
    pub dir: PathBuf,
    /// The maximum number of bytes copied per second, such as 20MiB; KiB, MiB and GiB are known
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub rate: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass migrate`
#[derive(Args)]
#[command(after_help = "\
Workers of the version before go on meanwhile: migrate first, as the owner of the database, then replace the workers one by one.
An empty database gets its tables.

Example: windlass migrate --store postgres://owner@db/windlass?password_file=/run/secrets/db")]
pub struct MigrateArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];

/// A number of bytes: a whole number above 0, with a unit or none.
fn bytes(text: &str) -> Result<u64, String> {
    let parsed = UNITS.iter().find_map(|(unit, size)| {
        let count: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        count.checked_mul(*size).filter(|bytes| *bytes > 0)
    });
    parsed.ok_or_else(|| "write a whole number of bytes above 0, such as 20MiB or 500000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_or_none() {
        for (text, expected) in
            [("1", 1), ("500000", 500_000), ("20MiB", 20 << 20), ("3 GiB", 3 << 30), ("7KiB", 7 << 10)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0MiB", "MiB", "1.5MiB", "20MB", "-1", "99999999999GiB", "20MiB/s"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
