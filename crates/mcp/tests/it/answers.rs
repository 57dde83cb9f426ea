//! The list of tools, and the ladder of answers to calls that take long.

use crate::rig::{Mcp, Rig, call, tasks, text};
use serde_json::{Value, json};
use windlass::{EffectClass, ToolSpec, tool_fn};
use windlass_mcp::Gateway;

fn names(listed: &Value) -> Vec<String> {
    let tools = listed["tools"].as_array().expect("tools").iter();
    tools.map(|tool| tool["name"].as_str().expect("a name").to_string()).collect()
}

#[tokio::test]
async fn a_long_name_is_cut_and_a_tool_without_an_object_is_left_out() {
    let rig = Rig::new();
    let spec =
        |name: &str| ToolSpec { name: name.into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let long = tool_fn(spec(&format!("{}_end", "l".repeat(50))), |_, _| async { Ok(json!("long").into()) });
    rig.runtime.register(long).expect("it fits");
    let odd = ToolSpec { input_schema: Some(json!({"type": ["object", "null"]})), ..spec("odd") };
    rig.runtime.register(tool_fn(odd, |_, _| async { Ok(json!("odd").into()) })).expect("it fits");
    let listed = names(&rig.result(&Mcp::legacy("tools/list", json!({}))).await);
    let cut = listed.iter().find(|name| name.starts_with("lll")).expect("it is listed");
    assert_eq!(cut.len(), 40);
    assert!(listed.is_sorted() && !listed.contains(&"odd".to_string()), "{listed:?}");
    assert!(["cancel_task", "pay", "wait_task"].iter().all(|name| listed.contains(&name.to_string())));
    assert_eq!(text(&rig.result(&Mcp::legacy("tools/call", json!({"name": cut}))).await), "long");
    assert_eq!(rig.error(&Mcp::legacy("tools/call", json!({"name": "odd"}))).await, -32602);
}

#[tokio::test]
async fn pages_of_the_list_follow_each_other() {
    let (rig, whole) = (Rig::within(|limits| limits.mcp_tools_page = 2), Rig::new());
    let (mut listed, mut cursor) = (Vec::new(), json!(null));
    loop {
        let page = rig.result(&Mcp::legacy("tools/list", json!({"cursor": cursor}))).await;
        assert!(names(&page).len() <= 2);
        listed.extend(names(&page));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(listed, names(&whole.result(&Mcp::legacy("tools/list", json!({}))).await));
}

#[tokio::test]
async fn a_client_that_knows_nothing_is_told_to_wait_for_the_task() {
    let mut rig = Rig::impatient();
    let told = text(&rig.result(&Mcp::legacy("tools/call", call("pay"))).await);
    let task = told.split("as task ").nth(1).map(|rest| rest[..26].to_string()).expect("a task");
    assert!(told.contains("wait_task") && told.contains("Do not make the call again"), "{told}");
    let wait = Mcp::legacy("tools/call", json!({"name": "wait_task", "arguments": {"task": task}}));
    assert!(text(&rig.result(&wait).await).contains("continues as task"));
    rig.go.add_permits(1);
    let ended = loop {
        let told = text(&rig.result(&wait).await);
        if !told.contains("continues as task") {
            break told;
        }
    };
    assert_eq!(ended, "effect 1");
    rig.visitor.session = "other".into();
    assert_eq!(rig.error(&wait).await, -32602, "a task of another session is none");
}

#[tokio::test]
async fn a_client_with_tasks_gets_one_that_ends_with_the_result() {
    let rig = Rig::impatient();
    let pay = Mcp::modern("tools/call", &tasks(), call("pay"));
    let created = rig.result(&pay).await;
    assert_eq!(
        (&created["resultType"], &created["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    let id = created["taskId"].as_str().expect("an id").to_string();
    let undeclared = Mcp::modern("tasks/get", &json!({}), json!({"taskId": id}));
    assert_eq!(rig.error(&undeclared).await, -32021);
    rig.go.add_permits(1);
    let ended = rig.ended_task(&id).await;
    assert_eq!((&ended["status"], text(&ended["result"])), (&json!("completed"), "effect 1".to_string()));
    let created = rig.result(&pay).await;
    let id = created["taskId"]
        .as_str()
        .expect("the end of the first was delivered, so this is another")
        .to_string();
    let cancel = Mcp::modern("tasks/cancel", &tasks(), json!({"taskId": id}));
    assert_eq!(rig.result(&cancel).await["resultType"], "complete");
    assert_eq!(rig.ended_task(&id).await["status"], "cancelled");
    assert_eq!(rig.result(&cancel).await["resultType"], "complete", "acknowledged, whatever became of it");
}

#[tokio::test]
async fn a_call_that_is_over_in_time_is_answered_at_once() {
    let rig = Rig::patient();
    rig.go.add_permits(1);
    let read = rig.result(&Mcp::modern("tools/call", &tasks(), call("look"))).await;
    assert_eq!((text(&read).as_str(), &read["resultType"]), ("effect 1", &json!("complete")));
}

#[tokio::test]
async fn a_client_that_repeats_by_itself_joins_its_call() {
    let rig = Rig::within(|limits| {
        (limits.mcp_progress_hold_ms, limits.mcp_progress_ms, limits.mcp_rounds_max) = (60, 10, 2);
    });
    let asked = |state: Value| {
        let mut params = call("pay");
        params["_meta"] = json!({"progressToken": "p"});
        if !state.is_null() {
            params["requestState"] = state;
        }
        Mcp::modern("tools/call", &json!({}), params)
    };
    let told = rig.ask(&asked(json!(null))).await;
    let (last, progress) = told.split_last().expect("messages");
    let numbers: Vec<u64> = progress.iter().filter_map(|told| told["params"]["progress"].as_u64()).collect();
    assert!(!numbers.is_empty() && numbers.is_sorted_by(|one, next| one < next), "{progress:?}");
    assert!(progress.iter().all(|told| told["params"]["progressToken"] == "p"));
    assert_eq!(last["result"]["resultType"], "input_required");
    let state = last["result"]["requestState"].clone();
    for forged in [json!("x"), json!(7), json!(format!("{}0", state.as_str().expect("text")))] {
        assert_eq!(rig.error(&asked(forged)).await, -32602);
    }
    let mut other = asked(state.clone());
    other.message["params"]["arguments"] = json!({"to": "bob"});
    assert_eq!(rig.error(&other).await, -32602, "the state is of another call");
    let second = rig.result(&asked(state)).await;
    assert_eq!(second["resultType"], "input_required");
    let third = rig.result(&asked(second["requestState"].clone())).await;
    assert!(text(&third).contains("continues as task"), "after the last round: {third}");
    rig.go.add_permits(1);
    let told = loop {
        let told = text(&rig.result(&asked(second["requestState"].clone())).await);
        if !told.contains("continues as task") {
            break told;
        }
    };
    assert_eq!((told.as_str(), rig.effects()), ("effect 1", 1));
}

#[tokio::test]
async fn a_server_that_closes_answers_clients_and_cuts_bridges_off() {
    let mut rig = Rig::new();
    let mut direct = rig.begin(&Mcp::legacy("tools/call", call("pay"))).await;
    rig.begun(1).await;
    rig.visitor.bridge = Some("b".into());
    let mut bridged = rig.begin(&Mcp::legacy("tools/call", call("look"))).await;
    rig.begun(2).await;
    rig.closing.send_replace(true);
    let told = direct.next().await.expect("an answer");
    assert!(text(&told["result"]).contains("continues as task"), "{told}");
    assert_eq!(bridged.next().await, None, "the bridge asks the next owner");
}

#[tokio::test]
async fn what_is_no_json_is_told_so() {
    assert_eq!(Gateway::unreadable("no JSON")["error"]["code"], -32700);
    let rig = Rig::new();
    assert_eq!(rig.error(&Mcp { message: json!([]), ..Mcp::legacy("", json!({})) }).await, -32600);
    let odd = Mcp::legacy("tools/call", json!({"name": "pay", "arguments": []}));
    assert_eq!(rig.error(&odd).await, -32602);
}

/// A proxy goes by the headers, so they must say what the arguments say.
#[tokio::test]
async fn headers_that_repeat_arguments_are_checked() {
    let rig = Rig::new();
    let schema =
        json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let spec = ToolSpec {
        name: "placed".into(),
        class: Some(EffectClass::Read),
        input_schema: Some(schema),
        ..ToolSpec::default()
    };
    rig.runtime.register(tool_fn(spec, |_, _| async { Ok(json!("placed").into()) })).expect("it fits");
    let call = |params: &[(&str, &str)]| {
        let mut asked = Mcp::modern(
            "tools/call",
            &json!({}),
            json!({"name": "placed", "arguments": {"region": "north"}}),
        );
        asked.headers = windlass_mcp::Headers {
            version: Some("2026-07-28".into()),
            method: Some("tools/call".into()),
            name: Some("placed".into()),
            params: params.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            are_required: true,
            ..windlass_mcp::Headers::default()
        };
        asked
    };
    assert_eq!(text(&rig.result(&call(&[("region", "north"), ("other", "x")])).await), "placed");
    for wrong in [&[][..], &[("region", "south")]] {
        assert_eq!(rig.error(&call(wrong)).await, -32020, "{wrong:?}");
    }
}

/// `cancel_task`, for clients without tasks: the call ends, and `wait_task` says how.
#[tokio::test]
async fn a_client_that_knows_nothing_cancels_a_task() {
    let mut rig = Rig::impatient();
    let told = text(&rig.result(&Mcp::legacy("tools/call", call("pay"))).await);
    let task = told.split("as task ").nth(1).map(|rest| rest[..26].to_string()).expect("a task");
    rig.begun(1).await;
    let door = |tool: &str| Mcp::legacy("tools/call", json!({"name": tool, "arguments": {"task": task}}));
    let own = rig.visitor.session.clone();
    rig.visitor.session = "other".into();
    assert_eq!(rig.error(&door("cancel_task")).await, -32_602, "a task of another session is none");
    rig.visitor.session = own;
    assert!(text(&rig.result(&door("cancel_task")).await).contains("asked to stop"));
    let ended = loop {
        let ended = rig.result(&door("wait_task")).await;
        if !text(&ended).contains("continues as task") {
            break ended;
        }
    };
    assert_eq!((&ended["isError"], rig.effects()), (&json!(true), 0), "{ended}");
    let missing = Mcp::legacy("tools/call", json!({"name": "cancel_task", "arguments": {}}));
    assert_eq!(rig.result(&missing).await["isError"], true);
}

/// Searching, calling and waiting change nothing in the list: it is one for all clients of a session.
#[tokio::test]
async fn the_list_does_not_change_by_calls() {
    // More tools than a model is shown at once: most wait to be found.
    let rig = Rig::within(|limits| limits.catalog_tools_max = 4);
    for number in 0..20 {
        let spec = ToolSpec {
            name: format!("tool_{number}"),
            description: "Counts apples.".into(),
            class: Some(EffectClass::Read),
            ..ToolSpec::default()
        };
        rig.runtime.register(tool_fn(spec, |_, _| async { Ok(json!("done").into()) })).expect("it fits");
    }
    rig.go.add_permits(1);
    let list = || async { names(&rig.result(&Mcp::legacy("tools/list", json!({}))).await) };
    let before = list().await;
    assert!((0..20).all(|number| before.contains(&format!("tool_{number}"))), "{before:?}");
    for asked in [call("look"), json!({"name": "tool_7"}), json!({"name": "tool_77"})] {
        rig.ask(&Mcp::legacy("tools/call", asked)).await;
    }
    rig.runtime.catalog("chat").search("apples").await.expect("found");
    assert_eq!(list().await, before);
}
