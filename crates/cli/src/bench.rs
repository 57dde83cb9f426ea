//! `windlass bench`: how fast this machine runs calls, beside the least any program must do.

use crate::args::{Bench, Part};
use crate::{exit, show};
use std::process::ExitCode;
use std::time::Duration;
use windlass_bench::{durable, memory};

pub fn bench(args: Bench) -> anyhow::Result<ExitCode> {
    let span = Duration::try_from_secs_f64(args.seconds)
        .map_err(|_| exit::Usage(format!("--seconds takes a positive number; {} is none", args.seconds)))?;
    let mut tell = |what: &str| eprintln!("windlass: measuring {what}");
    let mut tables = Vec::new();
    if args.part != Some(Part::C) {
        tables.push(memory::table(span, &mut tell)?);
    }
    if args.part != Some(Part::A) {
        let asked = durable::Asked { span, dir: args.dir, open: args.open, aged: args.aged };
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
