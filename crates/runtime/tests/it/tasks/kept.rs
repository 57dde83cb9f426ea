//! The log and the result of a task as artifacts, and what else a task keeps.

use super::{background, closed, fresh, owner};
use crate::inside::body;
use crate::rig::{batch, call, run, spec};
use serde_json::{Value, json};
use windlass::ask::Target;
use windlass::ids::Handle;
use windlass::tasks::{NewTask, Task};
use windlass::tool::Stream;
use windlass::{CallRequest, EffectClass, Limits, Runtime, Tool, ToolError, ToolSpec};

/// Writes to its log, and returns or fails as it is told.
fn builds() -> impl Tool {
    body(background("build", EffectClass::Once), |args, cx| {
        Box::pin(async move {
            cx.output(Stream::Out, b"compiling\nlin");
            cx.output(Stream::Out, b"king\n");
            cx.output(Stream::Err, b"one warning\n");
            match args["error"].as_str() {
                Some(error) => Err(ToolError::new(error.to_string())),
                None => Ok(args["value"].clone().into()),
            }
        })
    })
}

/// Reads a piece of an artifact, as a tool of the model would.
fn reads() -> impl Tool {
    body(spec("read", EffectClass::Read), |args, cx| {
        Box::pin(async move {
            let artifact = Handle::parse(args["artifact"].as_str().unwrap()).unwrap();
            let (offset, len) = (args["offset"].as_u64().unwrap(), args["len"].as_u64().unwrap());
            let bytes = cx.read_artifact(artifact, offset, len).await?;
            Ok(json!(String::from_utf8(bytes).unwrap()).into())
        })
    })
}

/// The whole artifact, four bytes at a time.
async fn paged(runtime: &Runtime, session: &str, artifact: &str) -> Result<String, String> {
    let mut whole = String::new();
    loop {
        let args = json!({"artifact": artifact, "offset": whole.len(), "len": 4});
        let key = windlass::batch::fresh_key().unwrap();
        let answer = run(runtime, session, batch(&key, vec![call("c", "read", args)])).await;
        let piece: String = match answer.calls[0].failure() {
            Some(failure) => return Err(failure.message.clone()),
            None => answer.calls[0].value().unwrap(),
        };
        if piece.is_empty() {
            return Ok(whole);
        }
        whole += &piece;
    }
}

async fn spawned(runtime: &Runtime, args: Value) -> Value {
    let key = windlass::batch::fresh_key().unwrap();
    let asked = json!({"tool": "build", "args": args, "tags": ["nightly"]});
    let answer = run(runtime, "s", batch(&key, vec![call("c", "spawn_background", asked)])).await;
    answer.calls[0].value().unwrap()
}

async fn ended(runtime: &Runtime, task: &Value) -> Task {
    let within = std::time::Duration::from_secs(60);
    runtime.tasks("s").wait(task["task"].as_str().unwrap(), within).await.unwrap().0
}

fn with_tools(runtime: &Runtime) {
    runtime.register(builds()).unwrap();
    runtime.register(reads()).unwrap();
}

#[tokio::test]
async fn a_model_reads_log_and_result_of_its_task_page_by_page() {
    let (runtime, clock, store) = fresh();
    with_tools(&runtime);
    let started = spawned(&runtime, json!({"value": "twelve pages"})).await;
    let (log, result) = (started["log"].as_str().unwrap(), started["result"].as_str().unwrap());
    let shown = ended(&runtime, &started).await;
    assert_eq!((shown.log_artifact.as_deref(), shown.result_artifact.as_deref()), (Some(log), Some(result)));
    let lines = "out: compiling\nout: linking\nerr: one warning\n";
    assert_eq!(paged(&runtime, "s", log).await.unwrap(), lines);
    assert_eq!(paged(&runtime, "s", result).await.unwrap(), "twelve pages");
    let refused = paged(&runtime, "other", log).await.unwrap_err();
    assert!(
        refused.contains("There is no artifact") || refused.contains("there is no artifact"),
        "{refused}"
    );
    assert!(paged(&runtime, "other", result).await.is_err(), "it is another session's");
    // The next owner finds both.
    drop(runtime);
    let runtime = owner(&store, &clock);
    with_tools(&runtime);
    assert_eq!(paged(&runtime, "s", log).await.unwrap(), lines);
    let info = runtime.artifact(Handle::parse(result).unwrap()).await.unwrap().unwrap();
    assert_eq!((info.session.as_str(), info.bytes), ("s", 12));
}

#[tokio::test]
async fn a_result_is_read_whole_however_it_ended() {
    let limits = Limits { answer_bytes_max: 1_000, ..Limits::default() };
    let store = windlass::store::memory::MemoryStore::new().unwrap();
    let runtime = Runtime::new(windlass::Config { limits, ..windlass::Config::new(store) });
    with_tools(&runtime);
    let long = json!({"text": "x".repeat(5_000)});
    for (args, whole) in [
        (json!({"value": {"pages": 12}}), Some(r#"{"pages":12}"#.to_string())),
        (json!({"value": long}), Some(long.to_string())),
        (json!({"error": "The disk is full."}), None),
    ] {
        let started = spawned(&runtime, args).await;
        ended(&runtime, &started).await;
        let (_, answer) = runtime.tasks("s").get(started["task"].as_str().unwrap()).await.unwrap();
        let whole = whole.unwrap_or_else(|| answer.model_text());
        assert!(!whole.is_empty());
        let artifact = Handle::parse(started["result"].as_str().unwrap()).unwrap();
        let bytes = runtime.read_artifact(artifact, 0, u64::MAX).await.unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), whole);
    }
}

#[tokio::test]
async fn a_task_keeps_its_tags_and_the_time_of_a_cancel() {
    let (runtime, clock, store) = fresh();
    let gate = closed();
    let spec = ToolSpec { tags: vec!["ci".into()], ..background("build", EffectClass::Once) };
    runtime.register(super::gated(spec, &gate)).unwrap();
    let new = NewTask { tags: vec!["nightly".into(), "main".into()], ..NewTask::default() };
    let asked = CallRequest { task: Some(new), ..call("c", "build", json!({})) };
    let answer = run(&runtime, "s", batch("k", vec![asked])).await;
    let handle = answer.calls[0].handle().to_string();
    crate::rig::until_runs(&runtime).await;
    let shown = async |runtime: &Runtime| runtime.tasks("s").get(&handle).await.unwrap().0;
    assert_eq!(shown(&runtime).await.cancel_asked_at, None);
    let at = windlass::time::wall_time(runtime.clock().now());
    runtime.cancel(Target::Call(&handle), None).await.unwrap();
    // Its grace passes.
    while !runtime.open().await.unwrap().is_empty() {
        clock.advance(std::time::Duration::from_millis(50));
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    drop(runtime);
    let task = shown(&owner(&store, &clock)).await;
    assert_eq!(task.tags, ["nightly", "main"]);
    // Recorded when the running call took note of it.
    let asked = task.cancel_asked_at.unwrap();
    assert!(at <= asked && Some(&asked) <= task.ended_at.as_ref(), "{at}, {asked}, {:?}", task.ended_at);
}

#[tokio::test]
async fn tags_are_few_and_have_words() {
    let (runtime, _, _) = fresh();
    runtime.register(builds()).unwrap();
    for (tags, told) in [(vec!["a".to_string(); 17], "17 words"), (vec![" ".to_string()], "blank")] {
        let task = Some(NewTask { tags, ..NewTask::default() });
        let asked = CallRequest { task, ..call("c", "build", json!({})) };
        let error = runtime.submit("s", batch("k", vec![asked])).await.err().unwrap();
        assert!(error.to_string().contains(told), "{error}");
    }
}
