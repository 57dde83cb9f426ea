//! Clients that listen, forms of the older era, and results that are too long to return.

use crate::rig::{HeardConversation, Mcp, Rig, call, tasks, text};
use serde_json::{Value, json};
use windlass::{EffectClass, ToolSpec, tool_fn};
use windlass_mcp::{Exchange, Headers, Visitor};

fn listen(capabilities: &Value, wanted: Value) -> Mcp {
    Mcp::modern("subscriptions/listen", capabilities, json!({"notifications": wanted}))
}

async fn heard(conversation: &mut HeardConversation) -> Value {
    conversation.next().await.expect("it goes on")
}

#[tokio::test]
async fn a_client_that_listens_hears_of_changed_tools_and_the_end_is_an_answer() {
    let rig = Rig::new();
    let mut stream = rig.begin(&listen(&json!({}), json!({"toolsListChanged": true}))).await;
    let first = heard(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    for change in 0..2 {
        match change {
            0 => drop(rig.runtime.unregister("look")),
            _ => {
                let spec =
                    ToolSpec { name: "look".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
                rig.runtime.register(tool_fn(spec, |_, _| async { Ok(json!(1).into()) })).expect("it fits");
            }
        }
        let told = heard(&mut stream).await;
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    }
    rig.closing.send_replace(true);
    let end = heard(&mut stream).await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert_eq!(stream.next().await, None);
}

/// Before 2026-07-28 clients hear of changes on a stream that belongs to no request, within a second.
#[tokio::test]
async fn a_client_of_the_older_era_hears_of_changed_tools() {
    let rig = Rig::new();
    let hello = Mcp::legacy("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let Exchange::Answer { message, session_id, .. } = rig.exchange(&hello).await else {
        panic!("no answer")
    };
    assert_eq!(message["result"]["capabilities"]["tools"]["listChanged"], true);
    let of = |session_id: Option<String>, version: &str| Headers {
        session_id,
        version: Some(version.into()),
        ..Headers::default()
    };
    let headers = of(session_id.clone(), "2025-06-18");
    let stream = rig.gateway.listen(rig.visitor.clone(), &headers).await.expect("a stream");
    let mut stream = HeardConversation::begin(stream);
    assert_eq!(rig.gateway.quiet_for(), None, "somebody listens");
    rig.runtime.unregister("look");
    let told = heard(&mut stream).await;
    assert_eq!(told, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}));
    rig.closing.send_replace(true);
    assert_eq!(stream.next().await, None, "it ends with the server");
    for (what, headers) in [
        ("no session", of(None, "2025-06-18")),
        ("a forged session", of(Some("forged".into()), "2025-06-18")),
        ("the newer era", of(session_id.clone(), "2026-07-28")),
    ] {
        assert!(rig.gateway.listen(rig.visitor.clone(), &headers).await.is_none(), "{what}");
    }
    let other = Visitor { principal: "bob".into(), ..rig.visitor.clone() };
    assert!(rig.gateway.listen(other, &of(session_id, "2025-06-18")).await.is_none(), "another's session");
}

#[tokio::test]
async fn a_client_that_listens_hears_how_its_task_goes() {
    let mut rig = Rig::impatient();
    let made = rig.result(&Mcp::modern("tools/call", &tasks(), call("pay"))).await;
    let id = made["taskId"].as_str().expect("a task").to_string();
    rig.begun(1).await;
    let mut stream = rig.begin(&listen(&tasks(), json!({"taskIds": [id]}))).await;
    assert_eq!(heard(&mut stream).await["params"]["notifications"]["taskIds"], json!([id]));
    let told = heard(&mut stream).await;
    assert_eq!(
        (&told["method"], &told["params"]["status"]),
        (&json!("notifications/tasks"), &json!("working"))
    );
    rig.go.add_permits(1);
    let told = loop {
        let told = heard(&mut stream).await;
        if told["params"]["status"] != "working" {
            break told;
        }
    };
    assert_eq!((&told["params"]["taskId"], &told["params"]["status"]), (&json!(id), &json!("completed")));
    assert_eq!(text(&told["params"]["result"]), "effect 1");
    assert_eq!(rig.error(&listen(&tasks(), json!({"taskIds": ["t-unknown"]}))).await, -32_602);
    assert_eq!(rig.error(&listen(&json!({}), json!({"taskIds": [id]}))).await, -32_021);
}

/// A session of the older era whose client shows forms.
async fn session(rig: &Rig) -> Headers {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
    let Exchange::Answer { session_id, .. } = rig.exchange(&Mcp::legacy("initialize", hello)).await else {
        panic!("it is answered at once")
    };
    Headers { session_id, ..Headers::default() }
}

#[tokio::test]
async fn a_client_of_the_older_era_shows_forms() {
    for (result, ended, effects) in [
        (json!({"result": {"action": "accept", "content": {"approve": true}}}), Some(false), 1),
        (json!({"result": {"action": "decline"}}), Some(true), 0),
        (json!({"error": {"code": -1, "message": "no form"}}), None, 0),
    ] {
        let rig = Rig::patient();
        let headers = session(&rig).await;
        let asked = Mcp { headers: headers.clone(), ..Mcp::legacy("tools/call", call("risky")) };
        let mut stream = rig.begin(&asked).await;
        let form = heard(&mut stream).await;
        assert_eq!(form["method"], "elicitation/create", "{form}");
        assert!(form["params"]["message"].as_str().is_some_and(|message| message.contains("risky")));
        let mut response = json!({"jsonrpc": "2.0", "id": form["id"]});
        response.as_object_mut().expect("an object").extend(result.as_object().expect("an object").clone());
        // Whoever is not the client cannot answer for it.
        let other = windlass_mcp::Visitor { principal: "eve".into(), ..rig.visitor.clone() };
        let yes = json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {"approve": true}}});
        assert!(matches!(rig.gateway.take(other, &Headers::default(), yes).await, Exchange::Taken));
        assert!(matches!(rig.exchange(&Mcp { message: response, headers }).await, Exchange::Taken));
        if ended.is_none() {
            // Its answer is not held any more.
            rig.closing.send_replace(true);
        }
        let answer = heard(&mut stream).await;
        match ended {
            Some(is_error) => assert_eq!(answer["result"]["isError"], is_error, "{answer}"),
            None => assert!(text(&answer["result"]).contains("continues as task"), "it stays open: {answer}"),
        }
        assert_eq!(rig.effects(), effects);
    }
}

#[tokio::test]
async fn a_long_result_is_a_link_that_can_be_read_in_its_session_only() {
    let rig = Rig::new();
    let long = "long ".repeat(200_000);
    let told = long.clone();
    let spec = ToolSpec { name: "long".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let tool = tool_fn(spec, move |_, _| {
        let told = told.clone();
        async move { Ok(json!(told).into()) }
    });
    rig.runtime.register(tool).expect("it fits");
    for asked in Mcp::calls(&call("long")) {
        let result = rig.result(&asked).await;
        let link = result["content"].as_array().and_then(|blocks| blocks.last()).cloned().unwrap_or_default();
        assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(long.len())), "{link}");
        let read = Mcp::modern("resources/read", &json!({}), json!({"uri": link["uri"]}));
        let whole = rig.result(&read).await;
        assert_eq!(whole["contents"][0]["text"].as_str().map(str::len), Some(long.len()));
        let other = windlass_mcp::Visitor { session: "other".into(), ..rig.visitor.clone() };
        let foreign = rig.gateway.take(other, &read.headers, read.message).await;
        let Exchange::Answer { message, .. } = foreign else { panic!("it is answered at once") };
        assert_eq!(message["error"]["code"], -32_602, "{message}");
    }
    let templates = rig.result(&Mcp::modern("resources/templates/list", &json!({}), json!({}))).await;
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "windlass://artifact/{artifact}");
}
