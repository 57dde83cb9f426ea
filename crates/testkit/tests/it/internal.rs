//! Internal errors stay internal: whatever breaks inside, the model is told one sentence with a reference.

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use windlass::error::{
    ArtifactError, AskError, EmitError, FileError, Lost, Misuse, PairError, SecretError, SessionError,
    StepError,
};
use windlass::sessions::FileExpectation;
use windlass::store::memory::MemoryStore;
use windlass::{
    BatchError, BatchRequest, CallAnswer, CallRequest, Config, Cx, Flags, Runtime, Tool, ToolError,
    ToolFuture, ToolSpec,
};
use windlass_core::call::{Illegal, Kind as FactKind};
use windlass_core::failure::FailureClass;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BlobNo, Fence, SessionNo};
use windlass_store::{Refused, Store, StoreError};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// Stands in everything that no model may see.
const SECRET: &str = "SECRET-8271";

/// One of each. Clippy (`wildcard_enum_match_arm`) refuses a new variant until it is listed here.
fn store_errors() -> Vec<StoreError> {
    let source = || -> Box<dyn std::error::Error + Send + Sync> { SECRET.into() };
    let all = vec![
        StoreError::Owned { folder: SECRET.into(), holder: SECRET.to_owned() },
        StoreError::Open { path: SECRET.into(), help: SECRET.to_owned(), source: Some(source()) },
        StoreError::Away { path: SECRET.into(), help: SECRET.to_owned(), source: source() },
        StoreError::Newer { path: SECRET.into(), found: 9, known: 1 },
        StoreError::UnsafeSqlite { found: SECRET.to_owned(), needed: "1" },
        StoreError::Damaged { session: SessionNo(8_271), entry: 8_271, what: SECRET.to_owned() },
        StoreError::DamagedBlob { blob: BlobNo(8_271), piece: 8_271 },
        StoreError::Io { doing: SECRET, source: source() },
        StoreError::Poisoned { because: "the disk is full".into() },
        StoreError::Stalled { because: "the disk is full".into() },
        StoreError::ReadOnly { folder: SECRET.into() },
        StoreError::Closed,
    ];
    for error in &all {
        match error {
            StoreError::Owned { .. }
            | StoreError::Open { .. }
            | StoreError::Away { .. }
            | StoreError::Newer { .. }
            | StoreError::UnsafeSqlite { .. }
            | StoreError::Damaged { .. }
            | StoreError::DamagedBlob { .. }
            | StoreError::Io { .. }
            | StoreError::Poisoned { .. }
            | StoreError::Stalled { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Closed => {}
            other => panic!("{other:?} is not listed"),
        }
    }
    all
}

fn losses() -> Vec<Lost> {
    let mut all: Vec<Lost> = store_errors().into_iter().map(Lost::from).collect();
    for refused in
        [Refused::Fenced { now: Fence(8_271) }, Refused::Exists, Refused::Adopted, Refused::TooLarge]
    {
        all.push(Lost::Refused(refused));
    }
    all.push(Lost::Broken(Illegal { state: SECRET, fact: FactKind::Opened, attempts: 8_271 }));
    for lost in &all {
        match lost {
            Lost::Store(_) | Lost::Refused(_) | Lost::Lease | Lost::Removed | Lost::Broken(_) => {}
            other => panic!("{other:?} is not listed"),
        }
    }
    all
}

/// Every way in which something inside can come out of a tool.
fn internal_errors() -> Vec<ToolError> {
    let mut all: Vec<ToolError> = Vec::new();
    for lost in losses() {
        all.push(ArtifactError::Lost(lost.clone()).into());
        all.push(ToolError::internal(windlass::error::chain(&lost)));
        all.push(ToolError::internal(windlass::error::chain(&SessionError::Lost(lost))).did_not_happen());
    }
    for error in store_errors() {
        all.push(ToolError::internal(windlass::error::chain(&SessionError::from(error))));
    }
    all.extend(host_errors());
    all.push(ToolError { class: FailureClass::Internal, ..ToolError::new(SECRET) });
    all.push(ToolError {
        class: FailureClass::Internal,
        tool_code: Some(SECRET.to_owned()),
        detail: Some(SECRET.to_owned()),
        ..ToolError::new(SECRET)
    });
    all
}

/// Errors about secrets. Clippy (`wildcard_enum_match_arm`) refuses a new variant until it is listed here.
fn secret_errors() -> Vec<SecretError> {
    let name = || SECRET.to_owned();
    let mut all = vec![
        SecretError::Unfit { what: name() },
        SecretError::Full { max: 8_271 },
        SecretError::NoKey,
        SecretError::Key { what: name() },
        SecretError::Missing { name: name() },
        SecretError::Sealed { name: name() },
        SecretError::Undeclared { name: name() },
    ];
    all.extend(losses().into_iter().map(|lost| SecretError::Session(lost.into())));
    for error in &all {
        match error {
            SecretError::Unfit { .. }
            | SecretError::Full { .. }
            | SecretError::NoKey
            | SecretError::Key { .. }
            | SecretError::Missing { .. }
            | SecretError::Sealed { .. }
            | SecretError::Undeclared { .. }
            | SecretError::Session(_) => {}
            other => panic!("{other:?} is not listed"),
        }
    }
    all
}

/// Errors about files. Clippy (`wildcard_enum_match_arm`) refuses a new variant until it is listed here.
fn file_errors() -> Vec<FileError> {
    let what = || SECRET.to_owned();
    let mut all = vec![
        FileError::NotConfigured,
        FileError::NotAllowed { why: what() },
        FileError::Io { path: what(), source: std::io::Error::other(SECRET) },
        // The next ones are about paths that the model gave.
        FileError::Path { path: "a".into(), why: "no".into() },
        FileError::NotFound { path: "a".into() },
        FileError::TooLarge { path: "a".into(), max: 1 },
        FileError::NotEmpty { path: "a".into() },
        FileError::Changed { path: "a".into(), expected: FileExpectation::Absent, found: None },
    ];
    all.extend(losses().into_iter().map(|lost| FileError::Session(lost.into())));
    for error in &all {
        match error {
            FileError::NotConfigured
            | FileError::NotAllowed { .. }
            | FileError::Io { .. }
            | FileError::Path { .. }
            | FileError::NotFound { .. }
            | FileError::TooLarge { .. }
            | FileError::NotEmpty { .. }
            | FileError::Changed { .. }
            | FileError::Session(_) => {}
            other => panic!("{other:?} is not listed"),
        }
    }
    all
}

/// Errors of the host's own API: a tool that passes one on does not show it.
fn host_errors() -> Vec<ToolError> {
    let lost = || SessionError::from(losses().remove(0));
    let what = || SECRET.to_owned();
    let io = || std::io::Error::other(SECRET);
    vec![
        lost().into(),
        SessionError::NotFound { session: what() }.into(),
        SessionError::unreadable(what()).into(),
        BatchError::Shape { what: what() }.into(),
        BatchError::Session(lost()).into(),
        AskError::NotFound { what: what() }.into(),
        AskError::FilesLeft { what: what() }.into(),
        PairError::Unfit { what: what() }.into(),
        EmitError::Invalid { what: what() }.into(),
        StepError::Misused(Misuse::Unkept { name: what(), why: what() }).into(),
        StepError::Lost(losses().remove(0)).into(),
        FileError::NotConfigured.into(),
        FileError::Io { path: what(), source: io() }.into(),
        FileError::Session(lost()).into(),
        ArtifactError::MediaType { media_type: what(), max: 1 }.into(),
        io().into(),
    ]
}

/// A tool that fails as it is told, or panics.
struct Breaks(Mutex<Vec<ToolError>>);

impl Tool for Breaks {
    fn spec(&self) -> ToolSpec {
        // It is asked again and again, and what tells its errors apart is not for the model.
        let flags = Flags { polls: true, ..Flags::default() };
        ToolSpec { name: "breaks".to_owned(), flags, ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _args: Value, _cx: &'a Cx) -> ToolFuture<'a> {
        let error = self.0.lock().unwrap().pop();
        Box::pin(async move { Err(error.unwrap_or_else(|| panic!("{SECRET}"))) })
    }
}

/// A tool that reads an artifact which cannot be read.
struct Reads(Handle);

impl Tool for Reads {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "reads".to_owned(), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { Ok(json!(cx.read_artifact(self.0, 0, 10).await?).into()) })
    }
}

async fn call(runtime: &Runtime, tool: &str) -> CallAnswer {
    let args = windlass::Args::Json(json!({}));
    let call = CallRequest { tool: tool.to_owned(), args, ..CallRequest::default() };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    runtime.submit("s", batch).await.unwrap().settled().await.unwrap().calls.remove(0)
}

#[track_caller]
fn check_internal(answer: &CallAnswer, code: &str) {
    let reference = answer.handle();
    let told: Value = serde_json::from_str(&answer.model_text()).unwrap();
    let sentence = format!("An internal error occurred; the operator finds it under reference {reference}.");
    assert_eq!(told, json!({"error": sentence, "code": code}));
    // What programs get is written for the same eyes.
    let shown = serde_json::to_string(answer).unwrap();
    for hidden in [SECRET, "8271", "planned fault", "the store", "session"] {
        assert!(!shown.contains(hidden), "{hidden}: {shown}");
    }
    let detail = answer.failure().and_then(|failure| failure.detail.as_deref());
    assert!(detail.is_some_and(|detail| !detail.is_empty()), "operators are told nothing");
}

#[tokio::test]
async fn every_internal_error_is_one_sentence_for_the_model() {
    let errors = internal_errors();
    let count = errors.len();
    let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
    runtime.register(Breaks(Mutex::new(errors))).unwrap();
    for _ in 0..count {
        check_internal(&call(&runtime, "breaks").await, "internal");
    }
    check_internal(&call(&runtime, "breaks").await, "tool_panicked");
    println!("{count} internal errors and a panic, one sentence");
}

#[tokio::test]
async fn every_error_about_a_secret_is_one_sentence_for_the_model() {
    let errors: Vec<ToolError> = secret_errors().into_iter().map(ToolError::from).collect();
    let count = errors.len();
    let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
    runtime.register(Breaks(Mutex::new(errors))).unwrap();
    let mut sentences = std::collections::BTreeSet::new();
    for _ in 0..count {
        let answer = call(&runtime, "breaks").await;
        let told: Value = serde_json::from_str(&answer.model_text()).unwrap();
        assert_eq!(told["code"], "secret_unavailable");
        sentences.insert(told["error"].to_string());
        let shown = serde_json::to_string(&answer).unwrap();
        assert!(!shown.contains(SECRET) && !shown.contains("8271"), "{shown}");
        let failure = answer.failure().unwrap();
        assert!(failure.did_not_happen && failure.detail.is_some(), "{failure:?}");
    }
    assert_eq!(sentences.len(), 1, "{sentences:?}");
}

#[tokio::test]
async fn no_error_about_a_file_shows_more_than_its_path() {
    let errors: Vec<ToolError> = file_errors().into_iter().map(ToolError::from).collect();
    let count = errors.len();
    let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
    runtime.register(Breaks(Mutex::new(errors))).unwrap();
    for _ in 0..count {
        let shown = serde_json::to_string(&call(&runtime, "breaks").await).unwrap();
        for hidden in [SECRET, "8271", "the store", "configuration"] {
            assert!(!shown.contains(hidden), "{hidden}: {shown}");
        }
    }
}

/// A call that a broken policy denies, or for which the policy cannot be read.
#[tokio::test]
async fn a_broken_policy_denies_without_saying_what_is_wrong_with_it() {
    let policy = Some(json!({ "rules": [{ "name": SECRET, "ruling": SECRET }] }));
    let runtime = Runtime::new(Config { policy, ..Config::new(MemoryStore::new().unwrap()) });
    runtime.register(Breaks(Mutex::new(Vec::new()))).unwrap();
    let answer = call(&runtime, "breaks").await;
    assert_eq!(answer.state(), "denied");
    let shown = serde_json::to_string(&answer).unwrap();
    assert!(shown.contains("operator") && !shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn a_store_that_fails_under_a_tool_is_one_sentence_for_the_model() {
    for fault in [Fault::FailBefore, Fault::LostBefore] {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let artifact = Handle::seal(inner.secret(), HandleKind::Artifact, 1);
        let store = FaultStore::new(inner, FaultPlan::Nth(Method::Blob, 1, fault), FaultReach::Session);
        let runtime = Runtime::new(Config::new(store));
        runtime.register(Reads(artifact)).unwrap();
        check_internal(&call(&runtime, "reads").await, "internal");
    }
}
