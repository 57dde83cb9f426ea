//! Webhooks over real HTTP: what is delivered, to whom, how often, and what becomes of what is not.

mod receiver;
mod waits;

use receiver::{Receiver, Reply};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use windlass::error::WebhookError;
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::sessions::SessionOpening;
use windlass::store::memory::MemoryStore;
use windlass::store::{Space, Store, StoreSpace};
use windlass::tasks::NewNotice;
use windlass::webhooks::{
    AddedWebhook, NewWebhook, WebhookFuture, WebhookKind, WebhookPost, WebhookReply, WebhookState,
    WebhookTransport, signature,
};
use windlass::{Config, Limits, Runtime};
use windlass_server::webhooks::WebhookClient;
use windlass_testkit::clock::ManualClock;
use windlass_testkit::sqlite_in;

/// Tries come quickly, so that tests need not move a clock.
pub fn quick() -> Limits {
    Limits { webhook_retry_ms: 2, webhook_wait_ms: 2_000, ..Limits::default() }
}

pub fn config(store: impl Store) -> Config {
    // The same one after a restart.
    static KEY: LazyLock<SecretKey> = LazyLock::new(|| SecretKey::random().expect("a key"));
    let webhooks = Some(Arc::new(WebhookClient::default()) as Arc<_>);
    Config { limits: quick(), webhooks, secret_key: SecretKeySource::Key(KEY.clone()), ..Config::new(store) }
}

pub fn in_memory() -> Runtime {
    Runtime::new(config(MemoryStore::new().expect("a store")))
}

pub fn to(url: String) -> NewWebhook {
    NewWebhook { url, internal: true, ..NewWebhook::default() }
}

pub async fn add(runtime: &Runtime, new: NewWebhook) -> AddedWebhook {
    runtime.webhooks().add(new, "ops").await.expect("it is taken")
}

#[tokio::test]
async fn a_signing_secret_is_stored_encrypted() {
    let runtime = in_memory();
    let secret = "whsec_0123456789abcdef".to_string();
    let new = NewWebhook { secret: Some(secret.clone()), ..to("http://127.0.0.1:1/".into()) };
    let added = add(&runtime, new).await;
    let shelf = StoreSpace::Webhook.shelf();
    let stored = runtime.store().record(shelf, &added.webhook.id).await.expect("read").expect("there");
    let stored = String::from_utf8(stored.value.to_vec()).expect("text");
    assert!(stored.contains("sealed") && !stored.contains(&secret), "{stored}");
    let keyless =
        Config { secret_key: SecretKeySource::None, ..config(MemoryStore::new().expect("a store")) };
    let refused = Runtime::new(keyless).webhooks().add(to("http://127.0.0.1:1/".into()), "ops").await;
    assert!(matches!(refused, Err(WebhookError::Secret(_))), "{refused:?}");
}

pub async fn say(runtime: &Runtime, session: &str, text: &str) {
    let notice = NewNotice { title: "News".into(), text: text.into(), ..NewNotice::default() };
    runtime.inbox(session).post(notice).await.expect("it is posted");
}

/// The messages of a session that are not delivered.
async fn queued(runtime: &Runtime, session: &str) -> u64 {
    let row = runtime.store().session(session).await.expect("it is read").expect("it is there");
    runtime.store().count_records(Space::Outgoing.of(row.no)).await.expect("they are counted")
}

/// Looks again until it is so: deliveries are recorded after the receiver has answered.
pub async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test]
async fn a_notice_is_delivered_once_signed_and_its_row_is_gone() {
    let mut receiver = Receiver::new().await;
    let runtime = in_memory();
    let added = add(&runtime, to(receiver.url())).await;
    say(&runtime, "s", "The door is \u{202e}open.\nSecond line.").await;
    let got = receiver.next().await;
    let body: Value = serde_json::from_slice(&got.body).expect("JSON");
    assert_eq!(body["kind"], "posted");
    assert_eq!((&body["session"], &body["principal"]), (&json!("s"), &json!("local")));
    assert_eq!(body["notice"]["title"], "News");
    assert_eq!(body["notice"]["text"], "The door is \\u{202e}open.\nSecond line.", "escaped for people");
    assert_eq!(body["id"], got.header("windlass-id"));
    let listed = runtime.inbox("s").list(None, 10).await.expect("it is listed");
    assert_eq!(body["notice"]["id"], listed[0].id, "the agent is told as well");
    let timestamp: i64 = got.header("windlass-timestamp").parse().expect("a number");
    assert_eq!(got.header("windlass-signature"), signature(&added.secret, timestamp, &got.body));
    assert_ne!(got.header("windlass-signature"), signature("another", timestamp, &got.body));
    until("its row is gone", async || queued(&runtime, "s").await == 0).await;
    // Taking, returning and acknowledging a notice is not news.
    let taken = runtime.inbox("s").take(1, 60_000).await.expect("it is taken");
    runtime.inbox("s").requeue(&taken[0].id).await.expect("it is returned");
    runtime.inbox("s").acknowledge(&taken[0].id).await.expect("it is read");
    say(&runtime, "s", "another").await;
    assert_eq!(receiver.next().await.json()["notice"]["text"], "another", "nothing came in between");
    until("both are counted", async || {
        let shown = runtime.webhooks().get(&added.webhook.id).await.expect("it is there");
        (shown.delivered, shown.failed, shown.dropped, shown.queued) == (2, 0, 0, 0)
            && shown.last_success.is_some()
    })
    .await;
}

#[tokio::test]
async fn failures_timeouts_and_receivers_that_are_away_are_tried_again_under_the_same_id() {
    let mut receiver = Receiver::new().await;
    let limits = Limits { webhook_wait_ms: 50, ..quick() };
    let runtime = Runtime::new(Config { limits, ..config(MemoryStore::new().expect("a store")) });
    let id = add(&runtime, to(receiver.url())).await.webhook.id;
    for reply in [Reply::Status(500), Reply::Silence, Reply::HangUp, Reply::Redirect, Reply::Status(429)] {
        receiver.then(reply);
    }
    say(&runtime, "s", "hello").await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        let got = receiver.next().await;
        assert_eq!(got.line(), "POST /hook", "a redirect was followed");
        ids.push(got.header("windlass-id"));
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "one message: {ids:?}");
    until("it is delivered", async || queued(&runtime, "s").await == 0).await;
    assert_eq!(receiver.asked(), 6);
    let shown = runtime.webhooks().get(&id).await.expect("it is there");
    assert_eq!(shown.delivered, 1);
    assert!(shown.last_failure.expect("some failed").what.contains("429"));

    // Nobody listens for a while.
    let port = receiver.close().await;
    say(&runtime, "s", "later").await;
    until("it failed", async || {
        let shown = runtime.webhooks().get(&id).await.expect("it is there");
        shown.queued == 1 && shown.last_failure.is_some_and(|failure| failure.what.contains("connect"))
    })
    .await;
    let mut receiver = Receiver::at(port).await;
    assert_eq!(receiver.next().await.json()["notice"]["text"], "later");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_survives_the_process_and_keeps_its_id() {
    let (folder, mut receiver) = (tempfile::tempdir().expect("a folder"), Receiver::new().await);
    let without = Config { webhooks: None, ..config(sqlite_in(folder.path())) };
    let runtime = Runtime::new(without);
    add(&runtime, to(receiver.url())).await;
    say(&runtime, "s", "kept").await;
    assert_eq!(queued(&runtime, "s").await, 1, "it is recorded with the notice, and nobody here delivers");
    drop(runtime);
    receiver.then(Reply::Status(503));
    let runtime = Runtime::new(config(sqlite_in(folder.path())));
    runtime.resume().await.expect("it goes on");
    let first = receiver.next().await.header("windlass-id");
    let again = receiver.next().await;
    assert_eq!(again.header("windlass-id"), first);
    assert_eq!(again.json()["notice"]["text"], "kept");
}

#[tokio::test]
async fn only_admins_reach_private_addresses_and_names_are_checked_when_they_are_delivered_to() {
    let receiver = Receiver::new().await;
    let runtime = in_memory();
    for url in [receiver.url(), "https://127.0.0.1:9/".into(), "https://[::1]/".into()] {
        let refused =
            runtime.webhooks().add(NewWebhook { url: url.clone(), ..NewWebhook::default() }, "ops").await;
        let Err(WebhookError::Invalid { what }) = refused else { panic!("{url} is taken: {refused:?}") };
        assert!(what.contains("internal"), "{what}");
    }
    for url in
        ["", "chat.example", "ftp://chat.example/", "https://a:b@chat.example/", "https://chat.example/ x"]
    {
        let refused =
            runtime.webhooks().add(NewWebhook { url: url.into(), ..NewWebhook::default() }, "ops").await;
        assert!(matches!(refused, Err(WebhookError::Invalid { .. })), "{url}: {refused:?}");
    }
    // A name may lead anywhere, and to another place tomorrow.
    let named = NewWebhook { url: "https://localhost:9/".into(), ..NewWebhook::default() };
    let id = add(&runtime, named).await.webhook.id;
    let tried = runtime.webhooks().test(&id).await.expect("it is tried");
    assert!(
        !tried.delivered && tried.error.as_ref().is_some_and(|what| what.contains("refused")),
        "{tried:?}"
    );
    say(&runtime, "s", "hello").await;
    until("it is refused", async || {
        let shown = runtime.webhooks().get(&id).await.expect("it is there");
        shown.last_failure.is_some_and(|failure| failure.what.contains("refused"))
    })
    .await;
    assert_eq!(receiver.asked(), 0);
}

#[tokio::test]
async fn each_webhook_hears_only_of_what_it_asked_for() {
    let (mut of_alice, mut of_room) = (Receiver::new().await, Receiver::new().await);
    let runtime = in_memory();
    for (name, principal) in [("a", "alice"), ("b", "bob")] {
        let opening = SessionOpening { principal: principal.into(), ..SessionOpening::default() };
        runtime.open_session(name, opening).await.expect("it is opened");
    }
    add(&runtime, NewWebhook { principals: vec!["alice".into()], ..to(of_alice.url()) }).await;
    add(&runtime, NewWebhook { session: Some("b".into()), ..to(of_room.url()) }).await;
    let questions = NewWebhook { kinds: vec![WebhookKind::Question], ..to(of_alice.url()) };
    add(&runtime, questions).await;
    for (session, text) in
        [("b", "of bob"), ("a", "of alice"), ("c", "of nobody"), ("b", "last"), ("a", "last")]
    {
        say(&runtime, session, text).await;
    }
    for (receiver, texts) in [(&mut of_alice, ["of alice", "last"]), (&mut of_room, ["of bob", "last"])] {
        for text in texts {
            assert_eq!(receiver.next().await.json()["notice"]["text"], text);
        }
    }
    for session in ["a", "b", "c"] {
        until("all is delivered", async || queued(&runtime, session).await == 0).await;
    }
    assert_eq!((of_alice.asked(), of_room.asked()), (2, 2));
}

#[tokio::test]
async fn a_receiver_that_is_gone_a_disabled_and_a_removed_webhook_get_nothing_more() {
    let receiver = Receiver::new().await;
    let runtime = in_memory();
    let id = add(&runtime, to(receiver.url())).await.webhook.id;
    receiver.then(Reply::Status(410));
    say(&runtime, "s", "one").await;
    until("it is disabled", async || {
        let shown = runtime.webhooks().get(&id).await.expect("it is there");
        shown.state == WebhookState::Disabled && shown.why.is_some_and(|why| why.contains("410"))
    })
    .await;
    say(&runtime, "s", "two").await;
    assert_eq!(queued(&runtime, "s").await, 0);
    // Enabled again, it gets what comes then; disabled again, what waits is dropped.
    assert_eq!(runtime.webhooks().enable(&id, true).await.expect("it is there").state, WebhookState::Enabled);
    for _ in 0..50 {
        receiver.then(Reply::Status(500));
    }
    say(&runtime, "s", "three").await;
    assert_eq!(queued(&runtime, "s").await, 1);
    runtime.webhooks().enable(&id, false).await.expect("it is there");
    until("it is dropped", async || queued(&runtime, "s").await == 0).await;
    runtime.webhooks().enable(&id, true).await.expect("it is there");
    say(&runtime, "s", "four").await;
    assert!(runtime.webhooks().remove(&id).await.expect("it is removed"));
    until("it is dropped too", async || queued(&runtime, "s").await == 0).await;
    assert!(!runtime.webhooks().remove(&id).await.expect("it is read"));
    assert!(matches!(runtime.webhooks().get(&id).await, Err(WebhookError::NotFound { .. })));
}

#[tokio::test]
async fn messages_go_with_their_session() {
    let receiver = Receiver::new().await;
    let runtime = in_memory();
    add(&runtime, to(receiver.url())).await;
    for _ in 0..1_000 {
        receiver.then(Reply::Status(500));
    }
    say(&runtime, "s", "one").await;
    let no = runtime.store().session("s").await.expect("it is read").expect("it is there").no;
    assert_eq!(queued(&runtime, "s").await, 1);
    assert!(runtime.remove_session("s").await.expect("it is removed"));
    assert_eq!(runtime.store().count_records(Space::Outgoing.of(no)).await.expect("they are counted"), 0);
}

#[tokio::test]
async fn an_undelivered_message_is_given_up_after_a_day() {
    let (receiver, clock) = (Receiver::new().await, ManualClock::default());
    let runtime = Runtime::new(Config {
        clock: Arc::new(clock.clone()),
        limits: Limits::default(),
        ..config(MemoryStore::new().expect("a store"))
    });
    let id = add(&runtime, to(receiver.url())).await.webhook.id;
    for _ in 0..10_000 {
        receiver.then(Reply::Status(500));
    }
    say(&runtime, "s", "one").await;
    until("it was tried", async || receiver.asked() > 0).await;
    let mut minutes = 0;
    while runtime.webhooks().get(&id).await.expect("it is there").failed == 0 {
        clock.advance(Duration::from_secs(60));
        minutes += 1;
        assert!(minutes < 1_000_000, "it is never given up");
        tokio::task::yield_now().await;
    }
    assert!(minutes >= 24 * 60, "given up after {minutes} minutes");
    assert!(receiver.asked() > 1);
    assert_eq!(queued(&runtime, "s").await, 0);
    let shown = runtime.webhooks().get(&id).await.expect("it is there");
    assert!(shown.last_failure.expect("it failed").what.contains("given up"));
}

/// Counts deliveries at once, and answers none before it is told to.
#[derive(Default)]
struct Stuck {
    now: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl WebhookTransport for Stuck {
    fn check(&self, _: &str, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn post(&self, _: WebhookPost) -> WebhookFuture {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Box::pin(std::future::pending::<Result<WebhookReply, String>>())
    }
}

#[tokio::test]
async fn ten_thousand_messages_wait_in_the_store_and_a_stuck_receiver_slows_nobody() {
    let stuck = Arc::new(Stuck::default());
    let limits = Limits { webhook_queued_max: 500, webhook_wait_ms: 600_000, ..Limits::default() };
    let store = MemoryStore::new().expect("a store");
    let runtime = Runtime::new(Config { limits, webhooks: Some(stuck.clone()), ..config(store) });
    let id = add(&runtime, to("https://stuck.example/".into())).await.webhook.id;
    let begun = std::time::Instant::now();
    for place in 0..10_050 {
        // The last session gets more than it has room for.
        let session = if place < 9_500 { place % 19 } else { 19 };
        say(&runtime, &format!("s{session}"), "hello").await;
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits for the receiver");
    assert!(stuck.most.load(Ordering::SeqCst) <= Limits::default().webhook_sends_each_max);
    let shown = runtime.webhooks().get(&id).await.expect("it is there");
    assert_eq!((shown.queued, shown.dropped, shown.delivered), (10_000, 50, 0));
}

#[tokio::test]
async fn the_python_of_the_docs_verifies_what_is_delivered() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/webhooks.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let code = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("python3 is not there: the program in the docs is not run");
        return;
    }
    let (folder, mut receiver) = (tempfile::tempdir().expect("a folder"), Receiver::new().await);
    let runtime = in_memory();
    let secret = add(&runtime, to(receiver.url())).await.secret;
    say(&runtime, "s", "Grüße").await;
    let got = receiver.next().await;
    let verify = |body: &[u8], secret: &str, age: i64| {
        let stamp = got.header("windlass-timestamp").parse::<i64>().expect("a number");
        std::fs::write(folder.path().join("body"), body).expect("written");
        let headers = json!({
            "windlass-timestamp": got.header("windlass-timestamp"), "windlass-signature": got.header("windlass-signature"),
        });
        let main = format!(
            "{code}\nimport sys\nok = verified({secret:?}.encode(), {headers}, open('body', 'rb').read(), now={})\nsys.exit(0 if ok else 9)\n",
            stamp + age
        );
        std::fs::write(folder.path().join("main.py"), main).expect("written");
        let ran = std::process::Command::new("python3").arg("main.py").current_dir(folder.path()).output();
        let ran = ran.expect("it runs");
        assert!(matches!(ran.status.code(), Some(0 | 9)), "{}", String::from_utf8_lossy(&ran.stderr));
        ran.status.success()
    };
    assert!(verify(&got.body, &secret, 3));
    assert!(!verify(&got.body, "whsec_another", 3));
    assert!(!verify(&got.body, &secret, 600), "it is too old");
    assert!(!verify(&[&got.body[..], b" "].concat(), &secret, 3));
}
