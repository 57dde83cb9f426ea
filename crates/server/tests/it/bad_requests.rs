//! Requests of every wrong kind: told with a code and what to do, and nothing else suffers.

use crate::rig::Rig;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_server::Problem;

fn told(answer: (u16, serde_json::Value)) -> String {
    let (status, body) = answer;
    let problem: Problem = serde_json::from_value(body).expect("a problem");
    assert_eq!((problem.status, problem.kind.as_str()), (status, "about:blank"));
    format!("{status} {}: {}\n", problem.code, problem.detail)
}

#[tokio::test]
async fn each_is_told() {
    let mut rig = Rig::new();
    let call = rig.unknown("k").await;
    let mut all = String::new();
    for path in [
        "/nothing",
        "/v1/nothing",
        "/v1/calls?sate=open",
        "/v1/calls?state=opn",
        "/v1/calls?limit=0",
        "/v1/calls?limit=201",
        "/v1/calls?limit=many",
        "/v1/calls?after=x",
        "/v1/calls?after=00000000000000000000000000",
        "/v1/calls/x?journal=maybe",
        "/v1/calls/x",
        "/v1/calls/%ff",
        "/v1/sessions/nope/calls",
        "/v1/calls/x/cancel",
    ] {
        all.push_str(&format!("GET {path}\n  {}", told(rig.get(path).await)));
    }
    let (cancel, resolve) = (format!("/v1/calls/{call}/cancel"), format!("/v1/calls/{call}/resolve"));
    let deep = format!(r#"{{"landed": {}{}}}"#, "[".repeat(100), "]".repeat(100));
    let bodies: [(&str, &[u8]); 16] = [
        (&cancel, b"nonsense"),
        (&cancel, b"[]"),
        (&cancel, b"\xff\xfe"),
        (&cancel, br#"{"reasn": "x"}"#),
        (&cancel, br#"{"reason": 5}"#),
        (&cancel, br#"{"reason": "a", "reason": "b"}"#),
        (&resolve, b""),
        (&resolve, b"{}"),
        (&resolve, br#"{"did_not_happen": false}"#),
        (&resolve, br#"{"landed": 1, "did_not_happen": true}"#),
        (&resolve, br#"{"landed": 1, "ask_tool": true}"#),
        (&resolve, br#"{"landed": 1e400}"#),
        (&resolve, deep.as_bytes()),
        ("/v1/calls/x/accept", br#"{"sure": true}"#),
        ("/v1/calls/x/cancel", b""),
        ("/v1/sessions/x/batches/y/cancel", b"{}"),
    ];
    for (path, body) in bodies {
        let shown = String::from_utf8_lossy(body);
        let shown: String = shown.chars().take(60).collect();
        let path = path.replace(&call, "CALL");
        all.push_str(&format!(
            "POST {path} {shown}\n  {}",
            told(rig.post(&path.replace("CALL", &call), body).await)
        ));
    }
    insta::assert_snapshot!(all);
    let (_, shown) = rig.get(&format!("/v1/calls/{call}")).await;
    assert_eq!(shown["outcome"]["effect"], "unknown", "nothing of it changed the call");
}

#[tokio::test]
async fn a_forged_handle_is_told_like_one_that_names_nothing() {
    let mut rig = Rig::new();
    let ours = rig.unknown("k").await;
    let secret = rig.runtime.store().secret().clone();
    let number =
        Handle::parse(&ours).and_then(|handle| handle.open(&secret, HandleKind::Call)).expect("ours");
    let elsewhere = Handle::seal(&Secret([7; 32]), HandleKind::Call, number).to_string();
    let artifact = Handle::seal(&secret, HandleKind::Artifact, number).to_string();
    let unused = Handle::seal(&secret, HandleKind::Call, number + (99 << 16)).to_string();
    let beside = Handle::seal(&secret, HandleKind::Call, number + 1).to_string();
    for handle in [elsewhere, artifact, unused, beside, "0".repeat(26), "x".into()] {
        let tell = |answer| told(answer).replace(&handle, "CALL");
        let shown = tell(rig.get(&format!("/v1/calls/{handle}")).await);
        assert_eq!(shown, "404 not_found: there is no call \"CALL\"; `windlass calls` lists all calls\n");
        for (what, body) in [("cancel", "{}"), ("resolve", r#"{"did_not_happen": true}"#), ("accept", "")] {
            let asked = tell(rig.post(&format!("/v1/calls/{handle}/{what}"), body.as_bytes()).await);
            assert_eq!(asked, shown, "{what}");
        }
    }
    let (status, _) = rig.get(&format!("/v1/calls/{}", ours.to_uppercase())).await;
    assert_eq!(status, 200, "either case is the same handle");
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let mut rig = Rig::new();
    let call = rig.unknown("k").await;
    let head = format!("POST /v1/calls/{call}/resolve HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let declared = format!("{head}content-length: 9000000000\r\n\r\n");
    assert!(told(rig.raw(declared.as_bytes()).await).starts_with("413 too_large"));
    // One that does not say how much it is.
    let piece = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", piece.repeat(9));
    assert!(told(rig.raw(chunked.as_bytes()).await).starts_with("413 too_large"));
    let (status, ..) =
        rig.exchange(format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)).as_bytes()).await;
    assert!((400..500).contains(&status), "{status}");
    let (status, ..) = rig.exchange(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    assert!(status == 0 || status == 400, "{status}");
    assert_eq!(rig.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_long_reason_is_refused() {
    let rig = Rig::new();
    let body = serde_json::json!({"reason": "ü".repeat(1_001)}).to_string();
    let answer = rig.post("/v1/sessions/s/cancel", body.as_bytes()).await;
    assert_eq!(told(answer), "400 bad_body: a reason has at most 1000 characters; shorten it\n");
}
