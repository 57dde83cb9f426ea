//! Calls that ran when their owner died, with others inside them.

use super::*;
use crate::rig::config;
use tokio::sync::Notify;

/// A folder whose owner died twice while the call ran, with these tools.
async fn two_deaths(tools: fn(&Runtime, Begun)) -> Arc<tempfile::TempDir> {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    for _ in 0..2 {
        die_in_an_attempt(&folder, asked(), move |config, begun| {
            let runtime = Runtime::new(config);
            tools(&runtime, begun);
            runtime
        })
        .await;
        // One that is killed cannot clear what says that it owns the folder.
        drop(config(&folder));
        std::fs::write(folder.path().join("owner.lock"), "process 1, which is gone").unwrap();
    }
    folder
}

/// Both ran at two deaths of their owner, so each is to run alone; and the one waits for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_runs_with_what_lies_inside_it() {
    let folder = two_deaths(|runtime, begun| {
        runtime.register(caller(spec("t", EffectClass::Keyed), &["middle"])).unwrap();
        runtime.register(caller(spec("middle", EffectClass::Keyed), &["leaf"])).unwrap();
        runtime.register(hanging(spec("leaf", EffectClass::Keyed), begun)).unwrap();
    })
    .await;
    let (runtime, ran, runs) = (reopen(&folder), Count::default(), Arc::new(Notify::new()));
    let told = runs.clone();
    let outer = body(spec("t", EffectClass::Keyed), move |args, cx| {
        told.notify_one();
        Box::pin(async move {
            cx.call("middle", "middle", &args).await?.value::<Value>()?;
            Ok(cx.call("more", "more", &args).await?.value::<Value>()?.into())
        })
    });
    runtime.register(outer).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    runs.notified().await;
    // Those inside it have their tools only now, so they find it running.
    runtime.register(caller(spec("middle", EffectClass::Keyed), &["leaf"])).unwrap();
    runtime.register(echo(spec("leaf", EffectClass::Keyed), &ran)).unwrap();
    // One that is no suspect itself does not have to stand aside either.
    runtime.register(echo(spec("more", EffectClass::Keyed), &ran)).unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(60), submitted.settled()).await;
    let answer = answered.expect("none of them waits for ever").unwrap();
    assert_eq!(end(&answer), "c succeeded, 3 attempts");
    assert_eq!(ran.get(), 2);
    is_idle(&runtime).await;
}

/// A suspect waits until nobody else runs; and whoever runs waits for calls inside it, which need not stand aside for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_waits_lets_calls_inside_others_pass() {
    let folder = two_deaths(|runtime, begun| {
        runtime.register(hanging(spec("t", EffectClass::Keyed), begun)).unwrap();
    })
    .await;
    let (runtime, ran, runs) = (reopen(&folder), Count::default(), Arc::new(Notify::new()));
    let told = runs.clone();
    let outer = body(spec("outer", EffectClass::Keyed), move |args, cx| {
        told.notify_one();
        Box::pin(async move {
            // One after the other, so that the suspect comes in between.
            for place in 0..60 {
                cx.call(&format!("inner {place}"), "inner", &args).await?.value::<Value>()?;
            }
            Ok(args.into())
        })
    });
    runtime.register(outer).unwrap();
    runtime.register(echo(spec("inner", EffectClass::Keyed), &ran)).unwrap();
    let other = runtime.submit("other", batch("k", vec![call("c", "outer", n(1))])).await.unwrap();
    runs.notified().await;
    runtime.register(echo(spec("t", EffectClass::Keyed), &ran)).unwrap();
    let suspect = runtime.submit("s", asked()).await.unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(60), async {
        (other.settled().await.unwrap(), suspect.settled().await.unwrap())
    });
    let (other, suspect) = answered.await.expect("they do not wait for each other");
    assert_eq!(
        (end(&other), end(&suspect)),
        ("c succeeded, 1 attempts".into(), "c succeeded, 3 attempts".into())
    );
    assert_eq!(ran.get(), 61);
    is_idle(&runtime).await;
}
