//! Following a session over the socket: by many, by somebody who never reads, and over the death of the owner.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use windlass::tool::Progress;
use windlass::{Args, BatchRequest, CallRequest, Config, EffectClass, Flags, Runtime, ToolSpec, tool_fn};
use windlass_server::Api;
use windlass_server::access::Caller;
use windlass_server::client::{Client, ClientError};
use windlass_server::control::Control;
use windlass_server::events::Follow;
use windlass_server::following::{FollowedNews, Following};
use windlass_testkit::sqlite_in;

/// How many follow one session, unless this says so: `WINDLASS_READERS=10000 cargo test -p windlass-server thousands_follow`.
const READERS: (&str, usize) = ("WINDLASS_READERS", 2_000);
/// The session whose events the readers of another process follow.
const ELSEWHERE: &str = "WINDLASS_READERS_OF";
/// The maximum memory of a reader that gets everything.
const READER_BYTES_MAX: usize = 16 << 10;

/// A runtime that serves its socket, with a tool that answers at once.
async fn serve(folder: &Path, change: impl FnOnce(&mut Config)) -> (Runtime, Control) {
    let mut config = Config::new(sqlite_in(folder));
    change(&mut config);
    let runtime = Runtime::new(config);
    let flags = Flags { quick: true, ..Flags::default() };
    let spec = ToolSpec { name: "echo".into(), class: Some(EffectClass::Read), flags, ..ToolSpec::default() };
    runtime.register(tool_fn(spec, |args, _| async move { Ok(args.into()) })).expect("it fits");
    let api = Api::new(&runtime, None);
    for session in ["s", "loud"] {
        api.claim(&Caller::local(), session).await.expect("it is nobody's");
    }
    let control = Control::serve(&api, folder).expect("served");
    (runtime, control)
}

async fn run(runtime: &Runtime, session: &str, key: &str, args: &[Value]) {
    let call = |(place, args): (usize, &Value)| CallRequest {
        id: Some(format!("{key}-{place}")),
        tool: "echo".into(),
        args: Args::Json(args.clone()),
        ..CallRequest::default()
    };
    let calls = args.iter().enumerate().map(call).collect();
    let batch = BatchRequest { key: Some(key.into()), calls, ..BatchRequest::default() };
    runtime.submit(session, batch).await.expect("it is taken").settled().await.expect("it is answered");
}

async fn follow(folder: &Path, session: &str, after: Option<u64>) -> Following {
    let client = Client::find(folder).await.expect("it can be asked").expect("somebody serves");
    client.follow(session, &Follow { after, locale: None }).await.expect("it can be followed")
}

/// A connection that has asked for the events, and has read nothing of the answer.
async fn asks(folder: &Path, session: &str) -> UnixStream {
    let mut stream = loop {
        // The socket takes few at once.
        match UnixStream::connect(folder.join("control.sock")).await {
            Ok(stream) => break stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let request = format!("GET /v1/sessions/{session}/events?after=0 HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream
}

/// Reads until so many calls have ended, and checks that each was opened and ended once.
async fn reads_all(stream: UnixStream, calls: usize) {
    let mut lines = BufReader::with_capacity(4 << 10, stream).lines();
    let (mut kind, mut opened, mut ended) = (String::new(), BTreeSet::new(), BTreeSet::new());
    while ended.len() < calls {
        let line = lines.next_line().await.expect("readable").expect("it goes on");
        if let Some(named) = line.strip_prefix("event: ") {
            kind = named.to_string();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let call = data.split("\"call\":\"").nth(1).map(|rest| rest[..26].to_string()).expect("a call");
            match kind.as_str() {
                "opened" => assert!(opened.insert(call), "opened twice"),
                "ended" => assert!(ended.insert(call), "ended twice"),
                _ => {}
            }
        }
    }
    assert_eq!(opened, ended);
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("linux");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4_096
}

/// Lets this process have so many descriptors; says whether it may.
fn raise_descriptors(wanted: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok()
}

/// Calls of the session that everybody follows.
const FOLLOWED_CALLS: usize = 16;

/// The readers are in a process of their own: so a descriptor of each is here and one there, and what is measured is the
/// server. They ask when they are told how many there shall be, and read when they are told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_follow_and_one_never_reads() {
    let readers: usize = std::env::var(READERS.0).map_or(READERS.1, |count| count.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    if let Ok(folder) = std::env::var(ELSEWHERE) {
        return read_elsewhere(Path::new(&folder), readers).await;
    }
    assert!(raise_descriptors(readers as u64 + 1_000), "too few descriptors for {readers} readers");
    let (runtime, control) = serve(folder.path(), |config| {
        config.limits.answer_stall_ms = 300;
        config.limits.event_readers_max = readers as u64 + 1;
        // All of them ask at once, of a machine that may be busy.
        config.limits.header_wait_ms = 300_000;
    })
    .await;
    let never = asks(folder.path(), "loud").await;
    let empty = resident_bytes();
    let mut elsewhere = Command::new(std::env::current_exe().expect("this program"))
        .args(["events::thousands_follow_and_one_never_reads", "--exact", "--nocapture"])
        .env(ELSEWHERE, folder.path())
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    while runtime.readers() <= readers as u64 {
        assert!(elsewhere.try_wait().expect("our child").is_none(), "the readers are gone");
        tokio::task::yield_now().await;
    }
    let before = resident_bytes();
    let long = json!({"text": "x".repeat(3_000)});
    for batch in 0..FOLLOWED_CALLS / 2 {
        // Nobody has read a byte yet: if calls waited for readers, this would not end.
        run(&runtime, "s", &format!("k{batch}"), &[json!({"n": 1}), json!({"n": 2})]).await;
        run(&runtime, "loud", &format!("k{batch}"), &vec![long.clone(); 16]).await;
    }
    runtime.idle().await;
    // They end with their standard input, also if this ends before.
    drop(elsewhere.stdin.take());
    let ended = tokio::task::spawn_blocking(move || elsewhere.wait().expect("our child").success());
    assert!(ended.await.expect("no panic"), "each was told of each call once");
    let grown = resident_bytes().saturating_sub(before);
    let (idle_kib, told_kib) = ((before - empty) / 1_024 / readers, grown / 1_024 / readers);
    eprintln!(
        "{readers} readers: {idle_kib} KiB each while nothing happens, {told_kib} KiB more while they are told"
    );
    assert!(grown < READER_BYTES_MAX * readers, "it grew by {told_kib} KiB per reader");
    // Whoever never reads is let go, and so are those who went.
    while runtime.readers() > 0 {
        tokio::task::yield_now().await;
    }
    drop(never);
    control.stop().await;
}

/// Asks for the events so often, and reads them once its standard input is closed.
async fn read_elsewhere(folder: &Path, readers: usize) {
    assert!(raise_descriptors(readers as u64 + 1_000), "too few descriptors for {readers} readers");
    let mut idle = Vec::new();
    for _ in 0..readers {
        idle.push(asks(folder, "s").await);
    }
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    told.await.expect("no panic").expect("it was told");
    let reading = idle.into_iter().map(|stream| tokio::spawn(reads_all(stream, FOLLOWED_CALLS)));
    for reader in reading.collect::<Vec<_>>() {
        reader.await.expect("each was told of each call once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reconnects_continues_also_under_the_next_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut told: Vec<FollowedNews> = Vec::new();
    let mut cursor = 0;
    for owner in 0..4 {
        let (runtime, control) = serve(folder.path(), |config| config.limits.event_frame_ms = 1).await;
        for round in 0..5 {
            run(&runtime, "s", &format!("{owner}-{round}"), &[json!({"n": round}), json!({"n": 7})]).await;
            let mut following = follow(folder.path(), "s", Some(cursor)).await;
            // Goes away in the middle: after some of the events that there are.
            for _ in 0..=round {
                let event = following.next().await.expect("understood").expect("there is more");
                cursor = event.cursor.expect("it is recorded");
                told.push(event);
            }
            assert_eq!(following.cursor(), Some(cursor));
        }
        // The owner stops while somebody follows: that one is told to go at once.
        let mut last = follow(folder.path(), "s", None).await;
        let stopping = tokio::spawn(control.stop());
        assert_eq!(last.next().await.expect("understood"), None);
        stopping.await.expect("no panic");
    }
    let (_runtime, _control) = serve(folder.path(), |_| {}).await;
    let mut rest = follow(folder.path(), "s", Some(cursor)).await;
    while told.iter().filter(|event| event.kind == "ended").count() < 40 {
        told.push(rest.next().await.expect("understood").expect("there is more"));
    }
    let mut whole = follow(folder.path(), "s", Some(0)).await;
    let mut counts = BTreeMap::<String, (u32, u32)>::new();
    for event in told {
        assert_eq!(Some(&event), whole.next().await.expect("understood").as_ref());
        let count = counts.entry(event.data["call"].to_string()).or_default();
        count.0 += u32::from(event.kind == "opened");
        count.1 += u32::from(event.kind == "ended");
    }
    assert!(counts.len() == 40 && counts.values().all(|count| *count == (1, 1)), "{counts:?}");
}

#[tokio::test]
async fn a_stream_is_what_browsers_understand() {
    let rig = Rig::new();
    let submitted = rig.submit("s", "k", &["look"]).await;
    rig.go.add_permits(1);
    submitted.settled().await.expect("answered");
    let mut stream = UnixStream::connect(rig.path().join("control.sock")).await.expect("connected");
    // The header is what a browser sends that comes back, and is newer than the address it was opened with.
    let request =
        "GET /v1/sessions/s/events?after=0&locale=de-AT HTTP/1.1\r\nhost: x\r\nlast-event-id: 4\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    while !String::from_utf8_lossy(&bytes).contains("event: ended") {
        let read = stream.read(&mut buffer).await.expect("readable");
        bytes.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n"),
        "{text}"
    );
    assert!(text.contains("id: 4\n\n"), "where it begins is told at once: {text}");
    assert!(!text.contains("event: opened") && text.contains("look ist fertig"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_runtime, control) = serve(folder.path(), |config| config.limits.event_readers_max = 1).await;
    let client = Client::find(folder.path()).await.expect("it can be asked").expect("served");
    let refused = async |session: &str, after| {
        let answer = client.follow(session, &Follow { after, locale: None }).await;
        let Err(ClientError::Problem(problem)) = answer else { panic!("it is refused") };
        (problem.status, problem.code.to_string())
    };
    assert_eq!(refused("s", Some(9)).await, (400, "bad_query".into()));
    assert_eq!(refused("no name", None).await, (404, "not_found".into()));
    let _first = follow(folder.path(), "s", None).await;
    assert_eq!(refused("s", None).await, (503, "overloaded".into()));
    control.stop().await;
}

#[tokio::test]
async fn silence_is_broken_and_running_calls_are_heard() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, control) = serve(folder.path(), |config| config.limits.event_keepalive_ms = 5).await;
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let spec = ToolSpec { name: "copy".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let tool = {
        let go = go.clone();
        tool_fn(spec, move |_, cx| {
            let (cx, go) = (cx.clone(), go.clone());
            async move {
                cx.progress(Progress { current: Some(1.0), total: Some(2.0), ..Progress::default() });
                go.acquire().await.expect("open").forget();
                Ok(json!(null).into())
            }
        })
    };
    runtime.register(tool).expect("it fits");
    let mut silent = asks(folder.path(), "s").await;
    let mut following = follow(folder.path(), "s", None).await;
    let call = CallRequest { id: Some("c".into()), tool: "copy".into(), ..CallRequest::default() };
    let batch = BatchRequest { key: Some("k".into()), calls: vec![call], ..BatchRequest::default() };
    let submitted = runtime.submit("s", batch).await.expect("taken");
    let began = following.next().await.expect("understood").expect("it goes on");
    assert_eq!((began.kind.as_str(), began.cursor), ("running", None));
    assert_eq!(began.data["narration"], "Running copy");
    let heard = following.next().await.expect("understood").expect("it goes on");
    assert_eq!((heard.kind.as_str(), heard.cursor), ("progress", None));
    assert_eq!(heard.data["narration"], "copy: 50 %, 1 of 2");
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    while !String::from_utf8_lossy(&bytes).contains("\n:\n\n") {
        let read = silent.read(&mut buffer).await.expect("readable");
        bytes.extend_from_slice(&buffer[..read]);
    }
    go.add_permits(1);
    submitted.settled().await.expect("answered");
    control.stop().await;
}
