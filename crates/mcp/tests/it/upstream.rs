//! Servers of others behind the door: what they give comes back as it is, and what they send too much of is bounded.

use crate::rig::{HeardConversation, Mcp, Rig, text};
use crate::server::{Reply, Server, behind, tool};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass::events::News;
use windlass_mcp::{Exchange, Headers};

fn call(name: &str) -> Value {
    json!({"name": name})
}

/// A server with one tool, `act`, that gives this result or error.
async fn giving(result: Value) -> Server {
    Server::start(json!([tool("act")]), move |asked| {
        Reply::Message(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
    })
    .await
}

/// A stream with these messages; it ends behind them, unless it stays open.
fn stream(messages: Vec<Value>, stays_open: bool) -> Reply {
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(async move {
        for message in messages {
            if sender.send(message).await.is_err() {
                return;
            }
        }
        if stays_open {
            sender.closed().await;
        }
    });
    Reply::Stream(events)
}

/// Whatever a server gives below the limits is given back as it was, whether or not we know it.
#[tokio::test]
async fn a_result_is_given_back_verbatim() {
    let block = |text: &str| json!({"type": "text", "text": text});
    let results = [
        json!({"content": [block("plain")]}),
        json!({"content": []}),
        json!({"content": [block(&"long ".repeat(300_000)), block(&"and longer ".repeat(100_000))]}),
        json!({"content": [block("one"), block("two")], "structuredContent": {"answer": 42}}),
        json!({"content": [{"type": "hologram", "data": "?"}], "x-vendor": {"kept": true}, "_meta": {"cost": 7}}),
        json!({"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}),
        json!({"content": [{"type": "text", "text": "for you", "annotations": {"audience": ["user"]}}]}),
        json!({"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]}),
        json!({"content": [], "structuredContent": {"only": true}}),
        json!({"content": [block(&"long ".repeat(100_000)), block("and more")], "structuredContent": [1]}),
        json!({"content": [block("no such thing")], "isError": true}),
        json!({"content": [block("no"), {"type": "hologram"}], "isError": true, "x-vendor": 1}),
        json!({"content": [block(&"long error ".repeat(3_000))], "isError": true}),
        json!({"content": [block(&"very long error ".repeat(100_000))], "isError": true}),
    ];
    for result in results {
        let (rig, server) = (Rig::new(), giving(result.clone()).await);
        let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
        let mut given = rig.result(&Mcp::legacy("tools/call", call("act"))).await;
        if result.get("isError").is_none() {
            // A result says whether it is an error; a server may leave out that it is none.
            assert_ne!(given["isError"], true, "{given}");
            given.as_object_mut().expect("an object").remove("isError");
        }
        let shown = |value: &Value| value.to_string().chars().take(300).collect::<String>();
        assert!(given == result, "{} became {}", shown(&result), shown(&given));
    }
}

/// A result that is too long to be given back ends with a link to the whole, also if it is an error.
#[tokio::test]
async fn a_result_that_is_too_long_is_a_link_to_the_whole() {
    for is_error in [false, true] {
        let result = json!({
            "content": [{"type": "text", "text": "long ".repeat(100_000)}, {"type": "hologram"}],
            "isError": is_error,
        });
        let rig = Rig::within(|limits| limits.wire_images_bytes_max = 64 << 10);
        let server = giving(result.clone()).await;
        let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
        let given = rig.result(&Mcp::legacy("tools/call", call("act"))).await;
        assert_eq!(given["isError"], is_error);
        let link = given["content"].as_array().and_then(|blocks| blocks.last()).cloned().unwrap_or_default();
        assert_eq!(link["type"], "resource_link", "{is_error}: {}", &given.to_string()[..500]);
        let uri = link["uri"].as_str().and_then(|uri| uri.strip_prefix("windlass://artifact/"));
        let artifact = windlass::ids::Handle::parse(uri.expect("an artifact")).expect("a handle");
        let size = link["size"].as_u64().expect("a size");
        let whole = rig.runtime.read_artifact(artifact, 0, size).await.expect("it is kept");
        assert_eq!(serde_json::from_slice::<Value>(&whole).expect("JSON"), result);
        let read = Mcp::modern("resources/read", &json!({}), json!({"uri": link["uri"]}));
        assert_eq!(rig.error(&read).await, -32_602, "it is read in parts");
    }
}

/// Large answers are parsed on other threads, and arrive however they come.
#[tokio::test]
async fn a_large_answer_is_read_however_it_comes() {
    let long = "x".repeat(2 << 20);
    // Longer than what is kept in line.
    let longer = "x".repeat(9 << 20);
    let server = giving(json!({"content": [{"type": "text", "text": longer}]})).await;
    let rig = Rig::new();
    let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
    assert!(text(&rig.result(&Mcp::legacy("tools/call", call("act"))).await) == longer);
    for way in ["message", "stream", "open stream", "noise before it", "noise behind it"] {
        let told = long.clone();
        let server = Server::start(json!([tool("act")]), move |asked| {
            let answer = |text: &str| {
                let result = json!({"content": [{"type": "text", "text": text}]});
                json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
            };
            let noise =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": told}});
            match way {
                "message" => Reply::Message(answer(&told)),
                "stream" => stream(vec![answer(&told)], false),
                "open stream" => stream(vec![answer(&told)], true),
                "noise before it" => stream(vec![noise.clone(), noise, answer("short")], true),
                _ => stream(vec![answer(&told), noise], false),
            }
        })
        .await;
        let rig = Rig::new();
        let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
        let given = text(&rig.result(&Mcp::legacy("tools/call", call("act"))).await);
        let expected = if way == "noise before it" { "short" } else { long.as_str() };
        assert!(given == expected, "{way}: {} bytes", given.len());
    }
}

/// The server gets our key, both ways, and `arguments` even if there are none; it gets nothing of the caller's.
#[tokio::test]
async fn a_call_carries_our_key_and_no_token_of_ours() {
    let server = giving(json!({"content": [{"type": "text", "text": "done"}]})).await;
    let rig = Rig::new();
    let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
    rig.result(&Mcp::legacy("tools/call", call("act"))).await;
    let got = server.got("tools/call").pop().expect("one call");
    assert_eq!(got.message["params"]["arguments"], json!({}));
    let key = got.message["params"]["_meta"]["io.windlass/key"].as_str().expect("a key");
    assert!(got.head.contains(&format!("idempotency-key: {}", key.to_lowercase())), "{}", got.head);
    assert!(!got.head.contains("authorization"), "{}", got.head);
}

/// A server with one tool that asks which colour, and says what was answered.
async fn asking() -> Server {
    Server::start(json!([tool("act")]), |asked| {
        let schema = json!({"type": "object", "properties": {"colours": {"type": "array", "items": {"enum": ["red", "blue"]}}}});
        let question = json!({"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}});
        let result = match asked["params"].get("inputResponses") {
            None => json!({"resultType": "input_required", "inputRequests": {"which": question}, "requestState": "theirs"}),
            Some(answers) => json!({"content": [{"type": "text", "text": answers["which"].to_string()}]}),
        };
        Reply::Message(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
    })
    .await
}

/// However long an answer would be held: a client that shows forms is asked what the server asks, and one that declines is not asked again and again.
#[tokio::test]
async fn what_a_server_asks_is_asked_at_once_and_not_again_behind_a_refusal() {
    let answer = json!({"action": "accept", "content": {"colours": ["red", "blue"]}});
    let long =
        || Rig::within(|limits| (limits.mcp_hold_ms, limits.mcp_progress_hold_ms) = (3_600_000, 3_600_000));
    let (rig, server) = (long(), asking().await);
    let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
    let forms = json!({"elicitation": {}});
    let asked = rig.result(&Mcp::modern("tools/call", &forms, call("act"))).await;
    let (key, form) =
        asked["inputRequests"].as_object().and_then(|forms| forms.iter().next()).expect("a form");
    assert!(form["params"]["message"].as_str().is_some_and(|told| told.contains("Which?")), "{form}");
    let mut again = call("act");
    (again["inputResponses"], again["requestState"]) = (json!({key: answer}), asked["requestState"].clone());
    assert_eq!(text(&rig.result(&Mcp::modern("tools/call", &forms, again)).await), answer.to_string());
    for accepts in [true, false] {
        // Long enough for a second form, if there were one.
        let rig = if accepts { long() } else { Rig::within(|limits| limits.mcp_hold_ms = 3_000) };
        let server = asking().await;
        let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
        let Exchange::Answer { session_id, .. } = rig.exchange(&Mcp::legacy("initialize", hello)).await
        else {
            panic!("it is answered at once")
        };
        let headers = Headers { session_id, ..Headers::default() };
        let asked = Mcp { headers: headers.clone(), ..Mcp::legacy("tools/call", call("act")) };
        let mut stream: HeardConversation = rig.begin(&asked).await;
        let form = stream.next().await.expect("a form");
        assert_eq!(form["method"], "elicitation/create", "{form}");
        let result = if accepts { answer.clone() } else { json!({"action": "decline"}) };
        let response = json!({"jsonrpc": "2.0", "id": form["id"], "result": result});
        assert!(matches!(rig.exchange(&Mcp { message: response, headers }).await, Exchange::Taken));
        let told = stream.next().await.expect("an answer");
        match accepts {
            true => assert_eq!(text(&told["result"]), answer.to_string()),
            false => assert!(text(&told["result"]).contains("continues as task"), "no second form: {told}"),
        }
    }
}

/// A server may report as often as it likes: ten reports a second are passed on.
#[tokio::test]
async fn a_flood_of_progress_is_passed_on_ten_times_a_second() {
    const FLOOD: Duration = Duration::from_millis(1_500);
    let server = Server::start(json!([tool("act")]), |asked| {
        let (sender, events) = mpsc::channel(1);
        let (id, token) = (asked["id"].clone(), asked["params"]["_meta"]["progressToken"].clone());
        tokio::spawn(async move {
            let (began, mut number) = (Instant::now(), 0);
            while began.elapsed() < FLOOD {
                number += 1;
                let params = json!({"progressToken": token, "progress": number});
                let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                if sender.send(told).await.is_err() {
                    return;
                }
            }
            let result = json!({"content": [{"type": "text", "text": number.to_string()}]});
            let _ = sender.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
        });
        Reply::Stream(events)
    })
    .await;
    let rig = Rig::new();
    let _others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
    let mut events = rig.runtime.events("chat", None).await.expect("events");
    let counting = tokio::spawn(async move {
        let mut heard = 0_u64;
        while let Some(Ok(news)) = events.next().await {
            match news {
                News::Words(words) => {
                    heard += words.iter().filter(|word| word.kind() == "progress").count() as u64
                }
                News::Page(page)
                    if page.events.iter().any(|event| event.kind == windlass::events::Kind::Ended) =>
                {
                    break;
                }
                News::Page(_) | News::Notices(_) | _ => {}
            }
        }
        heard
    });
    let began = Instant::now();
    let sent: u64 =
        text(&rig.result(&Mcp::legacy("tools/call", call("act"))).await).parse().expect("a number");
    let allowed = began.elapsed().as_millis() as u64 / 100 + 2;
    let heard = counting.await.expect("no panic");
    assert!(sent > allowed && (1..=allowed).contains(&heard), "{heard} of {sent}, {allowed} are allowed");
}

/// A server that says without end that its tools changed is listed again and again, but with pauses.
#[tokio::test]
async fn a_server_that_tells_of_changes_without_end_is_listed_with_pauses() {
    const LISTS: usize = 5;
    let server = Server::start(json!([tool("act")]), |_| {
        let (sender, events) = mpsc::channel(1);
        tokio::spawn(async move {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            while sender.send(told.clone()).await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        Reply::Stream(events)
    })
    .await;
    let rig = Rig::new();
    let began = Instant::now();
    let mut others = behind(&rig.runtime, &[("other", &server, json!([tool("act")]))]).await;
    others.upstreams.keep();
    // The first is that of the connection.
    server.until_got("tools/list", LISTS + 1).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) * (LISTS as u32 - 1), "{LISTS} lists in {took:?}");
}

/// One server answers nothing, not even that it is there: the list and the tools of the others do not wait for it.
#[tokio::test]
async fn a_hung_server_delays_nobody() {
    let (good, silent) = (
        giving(json!({"content": [{"type": "text", "text": "here"}]})).await,
        Server::start(json!([]), |_| Reply::Nothing).await,
    );
    let rig = Rig::within(|limits| (limits.mcp_connect_ms, limits.mcp_hold_ms) = (600_000, 600_000));
    let servers = [("good", &good, json!([tool("act")])), ("hung", &silent, json!([tool("hang")]))];
    let mut others = behind(&rig.runtime, &servers).await;
    others.upstreams.keep();
    let mut hung = rig.begin(&Mcp::legacy("tools/call", call("hang"))).await;
    let mut next = Box::pin(hung.next());
    let listed = rig.result(&Mcp::legacy("tools/list", json!({}))).await.to_string();
    assert!(listed.contains("\"act\"") && listed.contains("\"hang\""), "{listed}");
    assert_eq!(text(&rig.result(&Mcp::legacy("tools/call", call("act"))).await), "here");
    let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending()));
    assert!(waits.await, "and the other call still waits");
}
