//! An answer from outside, whenever it comes: before anybody waits, in time, twice, too late, forged; before its owner dies
//! and after; for calls that are left to the world, and for bodies that wait in their middle.

use crate::rig::{batch, call, config, end, n, run, spec, waits_for};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use windlass::ask::Target;
use windlass::error::AskError;
use windlass::wait::Completed;
use windlass::{BatchRequest, Config, Cx, EffectClass, Output, Runtime, Tool, ToolFuture, ToolSpec};
use windlass_testkit::clock::ManualClock;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// The tool has returned, and the answer is its result.
    Pending,
    /// A stepped body waits for it.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    Early,
    OnTime,
    TwiceTheSame,
    TwiceDifferent,
    AfterCancel,
    AfterDeadline,
    Forged,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    /// The answer comes, and then its owner dies.
    Behind,
    /// Its owner dies, and then the answer comes to the next one.
    Before,
}

/// State shared by a tool and the external answerer over the lives of owners.
#[derive(Clone)]
struct World {
    folder: Arc<tempfile::TempDir>,
    clock: ManualClock,
    keys: Arc<Mutex<Vec<String>>>,
    /// Whether the tool may go on from having its key to waiting for the answer.
    gate: watch::Sender<bool>,
    how: How,
}

struct Asking(World);

impl Tool for Asking {
    fn spec(&self) -> ToolSpec {
        match self.0.how {
            How::Pending => spec("t", EffectClass::Keyed),
            How::Wait => spec("t", EffectClass::Stepped),
        }
    }

    fn run<'a>(&'a self, _: serde_json::Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let key = cx.completion("person").await?;
            self.0.keys.lock().unwrap().push(key.to_string());
            self.0.gate.subscribe().wait_for(|open| *open).await.unwrap();
            match self.0.how {
                How::Pending => Ok(Output::pending(key).within(DAY)),
                How::Wait => Ok(match cx.wait(&key, Some(DAY)).await? {
                    Some(Completed::Ok(answer)) => answer.value,
                    other => json!(format!("{other:?}")),
                }
                .into()),
            }
        })
    }
}

fn asked() -> BatchRequest {
    batch("k", vec![call("c", "t", n(1))])
}

type Work<T> = Pin<Box<dyn Future<Output = T>>>;

impl World {
    /// An owner of the folder does this, and is gone, as it would be after a kill.
    async fn live<T: Send + 'static>(
        &self,
        work: impl FnOnce(World, Runtime) -> Work<T> + Send + 'static,
    ) -> T {
        let world = self.clone();
        let lived = tokio::task::spawn_blocking(move || {
            let owner =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let _inside = owner.enter();
            let clock = Arc::new(world.clock.clone());
            let runtime = Runtime::new(Config { clock, ..config(&world.folder) });
            runtime.register(Asking(world.clone())).unwrap();
            let told = owner.block_on(work(world, runtime));
            owner.shutdown_timeout(Duration::from_secs(5));
            told
        });
        lived.await.unwrap()
    }

    /// Waits until somebody can answer.
    async fn ready(&self, runtime: &Runtime, comes: Comes) {
        if comes != Comes::Early {
            self.gate.send_replace(true);
            waits_for(runtime, "completion").await;
        }
        while self.keys.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// The reply to the external answerer.
    async fn answer(&self, runtime: &Runtime, comes: Comes) -> String {
        let key = self.keys.lock().unwrap()[0].clone();
        let mut told = Vec::new();
        match comes {
            Comes::Early | Comes::OnTime => told.push((key, 7)),
            Comes::TwiceTheSame => told.extend([(key.clone(), 7), (key, 7)]),
            Comes::TwiceDifferent => told.extend([(key.clone(), 7), (key, 8)]),
            Comes::AfterCancel => {
                runtime.cancel(Target::Session("s"), None).await.unwrap();
                runtime.idle().await;
                told.push((key, 7));
            }
            Comes::AfterDeadline => {
                self.clock.advance(DAY);
                runtime.idle().await;
                told.push((key, 7));
            }
            Comes::Forged => {
                let last = if key.ends_with('0') { '1' } else { '0' };
                told.extend([(format!("{}{last}", &key[..key.len() - 1]), 8), (key, 7)]);
            }
        }
        let mut words = Vec::new();
        for (key, number) in told {
            words.push(match runtime.complete(&key, Completed::ok(n(number))).await {
                Ok(()) => "taken".to_string(),
                Err(AskError::Answered) => "answered before".to_string(),
                Err(AskError::Over { .. }) => "over".to_string(),
                Err(AskError::NoKey) => "no such key".to_string(),
                Err(error) => format!("{error:?}"),
            });
        }
        words.join(", ")
    }
}

/// The reply to the external answerer, the end of the call, and the model's view.
async fn cell(how: How, comes: Comes, crash: Crash) -> String {
    let world = World {
        folder: Arc::new(tempfile::tempdir().unwrap()),
        clock: ManualClock::default(),
        keys: Arc::default(),
        gate: watch::Sender::new(false),
        how,
    };
    let first = world.live(move |world, runtime| {
        Box::pin(async move {
            drop(runtime.submit("s", asked()).await.unwrap());
            world.ready(&runtime, comes).await;
            match crash {
                Crash::Behind => Some(world.answer(&runtime, comes).await),
                Crash::Before => None,
            }
        })
    });
    let told = first.await;
    let second = world.live(move |world, runtime| {
        Box::pin(async move {
            runtime.resume().await.unwrap();
            let told = match told {
                Some(told) => told,
                None => {
                    world.ready(&runtime, comes).await;
                    world.answer(&runtime, comes).await
                }
            };
            world.gate.send_replace(true);
            let answer = run(&runtime, "s", asked()).await;
            let model = answer.calls[0].model_text();
            let model = model.split([',', '.', ';']).next().unwrap_or_default().to_string();
            (told, end(&answer), model)
        })
    });
    let (told, end, model) = second.await;
    let keys = world.keys.lock().unwrap().clone();
    assert!(keys.iter().all(|key| *key == keys[0]), "one name, one key");
    format!("{told} | {end} | {model}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_once_whenever_it_comes_and_whoever_dies() {
    use Comes::*;
    let succeeded = r#"c succeeded, 1 attempts | {"n":7}"#;
    let again = r#"c succeeded, 2 attempts | {"n":7}"#;
    let cancelled = r#"{"error":"This call was cancelled"#;
    for how in [How::Pending, How::Wait] {
        let cancel = match how {
            // What its tool has started goes on outside; the steps of the other are all there is, and it has none.
            How::Pending => format!("over | c cancelled{{unknown}}, 1 attempts | {cancelled}"),
            How::Wait => format!("over | c cancelled{{none}}, 1 attempts | {cancelled}"),
        };
        let late = match how {
            How::Pending => r#"over | c failed/timeout, 1 attempts | {"error":"Nobody answered in time"#,
            How::Wait => "over | c succeeded, 1 attempts | None",
        };
        let table = [
            // Its body was running, and runs again.
            (Early, format!("taken | {again}")),
            (OnTime, format!("taken | {succeeded}")),
            (TwiceTheSame, format!("taken, taken | {succeeded}")),
            (TwiceDifferent, format!("taken, answered before | {succeeded}")),
            (AfterCancel, cancel),
            (AfterDeadline, late.to_string()),
            (Forged, format!("no such key, taken | {succeeded}")),
        ];
        for (comes, expected) in table {
            for crash in [Crash::Behind, Crash::Before] {
                let told = tokio::time::timeout(Duration::from_secs(60), cell(how, comes, crash)).await;
                let told = told.unwrap_or_else(|_| panic!("{how:?} {comes:?} {crash:?} hangs"));
                assert_eq!(told, expected, "{how:?} {comes:?} {crash:?}");
            }
        }
    }
}
