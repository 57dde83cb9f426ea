//! Reports of a running attempt.

use super::*;
use windlass::tool::Progress;

#[tokio::test]
async fn a_running_attempt_says_how_far_it_is() {
    let runtime = memory();
    let (go, waits) = tokio::sync::watch::channel(false);
    let tool = body(spec("t", EffectClass::Read), move |_, cx| {
        let mut waits = waits.clone();
        Box::pin(async move {
            cx.progress(Progress { current: Some(1.0), ..Progress::default() });
            cx.progress(Progress { current: Some(3.0), total: Some(4.0), ..Progress::default() });
            cx.status("counting sheep\nand more");
            waits.wait_for(|go| *go).await.unwrap();
            Ok(json!(1).into())
        })
    });
    runtime.register(tool).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let open = loop {
        if let Some(open) = runtime.open().await.unwrap().into_iter().find(|open| open.status.is_some()) {
            break open;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(open.progress.unwrap().to_string(), "75 %, 3 of 4", "the last word counts");
    assert_eq!(open.status.as_deref(), Some("counting sheep"));
    go.send(true).unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c succeeded, 1 attempts");
}
