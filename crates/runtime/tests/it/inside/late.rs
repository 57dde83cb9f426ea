//! Answers that come at the very deadline.

use super::*;
use std::future::Future;

/// A clock on which a day passes each time it is looked at.
#[derive(Default)]
struct Hasty(std::sync::atomic::AtomicI64);

impl windlass::time::Clock for Hasty {
    fn now(&self) -> windlass_core::time::Timestamp {
        let now = windlass::time::SystemClock::default().now();
        let day = i64::try_from(DAY.as_micros()).unwrap();
        let passed = self.0.fetch_add(day, std::sync::atomic::Ordering::SeqCst);
        windlass_core::time::Timestamp(now.0 + passed)
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn wait<'a>(&'a self, _: u64) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}

/// The timeout decision looks once more, and may have looked before the answer was there.
#[tokio::test]
async fn an_answer_that_became_durable_behind_its_deadline_is_not_acknowledged() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asking(EffectClass::Once, &keys)).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "completion").await;
    let key = keys.lock().unwrap()[0].clone();
    let ok = windlass::ask::completion(&Completed::ok(n(3)), &Default::default()).unwrap();
    let late = windlass::ask::post_complete(&**runtime.store(), &key, &ok, &Hasty::default()).await;
    assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");
    // It may count all the same, and then it is acknowledged.
    runtime.complete(&key, Completed::ok(n(3))).await.unwrap();
    runtime.idle().await;
    windlass::ask::post_complete(&**runtime.store(), &key, &ok, &Hasty::default()).await.unwrap();
}
