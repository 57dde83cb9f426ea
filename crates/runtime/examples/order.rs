//! An order through three steps, killed at every write: `cargo run -p windlass --example order --features kill-points`
//!
//! A worker takes an order: it reserves, charges and ships at a shop, which is a process of its own, writes down what it
//! is asked for, and is never killed. The worker is, at every point it passes; the next one goes on. Each time the order
//! is answered in the same words, the shop has reserved and charged once, under one key, and shipped once.
#![expect(clippy::print_stdout, reason = "a show says what it does")]

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::process::{Command, Output as Ran};
use windlass::error::StepError;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{
    Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Output, Runtime, Tool, ToolError, ToolFuture,
    ToolSpec,
};
use windlass_testkit::proof::ledger::{Effect, Ledger, LedgerClient, LedgerRequest, TrialWorker};
use windlass_testkit::proof::points::actions;
use windlass_testkit::proof::programs::Build;

/// The tool: glue around three steps.
async fn order(args: Value, cx: &Cx, shop: &Shop) -> Result<Output, ToolError> {
    let place: String = cx.step("reserve", &args["item"], |_| shop.asked("reserve", cx)).await?;
    let receipt: String = cx.step("charge", &args["cents"], |_| shop.asked("charge", cx)).await?;
    let parcel = match cx.step_once("ship", &place, |_| shop.asked("ship", cx)).await {
        // It was cut in the middle, and must not be repeated: the body decides.
        Err(StepError::Unknown { .. }) if shop.has_shipped(cx).await? => "ship: done".to_owned(),
        Err(StepError::Unknown { .. }) => {
            cx.step_once("ship again", &place, |_| shop.asked("ship again", cx)).await?
        }
        shipped => shipped?,
    };
    Ok(json!({ "place": place, "receipt": receipt, "parcel": parcel }).into())
}

/// The way to the shop.
struct Shop(LedgerClient);

impl Shop {
    async fn asked(&self, what: &str, cx: &Cx) -> Result<String, ToolError> {
        // Who must not be asked twice does not look at keys.
        let (kind, done) = match what {
            "ship" | "ship again" => ("once", "ship: done".to_owned()),
            _ => ("keyed", format!("{what}: done")),
        };
        let verdict = self.ask(kind, what, cx).await?;
        (verdict != "late").then_some(done).ok_or_else(|| ToolError::new("the shop says no"))
    }

    async fn has_shipped(&self, cx: &Cx) -> Result<bool, ToolError> {
        Ok(self.ask("ask", "ship", cx).await? == "landed")
    }

    async fn ask(&self, kind: &'static str, what: &str, cx: &Cx) -> Result<String, ToolError> {
        let (key, call) = (cx.step_key(what), format!("{}/{}", cx.batch_key(), what));
        let (handle, attempt) = (cx.handle().to_string(), cx.attempt().0);
        let request = LedgerRequest { kind, key, call, handle, attempt, hash: 0, order: "ok".to_owned() };
        let answer = self.0.effect(&request).await.map_err(|error| ToolError::internal(error.to_string()))?;
        answer.map(|(verdict, _)| verdict).ok_or_else(|| ToolError::new("the shop hung up"))
    }
}

struct Order(Shop);

impl Tool for Order {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "order".into(), class: Some(EffectClass::Stepped), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(order(args, cx, &self.0))
    }
}

/// A worker: it opens the folder, goes on with what it finds there, and answers the order.
async fn work(folder: &str, shop: Shop) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new(Config::new(SqliteStore::open(Options::new(folder))?));
    runtime.register(Order(shop))?;
    runtime.resume().await?;
    let args = Args::Json(json!({ "item": "lamp", "cents": 1250 }));
    let call = CallRequest { id: Some("c".into()), tool: "order".into(), args, ..CallRequest::default() };
    let batch = BatchRequest { key: Some("k".into()), calls: vec![call], ..BatchRequest::default() };
    let answer = runtime.submit("s", batch).await?.settled().await?;
    println!("{}", answer.calls[0].model_text());
    Ok(())
}

/// The show: an undisturbed run, and then one for each visit of each point and each thing that can happen there.
struct Show {
    ledger: Ledger,
    trial: u64,
}

impl Show {
    fn worker(&self, folder: &Path, environment: &[(&str, String)]) -> Result<Ran, Box<dyn Error>> {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.arg(folder).args([&self.ledger.address, &self.trial.to_string()]);
        Ok(worker.envs(environment.iter().cloned()).output()?)
    }

    /// Runs the order, with this happening to its first worker; what it is answered, and what the shop saw.
    fn run(&mut self, happens: &[(&str, String)]) -> Result<(String, Vec<Effect>), Box<dyn Error>> {
        self.trial += 1;
        let folder = tempfile::tempdir()?;
        self.worker(folder.path(), happens)?;
        let last = self.worker(folder.path(), &[])?;
        let said = String::from_utf8(last.stdout)?;
        let effects = self.ledger.effects()?;
        Ok((said, effects.into_iter().filter(|effect| effect.worker.trial == self.trial).collect()))
    }
}

/// The problems of a run.
fn problems(said: &str, calm: &str, effects: &[Effect]) -> Vec<String> {
    let mut problems = Vec::new();
    if said != calm {
        problems.push(format!("it was answered {said:?}, undisturbed {calm:?}"));
    }
    for what in ["k/reserve", "k/charge", "k/ship"] {
        let lines = || effects.iter().filter(|effect| effect.call.starts_with(what) && effect.kind != "ask");
        let applied = lines().filter(|effect| effect.verdict == "applied").count();
        let keys = lines().map(|effect| &effect.key).collect::<BTreeSet<_>>().len();
        let asked = lines().count();
        if applied != 1 || (what != "k/ship" && keys != 1) || asked > 2 {
            problems.push(format!(
                "{what} was asked for {asked} times under {keys} keys, and done {applied} times"
            ));
        }
    }
    problems
}

fn show() -> Result<(), Box<dyn Error>> {
    let programs = Build::like_this_program()?.programs()?;
    let folder = tempfile::tempdir()?;
    let mut show = Show { ledger: Ledger::start(&programs.ledger, folder.path())?, trial: 0 };
    let visits = folder.path().join("visits");
    let (calm, effects) = show.run(&[("WINDLASS_KILL_VISITS", visits.display().to_string())])?;
    println!("undisturbed: {}", calm.trim());
    let mut found = problems(&calm, &calm, &effects);
    let mut points: BTreeMap<String, u64> = BTreeMap::new();
    for name in std::fs::read_to_string(&visits)?.lines() {
        *points.entry(name.to_owned()).or_default() += 1;
    }
    let (mut runs, mut again) = (0, 0);
    for (point, visits) in &points {
        for (visit, action) in
            (1..=*visits).flat_map(|visit| actions(point).iter().map(move |act| (visit, act)))
        {
            let happens = format!("{point} {visit} {action}");
            let (said, effects) = show.run(&[("WINDLASS_KILL_POINT", happens.clone())])?;
            let broken = problems(&said, &calm, &effects);
            found.extend(broken.into_iter().map(|broken| format!("{happens}: {broken}")));
            again += effects.iter().filter(|effect| effect.verdict == "again").count();
            runs += 1;
        }
    }
    println!(
        "{runs} runs over {} points: open steps ran again {again} times, {} problems",
        points.len(),
        found.len()
    );
    found.iter().for_each(|problem| println!("PROBLEM {problem}"));
    if found.is_empty() { Ok(()) } else { Err("an order was not as it should be".into()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, ledger, trial] = &args[..] else { return show() };
    let worker = TrialWorker { trial: trial.parse()?, number: 1 };
    let shop = Shop(LedgerClient::new(ledger.clone(), worker));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work(folder, shop))
}
