//! `windlass-worker FOLDER LEDGER TRIAL WORKER PLAN`: the process that the rigs kill. `PLAN` is a seed, or `every-write`.

use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use windlass_testkit::proof::ledger::Worker;
use windlass_testkit::proof::plan::Plan;
use windlass_testkit::proof::worker::{DONE, Ended, LOST, Options, run};

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, ledger, trial, number, plan] = &args[..] else {
        bail!("usage: windlass-worker FOLDER LEDGER TRIAL WORKER PLAN")
    };
    let plan = match plan.as_str() {
        "every-write" => Plan::every_write(),
        seed => Plan::of(seed.parse().context("PLAN is a number or every-write")?),
    };
    let worker = Worker { trial: trial.parse()?, number: number.parse()? };
    let options = Options { folder: folder.into(), ledger: ledger.clone(), worker, plan };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match threads.block_on(run(options))? {
        Ended::Done => Ok(ExitCode::from(DONE)),
        Ended::Lost(why) => {
            eprintln!("{why}");
            Ok(ExitCode::from(LOST))
        }
    }
}
