//! Prompts and resources of servers of others, for clients of the door: there where the entry of a server says so, as the server gave them, and
//! bounded whatever the server does.

use crate::rig::{HeardConversation, Mcp, Rig};
use crate::server::{Others, Reply, Server, entry, register};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{mpsc, watch};
use windlass_mcp::upstream::McpPins;
use windlass_mcp::{Exchange, Headers};

const BOTH: &str = "forward = [\"prompts\", \"resources\"]";

/// The eras of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Older,
    Newer,
}

fn error(code: i64, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

/// The answer of a server with these capabilities to what comes before everything else; `None`: it is asked for something else.
fn hello(speaks: Speaks, capabilities: &Value, asked: &Value) -> Option<Value> {
    let result = match (asked["method"].as_str(), speaks) {
        (Some("server/discover"), Speaks::Newer) => {
            json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
        }
        (Some("server/discover"), Speaks::Older) => return Some(error(-32_601, "no such method")),
        (Some("initialize"), Speaks::Older) => {
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "older"}})
        }
        (Some("tools/list"), _) => json!({"tools": []}),
        (None | Some("notifications/initialized"), _) => json!({}),
        _ => return None,
    };
    Some(json!({ "result": result }))
}

/// A server that gives these results and errors.
async fn server(
    speaks: Speaks,
    capabilities: Value,
    answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
) -> Server {
    Server::start(json!([]), move |asked| {
        let method = asked["method"].as_str().unwrap_or_default();
        let told = hello(speaks, &capabilities, asked);
        let mut told = told.unwrap_or_else(|| answers(method, &asked["params"]));
        if told == json!("hangs") {
            return Reply::Nothing;
        }
        (told["jsonrpc"], told["id"]) = (json!("2.0"), asked["id"].clone());
        Reply::Message(told)
    })
    .await
}

fn capabilities() -> Value {
    json!({"prompts": {}, "resources": {}, "completions": {}})
}

/// A server with a prompt, a resource and a template, which says what it was asked for.
fn offered(name: &'static str) -> impl Fn(&str, &Value) -> Value + Send + Sync + 'static {
    move |method, params| {
        let result = match method {
            "prompts/list" => {
                json!({"prompts": [{"name": "greet", "description": "Greets.", "x-vendor": 1}]})
            }
            "resources/list" => {
                json!({"resources": [{"uri": format!("{name}://one"), "name": "one", "size": 3}]})
            }
            "resources/templates/list" => {
                let template = format!("{name}://rows/{{id}}");
                json!({"resourceTemplates": [{"uriTemplate": template, "name": "rows"}]})
            }
            "prompts/get" => {
                let said = format!("{name} was asked for {} with {}", params["name"], params["arguments"]);
                json!({"messages": [{"role": "user", "content": {"type": "hologram", "text": said}}], "x-vendor": 2})
            }
            "resources/read" if params["uri"] == "gone://" => return error(-32_002, "there is none"),
            "resources/read" => json!({"contents": [{"uri": params["uri"], "text": name}]}),
            "completion/complete" => json!({"completion": {"values": [params["ref"], params["argument"]]}}),
            _ => return error(-32_601, "no such method"),
        };
        json!({ "result": result })
    }
}

/// Puts servers behind a door, with what their entries say.
fn behind(rig: &Rig, servers: &[(&str, &Server, &str)]) -> Others {
    let entries: String = servers.iter().map(|(name, server, more)| entry(name, server, more)).collect();
    let others = register(&rig.runtime, &entries, &McpPins::default());
    rig.gateway.forward(others.upstreams.forwarding());
    others
}

fn modern(method: &str, params: Value) -> Mcp {
    Mcp::modern(method, &json!({"elicitation": {}}), params)
}

async fn listed(rig: &Rig, method: &str, field: &str, key: &str) -> Vec<String> {
    let result = rig.result(&modern(method, json!({}))).await;
    let entries = result[field].as_array().expect("a list").iter();
    entries.map(|entry| entry[key].as_str().expect("a key").to_string()).collect()
}

async fn prompts(rig: &Rig) -> Vec<String> {
    listed(rig, "prompts/list", "prompts", "name").await
}

async fn resources(rig: &Rig) -> Vec<String> {
    listed(rig, "resources/list", "resources", "uri").await
}

async fn told_error(rig: &Rig, asked: &Mcp) -> Value {
    let told = rig.ask(asked).await.pop().expect("an answer");
    assert!(told.get("error").is_some(), "{told}");
    told["error"].clone()
}

#[tokio::test]
async fn what_an_entry_forwards_reaches_clients_as_the_server_gave_it() {
    for speaks in [Speaks::Older, Speaks::Newer] {
        let server = server(speaks, capabilities(), offered("one")).await;
        let rig = Rig::new();
        let _others = behind(&rig, &[("one", &server, BOTH)]);
        for client in [Mcp::legacy, modern] {
            let list = rig.result(&client("prompts/list", json!({}))).await;
            assert_eq!(
                list["prompts"],
                json!([{"name": "one_greet", "description": "Greets.", "x-vendor": 1}])
            );
            let asked = json!({"name": "one_greet", "arguments": {"to": "Ann"}});
            let prompt = rig.result(&client("prompts/get", asked)).await;
            let said = "one was asked for \"greet\" with {\"to\":\"Ann\"}";
            assert_eq!(prompt["messages"][0]["content"], json!({"type": "hologram", "text": said}));
            assert_eq!(prompt["x-vendor"], 2);
            let list = rig.result(&client("resources/list", json!({}))).await;
            assert_eq!(list["resources"], json!([{"uri": "one://one", "name": "one", "size": 3}]));
            let list = rig.result(&client("resources/templates/list", json!({}))).await;
            let templates: Vec<&Value> = list["resourceTemplates"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|each| &each["uriTemplate"])
                .collect();
            assert_eq!(templates, [&json!("one://rows/{id}"), &json!("windlass://artifact/{artifact}")]);
            for uri in ["one://one", "one://rows/7", "elsewhere://unlisted"] {
                let read = rig.result(&client("resources/read", json!({"uri": uri}))).await;
                assert_eq!(read["contents"], json!([{"uri": uri, "text": "one"}]));
            }
            let argument = json!({"name": "to", "value": "A"});
            for (reference, there) in [
                (
                    json!({"type": "ref/prompt", "name": "one_greet"}),
                    json!({"type": "ref/prompt", "name": "greet"}),
                ),
                (json!({"type": "ref/resource", "uri": "one://rows/{id}"}), Value::Null),
            ] {
                let there = if there.is_null() { reference.clone() } else { there };
                let asked = json!({"ref": reference, "argument": argument});
                let completed = rig.result(&client("completion/complete", asked)).await;
                assert_eq!(completed["completion"]["values"], json!([there, argument]), "{speaks:?}");
            }
        }
        assert_eq!(rig.error(&Mcp::legacy("resources/read", json!({"uri": "gone://"}))).await, -32_002);
        let gone = told_error(&rig, &modern("resources/read", json!({"uri": "gone://"}))).await;
        assert_eq!((&gone["code"], &gone["data"]["uri"]), (&json!(-32_602), &json!("gone://")));
        let unknown = told_error(&rig, &modern("prompts/get", json!({"name": "one_gret"}))).await;
        assert!(unknown["message"].as_str().is_some_and(|told| told.contains("one_greet")), "{unknown}");
        assert!(!server.got("prompts/get")[0].head.contains("authorization"), "no token of ours");
    }
}

#[tokio::test]
async fn nothing_is_announced_or_passed_on_that_no_entry_forwards() {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    for (forward, prompts, resources, completions) in [
        ("", false, false, false),
        ("forward = [\"prompts\"]", true, false, true),
        ("forward = [\"resources\"]", false, true, true),
    ] {
        let server = server(Speaks::Newer, capabilities(), offered("one")).await;
        let rig = Rig::new();
        let _others = behind(&rig, &[("one", &server, forward)]);
        for asked in [Mcp::legacy("initialize", hello.clone()), modern("server/discover", json!({}))] {
            let has = rig.result(&asked).await["capabilities"].clone();
            assert_eq!(has.get("prompts").is_some(), prompts, "{forward}");
            assert_eq!(has.get("completions").is_some(), completions, "{forward}");
            assert_eq!(has["resources"]["subscribe"] == true, resources, "{forward}");
        }
        let reference = json!({"type": "ref/prompt", "name": "one_greet"});
        for (method, params, is_there) in [
            ("prompts/list", json!({}), prompts),
            ("prompts/get", json!({"name": "one_greet"}), prompts),
            (
                "completion/complete",
                json!({"ref": reference, "argument": {"name": "a", "value": ""}}),
                prompts,
            ),
            ("resources/read", json!({"uri": "one://one"}), resources),
        ] {
            let told = rig.ask(&modern(method, params)).await.pop().expect("an answer");
            assert_eq!(told.get("result").is_some(), is_there, "{forward} {method}: {told}");
        }
        assert_eq!(
            rig.result(&modern("resources/list", json!({}))).await["resources"] == json!([]),
            !resources
        );
        let unasked = if prompts { "resources/" } else { "prompts/" };
        for method in ["list", "get", "read", "templates/list"] {
            assert!(server.got(&format!("{unasked}{method}")).is_empty(), "{forward}: {unasked}{method}");
        }
    }
}

/// Names are kept apart by prefixes; of two entries that are alike the first server's is there, and addresses of ours are nobody else's.
#[tokio::test]
async fn entries_of_several_servers_do_not_get_mixed_up() {
    let own = |method: &str, params: &Value| match method {
        "resources/list" => json!({"result": {"resources": [
            {"uri": "windlass://artifact/mine", "name": "forged"}, {"uri": "one://one", "name": "the second's"}]}}),
        "resources/templates/list" => json!({"result": {"resourceTemplates": [
            {"uriTemplate": "windlass://artifact/{artifact}", "name": "forged"}, {"uriTemplate": "other://{+rest}", "name": "other"}, {"uriTemplate": "{any}://one", "name": "forged"}]}}),
        _ => offered("two")(method, params),
    };
    let one = server(Speaks::Newer, capabilities(), offered("one")).await;
    let two = server(Speaks::Newer, capabilities(), own).await;
    let rig = Rig::new();
    let _others = behind(&rig, &[("one", &one, BOTH), ("two", &two, BOTH)]);
    assert_eq!(prompts(&rig).await, ["one_greet", "two_greet"]);
    for name in ["one", "two"] {
        let prompt = rig.result(&modern("prompts/get", json!({"name": format!("{name}_greet")}))).await;
        assert!(prompt["messages"][0]["content"]["text"].as_str().is_some_and(|text| text.starts_with(name)));
    }
    let list = rig.result(&modern("resources/list", json!({}))).await;
    assert_eq!(list["resources"], json!([{"uri": "one://one", "name": "one", "size": 3}]), "the first's");
    let templates = rig.result(&modern("resources/templates/list", json!({}))).await;
    assert!(!templates.to_string().contains("forged"), "{templates}");
    for (uri, owner) in [("one://one", "one"), ("one://rows/7", "one"), ("other://x", "two")] {
        let read = rig.result(&modern("resources/read", json!({"uri": uri}))).await;
        assert_eq!(read["contents"][0]["text"], owner, "{uri}");
    }
    for uri in ["windlass://artifact/mine", "windlass:other"] {
        assert_eq!(rig.error(&modern("resources/read", json!({"uri": uri}))).await, -32_602, "{uri}");
    }
    let asked = two.got("resources/read");
    assert!(asked.iter().all(|got| got.message["params"]["uri"] == "other://x"), "{asked:?}");
    // With one prefix they are alike, and no server is asked for what nobody lists.
    let (one, two) = (
        server(Speaks::Newer, capabilities(), offered("one")).await,
        server(Speaks::Newer, capabilities(), offered("two")).await,
    );
    let rig = Rig::new();
    let same = format!("{BOTH}\nprefix = \"\"");
    let _others = behind(&rig, &[("one", &one, &same), ("two", &two, &same)]);
    assert_eq!(prompts(&rig).await, ["greet"]);
    let prompt = rig.result(&modern("prompts/get", json!({"name": "greet"}))).await;
    assert!(prompt["messages"][0]["content"]["text"].as_str().is_some_and(|text| text.starts_with("one")));
    assert_eq!(rig.error(&modern("resources/read", json!({"uri": "other://x"}))).await, -32_602);
    assert!(one.got("resources/read").is_empty() && two.got("resources/read").is_empty());
}

/// A server that hangs, and one that cannot be reached: what the others have is listed.
#[tokio::test]
async fn a_server_that_hangs_hides_no_other() {
    let good = server(Speaks::Newer, capabilities(), offered("good")).await;
    let hung = server(Speaks::Newer, capabilities(), |_, _| json!("hangs")).await;
    let mute = Server::start(json!([]), |_| Reply::Nothing).await;
    let gone = server(Speaks::Newer, capabilities(), offered("gone")).await;
    let rig = Rig::within(|limits| limits.mcp_connect_ms = 600_000);
    let servers =
        [("good", &good, BOTH), ("gone", &gone, BOTH), ("hung", &hung, BOTH), ("mute", &mute, BOTH)];
    let _others = behind(&rig, &servers);
    drop(gone);
    for _ in 0..3 {
        assert_eq!(prompts(&rig).await, ["good_greet"]);
        assert_eq!(resources(&rig).await, ["good://one"]);
    }
    let prompt = rig.result(&modern("prompts/get", json!({"name": "good_greet"}))).await;
    assert!(prompt["messages"].is_array(), "{prompt}");
    assert_eq!(rig.error(&modern("prompts/get", json!({"name": "hung_greet"}))).await, -32_602);
}

#[tokio::test]
async fn a_request_that_hangs_is_given_up_and_so_many_at_once_are_not_passed_on() {
    let hung = server(Speaks::Newer, capabilities(), |method, params| match method {
        "prompts/get" => json!("hangs"),
        _ => offered("one")(method, params),
    })
    .await;
    let rig = Rig::within(|limits| (limits.mcp_forward_ms, limits.mcp_forwards_max) = (300, 1));
    let _others = behind(&rig, &[("one", &hung, BOTH)]);
    assert_eq!(prompts(&rig).await, ["one_greet"]);
    let get = modern("prompts/get", json!({"name": "one_greet"}));
    let (first, second) = tokio::join!(told_error(&rig, &get), told_error(&rig, &get));
    let told = [first, second].map(|error| error["message"].as_str().unwrap_or_default().to_string());
    assert!(told.iter().any(|told| told.contains("did not answer in time")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("too much at once")), "{told:?}");
    assert_eq!(hung.got("prompts/get").len(), 1);
    let read = rig.result(&modern("resources/read", json!({"uri": "one://one"}))).await;
    assert_eq!(read["contents"][0]["text"], "one", "there is room again");
}

/// The prompts of a server that has gone stay listed; asking for one says that it is gone.
#[tokio::test]
async fn a_server_that_dies_is_told_of_and_used_again() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = is_gone.clone();
    let server = Server::start(json!([]), move |asked| {
        let (sender, events) = mpsc::channel(1);
        if gone.load(Ordering::SeqCst) {
            // The stream ends without an answer.
            return Reply::Stream(events);
        }
        drop(sender);
        let method = asked["method"].as_str().unwrap_or_default();
        let told = hello(Speaks::Newer, &capabilities(), asked);
        let mut told = told.unwrap_or_else(|| offered("one")(method, &asked["params"]));
        (told["jsonrpc"], told["id"]) = (json!("2.0"), asked["id"].clone());
        Reply::Message(told)
    })
    .await;
    let rig = Rig::new();
    let _others = behind(&rig, &[("one", &server, BOTH)]);
    assert_eq!(prompts(&rig).await, ["one_greet"]);
    is_gone.store(true, Ordering::SeqCst);
    let get = modern("prompts/get", json!({"name": "one_greet"}));
    let told = told_error(&rig, &get).await;
    assert!(told["message"].as_str().is_some_and(|told| told.contains("one is not available")), "{told}");
    assert_eq!(prompts(&rig).await, ["one_greet"]);
    is_gone.store(false, Ordering::SeqCst);
    assert!(rig.result(&get).await["messages"].is_array());
}

/// One that has too much, or what nobody can read: the rest is there, and nothing breaks.
#[tokio::test]
async fn too_much_and_nonsense_are_left_out() {
    let lists = AtomicU64::new(0);
    let server = server(Speaks::Newer, capabilities(), move |method, params| match method {
        "prompts/list" => {
            let named = |number: usize| json!({"name": format!("p{number:03}")});
            let mut prompts: Vec<Value> = (0..60).map(named).collect();
            prompts.insert(0, json!({"name": 7}));
            prompts.insert(1, json!({"name": "hidden\u{200b}"}));
            json!({"result": {"prompts": prompts, "nextCursor": "more"}})
        }
        "resources/list" if lists.fetch_add(1, Ordering::SeqCst) == 0 => json!({"result": "no list"}),
        "resources/list" => offered("one")(method, params),
        "prompts/get" => json!({"result": {"messages": [{"text": "x".repeat(100_000)}]}}),
        "resources/read" => json!({"result": ["nothing"]}),
        _ => json!({"result": 7}),
    })
    .await;
    let rig = Rig::within(|limits| {
        (limits.mcp_server_tools_max, limits.wire_images_bytes_max, limits.mcp_tools_page) =
            (50, 64 << 10, 30);
    });
    let (forwards, prompts_only) = (BOTH, "forward = [\"prompts\"]");
    let _others = behind(&rig, &[("one", &server, prompts_only)]);
    let first = rig.result(&modern("prompts/list", json!({}))).await;
    assert_eq!(first["prompts"].as_array().map(Vec::len), Some(30));
    assert_eq!(first["prompts"][0]["name"], "one_p000");
    let second = rig.result(&modern("prompts/list", json!({"cursor": first["nextCursor"]}))).await;
    assert_eq!(second["prompts"].as_array().map(Vec::len), Some(18), "two of the fifty are left out");
    assert!(second.get("nextCursor").is_none());
    assert_eq!(server.got("prompts/list").len(), 1, "it is not asked for more, and kept for both pages");
    let long = told_error(&rig, &modern("prompts/get", json!({"name": "one_p000"}))).await;
    assert!(long["message"].as_str().is_some_and(|told| told.contains("more than 65536 bytes")), "{long}");
    let other = Rig::new();
    let _others = behind(&other, &[("one", &server, forwards)]);
    assert_eq!(resources(&other).await, Vec::<String>::new());
    // It is asked again, and gives one.
    while resources(&other).await != ["one://one"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.error(&modern("resources/read", json!({"uri": "one://one"}))).await, -32_603);
}

/// A server may ask before it gives a prompt: what it asks and what is answered is between it and the client.
#[tokio::test]
async fn a_prompt_may_ask_a_client_of_the_newer_era() {
    let server = server(Speaks::Newer, capabilities(), |method, params| match method {
        "prompts/get"
            if params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
                != json!({"elicitation": {}})
                && params["arguments"]["whom"] != "anybody" =>
        {
            error(-32_021, "it needs elicitation")
        }
        "prompts/get" if params.get("inputResponses").is_none() => json!({"result": {
            "resultType": "input_required",
            "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}},
            "requestState": "theirs"}}),
        "prompts/get" => {
            let said = format!("{} {}", params["inputResponses"], params["requestState"]);
            json!({"result": {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}})
        }
        _ => offered("one")(method, params),
    })
    .await;
    let rig = Rig::new();
    let _others = behind(&rig, &[("one", &server, BOTH)]);
    let asked = rig.result(&modern("prompts/get", json!({"name": "one_greet"}))).await;
    assert_eq!((&asked["resultType"], &asked["requestState"]), (&json!("input_required"), &json!("theirs")));
    let answers = json!({"who": {"action": "accept", "content": {"name": "Ann"}}});
    let again =
        json!({"name": "one_greet", "inputResponses": answers, "requestState": asked["requestState"]});
    let prompt = rig.result(&modern("prompts/get", again)).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], format!("{answers} \"theirs\""));
    let without = Mcp::modern("prompts/get", &json!({}), json!({"name": "one_greet"}));
    assert_eq!(rig.error(&without).await, -32_021);
    assert_eq!(rig.error(&Mcp::legacy("prompts/get", json!({"name": "one_greet"}))).await, -32_021);
    // One that asks whomever: an older client could not understand it.
    let anybody = json!({"name": "one_greet", "arguments": {"whom": "anybody"}});
    assert_eq!(rig.error(&Mcp::legacy("prompts/get", anybody)).await, -32_603);
}

/// A server whose prompts change, and which says so to whoever listens, with the resources that were subscribed to.
async fn changing() -> (Server, Arc<AtomicU64>, watch::Sender<Vec<Value>>) {
    let (version, tells) = (Arc::new(AtomicU64::new(1)), watch::Sender::new(Vec::<Value>::new()));
    let (now, told) = (version.clone(), tells.clone());
    let server = Server::start(json!([]), move |asked| {
        let listens = json!({"listChanged": true});
        let capabilities = json!({"prompts": listens, "resources": {"listChanged": true, "subscribe": true}});
        if asked["method"] == "subscriptions/listen" {
            let (sender, events) = mpsc::channel(1);
            let mut told = told.subscribe();
            tokio::spawn(async move {
                let mut sent = 0;
                while let Ok(all) = told.wait_for(|all| all.len() > sent).await.map(|all| all.clone()) {
                    for message in all.iter().skip(sent) {
                        if sender.send(message.clone()).await.is_err() {
                            return;
                        }
                    }
                    sent = all.len();
                }
            });
            return Reply::Stream(events);
        }
        let method = asked["method"].as_str().unwrap_or_default();
        let version = now.load(Ordering::SeqCst);
        let answer = |method: &str| match method {
            "prompts/list" => json!({"result": {"prompts": [{"name": format!("v{version}")}]}}),
            _ => offered("one")(method, &asked["params"]),
        };
        let mut told = hello(Speaks::Newer, &capabilities, asked).unwrap_or_else(|| answer(method));
        (told["jsonrpc"], told["id"]) = (json!("2.0"), asked["id"].clone());
        Reply::Message(told)
    })
    .await;
    (server, version, tells)
}

fn told(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// The next message of this method.
async fn next_of(stream: &mut HeardConversation, method: &str) -> Value {
    loop {
        let told = stream.next().await.expect("it goes on");
        if told["method"] == method {
            return told;
        }
    }
}

#[tokio::test]
async fn clients_hear_of_changed_lists_and_resources() {
    let (server, version, tells) = changing().await;
    let rig = Rig::new();
    let mut others = behind(&rig, &[("one", &server, BOTH)]);
    others.upstreams.keep();
    assert_eq!(prompts(&rig).await, ["one_v1"]);
    // One of the older era, which subscribes in its session, and one of the newer, which says so when it begins to listen.
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let Exchange::Answer { session_id, .. } = rig.exchange(&Mcp::legacy("initialize", hello)).await else {
        panic!("it is answered at once")
    };
    let headers = Headers { session_id, ..Headers::default() };
    let subscribe =
        Mcp { headers: headers.clone(), ..Mcp::legacy("resources/subscribe", json!({"uri": "one://one"})) };
    assert_eq!(rig.result(&subscribe).await, json!({}));
    let older = rig.gateway.listen(rig.visitor.clone(), &headers).await.expect("a stream");
    let mut older = HeardConversation::begin(older);
    let wanted = json!({"promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["one://one", "windlass://none"]});
    let mut newer = rig.begin(&modern("subscriptions/listen", json!({"notifications": wanted}))).await;
    let acknowledged = newer.next().await.expect("it goes on")["params"]["notifications"].clone();
    assert_eq!(acknowledged["resourceSubscriptions"], json!(["one://one"]), "{acknowledged}");
    assert_eq!(
        (&acknowledged["promptsListChanged"], &acknowledged["resourcesListChanged"]),
        (&json!(true), &json!(true))
    );
    // Windlass listens for that resource by now.
    let subscribes = |server: &Server| {
        let got = server.got("subscriptions/listen");
        got.last().is_some_and(|got| {
            got.message["params"]["notifications"]["resourceSubscriptions"] == json!(["one://one"])
        })
    };
    for count in 1.. {
        server.until_got("subscriptions/listen", count).await;
        if subscribes(&server) {
            break;
        }
    }
    version.store(2, Ordering::SeqCst);
    tells.send_modify(|all| all.push(told("notifications/prompts/list_changed", &json!({}))));
    next_of(&mut older, "notifications/prompts/list_changed").await;
    next_of(&mut newer, "notifications/prompts/list_changed").await;
    assert_eq!(prompts(&rig).await, ["one_v2"]);
    tells.send_modify(|all| all.push(told("notifications/resources/updated", &json!({"uri": "one://one"}))));
    for stream in [&mut older, &mut newer] {
        let told = next_of(stream, "notifications/resources/updated").await;
        assert_eq!(told["params"]["uri"], "one://one", "{told}");
    }
    let end = Mcp { headers, ..Mcp::legacy("resources/unsubscribe", json!({"uri": "one://one"})) };
    assert_eq!(rig.result(&end).await, json!({}));
    let unknown = Mcp { message: subscribe.message, headers: Headers::default() };
    assert_eq!(rig.error(&unknown).await, -32_602, "a subscription belongs to a session");
}
