//! Stored secrets: who may use them, what is recorded instead of them, and what happens without a key.

use crate::inside::body;
use crate::rig::{Count, batch, call, config, memory, run, spec};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use windlass::error::{Code, SecretError};
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::store::MemoryStore;
use windlass::tool::{Progress, Stream};
use windlass::{BatchRequest, Config, EffectClass, Output, Runtime, Tool, ToolError, ToolSpec};

const TOKEN: &str = "tok-\"9f/ü7&x";
const PIN: &str = "83750192";

/// A runtime whose key lies in the folder.
fn guarded(folder: &tempfile::TempDir) -> Runtime {
    let secret_key = SecretKeySource::File(folder.path().join("secret.key"));
    Runtime::new(Config { secret_key, ..config(folder) })
}

fn in_memory() -> Runtime {
    let secret_key = SecretKeySource::Key(SecretKey::random().unwrap());
    Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new().unwrap()) })
}

fn using(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { secrets: vec!["token".into()], ..spec(name, class) }
}

/// The arguments that a tool got.
type Seen = Arc<Mutex<Vec<Value>>>;

/// A tool that keeps what it was given, and returns it.
fn keeper(name: &str, seen: &Seen) -> impl Tool + use<> {
    let seen = seen.clone();
    body(spec(name, EffectClass::Once), move |args, _| {
        let seen = seen.clone();
        Box::pin(async move {
            seen.lock().unwrap().push(args.clone());
            Ok(Output::from(args))
        })
    })
}

/// All bytes of a folder in which a text is looked for.
fn is_in_files(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => is_in_files(&path, text),
            false => std::fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()),
        }
    })
}

async fn text_of(runtime: &Runtime, request: BatchRequest) -> String {
    let answer = run(runtime, "s", request).await;
    serde_json::to_string(&answer.calls).unwrap()
}

#[tokio::test]
async fn a_tool_uses_a_secret_by_name_and_nothing_of_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = guarded(&folder);
    let shown = body(using("deploy", EffectClass::Once), |_, cx| {
        Box::pin(async move {
            let token = cx.secret("token").await?;
            let token = token.expose();
            cx.status(&format!("with {token}"));
            cx.progress(Progress { label: Some(token.to_string()), ..Progress::default() });
            let (first, second) = token.split_at(5);
            cx.output(Stream::Out, first.as_bytes());
            cx.output(Stream::Out, second.as_bytes());
            let kept = cx.attach("log", token.as_bytes(), "text/plain").await?;
            let bytes = cx.read_artifact(kept.kept.artifact, 0, 100).await?;
            Ok(json!({ "len": token.len(), "said": token, "kept": String::from_utf8_lossy(&bytes) }).into())
        })
    });
    runtime.register(shown).unwrap();
    let fails = body(using("fail", EffectClass::Once), |_, cx| {
        Box::pin(async move {
            let token = cx.secret("token").await?;
            let error = ToolError::new(format!("wrong: {}", token.expose()));
            Err(ToolError { detail: Some(format!("?t={}", token.expose())), ..error }
                .with_raw(json!(token.expose())))
        })
    });
    runtime.register(fails).unwrap();
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    let answer =
        run(&runtime, "s", batch("k", vec![call("a", "deploy", json!({})), call("b", "fail", json!({}))]))
            .await;
    let value: Value = serde_json::from_str(&answer.calls[0].model_text()).unwrap();
    let marker = "[secret token]";
    assert_eq!(value, json!({ "len": TOKEN.len(), "said": marker, "kept": marker }));
    let failure = answer.calls[1].failure().unwrap();
    assert_eq!(
        (failure.message.as_str(), failure.detail.as_deref()),
        ("wrong: [secret token]", Some("?t=[secret token]"))
    );
    let again =
        text_of(&runtime, batch("k", vec![call("a", "deploy", json!({})), call("b", "fail", json!({}))]))
            .await;
    assert_eq!(
        again,
        serde_json::to_string(&answer.calls).unwrap().replace("\"recorded\":false", "\"recorded\":true")
    );
    assert!(!is_in_files(folder.path(), TOKEN) && !is_in_files(folder.path(), "tok-\\\""));
}

#[tokio::test]
async fn recorded_arguments_refer_to_secrets_that_the_tool_gets() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, seen) = (guarded(&folder), Seen::default());
    runtime.register(keeper("send", &seen)).unwrap();
    runtime.folder_secrets().set("token", TOKEN).await.unwrap();
    runtime.secrets("s").set("pin", PIN).await.unwrap();
    let args = json!({ "header": format!("Bearer {TOKEN}"), "pin": 83_750_192, "list": [{ TOKEN: "x83750192" }], "n": 1.5 });
    let request = || batch("k", vec![call("c", "send", args.clone())]);
    let answer = run(&runtime, "s", request()).await;
    assert_eq!(seen.lock().unwrap().as_slice(), std::slice::from_ref(&args));
    assert_eq!(answer.calls[0].state().to_string(), "succeeded", "{:?}", answer.calls[0].failure());
    let recorded = answer.calls[0].call().opened.args.text.to_string();
    assert!(
        recorded.contains("[secret:token:1.json:") && recorded.contains("[secret:pin:0.p:"),
        "{recorded}"
    );
    // Submitted again it is the same call, also without a key, and also by another process.
    drop((answer, runtime));
    let runtime = guarded(&folder);
    runtime.register(keeper("send", &seen)).unwrap();
    assert!(run(&runtime, "s", request()).await.calls[0].is_recorded());
    let derived = || BatchRequest { key: None, ..request() };
    assert!(!run(&runtime, "s", derived()).await.calls[0].is_recorded());
    assert!(run(&runtime, "s", derived()).await.calls[0].is_recorded());
    assert_eq!(seen.lock().unwrap().len(), 2);
    drop(runtime);
    assert!(!is_in_files(folder.path(), PIN));
}

#[tokio::test]
async fn a_text_that_looks_like_a_reference_is_a_text() {
    let (runtime, seen) = (in_memory(), Seen::default());
    runtime.register(keeper("send", &seen)).unwrap();
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "send", json!({ "t": TOKEN }))])).await;
    let recorded: Value = serde_json::from_str(&answer.calls[0].call().opened.args.text).unwrap();
    let copied = recorded["t"].as_str().unwrap().to_string();
    assert!(copied.starts_with("[secret:token:0."), "{copied}");
    for (key, id, text) in [
        ("k2", "c", copied.clone()),
        ("k", "d", copied.clone()),
        ("k3", "c", "[secret:token:0.p:0123456789abcdef]".to_string()),
        ("k4", "c", "[secret token] [secret:".to_string()),
    ] {
        let given = json!({ "t": text });
        run(&runtime, "s", batch(key, vec![call(id, "send", given.clone())])).await;
        assert_eq!(seen.lock().unwrap().last(), Some(&given));
    }
    // Under its own identity it is the recorded call.
    let again = run(&runtime, "s", batch("k", vec![call("c", "send", json!({ "t": copied }))])).await;
    assert!(again.calls[0].is_recorded() && seen.lock().unwrap().len() == 5);
}

#[tokio::test]
async fn arguments_are_checked_as_they_run() {
    let (runtime, seen) = (in_memory(), Seen::default());
    let schema = json!({
        "type": "object", "required": ["t"],
        "properties": { "t": { "type": "string", "maxLength": 12 }, "n": { "type": "integer" }, "pin": { "type": "integer" } },
    });
    let seen_by = seen.clone();
    let tool =
        body(ToolSpec { input_schema: Some(schema), ..spec("send", EffectClass::Once) }, move |args, _| {
            let seen = seen_by.clone();
            Box::pin(async move {
                seen.lock().unwrap().push(args);
                Ok(Output::default())
            })
        });
    runtime.register(tool).unwrap();
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    runtime.secrets("s").set("pin", PIN).await.unwrap();
    for (key, given, expected) in [
        ("a", json!({ "t": TOKEN, "pin": 83_750_192 }), Some(json!({ "t": TOKEN, "pin": 83_750_192 }))),
        // Repaired, with the secrets in it.
        (
            "b",
            json!({ "t": TOKEN, "n": "5", "pin": PIN }),
            Some(json!({ "t": TOKEN, "n": 5, "pin": 83_750_192 })),
        ),
        ("c", json!({ "t": format!("{TOKEN}{TOKEN}") }), None),
    ] {
        let before = seen.lock().unwrap().len();
        let answer = run(&runtime, "s", batch(key, vec![call("c", "send", given)])).await;
        let shown = serde_json::to_string(&answer.calls[0]).unwrap();
        assert!(!shown.contains("9f/ü7") && !shown.contains(PIN), "{shown}");
        assert_eq!(seen.lock().unwrap().get(before).cloned(), expected, "{shown}");
    }
}

#[tokio::test]
async fn a_step_that_returns_a_secret_is_recorded_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let (ran, seen) = (Count::default(), Seen::default());
    for round in 0..2 {
        let runtime = guarded(&folder);
        if round == 0 {
            runtime.secrets("s").set("token", TOKEN).await.unwrap();
        }
        let (ran, seen) = (ran.clone(), seen.clone());
        runtime
            .register(body(using("t", EffectClass::Stepped), move |_, cx| {
                let (ran, seen) = (ran.clone(), seen.clone());
                Box::pin(async move {
                    let token = cx.secret("token").await?.expose().to_string();
                    let found: Value = cx
                        .step("read", json!({ "with": token }), |_| async {
                            ran.up();
                            Ok(json!({ "session": token }))
                        })
                        .await?;
                    seen.lock().unwrap().push(found);
                    let answer = cx.ask("more", &format!("Use {token}?"), None).await?;
                    Ok(json!(answer).into())
                })
            }))
            .unwrap();
        let submitted = runtime.submit("s", batch("k", vec![call("c", "t", json!({}))])).await.unwrap();
        submitted.stands_still().await.unwrap();
        if round == 1 {
            let asked =
                windlass::inspect::questions(&**runtime.store(), windlass::time::Timestamp(0)).await.unwrap();
            assert_eq!(asked[0].question, "Use [secret token]?");
            runtime.answer(&asked[0].id, &json!(format!("yes {TOKEN}"))).await.unwrap();
            assert_eq!(submitted.settled().await.unwrap().calls[0].model_text(), "yes [secret token]");
        }
    }
    assert_eq!(ran.get(), 1);
    let found = seen.lock().unwrap().clone();
    assert!(found.len() > 1 && found.iter().all(|found| *found == json!({ "session": TOKEN })), "{found:?}");
    assert!(!is_in_files(folder.path(), TOKEN) && !is_in_files(folder.path(), "9f/ü7"));
}

#[tokio::test]
async fn a_missing_secret_is_explained_to_operators_only() {
    let runtime = in_memory();
    let ran = Count::default();
    let seen = ran.clone();
    runtime
        .register(body(using("deploy", EffectClass::Once), move |_, cx| {
            let seen = seen.clone();
            Box::pin(async move {
                cx.secret("token").await?;
                seen.up();
                cx.secret("other").await?;
                Ok(Output::default())
            })
        }))
        .unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "deploy", json!({}))])).await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(failure.code, Code::SecretUnavailable);
    assert!(failure.did_not_happen && !failure.message.contains("token"), "{failure:?}");
    assert!(failure.detail.as_ref().unwrap().contains("windlass secrets set token"), "{failure:?}");
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    let answer = run(&runtime, "s", batch("k2", vec![call("c", "deploy", json!({}))])).await;
    let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
    assert!(ran.get() == 1 && detail.contains("does not list"), "{detail}");
    // A call that refers to a secret which is gone by then.
    let seen = Seen::default();
    runtime.register(keeper("send", &seen)).unwrap();
    runtime.pause("send").await.unwrap();
    let waits =
        runtime.submit("s", batch("k3", vec![call("c", "send", json!({ "t": TOKEN }))])).await.unwrap();
    waits.admitted().await.unwrap();
    assert!(runtime.secrets("s").remove("token").await.unwrap());
    runtime.resume_tool("send").await.unwrap();
    let answer = waits.settled().await.unwrap();
    assert_eq!(answer.calls[0].failure().unwrap().code, Code::SecretUnavailable);
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_nearest_secret_counts() {
    let runtime = in_memory();
    runtime
        .register(body(using("show", EffectClass::Once), |args, cx| {
            Box::pin(async move {
                let token = cx.secret("token").await?;
                Ok(json!({ "is": token.expose() == args["wanted"].as_str().unwrap_or_default().replace('_', "-") }).into())
            })
        }))
        .unwrap();
    runtime.folder_secrets().set("token", "of-the-folder").await.unwrap();
    runtime.secrets("s").set("token", "of-the-session").await.unwrap();
    for (session, wanted) in [("s", "of_the_session"), ("t", "of_the_folder")] {
        let answer =
            run(&runtime, session, batch("k", vec![call("c", "show", json!({ "wanted": wanted }))])).await;
        assert_eq!(answer.calls[0].model_text(), "{\"is\":true}", "{session}");
    }
    // A reference names whose secret it is, though another one of the name counts.
    let seen = Seen::default();
    runtime.register(keeper("send", &seen)).unwrap();
    run(&runtime, "s", batch("k2", vec![call("c", "send", json!({ "t": "of-the-folder" }))])).await;
    assert_eq!(*seen.lock().unwrap(), [json!({ "t": "of-the-folder" })]);
    // A value that was replaced is still recognised.
    runtime.secrets("s").set("token", "another-value").await.unwrap();
    let answer =
        run(&runtime, "s", batch("k3", vec![call("c", "send", json!({ "t": "of-the-session" }))])).await;
    assert!(answer.calls[0].call().opened.args.text.starts_with("{\"t\":\"[secret:token:0.p:"));
    assert_eq!(seen.lock().unwrap()[1], json!({ "t": "another-value" }));
}

#[tokio::test]
async fn names_are_listed_and_bad_ones_refused() {
    let runtime = in_memory();
    let secrets = runtime.secrets("s");
    assert!(secrets.list().await.unwrap().is_empty() && !secrets.remove("a").await.unwrap());
    secrets.set("b.2", TOKEN).await.unwrap();
    secrets.set("a-1", TOKEN).await.unwrap();
    let names: Vec<String> = secrets.list().await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["a-1", "b.2"]);
    assert!(runtime.folder_secrets().list().await.unwrap().is_empty());
    for (name, value) in
        [("", TOKEN), ("a b", TOKEN), (&*"n".repeat(65), TOKEN), ("a", "seven77"), ("a", &"v".repeat(8193))]
    {
        let refused = secrets.set(name, value).await.unwrap_err();
        assert!(
            matches!(refused, SecretError::Unfit { .. }) && !refused.to_string().contains(value),
            "{refused}"
        );
    }
    let refused = memory().secrets("s").set("a", TOKEN).await.unwrap_err();
    assert!(matches!(refused, SecretError::NoKey), "{refused}");
    assert!(runtime.remove_session("s").await.unwrap());
}

#[tokio::test]
async fn another_key_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("secret.key");
    let runtime = guarded(&folder);
    assert!(!key.exists());
    runtime.folder_secrets().set("token", TOKEN).await.unwrap();
    drop(runtime);
    std::fs::rename(&key, folder.path().join("moved")).unwrap();
    for other in [false, true] {
        let secret_key = match other {
            true => SecretKeySource::Key(SecretKey::random().unwrap()),
            false => SecretKeySource::File(key.clone()),
        };
        let runtime = Runtime::new(Config { secret_key, ..config(&folder) });
        runtime
            .register(body(using("deploy", EffectClass::Once), |_, cx| {
                Box::pin(async move {
                    cx.secret("token").await.map(|_| Output::default()).map_err(ToolError::from)
                })
            }))
            .unwrap();
        let answer =
            run(&runtime, "s", batch(&format!("k{other}"), vec![call("c", "deploy", json!({}))])).await;
        let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
        assert!(detail.contains("cannot be decrypted"), "{detail}");
        assert_eq!(runtime.folder_secrets().list().await.unwrap().len(), 1);
        // No new key is made while secrets of the old one are stored.
        assert_eq!(runtime.secrets("s").set("token", TOKEN).await.is_ok(), other);
        assert!(!key.exists());
        runtime.secrets("s").remove("token").await.unwrap();
    }
}

#[tokio::test]
async fn a_batch_from_before_the_secret_was_stored_is_still_itself() {
    let (runtime, seen) = (in_memory(), Seen::default());
    runtime.register(keeper("send", &seen)).unwrap();
    let given = || BatchRequest { key: None, ..batch("", vec![call("c", "send", json!({ "t": TOKEN }))]) };
    let named = || batch("k", vec![call("c", "send", json!({ "t": TOKEN }))]);
    let (first, second) = (run(&runtime, "s", given()).await, run(&runtime, "s", named()).await);
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    let again = run(&runtime, "s", given()).await;
    assert!(again.calls[0].is_recorded() && again.key == first.key);
    let again = run(&runtime, "s", named()).await;
    assert!(again.calls[0].is_recorded() && again.key == second.key && again.calls[0].failure().is_none());
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_child_session_uses_and_hides_the_secrets_of_its_parent() {
    let (runtime, seen) = (in_memory(), Seen::default());
    runtime.register(keeper("send", &seen)).unwrap();
    runtime
        .register(body(using("delegate", EffectClass::Once), |_, cx| {
            Box::pin(async move {
                let token = cx.secret("token").await?;
                let child = cx.child("helper", windlass::sessions::ChildSpec::default()).await?;
                let call = call("c", "send", json!({ "t": token.expose() }));
                let answer = child
                    .batch("go", windlass::batch::NestedBatch { calls: vec![call], ..Default::default() })
                    .await?;
                Ok(json!(answer.calls[0].model_text()).into())
            })
        }))
        .unwrap();
    runtime.secrets("s").set("token", TOKEN).await.unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "delegate", json!({}))])).await;
    assert!(answer.calls[0].model_text().contains("[secret token]"), "{}", answer.calls[0].model_text());
    assert_eq!(*seen.lock().unwrap(), [json!({ "t": TOKEN })]);
}
