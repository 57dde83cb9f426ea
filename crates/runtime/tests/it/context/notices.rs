//! Notices that hosts and tools post, and waiting for them.

use super::{background, free, memory, one, over_every_death, owner};
use crate::inside::body;
use crate::rig::{Count, echo, n, states};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::error::InboxError;
use windlass::events::News;
use windlass::store::Store;
use windlass::tasks::{NewNotice, NoticeKind, Urgency};
use windlass::{EffectClass, Limits, Runtime};
use windlass_testkit::clock::ManualClock;

fn notice(text: &str) -> NewNotice {
    NewNotice { title: "Deployment".into(), text: text.into(), ..NewNotice::default() }
}

#[tokio::test]
async fn a_host_posts_notices_with_an_urgency_and_once_by_their_key() {
    let runtime = owner(&memory(), &ManualClock::default());
    let inbox = runtime.inbox("s");
    let urgent =
        NewNotice { urgency: Urgency::Interrupt, priority: 3, key: Some("d1".into()), ..notice("begun") };
    let quiet = inbox.post(NewNotice { urgency: Urgency::Silent, ..notice("logs are kept") }).await.unwrap();
    let first = inbox.post(urgent.clone()).await.unwrap();
    assert_eq!(inbox.post(urgent).await.unwrap(), first, "the same key is the same notice");
    let listed = inbox.list(None, 10).await.unwrap();
    let shown: Vec<_> = listed.iter().map(|notice| (&*notice.id, notice.urgency, &*notice.text)).collect();
    let expected = [(&*first, Urgency::Interrupt, "begun"), (&*quiet, Urgency::Silent, "logs are kept")];
    assert_eq!(shown, expected, "by priority");
    assert_eq!(
        (listed[0].kind, &*listed[0].title, &listed[0].call),
        (NoticeKind::Posted, "Deployment", &None)
    );
    for wrong in [
        notice(" "),
        NewNotice { title: " ".into(), ..notice("x") },
        NewNotice { key: Some(" ".into()), ..notice("x") },
    ] {
        let refused = inbox.post(wrong.clone()).await;
        assert!(matches!(refused, Err(InboxError::Invalid { .. })), "{wrong:?}: {refused:?}");
    }
}

#[tokio::test]
async fn whoever_waits_gets_the_next_notice_or_none_in_time() {
    let clock = ManualClock::default();
    let runtime = owner(&memory(), &clock);
    let waiting = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.inbox("s").next(60_000, Duration::from_secs(5)).await.unwrap() }
    });
    tokio::task::spawn_blocking(|| ()).await.unwrap();
    let id = runtime.inbox("s").post(notice("begun")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().id, id);
    // It is taken: the next one waits until it may be taken again.
    let waiting = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.inbox("s").next(1_000, Duration::from_secs(600)).await.unwrap() }
    });
    while !waiting.is_finished() {
        clock.advance(Duration::from_secs(1));
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    let again = waiting.await.unwrap().unwrap();
    assert_eq!((&*again.id, again.deliveries), (&*id, 2));
    runtime.inbox("s").acknowledge(&id).await.unwrap();
    let waiting = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.inbox("s").next(1_000, Duration::from_secs(5)).await.unwrap() }
    });
    while !waiting.is_finished() {
        clock.advance(Duration::from_secs(1));
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    assert!(waiting.await.unwrap().is_none());
}

#[tokio::test]
async fn acknowledged_notices_stay_listed_for_a_while() {
    let clock = ManualClock::default();
    let runtime = owner(&memory(), &clock);
    runtime.register(echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
    let inbox = runtime.inbox("s");
    let first = inbox.post(notice("one")).await.unwrap();
    let second = inbox.post(notice("two")).await.unwrap();
    inbox.acknowledge(&first).await.unwrap();
    inbox.acknowledge(&first).await.unwrap();
    let ids = async || -> Vec<(String, &'static str)> {
        let kept = runtime.inbox("s").acknowledged(None, 10).await.unwrap();
        kept.into_iter().map(|notice| (notice.id, notice.state)).collect()
    };
    assert_eq!(ids().await, [(first.clone(), "acknowledged")]);
    assert_eq!(inbox.list(None, 10).await.unwrap().len(), 1);
    clock.advance(Duration::from_millis(Limits::default().notice_kept_ms + 1));
    inbox.acknowledge(&second).await.unwrap();
    assert_eq!(ids().await, [(second.clone(), "acknowledged")], "the first one was listed long enough");
    assert!(runtime.inbox("s").acknowledged(Some(&second), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tool_posts_a_notice_once_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| -> Runtime {
        let runtime = owner(store, clock);
        let tells = body(free("tells", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                cx.notify("half", notice("half done")).await?;
                Ok(json!(1).into())
            })
        });
        runtime.register(tells).unwrap();
        runtime
    };
    over_every_death("tells", make, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}");
        let texts: Vec<String> =
            runtime.inbox("s").list(None, 9).await.unwrap().into_iter().map(|notice| notice.text).collect();
        assert_eq!(texts, ["half done"], "{what}");
    })
    .await;
    let runtime = owner(&memory(), &ManualClock::default());
    let blank = body(free("blank", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            cx.notify("it", notice(" ")).await?;
            Ok(json!(1).into())
        })
    });
    runtime.register(blank).unwrap();
    assert_eq!(states(&one(&runtime, "blank", n(1)).await), "c failed/internal");
}

#[tokio::test]
async fn a_follower_of_the_session_is_told_of_each_notice() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.inbox("s").post(notice("before")).await.unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    runtime.inbox("s").post(notice("one")).await.unwrap();
    let told = loop {
        if let News::Notices(told) = events.next().await.unwrap().unwrap() {
            break told;
        }
    };
    assert_eq!(told, 1, "the one before it began is in the inbox");
}
