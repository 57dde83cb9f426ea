//! `windlass bench`: measures how fast this machine runs calls, next to the minimum any program needs.

use crate::args::{Bench, BenchPart};
use crate::door::At;
use crate::{exit, serve, show};
use std::process::ExitCode;
use std::time::Duration;
use windlass_bench::{durable, memory};

pub fn bench(at: &At, args: Bench) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    if at.is_named {
        return Err(exit::Usage("bench uses no data folder: leave out --data".to_string()).into());
    }
    if cfg!(debug_assertions) {
        crate::logs::tell!(
            "warning: this is a debug build, so its figures are meaningless; build with `cargo build --release -p \
             windlass-cli` and run target/release/windlass bench"
        );
    }
    let span = Duration::try_from_secs_f64(args.seconds)
        .map_err(|_| exit::Usage(format!("--seconds takes a positive number, not {}", args.seconds)))?;
    let mut tell = |what: &str| crate::logs::tell!("measuring {what}");
    let mut tables = Vec::new();
    if args.part != Some(BenchPart::C) {
        tables.push(memory::table(span, &mut tell)?);
    }
    if args.part != Some(BenchPart::A) {
        let asked = durable::DurableOptions { span, dir: args.dir, open: args.open, aged: args.aged };
        tables.push(durable::table(&asked, &mut tell)?);
    }
    if args.json {
        show::json(&tables)?;
    } else {
        let texts: Vec<String> = tables.iter().map(|table| table.text()).collect();
        show::text(texts.join("\n").trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
