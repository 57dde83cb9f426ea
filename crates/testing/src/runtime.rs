//! The runtime of a test.

use crate::call::{StartedCall, TestedCall};
use crate::clock::TestClock;
use crate::observed::{ObservedTool, RunLog};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use windlass::error::{RegisterError, SessionError};
use windlass::inspect;
use windlass::model::LanguageModel;
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::wait::Wait;
use windlass::{Args, BatchError, BatchRequest, CallRequest, Config, Limits, Runtime, Tool};

/// The session of a test's calls.
const SESSION: &str = "test";

/// A runtime in memory, on a clock that the test moves. Retries come at once.
pub struct TestRuntime {
    runtime: Runtime,
    clock: TestClock,
    runs: RunLog,
    tools: Mutex<Vec<Arc<dyn Tool>>>,
    model: Option<Arc<dyn LanguageModel>>,
    calls: Mutex<u64>,
}

/// A test that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The store cannot be made.
    #[error("the store in memory cannot be made")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The tool was refused.
    #[error("the tool was refused")]
    Register(#[from] RegisterError),
    /// The call was refused.
    #[error("the call was refused")]
    Submit(#[from] BatchError),
    /// The record cannot be read.
    #[error("the record cannot be read")]
    Read(#[from] SessionError),
    /// The answer has no call in it.
    #[error("the batch was answered without a call")]
    NoCall,
}

impl TestRuntime {
    /// A runtime without tools.
    pub fn new() -> Result<TestRuntime, TestError> {
        TestRuntime::with_model(None)
    }

    /// A runtime whose tools may ask this language model.
    pub fn with_model(model: Option<Arc<dyn LanguageModel>>) -> Result<TestRuntime, TestError> {
        let store = MemoryStore::new().map_err(|error| TestError::Store(error.into()))?;
        let clock = TestClock::default();
        let runtime = opened(Arc::new(store), &clock, &model);
        let (runs, tools, calls) = (RunLog::default(), Mutex::default(), Mutex::default());
        Ok(TestRuntime { runtime, clock, runs, tools, model, calls })
    }

    /// Registers a tool. Its runs are observed.
    pub fn register(&self, tool: impl Tool) -> Result<(), TestError> {
        let tool: Arc<dyn Tool> = Arc::new(ObservedTool { tool: Arc::new(tool), runs: self.runs.clone() });
        self.runtime.register_shared(tool.clone())?;
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).push(tool);
        Ok(())
    }

    /// The clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// The runtime, for everything that this kit does not do.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Calls a tool and waits until the call has ended.
    pub async fn call(&self, tool: &str, args: Value) -> Result<TestedCall, TestError> {
        let started = self.start(tool, args).await?;
        self.ended(&started).await
    }

    /// Calls a tool in a batch of its own, and does not wait for it.
    pub async fn start(&self, tool: &str, args: Value) -> Result<StartedCall, TestError> {
        let key = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            *calls += 1;
            format!("call-{calls}")
        };
        let call = CallRequest {
            id: Some("c".into()),
            tool: tool.into(),
            args: Args::Json(args),
            ..CallRequest::default()
        };
        let batch = BatchRequest { key: Some(key), calls: vec![call], ..BatchRequest::default() };
        // Who does not wait for a call stops nothing.
        drop(self.runtime.submit(SESSION, batch.clone()).await?);
        Ok(StartedCall { batch })
    }

    /// Waits until the call has ended. A call that waits for time ends once the test has moved the clock.
    pub async fn ended(&self, started: &StartedCall) -> Result<TestedCall, TestError> {
        let submitted = self.runtime.submit(SESSION, started.batch.clone()).await?;
        let answer = submitted.settled().await?.calls.into_iter().next().ok_or(TestError::NoCall)?;
        let runs = self.runs.of(&answer.handle().to_string());
        let lines = match inspect::call(self.runtime.store(), answer.handle()).await? {
            Some((_, lines)) => lines,
            None => Vec::new(),
        };
        let own = lines.into_iter().filter(|line| line.depth == 0 && line.kind == "step_ended");
        let steps = own.filter_map(|line| line.name).collect();
        Ok(TestedCall { answer, runs, steps })
    }

    /// Waits until the call waits for something of this kind, such as a time, a person or an answer from outside.
    pub async fn until_waiting(&self, started: &StartedCall, wait: Wait) -> Result<(), TestError> {
        let submitted = self.runtime.submit(SESSION, started.batch.clone()).await?;
        loop {
            let answer = submitted.now().await?;
            let call = answer.calls.first().ok_or(TestError::NoCall)?;
            if inspect::waiting_for(call).is_some_and(|found| found.wait() == wait) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Goes on as another process would after this one died: from the record alone. Running bodies are abandoned, and what may
    /// run again does.
    pub async fn restart(self) -> Result<TestRuntime, TestError> {
        let TestRuntime { runtime, clock, runs, tools, model, calls } = self;
        let store = runtime.store().clone();
        drop(runtime);
        let runtime = opened(store, &clock, &model);
        for tool in tools.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            runtime.register_shared(tool.clone())?;
        }
        runtime.resume().await?;
        Ok(TestRuntime { runtime, clock, runs, tools, model, calls })
    }
}

fn opened(store: Arc<dyn Store>, clock: &TestClock, model: &Option<Arc<dyn LanguageModel>>) -> Runtime {
    let limits = Limits { retry_base_ms: 0, retry_cap_ms: 0, ..Limits::default() };
    let (clock, model) = (Arc::new(clock.clone()), model.clone());
    Runtime::new(Config { clock, limits, model, ..Config::on(store) })
}
