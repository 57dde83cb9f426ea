//! Toolboxes: attempts that processes run, through restarts, silence, stops and waits.

mod attacks;
mod covered;
mod silence;
mod slots;

use crate::rig::{batch, call, memory, n, run, states, waits_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass::error::ToolboxError;
use windlass::outcome::KeptBytes;
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::sessions::UploadFor;
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::toolboxes::{
    AttemptNews, AttemptReport, AttemptStanding, ManifestDeadlines, OperationAnswer, OperationRefusal,
    TakeRequest, TakenAttempt, ToolManifest, ToolboxEnd, ToolboxOperation,
};
use windlass::{BatchAnswer, Config, EffectClass, Output, Runtime, Submitted, ToolError};
use windlass_testkit::clock::ManualClock;

const ANN: &str = "ann";
/// Longer than a process may be silent.
const SILENCE: Duration = Duration::from_secs(11);

fn tool(name: &str, class: EffectClass) -> ToolManifest {
    let (name, class) = (name.to_string(), Some(class.as_str().to_string()));
    ToolManifest { name, class, ..ToolManifest::default() }
}

/// A process that serves the toolbox `crm`.
struct Process {
    runtime: Runtime,
    manifest: String,
}

impl Process {
    async fn new(runtime: &Runtime, tools: Vec<ToolManifest>) -> Process {
        let put = runtime.toolboxes().put("crm", ANN, tools).await.unwrap();
        Process { runtime: runtime.clone(), manifest: put.manifest }
    }

    /// The process goes on at another owner of the data.
    fn at(&self, runtime: &Runtime) -> Process {
        Process { runtime: runtime.clone(), manifest: self.manifest.clone() }
    }

    async fn ask(&self, max: u32, wait: Duration) -> Result<Vec<TakenAttempt>, ToolboxError> {
        let (worker, manifest) = ("w1".to_string(), self.manifest.clone());
        self.runtime
            .toolboxes()
            .take("crm", ANN, TakeRequest { worker, manifest, max, wait, ..TakeRequest::default() })
            .await
    }

    async fn take(&self) -> TakenAttempt {
        loop {
            if let Some(taken) = self.ask(1, Duration::from_secs(5)).await.unwrap().pop() {
                return taken;
            }
        }
    }

    async fn report(&self, report: AttemptReport, wait: Duration) -> AttemptNews {
        let news = self.runtime.toolboxes().report("crm", ANN, "w1", vec![report], wait).await.unwrap();
        news.into_iter().next().unwrap()
    }

    async fn beat(&self, attempt: &TakenAttempt) -> AttemptNews {
        self.report(of(attempt), Duration::ZERO).await
    }

    /// Reports until the owner of the session drives the attempt again.
    async fn until_heard(&self, attempt: &TakenAttempt) -> AttemptNews {
        loop {
            let news = self.beat(attempt).await;
            if news.standing != AttemptStanding::Unheard {
                return news;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn end(&self, attempt: &TakenAttempt, end: ToolboxEnd) -> AttemptNews {
        let report = AttemptReport { end: Some(end), ..of(attempt) };
        self.report(report, Duration::ZERO).await
    }

    async fn returns(&self, attempt: &TakenAttempt, value: Value) -> AttemptNews {
        self.end(attempt, ToolboxEnd::Value(Box::new(Output::from(value)))).await
    }

    /// Does an operation and waits for its answer; `None`: the attempt is over before that.
    async fn does(
        &self,
        attempt: &TakenAttempt,
        number: u64,
        operation: ToolboxOperation,
    ) -> Option<OperationAnswer> {
        loop {
            // As a client does: an operation is sent again until it is answered, and counts once.
            let report = AttemptReport { operations: vec![(number, operation.clone())], ..of(attempt) };
            let mut news = self.report(report, Duration::from_secs(5)).await;
            if let Some((_, answer)) = news.answers.pop() {
                return Some(answer);
            }
            if news.standing == AttemptStanding::Over {
                return None;
            }
        }
    }
}

/// A call of a tool of the toolbox `crm`, whose attempt a process has.
struct Begun {
    runtime: Runtime,
    process: Process,
    submitted: Submitted,
    attempt: TakenAttempt,
}

impl Begun {
    async fn new(tool: ToolManifest) -> Begun {
        Begun::on(memory(), tool).await
    }

    async fn on(runtime: Runtime, tool: ToolManifest) -> Begun {
        let name = tool.name.clone();
        let process = Process::new(&runtime, vec![tool]).await;
        assert!(process.ask(1, Duration::ZERO).await.unwrap().is_empty());
        let submitted = submit(&runtime, &name).await;
        let attempt = process.take().await;
        Begun { runtime, process, submitted, attempt }
    }

    /// The attempt returns this value. Returns the end of the call.
    async fn ends(self, value: Value) -> String {
        assert_eq!(self.process.returns(&self.attempt, value).await.standing, AttemptStanding::Over);
        let answer = settled(self.submitted).await;
        format!("{}: {}", states(&answer), answer.calls[0].model_text())
    }
}

fn of(attempt: &TakenAttempt) -> AttemptReport {
    AttemptReport { token: attempt.token.clone(), ..AttemptReport::default() }
}

fn step(name: &str, once: bool) -> ToolboxOperation {
    ToolboxOperation::Step { name: name.into(), input: json!(1), once }
}

fn step_end(name: &str, value: Value) -> ToolboxOperation {
    ToolboxOperation::StepEnded { name: name.into(), input: json!(1), result: Ok(value) }
}

async fn submit(runtime: &Runtime, tool: &str) -> Submitted {
    runtime.submit("s", batch("k", vec![call("c", tool, n(1))])).await.unwrap()
}

async fn settled(submitted: Submitted) -> BatchAnswer {
    submitted.settled().await.unwrap()
}

/// Data that several owners have one after the other, on a clock that the test moves.
struct World {
    store: Arc<dyn Store>,
    clock: ManualClock,
}

impl World {
    fn new() -> World {
        World { store: Arc::new(MemoryStore::new().unwrap()), clock: ManualClock::default() }
    }

    fn owner(&self) -> Owner {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock = Arc::new(self.clock.clone());
        let runtime = {
            let _inside = threads.enter();
            Runtime::new(Config { clock, ..Config::on(self.store.clone()) })
        };
        Owner { runtime, threads }
    }

    /// The owner dies, as it would by a kill, and another one takes over.
    async fn next(&self, owner: Owner) -> Owner {
        owner.dies().await;
        let next = self.owner();
        next.runtime.resume().await.unwrap();
        next
    }
}

/// An owner of the data, on threads of its own.
struct Owner {
    runtime: Runtime,
    threads: tokio::runtime::Runtime,
}

impl Owner {
    /// Nothing of it runs afterwards.
    async fn dies(self) {
        let Owner { runtime, threads } = self;
        drop(runtime);
        tokio::task::spawn_blocking(move || threads.shutdown_timeout(Duration::from_secs(5))).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_runs_in_a_process_of_the_toolbox() {
    let Begun { runtime, process, submitted, attempt } = Begun::new(tool("greet", EffectClass::Once)).await;
    assert_eq!((attempt.tool.as_str(), &*attempt.args, attempt.number.0), ("greet", &n(1), 1));
    assert!(!attempt.idempotency_key.is_empty());
    let news = process.returns(&attempt, json!("hello")).await;
    assert_eq!(news.standing, AttemptStanding::Over);
    let answer = settled(submitted).await;
    assert_eq!((states(&answer), answer.calls[0].model_text()), ("c succeeded".into(), "hello".into()));
    // The record names the toolbox, and the token stands nowhere.
    let (_, lines) =
        windlass::inspect::call(runtime.store(), answer.calls[0].handle()).await.unwrap().unwrap();
    let told = lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
    assert!(told.contains("handed to the toolbox crm"), "{told}");
    assert!(!told.contains(attempt.token.split_once('.').unwrap().1));
}

#[tokio::test]
async fn a_call_waits_visibly_for_a_process_until_its_queue_deadline() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let deadlines = ManifestDeadlines { queue_ms: Some(60_000), ..ManifestDeadlines::default() };
    let process =
        Process::new(&runtime, vec![ToolManifest { deadlines, ..tool("greet", EffectClass::Once) }]).await;
    let first = submit(&runtime, "greet").await;
    waits_for(&runtime, "no_worker").await;
    let attempt = process.take().await;
    process.returns(&attempt, json!(1)).await;
    assert_eq!(states(&settled(first).await), "c succeeded");
    // The process says that it takes no more: it is away at once.
    assert!(process.ask(0, Duration::ZERO).await.unwrap().is_empty());
    let second = runtime.submit("s", batch("k2", vec![call("c", "greet", n(1))])).await.unwrap();
    waits_for(&runtime, "no_worker").await;
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(states(&settled(second).await), "c failed/timeout");
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn an_attempt_that_no_process_took_is_taken_back() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let process = Process::new(&runtime, vec![tool("greet", EffectClass::Once)]).await;
    assert!(process.ask(1, Duration::ZERO).await.unwrap().is_empty());
    let submitted = submit(&runtime, "greet").await;
    while runtime.toolboxes().list().await.unwrap()[0].waiting == 0 {
        tokio::task::yield_now().await;
    }
    // The process dies before it takes the attempt: even a `once` call is not in doubt.
    world.clock.advance(SILENCE);
    waits_for(&runtime, "no_worker").await;
    let attempt = process.take().await;
    process.returns(&attempt, json!(1)).await;
    assert_eq!(states(&settled(submitted).await), "c succeeded");
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn an_attempt_goes_on_when_its_session_has_another_owner() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Stepped, EffectClass::Once] {
        let world = World::new();
        let owner = world.owner();
        let runtime = owner.runtime.clone();
        let process = Process::new(&runtime, vec![tool("greet", class)]).await;
        process.ask(1, Duration::ZERO).await.unwrap();
        drop(submit(&runtime, "greet").await);
        let attempt = process.take().await;
        let manifest = process.manifest.clone();
        drop((process, runtime));
        let owner = world.next(owner).await;
        let next = owner.runtime.clone();
        let process = Process { runtime: next.clone(), manifest };
        assert_eq!(process.until_heard(&attempt).await.standing, AttemptStanding::Running, "{class}");
        // Time that a silent process would not survive.
        for _ in 0..4 {
            world.clock.advance(Duration::from_secs(5));
            assert_eq!(process.beat(&attempt).await.standing, AttemptStanding::Running, "{class}");
        }
        assert_eq!(process.returns(&attempt, json!("kept")).await.standing, AttemptStanding::Over);
        let answer = run(&next, "s", batch("k", vec![call("c", "greet", n(1))])).await;
        let call = &answer.calls[0];
        assert_eq!((states(&answer), call.call().attempts), ("c succeeded".into(), 1), "{class}");
        assert_eq!(call.model_text(), "kept");
        owner.dies().await;
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_process_with_its_next_report() {
    let Begun { runtime, process, submitted, attempt } = Begun::new(tool("greet", EffectClass::Keyed)).await;
    let waiting = process.report(of(&attempt), Duration::from_secs(5));
    let cancel = async {
        let call = crate::rig::until_runs(&runtime).await;
        runtime.cancel(windlass::ask::Target::Call(&call), None).await.unwrap();
    };
    let (news, ()) = tokio::join!(waiting, cancel);
    assert_eq!(news.stop, Some(windlass::toolboxes::Cause::Cancel));
    process.end(&attempt, ToolboxEnd::Stopped { did_not_happen: true }).await;
    let answer = settled(submitted).await;
    assert_eq!(crate::rig::end(&answer), "c cancelled{none}, 1 attempts");
}

#[tokio::test]
async fn a_deadline_reaches_the_process_with_its_next_report() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let deadlines = ManifestDeadlines { attempt_ms: Some(5_000), ..ManifestDeadlines::default() };
    let tools = vec![ToolManifest { deadlines, ..tool("greet", EffectClass::Once) }];
    let process = Process::new(&runtime, tools).await;
    process.ask(1, Duration::ZERO).await.unwrap();
    let submitted = submit(&runtime, "greet").await;
    let attempt = process.take().await;
    assert_eq!(process.beat(&attempt).await.stop, None);
    world.clock.advance(Duration::from_secs(5));
    let news = process.report(of(&attempt), Duration::from_secs(5)).await;
    assert_eq!(news.stop, Some(windlass::toolboxes::Cause::Attempt));
    process.end(&attempt, ToolboxEnd::Stopped { did_not_happen: true }).await;
    assert_eq!(states(&settled(submitted).await), "c failed/timeout");
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn a_large_result_is_an_artifact_that_the_process_uploads() {
    let Begun { runtime, process, submitted, attempt } = Begun::new(tool("dump", EffectClass::Keyed)).await;
    let toolboxes = runtime.toolboxes();
    // Only with the token of the attempt, and only at its toolbox.
    assert_eq!(*toolboxes.arguments("crm", ANN, &attempt.token).await.unwrap(), n(1));
    for (principal, token) in [("bob", attempt.token.as_str()), (ANN, "forged")] {
        let refused = toolboxes.arguments("crm", principal, token).await;
        assert!(matches!(refused, Err(ToolboxError::NotFound { .. } | ToolboxError::AttemptOver)));
    }
    let call = toolboxes.call_of("crm", ANN, &attempt.token).await.unwrap();
    let text = "row\n".repeat(100_000);
    let uploaded = runtime.upload(UploadFor::Call(&call), text.as_bytes(), "text/plain").await.unwrap().kept;
    // The runtime looks up how long it is.
    let kept = Some(KeptBytes { bytes: 0, ..uploaded });
    let end = ToolboxEnd::Value(Box::new(Output { kept, ..Output::default() }));
    assert_eq!(process.end(&attempt, end).await.standing, AttemptStanding::Over);
    let answer = settled(submitted).await;
    assert_eq!(states(&answer), "c succeeded");
    let told = answer.calls[0].model_text();
    assert!(told.contains("row") && told.contains(&uploaded.artifact.to_string()), "{told}");
    assert!(matches!(toolboxes.call_of("crm", ANN, &attempt.token).await, Err(ToolboxError::AttemptOver)));
}

#[tokio::test]
async fn a_result_names_no_artifact_of_another_session() {
    let Begun { runtime, process, submitted, attempt } = Begun::new(tool("dump", EffectClass::Keyed)).await;
    let foreign = runtime.upload(UploadFor::Session("theirs"), b"secret plans", "text/plain").await.unwrap();
    let end = ToolboxEnd::Value(Box::new(Output { kept: Some(foreign.kept), ..Output::default() }));
    process.end(&attempt, end).await;
    let answer = settled(submitted).await;
    assert!(states(&answer).starts_with("c failed"), "{}", states(&answer));
    assert!(!answer.calls[0].model_text().contains("plans"));
}

#[tokio::test]
async fn steps_are_recorded_and_not_run_again() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let process = Process::new(&runtime, vec![tool("import", EffectClass::Stepped)]).await;
    process.ask(1, Duration::ZERO).await.unwrap();
    drop(submit(&runtime, "import").await);
    let attempt = process.take().await;
    assert!(attempt.steps.is_empty());
    assert_eq!(process.does(&attempt, 1, step("a", false)).await, Some(OperationAnswer::Run));
    // The same report again has the same answer.
    assert_eq!(process.does(&attempt, 1, step("a", false)).await, Some(OperationAnswer::Run));
    let recorded = Some(OperationAnswer::Value(Value::Null));
    assert_eq!(process.does(&attempt, 2, step_end("a", json!(7))).await, recorded);
    assert_eq!(process.does(&attempt, 3, step("b", true)).await, Some(OperationAnswer::Run));
    // The owner dies while `b`, which must not be repeated, runs in the process: its end counts.
    let manifest = process.manifest.clone();
    drop((process, runtime));
    let owner = world.next(owner).await;
    let next = owner.runtime.clone();
    let process = Process { runtime: next.clone(), manifest };
    assert_eq!(process.does(&attempt, 4, step_end("b", json!(8))).await, recorded);
    // What was recorded under the owner before is returned.
    assert_eq!(process.does(&attempt, 5, step("a", false)).await, Some(OperationAnswer::Value(json!(7))));
    let rejoined = next.submit("s", batch("k", vec![call("c", "import", n(1))])).await.unwrap();
    process.returns(&attempt, json!("done")).await;
    assert_eq!(states(&settled(rejoined).await), "c succeeded");
    owner.dies().await;
}

#[tokio::test]
async fn a_stepped_call_that_only_waits_leaves_its_process() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let process = Process::new(&runtime, vec![tool("remind", EffectClass::Stepped)]).await;
    process.ask(1, Duration::ZERO).await.unwrap();
    let submitted = submit(&runtime, "remind").await;
    let attempt = process.take().await;
    process.does(&attempt, 1, step("a", false)).await;
    process.does(&attempt, 2, step_end("a", json!(7))).await;
    let night = || ToolboxOperation::Sleep { name: "night".into(), length: Duration::from_secs(8) };
    assert_eq!(process.does(&attempt, 3, night()).await, None, "the body is dropped");
    waits_for(&runtime, "sleep").await;
    // In two pieces, since a process that says nothing for long is silent.
    for _ in 0..2 {
        assert!(process.ask(1, Duration::ZERO).await.unwrap().is_empty());
        world.clock.advance(Duration::from_secs(4));
    }
    let taken = process.take().await;
    assert_ne!(taken.token, attempt.token);
    let steps: Vec<_> = taken.steps.iter().map(|step| (step.name.as_str(), &step.value)).collect();
    assert_eq!(steps, [("a", &json!(7))]);
    assert_eq!(process.does(&taken, 1, night()).await, Some(OperationAnswer::Value(Value::Null)));
    process.returns(&taken, json!("morning")).await;
    let answer = settled(submitted).await;
    assert_eq!((states(&answer), answer.calls[0].model_text()), ("c succeeded".into(), "morning".into()));
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn keys_waits_nested_calls_and_secrets() {
    let allowed = BTreeMap::from([("crm".to_string(), vec!["github".to_string(), "unnamed".to_string()])]);
    let secret_key = SecretKeySource::Key(SecretKey::random().unwrap());
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { toolbox_secrets: allowed, secret_key, ..config });
    for name in ["github", "other", "unnamed"] {
        let value = if name == "github" { "ghp-12345678" } else { "correct horse" };
        runtime.folder_secrets().set(name, value).await.unwrap();
    }
    let secrets = vec!["github".to_string(), "other".to_string()];
    let tools = vec![
        ToolManifest { secrets, claims: Some(Vec::new()), ..tool("sync", EffectClass::Keyed) },
        ToolManifest { claims: Some(Vec::new()), ..tool("part", EffectClass::Read) },
    ];
    let process = Process::new(&runtime, tools).await;
    process.ask(2, Duration::ZERO).await.unwrap();
    let submitted = submit(&runtime, "sync").await;
    let attempt = loop {
        if let Some(taken) = process.ask(2, Duration::from_secs(5)).await.unwrap().pop() {
            break taken;
        }
    };
    let secret = |name: &str| ToolboxOperation::Secret { name: name.into() };
    let read = process.does(&attempt, 1, secret("github")).await;
    assert_eq!(read, Some(OperationAnswer::Value(json!("ghp-12345678"))));
    // One that the operator does not allow, one that the manifest does not name, and one that nobody knows.
    for (number, name) in [(2, "other"), (3, "unnamed"), (4, "nowhere")] {
        let refused = process.does(&attempt, number, secret(name)).await;
        let Some(OperationAnswer::Refused { code: OperationRefusal::Secret, .. }) = refused else {
            panic!("{refused:?}");
        };
    }
    let key = process.does(&attempt, 20, ToolboxOperation::Completion { name: "paid".into() }).await;
    let Some(OperationAnswer::Value(Value::String(key))) = key else { panic!("{key:?}") };
    runtime.complete(&key, windlass::wait::Completed::ok(json!("yes"))).await.unwrap();
    let wait = ToolboxOperation::Wait { name: "paid".into(), deadline: None };
    assert_eq!(process.does(&attempt, 21, wait).await, Some(OperationAnswer::Value(json!({"ok": "yes"}))));
    let nested = ToolboxOperation::Call { name: "inner".into(), tool: "part".into(), args: json!({}) };
    let inner = async {
        let part = process.take().await;
        process.returns(&part, json!(5)).await;
    };
    let (called, ()) = tokio::join!(process.does(&attempt, 22, nested), inner);
    let Some(OperationAnswer::Value(called)) = called else { panic!("{called:?}") };
    assert_eq!((&called["state"], &called["outcome"]["value"]), (&json!("succeeded"), &json!(5)), "{called}");
    process.returns(&attempt, json!("it is ghp-12345678")).await;
    let answer = settled(submitted).await;
    assert_eq!(states(&answer), "c succeeded");
    assert!(!answer.calls[0].model_text().contains("ghp-"), "{}", answer.calls[0].model_text());
}

#[tokio::test]
async fn an_answer_from_outside_can_be_the_result() {
    let Begun { runtime, process, submitted, attempt } = Begun::new(tool("sign", EffectClass::Keyed)).await;
    let key = process.does(&attempt, 1, ToolboxOperation::Completion { name: "ann".into() }).await;
    let Some(OperationAnswer::Value(Value::String(key))) = key else { panic!("{key:?}") };
    let end = ToolboxEnd::Pending { name: "ann".into(), deadline: None };
    assert_eq!(process.end(&attempt, end).await.standing, AttemptStanding::Over);
    runtime.complete(&key, windlass::wait::Completed::ok(json!("signed"))).await.unwrap();
    assert_eq!(settled(submitted).await.calls[0].model_text(), "signed");
}

#[tokio::test]
async fn a_failure_says_whether_it_may_be_retried() {
    let Begun { process, submitted, attempt, .. } = Begun::new(tool("send", EffectClass::Once)).await;
    let error = ToolError { tool_code: Some("no_stamp".into()), ..ToolError::new("There is no stamp.") };
    process.end(&attempt, ToolboxEnd::Failed(Box::new(error))).await;
    let answer = settled(submitted).await;
    assert_eq!((states(&answer), answer.calls[0].call().attempts), ("c failed/tool_failed".into(), 1));
    assert!(answer.calls[0].model_text().contains("There is no stamp."));
}

#[tokio::test]
async fn a_toolbox_belongs_to_the_principal_that_put_it_first() {
    let runtime = memory();
    let toolboxes = runtime.toolboxes();
    let process = Process::new(&runtime, vec![tool("greet", EffectClass::Once)]).await;
    let foreign = toolboxes.put("crm", "bob", vec![tool("greet", EffectClass::Once)]).await;
    assert!(matches!(foreign, Err(ToolboxError::NotFound { .. })), "{foreign:?}");
    let asks = TakeRequest {
        worker: "w".into(),
        manifest: process.manifest.clone(),
        max: 1,
        ..TakeRequest::default()
    };
    let taken = toolboxes.take("crm", "bob", asks).await;
    assert!(matches!(taken, Err(ToolboxError::NotFound { .. })));
    assert!(!toolboxes.remove("crm", "bob").await.unwrap());
    // Another toolbox cannot have a tool of a similar name, and keeps none of its own then.
    let similar = vec![tool("fine", EffectClass::Once), tool("Greet", EffectClass::Once)];
    assert!(matches!(toolboxes.put("other", ANN, similar).await, Err(ToolboxError::Refused(_))));
    assert!(runtime.tool("fine").is_none());
    // A process with an older manifest takes nothing.
    let newer =
        Process::new(&runtime, vec![tool("greet", EffectClass::Once), tool("wave", EffectClass::Once)]).await;
    assert!(matches!(process.ask(1, Duration::ZERO).await, Err(ToolboxError::Changed { .. })));
    assert!(newer.ask(1, Duration::ZERO).await.unwrap().is_empty());
    assert!(runtime.tool("wave").is_some());
    assert!(toolboxes.remove("crm", ANN).await.unwrap());
    assert!(runtime.tool("wave").is_none() && toolboxes.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_toolbox_is_there_again_after_a_restart() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let tools = (0..40).map(|place| ToolManifest {
        description: "x".repeat(3_000),
        ..tool(&format!("tool_{place}"), EffectClass::Once)
    });
    let process = Process::new(&runtime, tools.collect()).await;
    let manifest = process.manifest.clone();
    drop((process, runtime));
    let owner = world.next(owner).await;
    let next = owner.runtime.clone();
    let listed = next.toolboxes().list().await.unwrap();
    assert_eq!((listed[0].tools.len(), &listed[0].manifest, listed[0].served), (40, &manifest, false));
    // The same manifest again changes nothing.
    let again = Process { runtime: next.clone(), manifest };
    assert!(again.at(&next).ask(1, Duration::ZERO).await.unwrap().is_empty());
    assert!(next.toolboxes().list().await.unwrap()[0].served);
    drop((next, again));
    owner.dies().await;
}
