//! A door that lists `search_tools` and `call_tool` instead of all tools: a call through it is a call of the tool itself.

use crate::rig::{Mcp, Rig, call, text};
use serde_json::{Value, json};
use windlass::ask::Target;
use windlass_mcp::McpListing;

fn rig() -> Rig {
    let mut rig = Rig::patient();
    rig.visitor.listing = McpListing::Search;
    rig
}

fn found(tool: &str) -> Value {
    let asked = call(tool);
    json!({"name": "call_tool", "arguments": {"tool": tool, "args": asked["arguments"]}})
}

async fn names(rig: &Rig) -> Vec<String> {
    let listed = rig.result(&Mcp::legacy("tools/list", json!({}))).await;
    let tools = listed["tools"].as_array().expect("tools").iter();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_string)).collect()
}

#[tokio::test]
async fn the_list_is_short_and_every_tool_is_found_and_called() {
    let rig = rig();
    assert_eq!(names(&rig).await, ["call_tool", "cancel_task", "search_tools", "wait_task"]);
    let search = json!({"name": "search_tools", "arguments": {"query": "pay"}});
    for asked in Mcp::calls(&search) {
        let told = text(&rig.result(&asked).await);
        assert!(told.contains("\"name\":\"pay\""), "{told}");
    }
    rig.go.add_permits(2);
    for (asked, effect) in Mcp::calls(&found("pay")).iter().zip(["effect 1", "effect 2"]) {
        assert_eq!(text(&rig.result(asked).await), effect);
    }
    assert_eq!(names(&rig).await.len(), 4, "what was found does not change the list");
    rig.go.add_permits(1);
    assert_eq!(
        text(&rig.result(&Mcp::legacy("tools/call", call("look"))).await),
        "effect 3",
        "a known name works too"
    );
}

/// The record, the policy and the undelivered rule see the tool itself, and not `call_tool`.
#[tokio::test]
async fn a_call_through_it_is_a_call_of_the_tool() {
    let mut rig = rig();
    let asked = Mcp::modern("tools/call", &json!({"elicitation": {}}), found("risky"));
    let asks = rig.result(&asked).await;
    let forms = asks["inputRequests"].as_object().expect("a person is asked");
    assert!(forms.values().all(|form| form.to_string().contains("risky")), "{asks}");
    let lost = rig.begin(&Mcp::legacy("tools/call", found("pay"))).await;
    rig.begun(1).await;
    let live = rig.runtime.live_in("chat");
    let tools: Vec<&str> = live.iter().map(|call| call.tool.as_str()).collect();
    assert!(tools.contains(&"pay") && !tools.contains(&"call_tool"), "{tools:?}");
    drop(lost);
    rig.go.add_permits(1);
    let again = text(&rig.result(&Mcp::legacy("tools/call", call("pay"))).await);
    assert!(
        again.starts_with("effect 1") && again.contains("identical call"),
        "both names are one call: {again}"
    );
    let waiting = rig.runtime.waiting().await.expect("it can be read");
    let (_, waiting) = waiting.iter().find(|(_, waits)| waits.tool == "risky").expect("it waits");
    rig.runtime.cancel(Target::Call(&waiting.call), None).await.expect("it is open");
    let wait =
        json!({"name": "call_tool", "arguments": {"tool": "wait_task", "args": {"task": waiting.call}}});
    let told = text(&rig.result(&Mcp::legacy("tools/call", wait)).await);
    assert!(told.contains("cancelled"), "the door's own wait_task: {told}");
}

#[tokio::test]
async fn wrong_arguments_are_told_to_the_model_and_a_door_with_all_tools_has_no_call_tool() {
    let mut rig = rig();
    for arguments in [json!({}), json!({"tool": 7}), json!({"tool": "pay", "args": [1]})] {
        let wrong = json!({"name": "call_tool", "arguments": arguments});
        let told = rig.result(&Mcp::legacy("tools/call", wrong)).await;
        assert_eq!(told["isError"], true, "{told}");
    }
    assert_eq!(rig.error(&Mcp::legacy("tools/call", found("nowhere"))).await, -32602);
    rig.visitor.listing = McpListing::All;
    assert!(names(&rig).await.contains(&"pay".to_string()));
    assert_eq!(rig.error(&Mcp::legacy("tools/call", found("pay"))).await, -32602, "it is not listed here");
    assert_eq!(rig.attempts(), 0);
}
